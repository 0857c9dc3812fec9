"""What the commands share: options, the store, the current branch. Layer: cli."""
