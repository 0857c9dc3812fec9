"""Differences between trees: diff, merge, removal, search in what differs. Layer: values."""
