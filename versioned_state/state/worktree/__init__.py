"""The live values of one handle: what is loaded, how it differs from the head, how it is brought to another one. Layer: state."""
