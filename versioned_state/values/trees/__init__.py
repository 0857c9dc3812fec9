"""Merkle trees of nodes whose boundaries follow from content, edited along one path. Layer: values."""
