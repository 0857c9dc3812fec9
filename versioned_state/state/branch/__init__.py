"""One handle on a branch: its position, its commits and moves, and its transactions. Layer: state."""
