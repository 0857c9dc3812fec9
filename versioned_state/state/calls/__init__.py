"""The calls of a state on its branch and its history."""
