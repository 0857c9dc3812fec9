"""Commands that change what a branch holds. Layer: cli."""
