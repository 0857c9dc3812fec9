"""Commands that look after the store. Layer: cli."""
