"""``vstate verify``: signatures, checked against keys that you trust. Layer: cli."""

from __future__ import annotations

import re
from typing import Any, Final

import click

from versioned_state.cli.render.output import Output, Span, Style
from versioned_state.cli.render.text import first_line, plural
from versioned_state.cli.shared import completion
from versioned_state.cli.shared.settings import Settings, json_option, limit_option, revision_argument, verb
from versioned_state.cli.shared.store import named, read_bounded
from versioned_state.objects.address import HEX_SIZE
from versioned_state.repository.history.signing import SignatureStatus, Verification, key_id

_ID: Final = re.compile(f"[0-9a-f]{{{HEX_SIZE}}}")

_STYLES: dict[SignatureStatus, Style] = {SignatureStatus.BAD: "removed", SignatureStatus.GOOD: "added"}


@verb("verify", example="vstate verify main --key agent.pem.pub")
@revision_argument("rev", default="HEAD")
@click.option(
    "--key",
    "keys",
    multiple=True,
    required=True,
    metavar="FILE",
    help="A public key that you trust; repeat it for several.",
    shell_complete=completion.file,
)
@click.option(
    "--since",
    metavar="ID",
    help="The full id of a commit that was checked before: check the newer ones, and that it is still in this history.",
)
@limit_option("Check at most COUNT commits, newest first.")
@json_option
@click.pass_context
def verify(
    context: click.Context, rev: str, *, keys: tuple[str, ...], since: str | None, limit: int | None, as_json: bool
) -> None:
    """Check the signatures of REV (default: HEAD) and of every commit before it.

    Exits with 1 if one is missing, bad, or of another key.

    Keep the id of the last head that you saw in another place, and give it as --since: nothing else shows that the
    newest commits were removed. With --json: one object.
    """
    settings: Settings = context.obj
    output = settings.output
    if since is not None and not _ID.fullmatch(since):
        raise click.UsageError(f"--since takes the full id of a commit, {HEX_SIZE} hex digits, not {since!r}")
    trusted = [read_bounded(name) for name in keys]
    for name, key in zip(keys, trusted, strict=True):
        named(name, key_id, key)
    with settings.reading() as repository:
        found = repository.verify(rev, keys=trusted, since=since, limit=limit)
    if as_json:
        output.json(_json(found))
    else:
        _print(output, found, since)
    if not found.ok:
        context.exit(1)


def _print(output: Output, found: Verification, since: str | None) -> None:
    for check in found.faults:
        who = f" {check.commit.signed_by}" if check.commit.signed_by else ""
        status = Span(check.status.value + who, _STYLES.get(check.status, "changed"))
        output.crop(Span(check.commit.short, "id"), "  ", status, "  ", first_line(check.commit.message))
    told = [f"{count:,} {status.value}" for status, count in found.counts.items() if count]
    output.print(
        f"{plural(found.checked, 'commit')} up to ",
        Span(found.head.short, "id"),
        f": {', '.join(told) or 'nothing to check'}",
    )
    if found.extends is False:
        output.print(Span(f"{since} is not in this history: commits were removed or rewritten", "removed"))
    if not found.complete:
        output.print("history was not checked to its beginning")


def _json(found: Verification) -> dict[str, Any]:
    return {
        "ok": found.ok,
        "head": found.head.id,
        "counts": {status.value: count for status, count in found.counts.items()},
        "faults": [
            {"commit": check.commit.id, "status": check.status.value, "signed_by": check.commit.signed_by}
            for check in found.faults
        ],
        "complete": found.complete,
        "extends": found.extends,
    }
