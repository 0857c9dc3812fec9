"""The commands of vstate, a file each. Layer: cli."""
