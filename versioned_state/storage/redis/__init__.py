"""The store in Redis or Valkey. Layer: storage."""
