"""``scripts/bench sessions``: calls on one of many sessions, requests and checkpoints beside other savers, bytes and small appends."""
