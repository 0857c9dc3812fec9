"""Cells to Python values. Layer: values."""
