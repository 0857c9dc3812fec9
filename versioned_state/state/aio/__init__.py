"""Calls of a state off the event loop. Layer: state."""
