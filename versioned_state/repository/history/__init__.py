"""The graph of commits: the commits, walks over them, shallow history, references, signatures. Layer: repository."""
