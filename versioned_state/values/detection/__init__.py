"""Whether a live value is still what was last committed. Layer: values."""
