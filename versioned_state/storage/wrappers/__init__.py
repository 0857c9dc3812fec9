"""Stores over a store. Layer: storage."""
