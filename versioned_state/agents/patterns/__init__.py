"""Patterns for agents' states: event sourcing and state machines. Layer: agents."""
