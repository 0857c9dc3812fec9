"""Patterns of agents' states, each a small part to build with."""
