"""Values without parts, and values that are not plain data, as bytes and back. Layer: values."""
