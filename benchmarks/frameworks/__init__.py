"""``scripts/bench frameworks``: each adapter beside the framework's own SQLite store."""
