"""``vstate effects`` lists the effects in the ledger of a store, settles one in doubt, or forgets any. Layer: cli."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from typing import Any

import click

from versioned_state.agents.effects import effects as all_effects, forget_effect, settle_effect
from versioned_state.agents.rollback import roll_back_effects
from versioned_state.cli.render.output import Span
from versioned_state.cli.render.rows import Cells, fit_rows
from versioned_state.cli.shared.handle import handle
from versioned_state.cli.shared.hints import not_json
from versioned_state.cli.shared.settings import Settings, json_option, parse_text, verb
from versioned_state.errors import InvalidArgumentError, StateError
from versioned_state.repository.ledger import EffectRecord
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.json_form import json_value
from versioned_state.repository.views.render import one_line


@verb("effects", example="vstate effects --settle pay:order-7 --result '\"receipt 31\"'")
@click.argument("patterns", nargs=-1, type=parse_text, metavar="[PATTERN]...")
@click.option("--in-doubt", is_flag=True, help="List only effects whose outcome is not known.")
@click.option("--settle", metavar="KEY", type=parse_text, help="Record that the effect in doubt happened.")
@click.option("--result", metavar="JSON", type=parse_text, help="With --settle: its result.  [default: null]")
@click.option(
    "--forget",
    metavar="KEY",
    type=parse_text,
    help="Delete the record: the agent's next attempt carries the effect out again.",
)
@click.option(
    "--to", "rev", metavar="REV", type=parse_text, help="With roll-back: the effects of the rounds after REV."
)
@click.option(
    "--using",
    metavar="MODULE:FUNCTION",
    multiple=True,
    help="With roll-back: import a function that rolls effects back.",
)
@click.option("-n", "--dry-run", is_flag=True, help="With roll-back: list the effects, and call nothing.")
@json_option
@click.pass_obj
def effects(  # noqa: PLR0913 - each is an option of its own
    settings: Settings,
    patterns: tuple[str, ...],
    *,
    in_doubt: bool,
    settle: str | None,
    result: str | None,
    forget: str | None,
    rev: str | None,
    using: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """List the effects of agents whose key matches a PATTERN such as 'pay:*' (default: all), oldest first.

    An effect is a call into the outside world, carried out once. It is done, or it is in doubt: it was begun, and
    nobody knows whether it happened. Find out, then --settle it if it happened, or --forget it if it did not.

    vstate effects roll-back takes back the effects that lie behind the current branch, because it was moved back past
    them, or those after --to: the newest first, each by the function that its on_rollback= names. Functions are
    imported from --using alone, because anyone who writes to the store writes the names.

    With --json: one object a line.
    """
    if patterns == ("roll-back",):
        if in_doubt or settle is not None or result is not None or forget is not None:
            raise click.UsageError("roll-back takes --to, --using and --dry-run")
        _roll_back(settings, rev, using, dry_run=dry_run, as_json=as_json)
        return
    if rev is not None or using or dry_run:
        raise click.UsageError("--to, --using and --dry-run go with roll-back: vstate effects roll-back")
    if sum((settle is not None, forget is not None, bool(patterns or in_doubt))) > 1:
        raise click.UsageError("--settle, --forget and listing exclude each other")
    if result is not None and settle is None:
        raise click.UsageError("--result goes with --settle")
    output = settings.output
    if settle is None and forget is None:
        with settings.reading() as repository, output.paged(unless=as_json):
            _list(
                settings,
                [each for each in all_effects(repository) if _is_listed(each, patterns, in_doubt=in_doubt)],
                as_json=as_json,
            )
        return
    with settings.changing() as repository:
        done = _settle(repository, settle, result) if settle is not None else _forget(repository, str(forget))
    if as_json:
        output.json(done)
    else:
        output.print(f"{done['status']} ", Span(done["key"], "path"))


def _roll_back(settings: Settings, rev: str | None, using: tuple[str, ...], *, dry_run: bool, as_json: bool) -> None:
    functions = list(map(_imported, using))
    with handle(settings) as state:
        try:
            done = roll_back_effects(state, rev, using=functions, dry_run=dry_run)
        except InvalidArgumentError as error:
            way = "--using MODULE:FUNCTION imports a function; vstate effects --settle and --forget end a doubt"
            raise StateError(error.what, remains=error.remains, hint=way) from error
        for each in done:
            if as_json:
                settings.output.json({"key": each.key, "rolled_back": not dry_run, "result": json_value(each.result)})
            else:
                settings.output.print(
                    "would roll back " if dry_run else "rolled back ",
                    Span(each.key, "path"),
                    f" {one_line(each.result)}",
                )


def _imported(name: str) -> Callable[..., Any]:
    """Import a function that the user has named. Raises ``StateError``."""
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        hint = "MODULE:FUNCTION, of a module that Python finds from here: set PYTHONPATH"
        raise StateError(
            f"--using {name}: there is no such function", remains="nothing was rolled back", hint=hint
        ) from error
    if not callable(found):
        raise StateError(f"--using {name}: it is not a function", remains="nothing was rolled back")
    function: Callable[..., Any] = found
    return function


def _settle(repository: Repository, key: str, result: str | None) -> dict[str, Any]:
    try:
        value = None if result is None else json.loads(result)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(not_json(str(result), error)) from error
    settle_effect(repository, key, value)
    return {"key": key, "status": "settled", "result": value}


def _forget(repository: Repository, key: str) -> dict[str, Any]:
    forget_effect(repository, key)
    return {"key": key, "status": "forgotten"}


def _is_listed(record: EffectRecord, patterns: Sequence[str], *, in_doubt: bool) -> bool:
    wanted = not patterns or any(fnmatchcase(record.key, pattern) for pattern in patterns)
    return wanted and not (in_doubt and record.status == "done")


def _list(settings: Settings, records: Sequence[EffectRecord], *, as_json: bool) -> None:
    output = settings.output
    if as_json:
        for record in records:
            output.json(
                {
                    "key": record.key,
                    "status": record.status,
                    "since": record.since.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z",
                    "result": json_value(record.result),
                }
            )
        return
    variants = [partial(_cells, time=form) for form in ("%Y-%m-%d %H:%M:%S UTC", "%Y-%m-%d %H:%M UTC", "")]
    for line in fit_rows(records, variants, output.columns):
        output.crop(*line)


def _cells(record: EffectRecord, *, time: str) -> Cells:
    done = record.status == "done"
    status, shown = Span(record.status, "added" if done else "error"), one_line(record.result) if done else ""
    return [status, Span(record.since.strftime(time), "time"), Span(record.key or "(erased)", "path"), shown]
