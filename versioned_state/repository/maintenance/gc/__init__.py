"""Garbage collection: marking, deleting, and the table of keepers that a gc leaves. Layer: repository."""
