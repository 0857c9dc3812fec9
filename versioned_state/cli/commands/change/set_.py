"""``vstate set``: one value, committed. Layer: cli."""

from __future__ import annotations

import shlex
import sys
from collections import deque
from typing import Any

import click

from versioned_state.cli.render.text import plural
from versioned_state.cli.shared import completion
from versioned_state.cli.shared.handle import author_option, handle, message_option, print_commits
from versioned_state.cli.shared.settings import Settings, literal_option, parse_text, verb
from versioned_state.cli.shared.values import Given, fitted, forced, given
from versioned_state.errors import InvalidArgumentError, PickleRefusedError, UnknownPathError
from versioned_state.repository.views.render import are_fields, short_name
from versioned_state.state.edits.restore import put_at
from versioned_state.state.state import State, key_of, step_into
from versioned_state.values.paths.path import Index, Key, StatePath
from versioned_state.values.typed.tagged import Tagged


@verb("set", example="vstate set prefs.theme '\"dark\"' -m 'Prefer dark'")
@click.argument("path", type=parse_text, shell_complete=completion.path)
@click.argument("value", type=parse_text)
@click.option("--text", is_flag=True, help="Take VALUE as a string, not as JSON.")
@literal_option
@click.option("--force", is_flag=True, help="Set a value of another type than the one there.")
@message_option("set PATH")
@author_option
@click.pass_obj
def set_(
    settings: Settings,
    path: str,
    value: str,
    *,
    text: bool,
    literal: bool,
    force: bool,
    message: str,
    author: str | None,
) -> None:
    """Set the value at PATH on the current branch, and commit the change.

    VALUE is JSON, or with --text a string. - reads standard input.

    PATH is a key of the state, which may be new, or leads into a value: prefs.theme, messages[3].content. The index
    after the last one appends to a list. A field of an instance is set like a key.

    VALUE may be all that vstate get --json prints, such as {"$Decimal": "2.5"}. A field of an instance, and a value of
    a type that JSON lacks, keep their type: job.price 12.5 stays a Decimal, job.due takes 2026-12-01, a member of an
    Enum is set by its name.
    """
    steps = StatePath.parse(path)
    it = given(_read(value), as_text=text, literal=literal)
    with handle(settings, author, begin=True) as state:
        _assign(state, steps, it, force=force)
        head = state.commit(message or f"set {path}")
        print_commits(settings.output, state, head, nothing=f"{path} has that value already: no commit")


def _read(value: str) -> str:
    if value != "-":
        return value
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError("standard input is not text in UTF-8") from error


def _assign(state: State, path: StatePath, it: Given, *, force: bool) -> None:
    """Set a value in the state.

    Raises:
        UnknownPathError: nothing on the way to it exists.
        MisfitError: it does not fit the value that is there.
    """
    if isinstance(path.steps[0], Index):
        raise InvalidArgumentError(f"{path} begins with an index, and a state has keys")
    container: Any = state
    for count, step in enumerate(path.steps[:-1], 1):
        try:
            container = step_into(container, step)
        except LookupError:
            missing = StatePath(path.steps[:count])
            hint = _parts_hint(container, missing) or f"set it first: vstate set {shlex.quote(str(missing))} '{{}}'"
            raise UnknownPathError(str(missing), at="HEAD", hint=hint) from None
    held = _held(container, path)
    hint = f"--text takes it as a string: vstate set --text {shlex.quote(str(path))} …"
    value = forced(held, it, hint=hint) if force else fitted(held, it, is_field=_has_fields(container), hint=hint)
    put_at(state, path, value)


def _has_fields(container: Any) -> bool:
    """Return whether a container is an instance, whose parts have types."""
    return type(container) is Tagged and are_fields(container.fields)


def _held(container: Any, path: StatePath) -> Any:
    """Return the value that is at the path now, or None.

    Raises ``UnknownPathError`` or ``InvalidArgumentError`` if none can be set there.
    """
    last = path.steps[-1]
    parent = StatePath(path.steps[:-1])
    data = container.fields if type(container) is Tagged else container
    if isinstance(last, Index) and isinstance(data, list | deque):
        if last.index == len(data):
            return None
        if not -len(data) <= last.index < len(data):
            raise UnknownPathError(
                str(path), at="HEAD", hint=f"{_parts_hint(data, path)}; {parent}[{len(data)}] appends one"
            )
        return data[last.index]
    if isinstance(last, Key) and isinstance(data, State | dict):
        key = key_of(last)
        if data is not container and key not in data:
            raise UnknownPathError(str(path), at="HEAD", hint=_parts_hint(container, path))
        try:
            return data.get(key)
        except PickleRefusedError:  # an object can be replaced without being read
            return None
    kind = "a key" if isinstance(last, Key) else "an index"
    name = short_name(container.name) if type(container) is Tagged else type(container).__name__
    raise InvalidArgumentError(f"{parent} is a value of type {name}, in which {kind} cannot be set")


def _parts_hint(container: Any, path: StatePath) -> str:
    """Return the parts of a list or an instance, for an error about a missing path. Empty for any other container."""
    parent = StatePath(path.steps[:-1])
    if isinstance(container, list | deque):
        return f"{parent} has {plural(len(container), 'element')}"
    if type(container) is Tagged and are_fields(container.fields):
        return f"{parent} is of type {short_name(container.name)}, with {', '.join(container.fields) or 'no fields'}"
    return ""
