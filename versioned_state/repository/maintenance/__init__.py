"""Keeping a store small and sound: gc, fsck, prune, purge. Layer: repository."""
