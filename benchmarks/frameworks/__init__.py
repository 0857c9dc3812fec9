"""``scripts/bench frameworks``: each adapter beside the store of its framework, a module each."""
