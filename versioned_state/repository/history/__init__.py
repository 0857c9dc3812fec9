"""The graph of commits: the commits, walks over them, where it was cut, what they reach. Layer: repository."""
