"""The house is in order: tests share helpers through ``tests/support``, and the map names every module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
_NAMES_A_TEST = re.compile(r"(?<!def )\b(?:test_|conftest)")


def imported_modules(source: str) -> Iterator[str]:
    """Return the modules that a source imports and the names it imports from them, also in programs kept as text."""
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
    """Imports of test modules and of ``conftest``.

    A source with such a word only in its own tests' names is not parsed.
    """
    if not _NAMES_A_TEST.search(source):
        return []
    return [
        name
        for name in imported_modules(source)
        if any(part.startswith(("test_", "conftest")) for part in name.split(".")[1:])
    ]


def test_lines_fit_into_120_columns():
    """Those that ruff does not examine: C, pages, styles, scripts, settings."""
    root = TESTS.parent
    ours = [root / "Dockerfile", *root.glob("scripts/*"), *root.glob("*.toml"), root / "accelerator" / "pyproject.toml"]
    for ending in ("c", "css", "html", "js"):
        for folder in ("accelerator", "tests", "versioned_state"):
            ours += [path for path in (root / folder).rglob(f"*.{ending}") if "vendor" not in path.parts]
    assert len(ours) > 20
    too_long = [
        f"{path.relative_to(root)}:{number}"
        for path in ours
        if path.is_file()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > 120
    ]
    assert too_long == []


def test_no_test_imports_from_a_test_module():
    found = {
        str(path.relative_to(TESTS)): shared_with_tests(path.read_text("utf-8"))
        for path in TESTS.rglob("*.py")
        if path != Path(__file__)
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


# The port: what is built on a layer uses what that says in public

LAYERS = [path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"]
ON_STATES = ("agents", "services", "server", "cli", "sandbox")
ORDER = ("errors", "storage", "objects", "values", "repository", "state", "agents", "services", "server", "cli")

OF_A_STATE = {
    "_handle",
    "_worktree",
    "_transactions",
    "_check_open",
    "_hooks",
    "_close",
    "_shape",
    "_resolve",
    "_prefix",
}
"""Private names of a state that other layers have as well, for objects of their own."""

OF_THE_STANDARD_LIBRARY = {"_replace", "_missing_", "_fields"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(tree: ast.Module) -> Iterator[str]:
    """The private names that a module defines: of methods, functions and fields, and attributes that it assigns."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def private_names_used(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Private names taken from all but ``self``, ``cls`` or ``super()``, also by ``getattr``: line, object, name."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=owner, attr=name) if is_private(name):
                pass
            case ast.Call(
                func=ast.Name(id="getattr" | "setattr" | "hasattr"), args=[owner, ast.Constant(value=str(name)), *_]
            ) if is_private(name):
                pass
            case _:
                continue
        if ast.unparse(owner) not in ("self", "cls", "super()"):
            yield node.lineno, ast.unparse(owner), name


@pytest.fixture(scope="module")
def modules() -> dict[str, dict[Path, ast.Module]]:
    """The modules of each layer."""
    return {
        layer: {path: ast.parse(path.read_text("utf-8")) for path in (PACKAGE / layer).rglob("*.py")}
        for layer in LAYERS
    }


def test_no_layer_uses_a_private_name_of_another(modules):
    names = {
        layer: {name for tree in trees.values() for name in private_names(tree)} for layer, trees in modules.items()
    }
    found = []
    for layer, trees in modules.items():
        foreign = (
            {name for other in LAYERS if other != layer for name in names[other]}
            - names[layer]
            - OF_THE_STANDARD_LIBRARY
        )
        for path, tree in trees.items():
            for line, owner, name in private_names_used(tree):
                if name in foreign or (layer in ON_STATES and name in OF_A_STATE and "state" in owner.lower()):
                    found.append(f"{path.relative_to(PACKAGE)}:{line} {owner}.{name}")
    assert found == []


@pytest.mark.parametrize(
    "source", ["state._handle", "getattr(state, '_handle', None)", "self._state._handle.ref", "f(state)._handle"]
)
def test_a_private_name_is_found(source):
    assert [name for _, _, name in private_names_used(ast.parse(source)) if name != "_state"] == ["_handle"]
    assert not list(
        private_names_used(ast.parse("self._handle, cls._handle, super()._handle, state.__class__, handle"))
    )


def test_no_import_runs_up_a_layer_not_even_for_types(modules):
    found = []
    for layer in ORDER:
        for path, tree in modules[layer].items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("versioned_state."):
                    above = node.module.split(".")[1]
                    if above in ORDER and ORDER.index(above) > ORDER.index(layer):
                        found.append(f"{path.relative_to(PACKAGE)}:{node.lineno} {node.module}")
    assert found == []
