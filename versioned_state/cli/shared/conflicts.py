"""Conflicts of merge, cherry-pick, revert and rebase: the options that resolve them, and how the rest is shown.

Layer: cli.

A merge that stops leaves no trace: repeat the command, with the resolutions.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import takewhile
from typing import Any, Literal, TypeVar

import click

from versioned_state.cli.render.output import Line, Output, Span, Style
from versioned_state.cli.render.text import plural
from versioned_state.cli.shared.hints import shortened
from versioned_state.cli.shared.settings import literal_option
from versioned_state.cli.shared.values import Given, MisfitError, fitted, given
from versioned_state.errors import InvalidArgumentError, MergeConflictError, StateError
from versioned_state.errors.retry import Conflict
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.merging.merge import MISSING
from versioned_state.repository.merging.policies import NAMES, Policy
from versioned_state.repository.views.json_form import json_value
from versioned_state.repository.views.render import one_line
from versioned_state.values.paths.path import StatePath
from versioned_state.values.paths.pattern import Pattern

Side = Literal["ours", "theirs"]

_T = TypeVar("_T")

Attempt = Callable[[Mapping[str, Policy], Mapping[StatePath, Any]], _T]
"""Does all of a command with these policies and values by path, or raises ``MergeConflictError`` and does nothing."""

_SIDES: tuple[tuple[str, Style], ...] = (("base", "dim"), ("ours", "author"), ("theirs", "time"))


# How they are resolved


@dataclass(frozen=True)
class Choices:
    """A command line's resolutions: policies, and for the remaining conflicts, sides by pattern and values by path."""

    policies: Mapping[str, Policy] = field(default_factory=dict)
    sides: tuple[tuple[Pattern, Side], ...] = ()
    values: Mapping[StatePath, Given] = field(default_factory=dict)

    def run(self, attempt: Attempt[_T]) -> _T:
        """Make an attempt, and resolve its conflicts.

        Raises:
            MergeConflictError: some conflicts are not resolved.
            InvalidArgumentError: the same, and a resolution names a path without a conflict: probably a slip.
        """
        policies, values = dict(self.policies), dict[StatePath, Any]()
        resolved: set[StatePath] = set()
        while True:
            try:
                return attempt(policies, values)
            except MergeConflictError as error:
                # A range of commits shows the conflicts of one after the other.
                others = [conflict for conflict in error.conflicts if conflict.path not in resolved]
                left = [conflict.path for conflict in others]
                new = [conflict.path for conflict in others if self._resolve(conflict, policies, values)]
                if not new:
                    self._check([*resolved, *left], left)
                    raise
                resolved.update(new)

    def _resolve(self, conflict: Conflict, policies: dict[str, Policy], values: dict[StatePath, Any]) -> bool:
        path = conflict.path
        if path in self.values:
            values[path] = _fitted(conflict, self.values[path])
            return True
        found = [(pattern, side) for pattern, side in self.sides if _covers(pattern, path)]
        if not found:
            return False
        whole = [sum(type(step) is not str for step in pattern.steps) for pattern, _ in found]
        # the patterns with the fewest stars
        most = [each for each, count in zip(found, whole, strict=True) if count == max(whole)]
        pattern, side = most[0]
        for other, another in most[1:]:
            if another != side:
                raise click.UsageError(f"--{side} {pattern} and --{another} {other} both resolve {path}")
        # A policy takes the side as it is stored, without reading it. The last policy that matches wins, so this one is
        # added last.
        policies.pop(str(path), None)
        policies[str(path)] = side
        return True

    def _check(self, seen: list[StatePath], left: list[StatePath]) -> None:
        wrong = [str(pattern) for pattern, _ in self.sides if not any(_covers(pattern, path) for path in seen)]
        wrong += [str(path) for path in self.values if path not in seen]
        if wrong:
            shown = ", ".join(map(str, left[:5])) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
            raise InvalidArgumentError(f"there is no conflict at {wrong[0]}", hint=f"conflicts: {shown}")


def _covers(pattern: Pattern, path: StatePath) -> bool:
    """Return whether a pattern matches a path or one above it, as for the policies ``ours`` and ``theirs``."""
    return any(
        pattern.matches(StatePath(path.steps[:length])) for length in range(len(path.steps), 0, -1)
    ) or pattern.matches(path)


def resolution_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--policy``, ``--ours``, ``--theirs`` and ``--set``, which a command takes as one argument, ``chosen``."""

    @wraps(command)
    def run(*args: Any, policies: Any, ours: Any, theirs: Any, values: Any, literal: bool, **rest: Any) -> Any:
        return command(*args, chosen=_choices(policies, ours, theirs, values, literal=literal), **rest)

    for option in (
        literal_option,
        click.option(
            "--set",
            "values",
            nargs=2,
            multiple=True,
            metavar="PATH JSON",
            help="Resolve the conflict at PATH with a value.",
        ),
        click.option("--theirs", multiple=True, metavar="PATH", help="Resolve conflicts at PATH with their side."),
        click.option(
            "--ours", multiple=True, metavar="PATH", help="Resolve conflicts at PATH with our side; ** is every path."
        ),
        click.option(
            "--policy",
            "policies",
            multiple=True,
            metavar="PATTERN=NAME",
            help="Merge paths that match by this policy; see vstate policy.",
        ),
    ):
        option(run)
    return run


def _choices(
    policies: Iterable[str],
    ours: Iterable[str],
    theirs: Iterable[str],
    values: Iterable[tuple[str, str]],
    *,
    literal: bool,
) -> Choices:
    """Return the resolutions that the options name.

    Raises ``InvalidArgumentError`` or ``UsageError`` for options that make no sense.
    """
    named = [_parse_policy(text) for text in policies]
    _check_once((pattern, "--policy", name) for pattern, name in named)
    sides: list[tuple[Pattern, Side]] = [(Pattern.parse(text), "ours") for text in ours]
    sides += [(Pattern.parse(text), "theirs") for text in theirs]
    paths = [(StatePath.parse(path), text) for path, text in values]
    _check_once(
        [*((pattern, f"--{side}", "") for pattern, side in sides), *((path, "--set", text) for path, text in paths)]
    )
    return Choices(
        {str(pattern): name for pattern, name in named},
        tuple(sides),
        {path: given(text, literal=literal) for path, text in paths},
    )


def _check_once(choices: Iterable[tuple[Pattern | StatePath, str, str]]) -> None:
    """Raise ``UsageError`` if one pattern or path is resolved in two ways."""
    known: dict[tuple[Any, ...], tuple[str, str]] = {}
    for place, option, value in choices:
        before = known.setdefault(place.steps, (option, value))
        if before != (option, value):
            raise click.UsageError(f"{place} is resolved twice, by {before[0]} and by {option}")


def _parse_policy(text: str) -> tuple[Pattern, Any]:
    pattern, equals, name = text.rpartition("=")
    if not equals:
        raise click.UsageError(f"--policy takes PATTERN=NAME, such as messages=append, not {text!r}")
    if name not in NAMES:
        raise InvalidArgumentError(
            f"{name!r} for {pattern!r} is not a merge policy", hint=f"the policies are {', '.join(NAMES)}"
        )
    return Pattern.parse(pattern), name


def _fitted(conflict: Conflict, it: Given) -> Any:
    """Return the value of ``--set`` as one of the type that the conflict's values have."""
    held = conflict.theirs if conflict.ours is MISSING else conflict.ours
    hint = f"a string is written {json.dumps(shortened(it.text), ensure_ascii=False)!r}"
    try:
        return fitted(None if held is MISSING else held, it, is_field=False, hint=hint)
    except MisfitError as error:
        error.hint = "resolve it with --ours or --theirs; vstate set --force then sets a value of any type"
        raise


def attempt_of(call: Callable[[Mapping[str, Policy]], Commit]) -> Attempt[Commit]:
    """Return an attempt by a method of ``Versioned`` that has policies. Values are passed to the merge that stopped."""

    def attempt(policies: Mapping[str, Policy], values: Mapping[StatePath, Any]) -> Commit:
        taken: set[StatePath] = set()

        def run() -> Commit:
            return call(policies)

        while True:
            try:
                return run()
            except MergeConflictError as error:
                found = {conflict.path for conflict in error.conflicts} & values.keys() - taken
                if not error.can_resolve or not found:
                    raise
                merge = error.merge
                for path in found:
                    merge.resolve(path, values[path])
                taken |= found
                run = merge.commit

    return attempt


# How they are shown


def resolved(output: Output, what: str, chosen: Choices, attempt: Attempt[_T]) -> _T:
    """Make an attempt and resolve its conflicts. The remaining ones are printed, and raised as an error of one line.

    Args:
        what: the attempt in words, such as ``merging idea into main``.
    """
    try:
        return chosen.run(attempt)
    except MergeConflictError as error:
        output.lines(conflict_lines(error.conflicts, output.width))
        raise explained(error, what) from None


def explained(error: MergeConflictError, what: str) -> StateError:
    """Return conflicts as an error of one line, whose hint names options instead of methods."""
    notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()) if not note.startswith("hint: "))
    message = f"{plural(len(error.conflicts), 'conflict')} in {what}{notes}"
    path = shlex.quote(str(error.conflicts[0].path))
    appended = next((each.path for each in error.conflicts if each.both_appended), None)
    way_out = f"repeat the command with --ours {path}, --theirs {path} or --set {path} JSON"
    hint = (
        way_out
        if appended is None
        else f"--policy {shlex.quote(f'{appended}=append')} keeps what both appended; or {way_out}"
    )
    return StateError(message, remains="nothing was changed", hint=hint)


def conflict_lines(conflicts: Iterable[Conflict], width: int) -> Iterator[Line]:
    """Yield each conflict with its path, and its values in the merge base, in ours and in theirs, on a line each."""
    for conflict in conflicts:
        yield [Span(f"! {conflict.path}", "changed")]
        sides = {name: getattr(conflict, name) for name, _ in _SIDES}
        alike = _alike([side for side in sides.values() if side is not MISSING])
        for name, style in _SIDES:
            yield ["    ", Span(f"{name:<7}", style), " ", *_side(sides[name], alike, width - 14)]


def _side(value: Any, alike: int, width: int) -> Line:
    if value is MISSING:
        return [Span("nothing", "dim")]
    if not alike:
        return [one_line(value, width=width)]
    first = f"{alike:,} alike, then "
    return [Span(first, "dim"), one_line(value[alike:], width=width - len(first))]


def _alike(sides: list[Any]) -> int:
    """Return the number of equal elements that all lists begin with: the conflict is after them."""
    if any(type(side) is not list for side in sides):
        return 0
    return sum(
        1 for _ in takewhile(lambda row: all(map(partial(_is_same, row[0]), row[1:])), zip(*sides, strict=False))
    )


def _is_same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and repr(a) == repr(b)  # a == b may be an array, and is True for 1 and True


def conflict_json(conflict: Conflict) -> dict[str, Any]:
    """Return the path and the three sides in JSON types, without a side that has no value there."""
    sides = {name: getattr(conflict, name) for name, _ in _SIDES}
    return {
        "path": str(conflict.path),
        **{name: json_value(value) for name, value in sides.items() if value is not MISSING},
    }
