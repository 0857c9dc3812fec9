"""``scripts/bench sessions``: calls on one of many sessions, requests, checkpoints, bytes and small appends.

Requests and checkpoints are measured beside other savers.
"""
