"""``vstate set``: one value, committed. Layer: cli."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import click

from versioned_state.cli.shared import completion
from versioned_state.cli.shared.handle import author_option, handle, message_option, tell_made
from versioned_state.cli.shared.hints import not_json
from versioned_state.cli.shared.settings import Settings, parse_text, verb
from versioned_state.errors import InvalidArgumentError, UnknownPathError
from versioned_state.state.edits.restore import put_at
from versioned_state.state.state import State, step_into
from versioned_state.values.paths.path import Index, Key, StatePath, Step
from versioned_state.values.typed.registry import fields_of
from versioned_state.values.typed.tagged import Tagged


@verb("set", "Set one value and commit it.", example="vstate set prefs.theme '\"dark\"' -m 'Prefer dark'")
@click.argument("path", type=parse_text, shell_complete=completion.path)
@click.argument("value", type=parse_text)
@click.option("--text", is_flag=True, help="Take VALUE as a string, not as JSON.")
@message_option
@author_option
@click.pass_obj
def set_(settings: Settings, path: str, value: str, *, text: bool, message: str, author: str | None) -> None:
    """Set the value at PATH on the current branch, and commit that. VALUE is JSON, or with --text a string; - reads standard input.

    PATH is a key of the state, which may be new, or leads into a value: prefs.theme, messages[3].content. The index after the last one
    appends to a list.
    """
    steps = StatePath.parse(path)
    parsed = _read(path, value, text=text)
    with handle(settings, author, begin=True) as state:
        _assign(state, steps, parsed)
        head = state.commit(message or f"set {path}")
        tell_made(settings.output, state, head, nothing=f"{path} has that value already: no commit")


def _read(path: str, value: str, *, text: bool) -> Any:
    if value == "-":
        try:
            value = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as error:
            raise InvalidArgumentError("standard input is not text in UTF-8", remains="nothing was changed") from error
    if text:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            not_json(value, error),
            remains="nothing was changed",
            hint=f"--text takes it as a string: vstate set --text {shlex.quote(path)} …",
        ) from error


def _assign(state: State, path: StatePath, value: Any) -> None:
    """Set a value in the state. Raises ``UnknownPathError`` if nothing on the way to it exists."""
    if isinstance(path.steps[0], Index):
        raise InvalidArgumentError(f"{path} begins with an index, and a state has keys", remains="nothing was changed")
    container: Any = state
    for count, step in enumerate(path.steps[:-1], 1):
        try:
            container = step_into(container, step)
        except LookupError:
            missing = str(StatePath(path.steps[:count]))
            raise UnknownPathError(missing, at="HEAD", hint=f"set it first: vstate set {shlex.quote(missing)} '{{}}'") from None
    last = path.steps[-1]
    parent = StatePath(path.steps[:-1])
    if isinstance(last, Index) and isinstance(container, list) and not -len(container) <= last.index <= len(container):
        hint = f"{parent} has {len(container):,} elements; {parent}[{len(container)}] appends one"
        raise UnknownPathError(str(path), at="HEAD", hint=hint)
    if not _fits(container, last):
        kind = "a key" if isinstance(last, Key) else "an index"
        raise InvalidArgumentError(
            f"{parent} is a value of type {type(container).__name__}, in which {kind} cannot be set", remains="nothing was changed"
        )
    put_at(state, path, value)


def _fits(container: Any, step: Step) -> bool:
    """Whether a value has parts of the kind that a step leads to."""
    if isinstance(step, Key):
        return isinstance(container, State | dict) or fields_of(container) is not None
    return isinstance(step, Index) and (isinstance(container, list) or (type(container) is Tagged and type(container.fields) is list))
