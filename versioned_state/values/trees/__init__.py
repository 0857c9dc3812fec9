"""Merkle trees of nodes: cut by content, edited along one path. Layer: values."""
