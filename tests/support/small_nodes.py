"""Trees of four levels out of a hundred elements: the numbers that decide where nodes end, made small for a test.

The engine reads a number as a global of the module that uses it, which is as fast as can be. So ``small_nodes``
replaces it in every module that has bound it. It finds these by reading the source: each import of such a name, and
each name and each default argument that is computed from one while its module is imported. A use at import that it
could not replace is an error, so no new module escapes it.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import versioned_state

Limits = dict[str, dict[str, Any]]
"""New values, by module and name."""

_PACKAGE: Final = "versioned_state"

SMALL: Final[Limits] = {
    "values.trees.chunker": {
        "LEAF_LEAST": 48,
        "LEAF_SCALE": 32,
        "LEAF_GREATEST": 192,
        "NODE_LEAST": 2,
        "NODE_SCALE": 2,
        "NODE_GREATEST": 5,
    },
    "values.trees.segments": {
        "SEGMENT_LEAST": 12,
        "RUN": 3,
        "RUN_MOST": 60,
        "LEAF_IN_SEGMENTS": 26,
        "NODE_IN_SEGMENTS": 24,
    },
    "values.trees.edit": {"INLINE_TOP": 24},
    "values.trees.blob": {
        "CHUNK_BYTES": 64,
        "TEXT_LEAST": 48,
        "TEXT_SCALE": 32,
        "TEXT_GREATEST": 192,
        "_PIECE": re.compile(rb"[^\n]{0,15}\n|[^\n]{0,7}[ ,]|[^\n]{1,8}"),
    },
    "values.trees.tree": {"_STRIDE": 3, "_SHORT": 8, "_BATCH": 2, "_GREATEST_BATCH": 8},
    "values.cells": {"ELEMENT_INLINE": 64, "ENTRY_INLINE": 24},
    "values.series": {"GROUP": 64},
    "values.detection.groups": {"GROUP_SIZE": 4, "GROUP_BYTES": 96},
    "values.detection.fingerprinter": {"_MANY_GROUPS": 3},
    "values.encode.walks": {"_GLANCE": 4},
    "values.changes.diff": {"_ALIGN_FULLY": 12},
    "state.worktree.suspects": {"_SHORT_PACKS": 2},
    "state.worktree.key_order": {"_FEW": 3},
    "state.worktree.lists.unloaded": {"_TRIM_AT": 8, "_TREES_KEPT": 2},
    "state.worktree.worktree": {"_FLUSH_AT": 1 << 12},
    "repository.views.sequence": {"BATCH": 5},
    "services.agent_state.rounds": {"_LIST_BYTES": 16},
    "agents.workspace.content": {"_BATCH": 4},
}
"""Nodes of two to five children over leaves of some five elements.

The relations between the numbers are those of the real ones, as far as the engine relies on them (``check_relations``).
"""

WIDER: Final[Limits] = SMALL | {
    "values.trees.chunker": {
        "LEAF_LEAST": 96,
        "LEAF_SCALE": 64,
        "LEAF_GREATEST": 512,
        "NODE_LEAST": 3,
        "NODE_SCALE": 3,
        "NODE_GREATEST": 11,
    },
    "values.trees.segments": {
        "SEGMENT_LEAST": 12,
        "RUN": 4,
        "RUN_MOST": 80,
        "LEAF_IN_SEGMENTS": 48,
        "NODE_IN_SEGMENTS": 40,
    },
    "values.trees.edit": {"INLINE_TOP": 72},
    "values.cells": {"ELEMENT_INLINE": 128, "ENTRY_INLINE": 32},
    "values.trees.blob": SMALL["values.trees.blob"]
    | {"CHUNK_BYTES": 128, "TEXT_LEAST": 96, "TEXT_SCALE": 64, "TEXT_GREATEST": 512},
}
"""Somewhat larger nodes, of which the top may be inline with children, as real ones are."""


@dataclass(slots=True)
class _Uses:
    """All that has to be replaced: names by module, in an order in which each comes after those that it depends on."""

    copies: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    computed: dict[tuple[str, str], ast.expr] = field(default_factory=dict)
    # module, function, parameter, expression
    defaults: list[tuple[str, str, str, ast.expr]] = field(default_factory=list)


@contextmanager
def small_nodes(limits: Limits = SMALL) -> Iterator[None]:
    """Make the trees of all states small that are read and written meanwhile.

    A store that was written before cannot be used in it.
    """
    if not limits:
        yield
        return
    owners = {
        (f"{_PACKAGE}.{module}", name): value for module, names in limits.items() for name, value in names.items()
    }
    uses = _uses(frozenset(owners))
    modules = {module: importlib.import_module(module) for module in _modules(uses, owners)}
    for module, name in owners:
        assert hasattr(modules[module], name), f"{module} has no {name}"
    old_names = {
        (module, name): getattr(modules[module], name) for module, name in (*owners, *uses.copies, *uses.computed)
    }
    old_defaults: list[tuple[Any, dict[str, Any]]] = []
    try:
        for (module, name), value in owners.items():
            setattr(modules[module], name, value)
        # Twice as often as names depend on names: most depend on an owner.
        for _ in range(4):
            for (module, name), (owner, original) in uses.copies.items():
                setattr(modules[module], name, getattr(modules[owner], original))
            for (module, name), expression in uses.computed.items():
                setattr(modules[module], name, _value(modules[module], expression))
        for module, function, parameter, expression in uses.defaults:
            called = modules[module]
            for part in function.split("."):
                called = getattr(called, part)
            kept: dict[str, Any] = called.__kwdefaults__
            old_defaults.append((called, dict(kept)))
            kept[parameter] = _value(modules[module], expression)
        check_relations()
        yield
    finally:
        for called, defaults in reversed(old_defaults):
            called.__kwdefaults__ = defaults
        for (module, name), value in old_names.items():
            setattr(modules[module], name, value)


def check_relations() -> None:
    """What the engine relies on about its numbers, the real ones and the small ones."""
    from versioned_state.objects.envelope import MAX_SEGMENT, MAX_SEGMENTS
    from versioned_state.values import cells
    from versioned_state.values.trees import blob, chunker, edit, segments

    assert 2 * chunker.LEAF_LEAST > cells.ELEMENT_INLINE, "a list of three leaves is never small"
    assert cells.ENTRY_INLINE < cells.ELEMENT_INLINE <= blob.CHUNK_BYTES, "a small value is one chunk"
    assert cells.ELEMENT_INLINE + segments.SEGMENT_LEAST < MAX_SEGMENT
    # Of a leaf's bytes, at least a quarter count. A run of segments becomes one, or has more than RUN_MOST bytes.
    a_segment = min(segments.SEGMENT_LEAST * segments.RUN, segments.RUN_MOST // segments.RUN)
    assert a_segment * (MAX_SEGMENTS - segments.RUN) > 4 * chunker.LEAF_GREATEST + cells.ELEMENT_INLINE
    assert segments.NODE_IN_SEGMENTS <= segments.LEAF_IN_SEGMENTS, "smaller nodes are not looked at"
    assert 2 <= chunker.NODE_LEAST < chunker.NODE_GREATEST
    assert edit.INLINE_TOP < cells.ELEMENT_INLINE


def _value(module: ModuleType, expression: ast.expr) -> Any:
    return eval(compile(ast.Expression(expression), module.__name__, "eval"), vars(module))


def _modules(uses: _Uses, owners: dict[tuple[str, str], Any]) -> set[str]:
    """Return the modules to import before a number is replaced: one imported later would keep a small number."""
    return {module for module, _ in (*owners, *uses.copies, *uses.computed)} | {each[0] for each in uses.defaults}


@lru_cache
def _uses(owners: frozenset[tuple[str, str]]) -> _Uses:
    known = set(owners)
    uses = _Uses()
    while True:
        before = len(known)
        names = re.compile(r"\b(" + "|".join(sorted({name for _, name in known})) + r")\b")
        for module, text in _sources().items():
            if names.search(text):
                _AtImport(module, known, uses).visit(_parsed(module))
        if len(known) == before:
            return uses


@lru_cache
def _parsed(module: str) -> ast.Module:
    return ast.parse(_sources()[module])


@lru_cache
def _sources() -> dict[str, str]:
    """Return the source of each module of the package."""
    root = Path(versioned_state.__file__).parent
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text("utf-8")
    return found


class _AtImport(ast.NodeVisitor):
    """Visits the code of a module that runs when it is imported, and files each use of a known name in it."""

    def __init__(self, module: str, known: set[tuple[str, str]], uses: _Uses) -> None:
        self._module = module
        self._known = known
        self._uses = uses
        self._within: list[str] = []

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if (source := (node.module or "", alias.name)) in self._known:
                own = (self._module, alias.asname or alias.name)
                assert not self._within, f"{self._module}:{node.lineno} imports {alias.name} into a class"
                self._known.add(own)
                self._uses.copies[own] = source

    def visit_Assign(self, node: ast.Assign) -> None:
        self._assigned(node.targets, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assigned([node.target], node.value)

    def _assigned(self, targets: list[ast.expr], value: ast.expr) -> None:
        if not self._reads(value):
            return
        assert not self._within, f"{self._module}:{value.lineno} computes an attribute of a class of a limit"
        (target,) = targets
        assert isinstance(target, ast.Name), f"{self._module}:{value.lineno}"
        own = (self._module, target.id)
        if own not in self._uses.copies:
            self._known.add(own)
            self._uses.computed[own] = value

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._within.append(node.name)
        self.generic_visit(node)
        self._within.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """The body runs later, and then finds what is bound then."""
        assert not any(map(self._reads, (*node.decorator_list, *node.args.defaults))), f"{self._module}:{node.lineno}"
        for parameter, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            if default is not None and self._reads(default):
                found = (self._module, ".".join([*self._within, node.name]), parameter.arg, default)
                if found not in self._uses.defaults:
                    self._uses.defaults.append(found)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """As a function's, its body runs later."""

    def visit_Name(self, node: ast.Name) -> None:
        assert not self._reads(node), (
            f"{self._module}:{node.lineno} uses {node.id} at import, where no test can replace it"
        )

    def _reads(self, node: ast.expr) -> bool:
        return any(isinstance(part, ast.Name) and (self._module, part.id) in self._known for part in ast.walk(node))
