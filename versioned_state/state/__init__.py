"""States: ``Live``, ``Versioned`` and its namespaces; detection of what was mutated. Layer: above the repository."""
