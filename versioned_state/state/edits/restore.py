"""Assignments to paths: of a value, or of the value that a snapshot has there. Layer: state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from versioned_state.errors import InvalidArgumentError, UnknownPathError
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.state.state import State, key_of, length_hint, step_into, value_at
from versioned_state.values.paths.path import Index, Key, Namespace, StatePath, Step
from versioned_state.values.typed.layout import NotPlainDataError
from versioned_state.values.typed.registry import edited, layout_of
from versioned_state.values.typed.tagged import Tagged


def restore_path(state: State, snapshot: Snapshot, path: StatePath) -> None:
    """Assign the snapshot's value at a path, or remove the live one if the snapshot has none.

    Raises:
        UnknownPathError: the container does not exist, neither side has a value, or the list is too short for the
            index.
    """
    if not path.steps or isinstance(path.steps[-1], Namespace):
        raise InvalidArgumentError("the path of restore() must be that of a key, or of a value in it")
    try:
        value = snapshot.at(path)
    except UnknownPathError as error:
        missing = error
        change = partial(_remove, step=path.steps[-1], error=missing)
    else:
        change = partial(_put, step=path.steps[-1], value=value, path=path)
    _change_at(state, path, change)


def put_at(state: State, path: StatePath, value: Any) -> None:
    """Put a value at a path: under a key, in a field, at an index, or after the last element of a list.

    Does not call ``__setattr__``.

    Raises:
        UnknownPathError: the container does not exist, or the list is too short for the index.
        InvalidArgumentError: the container has no such parts, or cannot be changed in place.
    """
    _change_at(state, path, partial(_put, step=path.steps[-1], value=value, path=path))


def remove_at(state: State, path: StatePath) -> None:
    """Remove the value at a path: a key, an entry of a dict, an element of a list.

    Raises:
        UnknownPathError: there is none.
        InvalidArgumentError: the container cannot be changed in place.
    """
    _change_at(state, path, partial(_remove, step=path.steps[-1], error=UnknownPathError(str(path), at="the state")))


def _change_at(state: State, path: StatePath, change: Callable[[Any], None]) -> None:
    value_at(state, StatePath(path.steps[:-1]))  # raises an error that names the missing part of the path
    try:
        _change(state, path.steps[:-1], change, path)
    except NotPlainDataError:
        raise _cannot(path, value_at(state, StatePath(path.steps[:-1]))) from None


def _change(container: Any, steps: tuple[Step, ...], change: Callable[[Any], None], path: StatePath) -> Any:
    """Change the container that steps lead to.

    Returns the value at which the steps begin, or the value that replaces it.
    """
    if not isinstance(container, State) and (layout_of(type(container)) is not None or type(container) is Tagged):
        return edited(container, lambda data: _change(data, steps, change, path))
    if steps:
        held = step_into(container, steps[0])
        value = _change(held, steps[1:], change, path)
        if value is held:
            return container
        change = partial(_put, step=steps[0], value=value, path=path)
    if not (isinstance(container, State) or type(container) in (dict, list)):
        raise _cannot(path, container)
    change(container)
    return container


def _cannot(path: StatePath, container: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{path}: its container is of type {type(container).__name__}, which cannot be changed in place"
    )


def _put(container: Any, *, step: Step, value: Any, path: StatePath) -> None:
    if isinstance(step, Key) and type(container) is not list:
        container[key_of(step)] = value
    elif isinstance(step, Index) and type(container) is list:
        if -len(container) <= step.index < len(container):
            container[step.index] = value
        elif step.index == len(container):
            container.append(value)
        else:
            raise UnknownPathError(
                str(path), at="the state", hint=f"{length_hint(container)}: restore the elements before it, or the list"
            )
    else:
        raise UnknownPathError(str(path), at="the state", hint="restore its container")


def _remove(container: Any, *, step: Step, error: UnknownPathError) -> None:
    """Remove the value that a step leads to. Raises the error if there is none."""
    if isinstance(step, Key) and type(container) is not list and key_of(step) in container:
        del container[key_of(step)]
    elif isinstance(step, Index) and type(container) is list and -len(container) <= step.index < len(container):
        del container[step.index]
    else:
        raise error
