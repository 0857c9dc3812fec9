"""The tests and the pages of frameworks that are not in the extra ``test``, each in an environment of its own."""

from __future__ import annotations

import pytest

from tests.support.framework_venv import OWN_ENVIRONMENTS, framework_venv, run_tests
from versioned_state.integrations import FRAMEWORKS


@pytest.mark.long
@pytest.mark.parametrize("framework", [each for each in FRAMEWORKS if each.module in OWN_ENVIRONMENTS], ids=lambda each: each.extra)
def test_the_adapter_of_a_framework_in_its_environment(framework):
    python = framework_venv(f"versioned-state[{framework.extra}]")
    run_tests(python, f"tests/integrations/test_{framework.module}.py")
    run_tests(python, "tests/test_docs.py", "-k", f"works_as_printed and {framework.extra}.md")
