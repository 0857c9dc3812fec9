"""Patches, applied to live values in place. Layer: state.

The entries of one list are applied together: a removed element has its old index, an added or changed element its new
index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from versioned_state.errors import PatchConflictError
from versioned_state.repository.views.patch import PatchEntry
from versioned_state.state.state import State, key_of
from versioned_state.values.paths.path import Index, Key, Namespace, Step
from versioned_state.values.typed.layout import NotPlainDataError
from versioned_state.values.typed.registry import edited, layout_of
from versioned_state.values.typed.tagged import Tagged

Same = Callable[[Any, Any], bool]


class _MisfitError(Exception):
    """The state does not have the old value of an entry."""


def apply_patch(state: State, entries: list[PatchEntry], same: Same) -> None:
    """Apply the entries of a patch to a state.

    Raises ``PatchConflictError`` when some entries may have been applied already.

    Args:
        same: whether two values have the same stored form.
    """
    misfits: list[str] = []
    tree = _Branch()
    for entry in entries:
        tree.add(entry)
    _apply(state, tree, same, misfits)
    if misfits:
        raise PatchConflictError(misfits)


class _Branch:
    """The entries of a patch as a tree of the steps of their paths."""

    def __init__(self) -> None:
        self.entries: list[PatchEntry] = []
        self._steps: dict[tuple[type, Step], Step] = {}
        self._below: dict[tuple[type, Step], _Branch] = {}

    @property
    def below(self) -> list[tuple[Step, _Branch]]:
        return [(self._steps[name], branch) for name, branch in self._below.items()]

    def add(self, entry: PatchEntry) -> None:
        branch = self
        for step in entry.path.steps:
            # 1 and True are two keys, and equal.
            name = type(step.key) if isinstance(step, Key) else type(step), step
            branch._steps[name] = step
            branch = branch._below.setdefault(name, _Branch())
        branch.entries.append(entry)

    def paths(self) -> list[str]:
        return [str(entry.path) for entry in self.entries] + [
            path for _, branch in self.below for path in branch.paths()
        ]


def _apply(container: Any, tree: _Branch, same: Same, misfits: list[str]) -> Any:
    """Apply the entries below a container. Returns the container, or the value that replaces it."""
    if type(container) is list:
        _apply_to_list(container, tree, same, misfits)
        return container
    if not isinstance(container, State) and (layout_of(type(container)) is not None or type(container) is Tagged):
        try:
            return edited(container, lambda data: _apply(data, tree, same, misfits))
        except NotPlainDataError:
            raise _MisfitError from None
    for step, branch in tree.below:
        try:
            _apply_to_entry(container, step, branch, same, misfits)
        except (_MisfitError, KeyError, TypeError):
            misfits += branch.paths()
    return container


def _apply_to_entry(container: Any, step: Step, branch: _Branch, same: Same, misfits: list[str]) -> None:
    if isinstance(step, Namespace):
        _apply(container.namespace(step.name), branch, same, misfits)
        return
    if not isinstance(step, Key) or not (isinstance(container, State) or type(container) is dict):
        raise _MisfitError
    key = _held_key(container, key_of(step), same)
    for entry in branch.entries:
        if _is_aside(entry):
            continue
        if (entry.kind == "added") == (key in container) or (
            entry.kind != "added" and not same(container[key], entry.old)
        ):
            raise _MisfitError
        if entry.kind == "removed":
            del container[key]
        else:
            container[key] = entry.new
    _apply_below(container, key, branch, same, misfits)


def _apply_below(container: Any, key: Any, branch: _Branch, same: Same, misfits: list[str]) -> None:
    """Apply the entries below the value of a key or at an index, then those about something beside its parts."""
    if not branch.below and not any(map(_is_aside, branch.entries)):
        return  # there may be no value any more
    held = value = container[key]
    if branch.below:
        value = _apply(value, branch, same, misfits)
    for entry in branch.entries:
        if entry.reordered:
            value = _reorder(value, entry.new, same)
        elif entry.given:
            value = _given(value, entry.new)
    if value is not held:
        container[key] = value


def _is_aside(entry: PatchEntry) -> bool:
    """Return whether an entry is about something beside the parts of a value."""
    return entry.reordered or entry.given


def _given(value: Any, names: Any) -> Any:
    if type(names) is not list or not all(type(name) is str for name in names):
        raise _MisfitError
    try:
        return edited(value, lambda _: None, given=frozenset(names))
    except NotPlainDataError:
        raise _MisfitError from None


def _held_key(container: Any, key: Any, same: Same) -> Any:
    """Return the key object of the container that equals ``key``: a key with a NaN in it is found only by identity."""
    if type(container) is not dict or type(key) is str or key in container:
        return key
    return next((held for held in container if type(held) is type(key) and same(held, key)), key)


def _reorder(value: Any, keys: list[Any], same: Same) -> Any:
    if type(value) is not dict:
        try:
            return edited(value, lambda data: _reorder(data, keys, same))
        except (NotPlainDataError, RecursionError):
            raise _MisfitError from None
    keys = [_held_key(value, key, same) for key in keys]
    if set(value) != set(keys):
        raise _MisfitError
    for key in keys:
        value[key] = value.pop(key)
    return value


def _apply_to_list(live: list[Any], tree: _Branch, same: Same, misfits: list[str]) -> None:
    entries = {step.index: branch for step, branch in tree.below if isinstance(step, Index)}
    if len(entries) < len(tree.below) or any(index < 0 for index in entries):
        misfits += [path for _, branch in tree.below for path in branch.paths()]
        return
    found = [entry for _, branch in sorted(entries.items()) for entry in branch.entries if not _is_aside(entry)]
    removed = {_last(entry): entry for entry in found if entry.kind == "removed"}
    added = {_last(entry): entry for entry in found if entry.kind == "added"}
    wrong = [
        str(entry.path) for index, entry in removed.items() if index >= len(live) or not same(live[index], entry.old)
    ]
    wrong += [str(entry.path) for entry in added.values() if entry.length not in (None, len(live))]
    if wrong:
        misfits += wrong
        return
    kept = iter([value for index, value in enumerate(live) if index not in removed])
    count = len(live) - len(removed) + len(added)
    if any(index >= count for index in added):
        misfits += [str(entry.path) for entry in added.values()]
        return
    live[:] = [added[index].new if index in added else next(kept) for index in range(count)]
    for index, branch in sorted(entries.items()):
        try:
            for entry in branch.entries:
                if entry.kind == "changed" and not _is_aside(entry):
                    if index >= len(live) or not same(live[index], entry.old):
                        raise _MisfitError
                    live[index] = entry.new
            _apply_below(live, index, branch, same, misfits)
        except (_MisfitError, IndexError, TypeError):
            misfits += branch.paths()


def _last(entry: PatchEntry) -> int:
    step = entry.path.steps[-1]
    assert isinstance(step, Index)
    return step.index
