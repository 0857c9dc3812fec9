"""Python values to cells, and cells composed of cells. Layer: values."""
