"""A store on a Redis or Valkey server. Layer: storage."""
