"""Changes of trees: diff, merge, removal, replacement, and search in the differences. Layer: values."""
