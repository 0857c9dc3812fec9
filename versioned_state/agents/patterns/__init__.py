"""Patterns of agents' states: a value that follows from events, and a state machine. Layer: agents."""
