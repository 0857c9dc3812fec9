"""Content-addressed objects over a ``KVStore``: hash, compress, verify. Layer: above storage, beneath values."""
