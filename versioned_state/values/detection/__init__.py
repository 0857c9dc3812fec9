"""Whether a live value has changed since it was last committed. Layer: values."""
