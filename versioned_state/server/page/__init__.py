"""The page: history and state in a browser. Layer: server."""
