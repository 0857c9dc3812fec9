"""Three-way merges of commits, and the policies that settle their conflicts. Layer: repository."""
