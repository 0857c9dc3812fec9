"""versioned-state in other programs: tools for a model. Nothing of a framework is imported until its module is."""
