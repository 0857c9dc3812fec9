"""The options by which ``vstate log`` chooses commits. Layer: cli."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from versioned_state.cli.render import text
from versioned_state.cli.shared import completion
from versioned_state.cli.shared.settings import path_option
from versioned_state.errors import InvalidArgumentError

if TYPE_CHECKING:  # loaded by the options that need them
    from versioned_state.repository.inspect.log_filters import Filters
    from versioned_state.repository.names.times import When

_LITERALLY: Final = "a backslash before a character takes it literally: \\( and \\["


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--author``, ``--since`` and so on: the command gets them as ``filters``, and the name of the task."""

    @wraps(command)
    def run(
        *args: Any,
        author: Any,
        since: Any,
        until: Any,
        message: Any,
        meta: Any,
        stamp: Any,
        task: Any,
        path: Any,
        changed: Any,
        **rest: Any,
    ) -> Any:
        filters: Filters = {}
        if author is not None:
            filters["author"] = regex(author, hint=_LITERALLY)
        if since is not None:
            filters["since"] = parse_when(since)
        if until is not None:
            filters["until"] = parse_when(until)
        if message is not None:
            filters["message"] = regex(message, hint=_LITERALLY)
        wanted = _meta(meta)
        if task is not None:
            wanted["task"] = [*wanted.get("task", ()), lambda value: type(value) is str and value == task]
        if wanted:
            filters["meta"] = {key: _any_of(tests) for key, tests in wanted.items()}
        if stamp:
            filters["stamp"] = stamp_test(stamp)
        if path is not None:
            filters["path"] = path
        if changed is not None:
            from versioned_state.values.changes.pickaxe import Needle

            filters["changed"] = Needle.parse(changed)
        return command(*args, filters=filters, task=task, **rest)

    for option in (
        click.option(
            "-S",
            "changed",
            metavar="VALUE",
            help="Show commits that added or removed VALUE: a text in strings, or a value in JSON.",
        ),
        path_option("Show commits that changed PATH, such as plan, messages[3] or @worker."),
        click.option(
            "--meta",
            multiple=True,
            metavar="KEY=VALUE",
            help="Show commits whose meta has this VALUE, or for KEY alone any value. "
            "Given several times: one of the values of each KEY.",
        ),
        click.option(
            "--stamp",
            multiple=True,
            metavar="KEY=VALUE",
            help="Show commits that were made with this VALUE in the stamp of their program, "
            "such as model=large-2; otherwise as --meta.",
        ),
        click.option(
            "--task", metavar="NAME", shell_complete=completion.task, help="Show commits of calls of this task."
        ),
        click.option("--grep", "message", metavar="REGEX", help="Show commits whose message matches."),
        click.option("--until", metavar="WHEN", help="Show commits made then or earlier."),
        click.option(
            "--since",
            metavar="WHEN",
            help="Show commits made then or later: 2026-11-21, 2026-11-21T12:00 (UTC), yesterday, '2 hours ago' or 3d.",
        ),
        click.option("--author", metavar="REGEX", help="Show commits whose author matches."),
    ):
        option(run)
    return run


def regex(text: str, flags: int = 0, *, hint: str) -> re.Pattern[str]:
    """Return a regular expression. Raises ``InvalidArgumentError`` with this hint if it does not parse."""
    from versioned_state.repository.inspect.log_filters import compiled

    try:
        return compiled(text, flags)
    except InvalidArgumentError as error:
        error.hint = hint
        raise


def parse_when(given: str) -> When:
    """Return the time that an argument names. Raises ``InvalidArgumentError``."""
    from versioned_state.repository.names.times import parse_time

    return parse_time(given, text.now)


_Test = Callable[[Any], bool]


def stamp_test(pairs: Iterable[str]) -> dict[str, _Test]:
    """Return, by key, whether a value of a stamp is one of those that were given."""
    return {key: _any_of(tests) for key, tests in _meta(pairs).items()}


def _meta(pairs: Iterable[str]) -> dict[str, list[_Test]]:
    """Return the tests of each key. One of them must accept its value, as with git's ``--author`` and ``--grep``."""
    if not pairs:
        return {}
    from versioned_state.repository.inspect.log_filters import typed_value

    wanted: dict[str, list[_Test]] = {}
    for pair in pairs:
        key, given, value = pair.partition("=")
        wanted.setdefault(key, []).append(typed_value(value) if given else lambda _: True)
    return wanted


def _any_of(tests: list[_Test]) -> _Test:
    return lambda value: any(test(value) for test in tests)
