"""Stores that wrap another store. Layer: storage."""
