"""The demonstration. Layer: cli."""
