"""The shape of a state: its schema, the bounds of its lists, and its migrations from an older shape."""
