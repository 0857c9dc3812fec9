"""One handle on a branch: where it stands, how it commits and moves, and its transactions. Layer: state."""
