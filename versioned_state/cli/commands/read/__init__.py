"""Commands that only read. Layer: cli."""
