"""Edits of live values at paths."""
