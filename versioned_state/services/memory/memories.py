"""The memory of one user as it lies on a branch: the keys of its messages, and reading them at a commit.

Layer: services.

Reads of many messages or words, a batch at a time, raise ``LateError`` when the caller's deadline has passed.

::

    @messages.@<session>["<id>"]  a message, as a dict; ids are in order of time, also across sessions
    @words["<segment>"]           the index of words, where it lies in the state: see ``indexes/in_state``
    @vectors.@<embedder>[…]       the vectors of messages: see ``vectors``

Every message has a key of its own, so two writers who add to one session never meet, and merging their commits keeps
both.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from versioned_state.services.calls.deadline import check_deadline
from versioned_state.services.calls.spending import counted
from versioned_state.state.branch import port
from versioned_state.values.changes.diff import diff_maps
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.keys import USER, namespace_prefix, user_key
from versioned_state.values.paths.lookup import find_part
from versioned_state.values.paths.path import Step
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.prefetch import fetch_paths
from versioned_state.values.trees.tree import Tree, empty, find, iter_items, rank

if TYPE_CHECKING:
    from versioned_state.repository.history.commit import Commit
    from versioned_state.repository.repository import Repository
    from versioned_state.state.versioned import Namespace, Versioned

MESSAGES: Final = "messages"
DEFAULT_SESSION: Final = "default"

_ID: Final = 22
"""Characters of an id: the time in 14 digits, and 8 that differ from writer to writer."""
_LONGEST: Final = 1000
"""Bytes of a session id, from which the name of its namespace has only the beginning and a hash."""
_READ_AT_ONCE: Final = 128


class Place(NamedTuple):
    """The place of a message. Places are in order of time."""

    id: str
    session: str

    @property
    def key(self) -> str:
        """The place as one string."""
        return self.id + self.session

    @classmethod
    def of(cls, key: str) -> Place:
        """Return the place that a string stands for."""
        return cls(key[:_ID], key[_ID:])


def session_name(session_id: str | None) -> str:
    """Return the namespace of a session. Without an id, it is the default session."""
    return escaped(session_id or DEFAULT_SESSION)


def escaped(id: str) -> str:
    """Return a name of a namespace for an id, one to one. Names have the order of their ids."""
    # The name of a namespace has no NUL, and is not empty.
    name = id.replace("\x01", "\x01\x02").replace("\0", "\x01\x01") or "\x01\x03"
    stored = name.encode("utf-8", "surrogatepass")
    if len(stored) <= _LONGEST:
        return name
    return f"{stored[:_LONGEST].decode('utf-8', 'ignore')}\x01\x04{blake2b(stored, digest_size=16).hexdigest()}"


def new_ids(count: int, after: str | None) -> list[str]:
    """Return ids of new messages, which come after the last one of the session whatever this machine's clock says."""
    now = time.time_ns() // 1000
    if after is not None:
        now = max(now, int(after[:14], 16) + 1)
    mark = secrets.token_hex(4)
    return [f"{now + number:014x}{mark}" for number in range(count)]


def session_of(state: Versioned, session: str) -> Namespace:
    """Return the messages of a session on a handle."""
    return state.namespace(MESSAGES).namespace(session)


def count_in(state: Versioned) -> int:
    """Count the messages on a handle, uncommitted ones included. Cost: two paths."""
    prefix = namespace_prefix(MESSAGES)
    return port.handle(state).worktree.keys.count(prefix, prefix + b"\xff")


class Memories:
    """The memory of a user at a commit. Not for two threads at once. Opening it reads nothing."""

    _prefix: Final = namespace_prefix(MESSAGES)

    def __init__(self, repository: Repository, branch: str, commit: Commit) -> None:
        self.repository = repository
        self.branch = branch
        self.commit = commit
        self.tree: Final = commit.tree
        self._nodes = Nodes(repository.database.objects, cache=repository.database.nodes)
        self._decoder = Decoder(self._nodes, repository.database.policy)

    @property
    def parts(self) -> Sequence[Memories]:
        """The memories of single branches that this one consists of: itself."""
        return (self,)

    @cached_property
    def _range(self) -> tuple[int, int]:
        return self._rank(self._prefix), self._rank(self._prefix + b"\xff")

    def _rank(self, key: bytes) -> int:
        return rank(self._nodes, self.tree, key)

    def __len__(self) -> int:
        """Count the messages. Cost: two paths."""
        low, high = self._range
        return high - low

    def read(self, places: Iterable[Place]) -> Iterator[tuple[Place, dict[str, Any]]]:
        """Read the messages at some places, in that order, without those that do not exist. Cost: one path each."""
        wanted = list(places)
        for start in range(0, len(wanted), _READ_AT_ONCE):
            check_deadline()
            batch = wanted[start : start + _READ_AT_ONCE]
            keys = [_key_of(place) for place in batch]
            fetch_paths(self._nodes, self.tree.top, keys)
            found = {place: find(self._nodes, self.tree, key) for place, key in zip(batch, keys, strict=True)}
            cells = {place: cell for place, cell in found.items() if cell is not None}
            yield from zip(cells, self._decoder.decode_many(list(cells.values())), strict=True)

    def page(self, start: int, count: int) -> list[dict[str, Any]]:
        """Read ``count`` messages from an offset on, sessions in the order of their ids.

        Cost: a path, and the messages.
        """
        low, high = self._range
        found: list[dict[str, Any]] = []
        end = min(low + start + count, high)
        for at in range(low + start, end, _READ_AT_ONCE):
            check_deadline()
            cells = [cell for _, cell in iter_items(self._nodes, self.tree, at, min(at + _READ_AT_ONCE, end))]
            found += map(counted, self._decoder.decode_many(cells))
        return found

    def all(self) -> Iterator[tuple[Place, dict[str, Any]]]:
        """Iterate over all messages, session by session."""
        low, high = self._range
        for start in range(low, high, _READ_AT_ONCE):
            check_deadline()
            items = list(iter_items(self._nodes, self.tree, start, min(start + _READ_AT_ONCE, high)))
            yield from zip(
                (_place_of(key) for key, _ in items),
                self._decoder.decode_many([cell for _, cell in items]),
                strict=True,
            )

    def places(self) -> list[Place]:
        """Return the places of all messages, session by session."""
        low, high = self._range
        return [_place_of(key) for key, _ in iter_items(self._nodes, self.tree, low, high)]

    def first(self) -> Place | None:
        """Return the place of the first message, in the order of ``page``, or None if there is none. Cost: a path."""
        low, high = self._range
        return next((_place_of(key) for key, _ in iter_items(self._nodes, self.tree, low, min(low + 1, high))), None)

    def changes(self, since: Commit | None) -> Iterator[tuple[Place, dict[str, Any] | None, dict[str, Any] | None]]:
        """Iterate over the messages that differ from those at another commit, or from none: place, old and new.

        Cost: the differences.

        Raises:
            MissingObjectError: the other commit does not exist any more.
        """
        before: Tree = empty(Shape.MAP) if since is None else since.tree
        for key, old, new in diff_maps(self._nodes, before, self.tree):
            if key.startswith(self._prefix):
                yield _place_of(key), self._read(old), self._read(new)

    def count(self, namespace: Sequence[str]) -> int:
        """Count the keys in a namespace. Cost: two paths."""
        prefix = b"".join(map(namespace_prefix, namespace)) + USER
        return self._rank(prefix + b"\xff") - self._rank(prefix)

    def keys(self, namespace: Sequence[str]) -> list[str]:
        """Return the keys of a namespace, in order."""
        prefix = b"".join(map(namespace_prefix, namespace)) + USER
        items = iter_items(self._nodes, self.tree, self._rank(prefix), self._rank(prefix + b"\xff"))
        return [_text(key[len(prefix) :]) for key, _ in items]

    def cell(self, namespace: Sequence[str], key: str) -> bytes | None:
        """Return the stored form of the value of a key in a namespace."""
        check_deadline()
        return find(self._nodes, self.tree, b"".join(map(namespace_prefix, namespace)) + user_key(key))

    def part(self, cell: bytes, step: Step) -> bytes | None:
        """Return the stored form of a part of a value. Cost: one path."""
        check_deadline()
        return find_part(self._nodes, cell, step)

    def decode(self, cells: Sequence[bytes]) -> list[Any]:
        """Decode some cells, whose objects are read at once."""
        return self._decoder.decode_many(cells)

    def _read(self, cell: bytes | None) -> dict[str, Any] | None:
        return None if cell is None else self._decoder.decode(cell)

    def entries(self, namespace: Sequence[str], since: Tree | None = None) -> Iterator[tuple[str, bytes | None]]:
        """Iterate over a namespace's keys whose values differ from another tree, or all, with the new value or None."""
        prefix = b"".join(map(namespace_prefix, namespace)) + USER
        if since is None:
            low, high = self._rank(prefix), self._rank(prefix + b"\xff")
            for key, cell in iter_items(self._nodes, self.tree, low, high):
                check_deadline()
                yield _text(key[len(prefix) :]), self._decoder.decode(cell)
            return
        for key, _, new in diff_maps(self._nodes, since, self.tree):
            check_deadline()
            if key.startswith(prefix):
                yield _text(key[len(prefix) :]), None if new is None else self._decoder.decode(new)


def _key_of(place: Place) -> bytes:
    return Memories._prefix + namespace_prefix(place.session) + user_key(place.id)


def _place_of(key: bytes) -> Place:
    session, _, id = key[len(Memories._prefix) + 1 :].partition(b"\0")
    return Place(_text(id[1:]), _text(session))


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")
