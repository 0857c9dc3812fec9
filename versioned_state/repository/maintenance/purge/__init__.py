"""Purge: data or whole branches are erased from history and from the store. Layer: repository."""
