"""Commits as users see them: snapshots, diffs, patches. Layer: repository."""
