"""Stores on this machine. Layer: storage."""
