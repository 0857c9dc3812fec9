"""Detection of changes of live values since they were last committed. Layer: values."""
