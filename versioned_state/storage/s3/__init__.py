"""A store in an S3 bucket. Layer: storage."""
