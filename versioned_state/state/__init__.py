"""States: ``Live``, ``Versioned`` and its namespaces, and the detection of changes in place.

Layer: above the repository.
"""
