"""Workspaces: a folder of files kept with a state."""
