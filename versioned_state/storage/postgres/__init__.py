"""The store in PostgreSQL. Layer: storage."""
