"""Commits, refs, log and diff: git's vocabulary over trees. Layer: above values, beneath the state."""
