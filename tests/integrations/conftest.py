"""Leaves out the tests of frameworks that are not installed here.

``test_framework_venvs.py`` runs them, each in its environment.
"""

from __future__ import annotations

from tests.support.framework_venv import OWN_ENVIRONMENTS
from versioned_state.integrations import FRAMEWORKS

collect_ignore = [
    f"test_{each.module}.py" for each in FRAMEWORKS if each.module in OWN_ENVIRONMENTS and each.installed is None
]
