"""Imports point one way, never in a circle, only ``cli`` meets the user's machine, and storage needs only Python.

The rules are the tables below. They are held by reading the source (``ast``), so an import inside a function counts.
One under ``if TYPE_CHECKING:`` counts for circles only. At the end, each rule is shown to catch violations that are
planted for it.
"""

from __future__ import annotations

import ast
import functools
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.every_case

PACKAGE = Path(__file__).resolve().parents[1] / "versioned_state"

# From the bottom up. A part imports from its own row and the rows below it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("arguments", "errors", "lazy", "off_loop", "records", "streams", "twins"),
    ("storage",),
    ("objects",),
    ("values",),
    ("repository",),
    ("state",),
    ("agents",),
    ("__init__",),  # re-exports the rows below
    ("sandbox",),
    ("services",),
    ("server",),
    ("integrations",),
)
FRONT_DOORS = ("cli",)  # above all rows; nothing imports it
RANK = {part: rank for rank, row in enumerate((*LAYERS, FRONT_DOORS)) for part in row}

# The terminal, the environment and the home directory belong to cli: everything else may run in a server.
ONLY_IN_CLI = {
    "click",
    *("print", "input", "breakpoint", "getpass", "sys.stdin", "sys.stdout", "sys.stderr"),
    *("os.environ", "os.environb", "os.getenv", "os.getenvb", "os.putenv", "os.unsetenv", "os.path.expandvars"),
    *("pathlib.Path.home", "os.path.expanduser", ".expanduser"),  # with a dot: an attribute of anything
    *("os.get_terminal_size", "shutil.get_terminal_size"),
}

# Programs that run in processes of their own, whose output is theirs.
PROGRAMS = {"sandbox.local.worker"}

# Modules of storage that import more than the standard library: the adapters of drivers, and the contract's tests.
STORAGE_EXTRAS = {
    "storage.local.guarded_cache": {"diskcache"},
    "storage.postgres.connections": {"psycopg"},
    "storage.redis.connection": {"redis", "hiredis"},
    "storage.redis.errors": {"redis"},
    "storage.s3.client": {"obstore"},
    "storage.testing.contract": {"pytest", "hypothesis"},
    "storage.testing.model": {"pytest", "hypothesis"},
    "storage.wrappers.encrypted.cipher": {"cryptography"},
}


# Reading the source.


@dataclass(frozen=True)
class Module:
    name: str  # dotted, without versioned_state: "storage.disk", "storage.__init__", "__init__"
    tree: ast.Module

    @property
    def part(self) -> str:
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class Import:
    line: int
    target: str  # absolute: from ..errors import X has the target versioned_state.errors.X
    local: str  # the name it binds
    means: str  # what that name stands for: after import os.path, os is os


@functools.cache
def modules() -> list[Module]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return [
        Module(".".join(path.relative_to(PACKAGE).with_suffix("").parts), ast.parse(path.read_text("utf-8")))
        for path in paths
    ]


def at_the_top(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of a tree outside of functions, also those in ``if TYPE_CHECKING:``."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from at_the_top(child)


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a tree but the bodies of ``if TYPE_CHECKING:``."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        only_for_types = (
            node.body if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING") else []
        )
        left += [child for child in ast.iter_child_nodes(node) if child not in only_for_types]


@functools.cache
def imports(module: Module) -> list[Import]:
    return list(iter_imports(module, nodes(module.tree)))


def imports_for_types_too(module: Module) -> list[Import]:
    """What a module imports when it is loaded, or names in its types.

    A function imports later, and so needs no order.
    """
    return list(iter_imports(module, at_the_top(module.tree)))


def iter_imports(module: Module, among: Iterable[ast.AST]) -> Iterator[Import]:
    for node in among:
        if isinstance(node, ast.Import):
            for name, local in [(alias.name, alias.asname) for alias in node.names]:
                top = name.partition(".")[0]
                yield Import(node.lineno, name, local or top, name if local else top)
        elif isinstance(node, ast.ImportFrom):
            here = ["versioned_state", *module.name.split(".")]
            origin = here[: -node.level] if node.level else []
            for alias in node.names:
                target = ".".join([*origin, *([node.module] if node.module else []), alias.name])
                yield Import(node.lineno, target, alias.asname or alias.name, target)


def names_used(module: Module) -> Iterator[tuple[int, str]]:
    """A module's imports, attributes of those, calls of builtins, and ``.x`` for any attribute x: line, full name."""
    means = {each.local: each.means for each in imports(module)}
    for each in imports(module):
        names = each.target.split(".")
        yield from ((each.line, ".".join(names[:end])) for end in range(1, len(names) + 1))
    for node in nodes(module.tree):
        match node:
            case ast.Attribute():
                first, dot, rest = ast.unparse(node).partition(".")
                yield node.lineno, means.get(first, "") + dot + rest
                yield node.lineno, "." + node.attr
            case ast.Call(func=ast.Name(id=name)) if name not in means:
                yield node.lineno, name


# The rules: each gives one line for each violation in a module.


def one_way(module: Module) -> Iterator[str]:
    """Imports of what stands above, or beside it at the front doors."""
    if module.part not in RANK:
        yield f"{module.name}: the table LAYERS in tests/test_layering.py does not say where {module.part!r} stands"
        return
    for each in imports(module):
        top, *names = each.target.split(".")
        part = names[0] if names and names[0] in RANK else "__init__"  # versioned_state.Versioned is a name of __init__
        if top == "versioned_state" and part != module.part and (RANK[part] > RANK[module.part] or part in FRONT_DOORS):
            yield f"{module.name}:{each.line}: {each.target} does not stand below {module.part}"


def quiet(module: Module) -> Iterator[str]:
    """Uses of the user's terminal, environment or home directory outside cli."""
    if module.part != "cli" and module.name not in PROGRAMS:
        for line, name in sorted({used for used in names_used(module) if used[1] in ONLY_IN_CLI}):
            yield f"{module.name}:{line}: only cli may use {name}"


def storage_is_python_only(module: Module) -> Iterator[str]:
    """Imports in storage of more than the standard library."""
    allowed = sys.stdlib_module_names | {"versioned_state"} | STORAGE_EXTRAS.get(module.name, set())
    for each in imports(module):
        if module.part == "storage" and each.target.partition(".")[0] not in allowed:
            yield f"{module.name}:{each.line}: {each.target} is not in the standard library"


def cycles(package: list[Module], imports_of: Callable[[Module], list[Import]] = imports) -> list[str]:
    """A circle of modules that import each other, on one line, if there is any."""
    names = {module.name.removesuffix(".__init__") for module in package}
    edges: dict[str, set[str]] = {}
    for module in package:
        here = module.name.removesuffix(".__init__")
        targets = {
            each.target.removeprefix("versioned_state.")
            for each in imports_of(module)
            if each.target.startswith("versioned_state.")
        }
        # from a.b import c is the module a.b.c if there is one, else the name c of the module a.b
        edges[here] = {target if target in names else target.rpartition(".")[0] for target in targets} & names - {here}
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return [" - ".join(sorted({*error.args[1]}))]
    return []


Rule = Callable[[Module], Iterator[str]]
RULES: list[Rule] = [one_way, quiet, storage_is_python_only]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_holds(rule: Rule):
    assert [violation for module in modules() for violation in rule(module)] == []


def test_no_modules_import_each_other_in_a_circle():
    assert cycles(modules()) == []


def test_no_modules_name_each_other_in_a_circle_not_even_for_types():
    assert cycles(modules(), imports_for_types_too) == []


# The rules catch what is planted. Each row: rule, module, source, and what the violation names (nothing: all is well).


def planted(name: str, source: str) -> Module:
    return Module(name, ast.parse(textwrap.dedent(source)))


CASES: list[tuple[Rule, str, str, str]] = [
    (
        one_way,
        "storage.disk",
        "from versioned_state.objects import hashing",
        "storage.disk:1: versioned_state.objects.hashing",
    ),
    (one_way, "storage.disk", "from ..objects.hashing import address", "versioned_state.objects.hashing.address"),
    (one_way, "storage.__init__", "from ..objects import hashing", "versioned_state.objects.hashing"),
    (one_way, "storage.disk", "import versioned_state.state.live as live", "versioned_state.state.live"),
    (
        one_way,
        "storage.disk",
        "def late():\n    from versioned_state import repository",
        "storage.disk:2: versioned_state.repository",
    ),
    (one_way, "state.live", "from versioned_state import Versioned", "versioned_state.Versioned"),
    (one_way, "errors", "from versioned_state.storage import KVStore", "versioned_state.storage.KVStore"),
    (one_way, "__init__", "from versioned_state.cli import main", "versioned_state.cli.main"),
    (one_way, "services.history", "from versioned_state.cli import main", "versioned_state.cli.main"),
    (one_way, "newcomer", "", "does not say where 'newcomer' stands"),
    (
        one_way,
        "storage.disk",
        "from versioned_state.errors import StorageError\nfrom .kv import KVStore\nimport sqlite3",
        "",
    ),
    (one_way, "errors", "if TYPE_CHECKING:\n    from versioned_state.repository.merging.merge import Conflict", ""),
    (
        one_way,
        "errors",
        "if typing.TYPE_CHECKING:\n    pass\nelse:\n    from .storage import KVStore",
        "versioned_state.storage.KVStore",
    ),
    (one_way, "agents.task", "from versioned_state.agents.events import record", ""),
    (one_way, "__init__", "from versioned_state.agents.view import view", ""),
    (one_way, "cli.main", "from versioned_state import Versioned\nfrom versioned_state.cli import demo", ""),
    (quiet, "state.live", "print('hello')", "state.live:1: only cli may use print"),
    (quiet, "services.history", "import click.termui", "click"),
    (quiet, "storage.disk", "from click import echo", "click"),
    (quiet, "storage.disk", "import os\nos.environ['HOME']", "storage.disk:2: only cli may use os.environ"),
    (quiet, "storage.disk", "from os import environ as settings", "os.environ"),
    (quiet, "storage.disk", "import os as system\nsystem.getenv('HOME')", "os.getenv"),
    (quiet, "storage.disk", "import os.path\nos.path.expanduser('~')", "os.path.expanduser"),
    (quiet, "storage.disk", "from pathlib import Path\nPath('~').expanduser()", ".expanduser"),
    (quiet, "storage.disk", "import pathlib\npathlib.Path.home()", "pathlib.Path.home"),
    (quiet, "storage.disk", "from pathlib import Path as P\nP.home()", "pathlib.Path.home"),
    (quiet, "storage.disk", "import sys\nsys.stdout.write('')", "sys.stdout"),
    (quiet, "storage.disk", "import os, sys\nos.path.join('a')\nsys.maxsize\nrich = rich_text(input)\nlog.print()", ""),
    (quiet, "cli.main", "import os, click\nprint(os.environ)", ""),
    (storage_is_python_only, "storage.disk", "import msgpack", "storage.disk:1: msgpack"),
    (storage_is_python_only, "storage.disk", "def late():\n    from diskcache import Cache", "diskcache.Cache"),
    (
        storage_is_python_only,
        "storage.disk",
        "import sqlite3\nfrom .kv import KVStore\nimport versioned_state.errors",
        "",
    ),
    (storage_is_python_only, "storage.local.guarded_cache", "import diskcache", ""),
    (storage_is_python_only, "objects.compress", "import zstandard", ""),
]


@pytest.mark.parametrize(("rule", "name", "source", "named"), CASES)
def test_a_planted_violation_is_caught(rule: Rule, name: str, source: str, named: str):
    violations = list(rule(planted(name, source)))
    if named:
        assert any(named in violation for violation in violations), violations
    else:
        assert violations == []


CIRCLES: list[tuple[dict[str, str], list[str]]] = [
    ({"values.a": "from versioned_state.values import b", "values.b": "from .a import x"}, ["values.a - values.b"]),
    (
        {
            "values.a": "def late():\n    from versioned_state.values.b import x",
            "values.b": "import versioned_state.values.a",
        },
        ["values.a - values.b"],
    ),
    (
        {
            "values.a": "from .b import x",
            "values.b": "from .c import x",
            "values.c": "from .a import x",
            "values.d": "from .a import x",
        },
        ["values.a - values.b - values.c"],
    ),
    (
        {"values.__init__": "from .a import x", "values.a": "from versioned_state.values import x"},
        ["values - values.a"],
    ),
    ({"values.a": "from .b import x", "values.b": "if TYPE_CHECKING:\n    from .a import x"}, []),
    (
        {
            "values.__init__": "",
            "values.a": "from versioned_state.values import b",
            "values.b": "from versioned_state.values import c",
        },
        [],
    ),
]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("if TYPE_CHECKING:\n    from .a import x", ["values.a - values.b"]),
        ("class B:\n    from .a import x", ["values.a - values.b"]),
        ("def late():\n    from .a import x", []),
    ],
)
def test_a_planted_circle_of_types_is_caught(source: str, found: list[str]):
    assert (
        cycles([planted("values.a", "from .b import x"), planted("values.b", source)], imports_for_types_too) == found
    )


@pytest.mark.parametrize(("sources", "found"), CIRCLES)
def test_a_planted_circle_is_caught(sources: dict[str, str], found: list[str]):
    assert cycles([planted(name, source) for name, source in sources.items()]) == found
