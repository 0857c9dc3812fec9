"""``vstate note``: data attached to a commit. Layer: cli."""

from __future__ import annotations

import json
from typing import Any

import click

from versioned_state.cli.render.output import Output, Span
from versioned_state.cli.render.text import first_line
from versioned_state.cli.shared import completion
from versioned_state.cli.shared.settings import Settings, json_option, literal_option, verb
from versioned_state.cli.shared.values import given
from versioned_state.errors import InvalidArgumentError, StateError
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.json_form import json_value


@verb("note", example="vstate note main score 0.9")
@click.argument("words", nargs=-1, metavar="[REV] [KEY VALUE]", shell_complete=completion.revision)
@click.option("-l", "--list", "listed", is_flag=True, help="List the commits that have a note.")
@click.option(
    "-d", "--delete", metavar="KEY", multiple=True, help="Remove KEY from the note. May be given several times."
)
@click.option("--text", is_flag=True, help="Take VALUE as a string, not as JSON.")
@literal_option
@json_option
@click.pass_obj
def note(
    settings: Settings,
    words: tuple[str, ...],
    *,
    listed: bool,
    delete: tuple[str, ...],
    text: bool,
    literal: bool,
    as_json: bool,
) -> None:
    """Show the note of REV (default: HEAD), or set KEY in it to VALUE, which is JSON.

    A note does not change its commit.

    With --json: one object.
    """
    if len(words) > 3:
        raise click.UsageError("vstate note takes REV, KEY and VALUE; a VALUE with blanks needs quotes")
    rev = words[0] if len(words) in (1, 3) else "HEAD"
    output = settings.output
    if listed:
        with settings.reading() as repository:
            _list(output, repository, as_json=as_json)
        return
    if len(words) < 2 and not delete:
        with settings.reading() as repository:
            commit = repository.commit(rev)
            _show(output, commit, repository.notes.get(commit) or {}, as_json=as_json)
        return
    with settings.changing() as repository:
        commit = repository.commit(rev)
        if len(words) == 2:
            _check_is_key(repository, *words)
        if len(words) >= 2:
            key, value = words[-2:]
            it = given(value, as_text=text, literal=literal)
            repository.notes.update(commit, {key: it.parsed(hint="--text takes it as a string: vstate note --text …")})
        if delete:
            repository.notes.remove(commit, *delete)
        _show(output, commit, repository.notes.get(commit) or {}, as_json=as_json)


def _check_is_key(repository: Repository, word: str, last: str) -> None:
    """Refuse ``vstate note REV KEY``, which would set the key REV of another commit's note."""
    try:
        repository.commit(word)
    except StateError:
        return
    raise InvalidArgumentError(
        f"{word!r} is a revision, and VALUE is missing",
        hint=f"vstate note {word} {last} VALUE; to set the key {word!r}: vstate note HEAD {word} {last}",
    )


def _list(output: Output, repository: Repository, *, as_json: bool) -> None:
    for id, values in sorted(repository.notes.items()):
        if as_json:
            output.json({"commit": id, "note": json_value(values)})
        else:
            commit = repository.commit(id)
            output.crop(Span(commit.short, "id"), "  ", first_line(commit.message), "  ", ", ".join(values))


def _show(output: Output, commit: Commit, values: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.json({"commit": commit.id, "note": json_value(values)})
        return
    if not values:
        output.note(f"{commit.short} has no note")
    for line in note_lines(values):
        output.print(line)


def note_lines(values: dict[str, Any]) -> list[str]:
    """Return a note as lines of text."""
    return [f"{key}: {json.dumps(json_value(value), ensure_ascii=False)}" for key, value in values.items()]
