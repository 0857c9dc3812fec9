"""Commands that change a branch. Layer: cli."""
