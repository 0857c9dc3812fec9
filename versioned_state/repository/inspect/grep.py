"""Grep: the strings of a state that a regular expression matches, line by line. Layer: repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from versioned_state.errors import UnknownPathError
from versioned_state.repository.inspect.log_filters import compiled
from versioned_state.repository.names.resolve import resolve
from versioned_state.values.cells import is_text, key_cell
from versioned_state.values.changes.removal import target_of
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.keys import is_internal, name_in, path_of
from versioned_state.values.paths.lookup import find_cell
from versioned_state.values.paths.path import StatePath
from versioned_state.values.paths.walk import Part, Walk, iter_lines
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, find, iter_items, rank

if TYPE_CHECKING:
    from versioned_state.repository.database import Database
    from versioned_state.repository.history.commit import Commit


@dataclass(frozen=True, slots=True)
class Match:
    """A line that matches.

    Attributes:
        path: the path of the string; within a set or a value of a registered type, the path of that.
        line: the line, without its line break.
        number: the number of the line in its string, from 1.
        spans: start and end of each match in the line.
        is_key: the line is in the key that the path ends with, not in the value there.
    """

    path: StatePath
    line: str
    number: int
    spans: tuple[tuple[int, int], ...]
    is_key: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the match in JSON types."""
        spans = [list(span) for span in self.spans]
        return {"path": str(self.path), "line": self.line, "number": self.number, "spans": spans, "is_key": self.is_key}


def grep(
    database: Database, pattern: str | re.Pattern[str], rev: str | Commit = "HEAD", *, path: str | StatePath = ""
) -> Iterator[Match]:
    """Yield the lines of strings in which a regular expression is found, in the order of the keys of the state.

    Keys of dicts are searched too. A line break ends a line, as in ``blame``: no line begins after the last one. The
    empty string is one empty line.

    Objects, bytes and the engine's own keys are not searched; nothing is unpickled. Cost: reads a leaf of a tree, or a
    few chunks of a long text, at a time, as matches are taken; a node that several lists share and that has no match is
    read once.

    Args:
        path: search only there: a value, or a namespace such as ``@worker``.

    Raises:
        InvalidArgumentError: the pattern is not a regular expression.
        UnknownPathError: nothing is at the path.
        CorruptObjectError, LimitExceededError: a value that no writer writes.
    """
    regex = compiled(pattern)
    nodes = Nodes(database.objects)
    parts = Walk(nodes, Decoder(nodes))
    places = _places(nodes, resolve(database, rev), path)

    def matches() -> Iterator[Match]:
        for part in (part for place in places for part in parts.iter(place.cell, place.path, is_key=place.is_key)):
            if not is_text(part.cell):
                continue
            for number, line in enumerate(iter_lines(nodes, part.cell), 1):
                spans = tuple(match.span() for match in regex.finditer(line))
                if spans:
                    parts.hits += 1
                    yield Match(part.path, line, number, spans, part.is_key)

    return matches()


def _places(nodes: Nodes, commit: Commit, path: str | StatePath) -> Iterator[Part]:
    """Yield the cells to search: the value at a path, or the keys and values of a namespace or of the whole state."""
    target = target_of(path) if str(path) else None
    if target is not None and not target.is_range:
        cell = find_cell(nodes, find(nodes, commit.tree, target.start), target.steps)
        if cell is None:
            raise UnknownPathError(str(path), at=commit.short)
        return iter([Part(path_of(target.start) / StatePath(target.steps), cell)])
    low = 0 if target is None else rank(nodes, commit.tree, target.start)
    high = commit.tree.count if target is None else rank(nodes, commit.tree, target.end)
    if target is not None and low == high:
        raise UnknownPathError(str(path), at=commit.short)
    return _entries(nodes, commit.tree, low, high)


def _entries(nodes: Nodes, tree: Tree, low: int, high: int) -> Iterator[Part]:
    for root_key, cell in iter_items(nodes, tree, low, high):
        if not is_internal(root_key):
            where = path_of(root_key)
            yield Part(where, key_cell(b"s" + name_in(root_key)), is_key=True)
            yield Part(where, cell)
