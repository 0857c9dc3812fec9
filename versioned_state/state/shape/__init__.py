"""The shape of a state: the schema that it keeps to, the bounds of its lists, and its migrations from an older shape."""
