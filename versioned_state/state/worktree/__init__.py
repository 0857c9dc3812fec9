"""The live values of one handle: their loading, their differences from the head, and their update to another head.

Layer: state.
"""
