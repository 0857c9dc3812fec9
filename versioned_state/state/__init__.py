"""States: ``Live``, ``Versioned`` and its namespaces; detection of changes in place. Layer: above the repository."""
