"""The commands of vstate, a file each, and their catalog. Layer: cli."""
