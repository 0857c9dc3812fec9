"""The changes of ``vstate ui --edit``.

Each verb is done twice: first over a copy in memory, to show the exact change, then in the store.

It never deletes, purges or collects. Layer: server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from versioned_state.errors import BranchMovedError, InvalidArgumentError, UnknownRevisionError
from versioned_state.repository.database import Database
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.repository.shown import commits
from versioned_state.repository.shown.text import Budget
from versioned_state.server.page.views.diff import between
from versioned_state.state.versioned import Versioned
from versioned_state.storage.wrappers.overlay import Overlay

Fields = Mapping[str, str]

LONGEST: Final = 20_000
"""Characters of a field; a message or a note is the longest."""


@dataclass(frozen=True)
class Field:
    """A field of a form. ``is_given``: it comes with the link, and is only shown."""

    name: str
    label: str
    default: str = ""
    is_given: bool = False


@dataclass(frozen=True)
class Verb:
    """Something that can be done.

    Attributes:
        says: what it does, in a sentence; ``{branch}`` and the fields are filled in.
        moves: whether it moves the branch: then the head that the viewer saw must still be its head.
        run: does it, and returns the commit to show afterwards, or None for the log of the branch.
    """

    title: str
    says: str
    fields: tuple[Field, ...]
    moves: bool
    run: Callable[[Repository, Fields], Commit | None]


def _open(repository: Repository, fields: Fields) -> Versioned:
    """Return a handle on a branch at the head that the viewer saw. Raises ``BranchMovedError`` if it moved since."""
    state = Versioned(repository, branch=fields["branch"], author=fields["author"])
    if state.head.id != fields["head"]:
        hint = "look at the new rounds, and begin again"
        raise BranchMovedError(state.branch, expected=fields["head"], actual=state.head.id, hint=hint)
    return state


def _restore(repository: Repository, fields: Fields) -> Commit | None:
    state = _open(repository, fields)
    state.restore(fields["path"], fields["at"])
    return state.commit(fields["message"], on_moved="refuse")


def _undo(repository: Repository, fields: Fields) -> Commit | None:
    state = _open(repository, fields)
    try:
        state.undo()
    except UnknownRevisionError as error:  # of a position in the reflog, which the viewer has not named
        raise InvalidArgumentError(error.what) from None
    return None


def _branch(repository: Repository, fields: Fields) -> Commit | None:
    repository.branches.create(fields["name"], fields["at"])
    return None


def _tag(repository: Repository, fields: Fields) -> Commit | None:
    repository.tags.create(fields["name"], fields["at"])
    return repository.commit(fields["at"])


def _note(repository: Repository, fields: Fields) -> Commit | None:
    commit = repository.commit(fields["at"])
    repository.notes.update(commit, {fields["key"]: fields["text"], "by": fields["author"]})
    return commit


_AT: Final = Field("at", "At commit", is_given=True)

VERBS: Final[dict[str, Verb]] = {
    "restore": Verb(
        "Restore a value",
        "A new commit on {branch} gives {path} the value that it had at {at}.",
        (Field("path", "Path", is_given=True), _AT, Field("message", "Message", "restore {path}")),
        True,
        _restore,
    ),
    "undo": Verb(
        "Undo the last move", "{branch} moves back by one. Redo brings the move back: vstate redo.", (), True, _undo
    ),
    "branch": Verb(
        "Branch here", "A new branch begins at {at}.", (_AT, Field("name", "Name of the branch")), False, _branch
    ),
    "tag": Verb(
        "Tag this round", "A tag names {at}. It does not move.", (_AT, Field("name", "Name of the tag")), False, _tag
    ),
    "note": Verb(
        "Note on this round",
        "The note is attached to {at}. The commit and its id stay as they are.",
        (_AT, Field("key", "Key", "verdict"), Field("text", "Text", "good round")),
        False,
        _note,
    ),
}


def _values(verb: Verb, branch: str, given: Fields, *, author: str) -> dict[str, str]:
    values = {"branch": branch, "head": given.get("head", ""), "author": given.get("author", author).strip()}
    for field in verb.fields:
        text = given.get(field.name, "") or field.default.format_map({**given, "path": given.get("path", "")})
        if len(text) > LONGEST:
            raise InvalidArgumentError(f"{field.label} has more than {LONGEST:,} characters")
        values[field.name] = text.strip() if field.name != "text" else text
    return values


def _check(verb: Verb, values: Fields) -> str:
    """Return what is missing, in words, or ``""``."""
    missing = [field.label for field in verb.fields if not values[field.name]] + (
        [] if values["author"] else ["Author"]
    )
    return f"Missing: {', '.join(missing)}." if missing else ""


def confirm(
    repository: Repository, budget: Budget, name: str, branch: str, given: Fields, *, author: str
) -> dict[str, Any]:
    """Return the form of a verb and, once all its fields are filled in, the exact change that it would make.

    Nothing is written.

    Raises as the verb does.
    """
    verb = VERBS[name]
    before = repository.branches[branch]
    values = {**_values(verb, branch, given, author=author), "head": given.get("head") or before.id}
    problem = _check(verb, values)
    diff = after = None
    if not problem:
        trial = Repository.over(Database(Overlay(repository.store), pickle="refuse"))
        verb.run(trial, values)
        if verb.moves:
            after = trial.branches[branch]
            diff = between(trial, budget, before, after)
    return {
        "title": verb.title,
        "verb": name,
        "says": verb.says.format_map(
            {key: budget.cut(text[:12] if key == "at" else text, 300) for key, text in values.items()}
        ),
        "fields": [
            {
                "name": field.name,
                "label": field.label,
                "value": budget.cut(values[field.name], LONGEST),
                "is_given": field.is_given,
            }
            for field in verb.fields
        ],
        "branch": branch,
        "head": commits.facts(before, budget),
        "expected": values["head"],
        "author": budget.cut(values["author"], 400),
        "problem": problem if any(key in given for key in ("author", "name", "text", "message")) else "",
        "is_ready": not problem,
        "diff": diff,
        "moves": verb.moves,
        "after": None if after is None else after.id,
    }


def perform(repository: Repository, name: str, branch: str, given: Fields) -> Commit | None:
    """Do what was confirmed. Returns the commit to show, or None for the log of the branch.

    Raises:
        InvalidArgumentError: a field is missing. Nothing was changed.
        BranchMovedError: the branch is no longer where the viewer saw it. Nothing was changed.
    """
    verb = VERBS[name]
    values = _values(verb, branch, given, author="")
    problem = _check(verb, values)
    if problem or (verb.moves and not values["head"]):
        raise InvalidArgumentError(problem or "the form has no head", hint="begin at the page of the round")
    return verb.run(repository, values)
