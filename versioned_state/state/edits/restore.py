"""Restores the value at a path to the one that a snapshot has there. Layer: state."""

from __future__ import annotations

from typing import Any

from versioned_state.errors import InvalidArgumentError, UnknownPathError
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.state.state import State, key_of, length_hint, value_at
from versioned_state.values.paths.path import Index, Key, Namespace, StatePath, Step


def restore_path(state: State, snapshot: Snapshot, path: StatePath) -> None:
    """Assign the snapshot's value at a path, or remove the live one if the snapshot has none.

    Raises:
        UnknownPathError: the container is not there, neither side has a value, or the list is too short for the index.
    """
    if not path.steps or isinstance(path.steps[-1], Namespace):
        raise InvalidArgumentError("restore() takes the path of a key, or of a value in it")
    container = value_at(state, StatePath(path.steps[:-1]))
    last = path.steps[-1]
    if not isinstance(container, State | dict | list):
        raise InvalidArgumentError(f"{path}: its container is of type {type(container).__name__}, which cannot be changed in place")
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
        elif last.index == len(container):
            container.append(value)
        else:
            raise UnknownPathError(str(path), at="the state", hint=f"{length_hint(container)}: restore the elements before it, or the list")
    else:
        raise UnknownPathError(str(path), at="the state", hint="restore its container")


def _remove(container: Any, step: Step) -> bool:
    """Remove the value that a step leads to. Returns whether there was one."""
    if isinstance(step, Key) and isinstance(container, State | dict) and key_of(step) in container:
        del container[key_of(step)]
        return True
    if isinstance(step, Index) and type(container) is list and -len(container) <= step.index < len(container):
        del container[step.index]
        return True
    return False
