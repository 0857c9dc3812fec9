"""Three-way merges of commits, and the policies that resolve their conflicts. Layer: repository."""
