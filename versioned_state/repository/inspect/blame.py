"""Blame: the commit that each part of a value comes from. Layer: repository.

As in git: every part is passed on to the first parent that has it unchanged; a part that no parent has is the commit's
own. Commits are taken children first, and only as long as parts are left. A text is its lines even where it has only
one, so that an answer does not depend on the commit at which the search begins.
"""

from __future__ import annotations

import heapq
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice
from typing import Any, Final, NamedTuple

from versioned_state.errors import CorruptObjectError, LimitExceededError, UnknownPathError
from versioned_state.objects.address import Address, Kind, expect
from versioned_state.objects.store import ObjectStore
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.history.read_ahead import ReadAhead
from versioned_state.repository.history.reader import CommitReader
from versioned_state.repository.inspect.path_tracer import PathTracer, TracedPath
from versioned_state.repository.views.preview import Preview
from versioned_state.repository.views.render import WIDTH, one_line
from versioned_state.values.cells import Code, code_of, key_of_cell
from versioned_state.values.changes.diff import Replaced, diff_lists, diff_maps
from versioned_state.values.changes.removal import target_of
from versioned_state.values.containers import Container, container_of
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.keys import is_internal, path_of
from versioned_state.values.paths.path import StatePath
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.prefetch import fetch_paths
from versioned_state.values.trees.references import tree_of
from versioned_state.values.trees.tree import Tree, find, iter_cells, iter_chunks, iter_items, rank, same

MAX_PARTS: Final = 1 << 20
"""Parts of one answer. A crafted list of six nodes can count 10**11 elements."""

MAX_TEXT: Final = 1 << 28
"""The most bytes of a text whose lines can be blamed: all of it is held in memory."""

_AT_ONCE: Final = 256
"""Entries of a dict whose leaves are read together."""

_FEW: Final = 16
"""Keys up to which each is looked up by itself; more are found by comparing the maps."""


class Blame:
    """A part of a value, and the commit that added it or last changed it.

    Attributes:
        path: the path of an element of a list or an entry of a dict; the requested path if the value there has no
            parts.
        line: of a text of several lines, the number of the line, from 1; otherwise None.
        commit: the commit that it comes from. If ``commit.shallow``, it may be older: older history was pruned there.
        complete: whether the search came to that commit. If not, the deadline ended it at ``commit``, which has the
            part too.
    """

    __slots__ = ("_decoder", "_nodes", "_part", "_there", "commit", "complete", "line", "path")

    def __init__(self, part: _Part, found: _Found, nodes: Nodes, decoder: Decoder) -> None:
        self.path: Final = part.path
        self.line: Final = part.line
        self.commit: Final = found.commit
        self.complete: Final = found.complete
        self._there = found.traced, found.position
        self._part = part.part
        self._nodes = nodes
        self._decoder = decoder

    @property
    def path_in_commit(self) -> StatePath:
        """The path that the part has in ``commit``: there, an element of a list may have another index."""
        traced, position = self._there
        if traced is None:
            return self.path
        of_value = traced.path
        below = self.path.steps[len(of_value) :]  # none for a line, and for a value without parts
        return of_value.index(position) if below and position is not None else of_value / StatePath(below)

    @property
    def value(self) -> Any:
        """The part, or of a text the line without its end, read on access.

        An object is shown as ``ObjectInfo``: nothing is unpickled.
        """
        return self._part if isinstance(self._part, str) else self._decoder.decode(self._part)

    def preview(self, *, width: int = WIDTH) -> str:
        """Return the beginning of the part on one line of about ``width`` characters, a line of a text unquoted.

        Cost: what is shown.
        """
        if isinstance(self._part, str):
            return one_line(self._part, width=width, quote=False)
        return Preview(self._nodes, self._decoder).one_line(self._part, width=width)

    def __repr__(self) -> str:
        where = str(self.path) if self.line is None else f"{self.path}, line {self.line}"
        return f"<Blame {where}: {self.commit.short}{'' if self.complete else ' or before'}>"


def blame(
    commit: Commit,
    path: str | StatePath,
    *,
    objects: ObjectStore,
    commits: CommitReader,
    start: int | None = None,
    end: int | None = None,
    deadline: float | None = None,
) -> list[Blame]:
    """Return which commit each part of the value at a path comes from, in the order of the parts.

    Cost: the commits down to the oldest of these; of a part that has never changed, all of them.

    Args:
        path: an empty one is the whole state, ``@worker`` a namespace.
        start, end: return only the parts from ``start`` to before ``end``, both as in a slice: ``start=-50`` for the
            last 50.
        deadline: stop after this many seconds, and one commit at least. Parts whose commit is not known then have
            ``complete`` false. For each of them blame of ``part.commit``, where the part is at ``part.path_in_commit``
            (a line of a text: the line there that equals it), gives the commit that a search without a deadline gives.

    Raises:
        UnknownPathError: nothing is there.
        LimitExceededError: more than ``MAX_PARTS`` parts, or a text above ``MAX_TEXT`` bytes.
    """
    return _Blamer(objects, commits).run(commit, path, slice(start, end), deadline)


class _Kind(Enum):
    """The kind of parts that a value has."""

    ENTRIES = auto()
    ELEMENTS = auto()
    LINES = auto()
    NONE = auto()


class _Run(NamedTuple):
    """A run of parts: ``length`` of them, from ``position`` in one state's list or text.

    ``answer`` is the index of the first one in the result.
    """

    position: int
    length: int
    answer: int


_Entries = dict[bytes, int]  # the keys, and their indexes in the result
_Pending = _Entries | list[_Run]


class _Found(NamedTuple):
    """The commit that a part comes from, or came from at least, and the place of the part there."""

    commit: Commit
    traced: TracedPath | None
    position: int | None
    complete: bool


@dataclass(slots=True)
class _Suspect:
    """A commit that has some parts, which may be its own.

    ``traced`` is the value that has them, or None for the state.
    """

    commit: Commit
    traced: TracedPath | None
    pending: _Pending = field(default_factory=list)


class _Blamer:
    """The search for one answer."""

    def __init__(self, objects: ObjectStore, commits: CommitReader) -> None:
        self._ahead = ReadAhead(commits)
        self._tracer = PathTracer(objects)
        self._nodes = self._tracer.nodes
        self._kind = _Kind.NONE
        self._suspects: dict[str, dict[Any, _Suspect]] = {}
        self._heap: list[tuple[int, str]] = []
        self._found: dict[int, _Found] = {}
        self._texts = _Texts(self._tracer)

    def run(self, commit: Commit, path: str | StatePath, parts: slice, deadline: float | None) -> list[Blame]:
        until = None if deadline is None else time.monotonic() + deadline
        traced, listed = self._listed(commit, path, parts)
        pending: _Pending
        if self._kind is _Kind.ENTRIES:
            pending = {part.key: answer for answer, part in enumerate(listed)}
        else:
            pending = [_Run(listed[0].position, len(listed), 0)] if listed else []
        self._pass_on(commit, traced, pending)
        while self._heap:
            _, id = heapq.heappop(self._heap)
            for suspect in self._suspects.pop(id).values():
                self._assign(suspect)
            if until is not None and time.monotonic() >= until:
                break
        for suspect in (suspect for at in self._suspects.values() for suspect in at.values()):
            self._answer(suspect, suspect.pending, complete=False)
        nodes, decoder = self._nodes, self._tracer.decoder
        return [Blame(part, self._found[answer], nodes, decoder) for answer, part in enumerate(listed)]

    # The parts of the requested value

    def _listed(self, commit: Commit, path: str | StatePath, parts: slice) -> tuple[TracedPath | None, list[_Part]]:
        """Return the path of the value (None: the state, or a namespace), and the requested parts."""
        if not path:
            start, end = b"", None
        else:
            target = target_of(path)
            start, end = target.start, target.end
            if target.steps or end == start + b"\0":
                traced = self._tracer.find(commit.tree, path_of(start) / StatePath(target.steps))
                return traced, self._parts_of(commit, traced, parts)
        self._kind = _Kind.ENTRIES
        low = rank(self._nodes, commit.tree, start)
        high = None if end is None else rank(self._nodes, commit.tree, end)
        entries = [(key, cell) for key, cell in iter_items(self._nodes, commit.tree, low, high) if not is_internal(key)]
        if path and not entries:
            raise UnknownPathError(str(path), at=commit.short)
        return None, [_Part(path_of(key), cell, key=key) for key, cell in entries[parts]]

    def _parts_of(self, commit: Commit, traced: TracedPath, parts: slice) -> list[_Part]:
        path, cell = traced.path, traced.cell
        if cell is None:
            raise UnknownPathError(str(path), at=commit.short)
        opened = container_of(self._nodes, cell)
        lines = self._texts.lines(cell) if opened is None else None
        if opened is not None and opened.tree.count:
            if opened.tree.shape is Shape.SEQUENCE:
                self._kind = _Kind.ELEMENTS
                wanted = _bounded(range(opened.tree.count)[parts], path)
                cells = iter_cells(self._nodes, opened.tree, wanted.start, wanted.stop)
                return [_Part(path.index(at), cell, position=at) for at, cell in zip(wanted, cells, strict=True)]
            self._kind = _Kind.ENTRIES
            return [
                _Part(self._tracer.decoder.entry_path(path, key), cell, key=key)
                for key, cell in self._iter_entries(opened, _bounded(range(opened.tree.count)[parts], path))
            ]
        if lines:
            self._kind = _Kind.LINES
            if len(lines) > 1:
                return [_Part(path, lines[at], position=at, line=at + 1) for at in range(len(lines))[parts]]
        return [_Part(path, cell)][parts]

    def _iter_entries(self, opened: Container, wanted: range) -> Iterator[tuple[bytes, bytes]]:
        """Yield the wanted entries of a dict, in their order."""
        if opened.order is None:
            yield from iter_items(self._nodes, opened.tree, wanted.start, wanted.stop)
            return
        if isinstance(opened.order, Tree):
            keys: Iterable[bytes] = (
                key_of_cell(cell) for cell in iter_cells(self._nodes, opened.order, wanted.start, wanted.stop)
            )
        else:
            keys = opened.order[wanted.start : wanted.stop]
        left = iter(keys)
        while some := list(islice(left, _AT_ONCE)):
            fetch_paths(self._nodes, opened.tree.top, some)
            for key in some:
                cell = find(self._nodes, opened.tree, key)
                if cell is None:
                    raise CorruptObjectError("(a dict)", "the order of its keys has one that is not among its entries")
                yield key, cell

    # The walk

    def _pass_on(self, commit: Commit, traced: TracedPath | None, pending: _Pending) -> None:
        """Make a commit the suspect for some parts. Several children may pass parts on to it."""
        if not pending:
            return
        at = self._suspects.get(commit.id)
        if at is None:
            at = self._suspects[commit.id] = {}
            heapq.heappush(self._heap, (-commit.generation, commit.id))
        suspect = at.setdefault(
            traced and traced.steps, _Suspect(commit, traced, {} if isinstance(pending, dict) else [])
        )
        if isinstance(pending, dict):
            assert isinstance(suspect.pending, dict)
            suspect.pending = suspect.pending | pending if suspect.pending else pending
        else:
            assert isinstance(suspect.pending, list)
            suspect.pending += pending

    def _assign(self, suspect: _Suspect) -> None:
        """Pass a commit's parts on to the parents that have them. The rest is its own."""
        commit = suspect.commit
        earlier: list[tuple[Commit, TracedPath | None]] = []
        for parent in self._ahead.parents_of(commit):
            traced = None
            if suspect.traced is None:
                is_same = same(parent.tree, commit.tree)
            else:
                traced = self._tracer.before(suspect.traced, parent.tree, later=commit.tree)
                if traced is None or traced.cell is None:
                    continue
                is_same = self._tracer.same(traced, suspect.traced)
            if is_same:
                self._pass_on(parent, traced, suspect.pending)
                return
            earlier.append((parent, traced))
        left = suspect.pending
        for parent, traced in earlier:
            handed, left = self._split(parent, traced, suspect, left)
            self._pass_on(parent, traced, handed)
            if not left:
                return
        self._answer(suspect, left, complete=True)

    def _answer(self, suspect: _Suspect, parts: _Pending, *, complete: bool) -> None:
        """Record that some parts come from a commit, or from one before it."""
        if isinstance(parts, dict):
            found = _Found(suspect.commit, suspect.traced, None, complete)
            self._found |= dict.fromkeys(parts.values(), found)
            return
        for run in parts:
            for step in range(run.length):
                self._found[run.answer + step] = _Found(suspect.commit, suspect.traced, run.position + step, complete)

    def _split(
        self, parent: Commit, traced: TracedPath | None, suspect: _Suspect, pending: _Pending
    ) -> tuple[_Pending, _Pending]:
        """Return the parts that a parent has unchanged, and the others."""
        if isinstance(pending, dict):
            return self._split_entries(self._map(parent, traced), self._map(suspect.commit, suspect.traced), pending)
        old = None if traced is None else traced.cell
        new = None if suspect.traced is None else suspect.traced.cell
        assert old is not None
        assert new is not None
        parts = None
        if self._kind is _Kind.ELEMENTS:
            parts = self._tracer.replaced(old, new)
        elif self._kind is _Kind.LINES:
            before, after = self._texts.lines(old), self._texts.lines(new)
            assert after is not None
            parts = None if before is None else list(diff_lists(before, after))
        return ([], pending) if parts is None else _split_runs(pending, parts)

    def _map(self, commit: Commit, traced: TracedPath | None) -> Tree | None:
        """Return the entries of the state, or of the dict at a path, or None if it is another value."""
        if traced is None:
            return commit.tree
        opened = None if traced.cell is None else container_of(self._nodes, traced.cell)
        return None if opened is None or opened.tree.shape is not Shape.MAP else opened.tree

    def _split_entries(self, old: Tree | None, new: Tree | None, pending: _Entries) -> tuple[_Entries, _Entries]:
        if old is None or new is None or not old.count:
            return {}, pending
        # The value around a dict may have grown, so that the same entries have cells of another form.
        is_same = self._tracer.composer.same
        if len(pending) > _FEW:
            changed = (key for key, a, b in diff_maps(self._nodes, old, new) if key in pending and not is_same(a, b))
        else:
            changed = (key for key in pending if not is_same(find(self._nodes, old, key), find(self._nodes, new, key)))
        left = {key: pending[key] for key in changed}
        for key in left:
            del pending[key]
        return pending, left


def _bounded(parts: range, path: StatePath) -> range:
    if len(parts) > MAX_PARTS:
        hint = "ask for some of them: start= and end=, such as start=-100"
        raise LimitExceededError(f"blame of {len(parts):,} parts", limit=MAX_PARTS, path=str(path), hint=hint)
    return parts


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the value, which is a cell or the line of a text, and its position or key there."""

    path: StatePath
    part: bytes | str
    position: int = 0
    key: bytes = b""
    line: int | None = None


def _split_runs(runs: list[_Run], parts: list[Replaced]) -> tuple[list[_Run], list[_Run]]:
    """Return the runs that were there before, by their old positions, and those inserted since, by their new ones."""
    starts = [part.new_start for part in parts]
    before: list[_Run] = []
    new: list[_Run] = []
    for run in runs:
        position, end = run.position, run.position + run.length
        index = bisect_right(starts, position) - 1
        while position < end:
            part = parts[index] if index >= 0 else Replaced(0, 0, 0, 0)
            answer = run.answer + position - run.position
            if position < part.new_end:
                stop = min(end, part.new_end)
                new.append(_Run(position, stop - position, answer))
            else:
                stop = min([end, *starts[index + 1 : index + 2]])
                before.append(_Run(position - part.new_end + part.old_end, stop - position, answer))
            position = stop
            while index + 1 < len(parts) and starts[index + 1] <= position:
                index += 1
    return before, new


class _Texts:
    """Texts by line. Only the chunks that the previous text did not have are read."""

    def __init__(self, tracer: PathTracer) -> None:
        self._nodes = tracer.nodes
        self._decoder = tracer.decoder
        self._lines: dict[bytes, list[str] | None] = {}
        self._chunks: dict[Address, bytes] = {}

    def lines(self, cell: bytes) -> list[str] | None:
        """Return the lines of a text, without their line breaks, or None for every other value.

        An empty text has none.
        """
        kept = self._lines
        if cell not in kept:
            # Two texts are kept, since each is compared with the one before it.
            self._lines = {key: kept[key] for key in list(kept)[-1:]} | {cell: self._read(cell)}
        return self._lines[cell]

    def _read(self, cell: bytes) -> list[str] | None:
        code = code_of(cell)
        if code == Code.TEXT:
            text = self._join(cell)
        elif code is None and (0xA0 <= cell[0] <= 0xBF or 0xD9 <= cell[0] <= 0xDB):
            text = self._decoder.decode(cell)
        else:
            return None
        lines = text.split("\n")
        return lines if lines[-1] else lines[:-1]

    def _join(self, cell: bytes) -> str:
        tree = tree_of(cell)
        assert tree is not None
        if tree.count > MAX_TEXT:
            raise LimitExceededError(f"blame of a text of {tree.count:,} bytes", limit=MAX_TEXT)
        known, chunks, size = self._chunks, {}, 0
        data = bytearray()
        for row in iter_chunks(self._nodes, tree):
            addresses = list(map(Address, row))
            raws = self._nodes.reader.read_many(
                [address for address in dict.fromkeys(addresses) if address not in known]
            )
            for address in addresses:
                raw = known.get(address) or raws[address]
                expect(raw, address, Kind.CHUNK)
                chunks[address] = raw
                size += len(raw) - 1
                if size > tree.count:  # before memory is taken for it
                    raise CorruptObjectError(address.hex(), f"a text of {tree.count:,} bytes has more")
                data += raw[1:]
        self._chunks = chunks
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise CorruptObjectError("(a text)", f"it does not decode: {error}") from error
