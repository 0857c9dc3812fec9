"""Refs as records: how they move, where they pointed, and the fence between gc and writers. Layer: repository."""
