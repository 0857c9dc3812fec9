"""The tests and the pages of frameworks that are not in the extra ``test``, each in an environment of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.framework_venv import OWN_ENVIRONMENTS, ROOT, framework_venv, needed_by, run_tests
from versioned_state.integrations import FRAMEWORKS

pytestmark = [pytest.mark.long, pytest.mark.every_case]

ADAPTERS = [each for each in FRAMEWORKS if each.module in OWN_ENVIRONMENTS]
PAGES = [page for page in sorted((ROOT / "docs").glob("**/*.md")) if needed_by(page)]


ALSO = {"google_adk": ["sqlalchemy[asyncio]>=2.0"]}
"""What the tests of an adapter need besides: the ADK's own sessions in a database."""


@pytest.mark.parametrize("framework", ADAPTERS, ids=lambda each: each.extra)
def test_the_adapter_of_a_framework_in_its_environment(framework):
    run_tests(
        framework_venv(*ALSO.get(framework.module, ()), extras=[framework.extra]),
        f"tests/integrations/test_{framework.module}.py",
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_that_needs_frameworks_in_their_environment(page: Path):
    needed = needed_by(page)
    extras = [each.extra for each in ADAPTERS if each.distribution in needed]
    python = framework_venv(extras=extras) if extras else framework_venv(*needed)
    run_tests(python, "tests/test_docs.py", "-k", f"works_as_printed and {page.relative_to(ROOT)}")
