"""Bringing what is at a path back to what a snapshot has there. Layer: state."""

from __future__ import annotations

from typing import Any

from versioned_state.errors import InvalidArgumentError, UnknownPathError
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.state.state import State
from versioned_state.values.decode import decode_inline
from versioned_state.values.paths.path import Index, Key, Namespace, StatePath, Step


def restore_path(state: State, snapshot: Snapshot, path: StatePath) -> None:
    """Assign it, or remove what is there where there was nothing.

    Raises:
        UnknownPathError: its container is not there, or it is neither here nor there.
    """
    if not path.steps or isinstance(path.steps[-1], Namespace):
        raise InvalidArgumentError("restore() takes the path of a key, or of something in it")
    container: Any = state
    for count, step in enumerate(path.steps[:-1], 1):
        try:
            container = _inside(container, step)
        except (KeyError, IndexError, TypeError):
            raise UnknownPathError(str(StatePath(path.steps[:count])), at="the state", hint="restore what it was in") from None
    last = path.steps[-1]
    if not isinstance(container, State | dict | list):
        raise InvalidArgumentError(f"{path}: what it is in is a {type(container).__name__}, which cannot be changed in place")
    try:
        value = snapshot.at(path)
    except UnknownPathError:
        if not _remove(container, last):
            raise
        return
    if isinstance(last, Key) and isinstance(container, State | dict):
        container[key_of(last)] = value
    elif isinstance(last, Index) and type(container) is list:
        if -len(container) <= last.index < len(container):
            container[last.index] = value
        else:
            container.append(value)
    else:
        raise UnknownPathError(str(path), at="the state", hint="restore what it was in")


def _inside(container: Any, step: Step) -> Any:
    if isinstance(step, Namespace):
        return container.namespace(step.name)
    return container[key_of(step) if isinstance(step, Key) else step.index]


def key_of(step: Key) -> Any:
    """The key of a dict that a step leads to."""
    return step.key if step.cell is None else decode_inline(step.cell)


def _remove(container: Any, step: Step) -> bool:
    """Remove what is there; whether there was anything."""
    if isinstance(step, Key) and isinstance(container, State | dict) and key_of(step) in container:
        del container[key_of(step)]
        return True
    if isinstance(step, Index) and type(container) is list and -len(container) <= step.index < len(container):
        del container[step.index]
        return True
    return False
