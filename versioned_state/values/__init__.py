"""Python values as canonical Merkle trees: codec, trees, path diff. Layer: above objects, beneath the repository."""
