"""Commits, changes and values for people who look: as data within bounds, as HTML, and in a notebook.

Layer: repository.
"""
