"""versioned-state in other programs: behind frameworks, and as tools for a model.

Nothing of a framework is imported until its module is. ``FRAMEWORKS`` lists the adapters; each says what is installed.
"""

from versioned_state.integrations.frameworks import FRAMEWORKS, Framework

__all__ = ["FRAMEWORKS", "Framework"]
