"""Commits as a line of the user's own: ``log --format``. Layer: cli."""

from __future__ import annotations

from string import Formatter
from typing import Any, Final

from versioned_state.cli.render.text import Names, age, first_line, human_time, meta_text
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.inspect.log_filters import find_meta
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.render import one_line

_FIELDS: Final = "id short time age author message body meta branches tags source note stamp parents root".split()

_KEYED: Final = ("meta", "note", "stamp")


class CommitFormat:
    """A template such as ``{short} {author:<10} {meta[step]} {message}``.

    Raises:
        InvalidArgumentError: it has a field that commits do not have, or is not a template.
    """

    def __init__(self, template: str) -> None:
        hint = f"the fields are {', '.join(_FIELDS)}, meta[KEY], note[KEY] and stamp[KEY]; a brace is written twice"
        try:
            self._parts = list(Formatter().parse(template.replace("\\n", "\n").replace("\\t", "\t")))
            for _, field, spec, conversion in self._parts:
                if field is not None:
                    _check_field(field, conversion, template, hint)
                    format("", spec or "")
        except ValueError as error:
            if isinstance(error, InvalidArgumentError):
                raise
            raise InvalidArgumentError(f"{template!r} is not a format: {error}", hint=hint) from error
        self.fields: Final = {field.partition("[")[0] for _, field, _, _ in self._parts if field}

    def of(self, repository: Repository, commit: Commit, names: Names, source: str) -> str:
        """Return the text of a commit. A field that it does not have is empty."""
        text = []
        for literal, field, spec, _ in self._parts:
            text.append(literal)
            if field is not None:
                name, _, key = field.removesuffix("]").partition("[")
                text.append(format(_value(repository, commit, names, source, name, key), spec or ""))
        return "".join(text)


def _check_field(field: str, conversion: str | None, template: str, hint: str) -> None:
    name, bracket, key = field.partition("[")
    is_known = name in _FIELDS and (not bracket or (name in _KEYED and len(key) > 1 and key.endswith("]")))
    if not is_known or conversion is not None:
        raise InvalidArgumentError(f"{{{field}}} in {template!r} is not a field of a commit", hint=hint)


def _value(repository: Repository, commit: Commit, names: Names, source: str, name: str, key: str) -> str:
    here = names.get(commit.id, [])
    match name:
        case "id" | "short" | "root":
            return str(getattr(commit, name))
        case "time":
            return human_time(commit)
        case "age":
            return age(commit)
        case "author":
            return commit.author or ""
        case "message":
            return first_line(commit.message)
        case "body":
            return commit.message
        case "branches" | "tags":
            return ", ".join(each for kind, each in here if name.startswith(kind))
        case "source":
            return source
        case "parents":
            return " ".join(parent[:12] for parent in commit.parents)
        case "meta":
            return _shown(commit.meta, key) if key else meta_text(commit)
        case _:
            found = repository.stamp(commit) if name == "stamp" else repository.notes.get(commit) or {}
            return _shown(found, key) if key else " ".join(f"{each}={_text(value)}" for each, value in found.items())


def _shown(values: Any, key: str) -> str:
    found = find_meta(dict(values), key)
    return "" if found is None else _text(found)


def _text(value: Any) -> str:
    return one_line(value, quote=False) if type(value) is str else one_line(value)
