"""Tables of pandas as data. Layer: values."""
