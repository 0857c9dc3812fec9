"""The house is in order: tests share helpers through ``tests/support``, and the map names every module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent


def imported_modules(source: str) -> Iterator[str]:
    """The modules that a source imports, the names that it imports from them included; also in programs kept as text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "import" in node.value:
            for line in node.value.splitlines():
                words = line.split()
                if len(words) > 1 and words[0] in ("from", "import"):
                    yield words[1]


def shared_with_tests(source: str) -> list[str]:
    """Imports of test modules and of ``conftest``."""
    return [name for name in imported_modules(source) if any(part.startswith(("test_", "conftest")) for part in name.split(".")[1:])]


def test_no_test_imports_from_a_test_module():
    found = {
        str(path.relative_to(TESTS)): shared_with_tests(path.read_text("utf-8")) for path in TESTS.rglob("*.py") if path != Path(__file__)
    }
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "from tests.storage.test_disk import make",
        "from tests.storage import test_disk",
        "import tests.storage.test_disk",
        "from tests.cli.conftest import Vstate",
        "def late():\n    from tests.storage.test_disk import make",
        "PROGRAM = '''\n    import sys\n    from tests.storage.test_disk import make\n'''",
    ],
)
def test_such_an_import_is_found(source):
    assert shared_with_tests(source)
    assert not shared_with_tests(source.replace("test_disk", "disk").replace("cli.conftest", "support.cli"))


# The map of the house

PACKAGE = TESTS.parent / "versioned_state"


def test_the_architecture_names_every_module_and_no_other():
    text = (TESTS.parent / "ARCHITECTURE.md").read_text("utf-8")
    modules = text.partition("## Modules\n")[2].partition("\n## ")[0]
    named = set()
    for part in modules.split("\n**")[1:]:
        layer = part.partition("/")[0]
        named |= {f"{layer}/{line.split('`')[1]}" for line in part.splitlines() if line.startswith("| `")}
    there = {str(path.relative_to(PACKAGE)) for path in PACKAGE.glob("*/**/*.py") if path.name != "__init__.py"}
    assert named == {path for path in there if not path.startswith("cli/commands/")}
