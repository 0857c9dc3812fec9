"""Typed data: instances of classes as the name of the class and a record of their fields. Layer: values."""
