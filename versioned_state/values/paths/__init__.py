"""Paths into values, patterns of paths, and following them. Layer: values."""
