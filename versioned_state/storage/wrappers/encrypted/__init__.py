"""A store whose values and names are encrypted. Layer: storage."""
