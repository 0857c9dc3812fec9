"""Parts that commands share: options, the store, the current branch, REV:PATH, conflicts, hints. Layer: cli."""
