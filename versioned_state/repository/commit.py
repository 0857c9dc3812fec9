"""Commits: what one is, and its bytes. Layer: repository.

A commit names the root of a state's tree and the commits it came from. It also holds its height and one jump to an earlier
ancestor, so that the n-th ancestor is found in O(log n) reads (the skew-binary jump pointers of Myers, 1983).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgpack

from versioned_state.errors import CorruptObjectError, LimitExceededError
from versioned_state.objects.address import ADDRESS_SIZE, Address, Kind, address_of
from versioned_state.values.codec import is_plain
from versioned_state.values.decoder import read_tree
from versioned_state.values.nodes import Shape, write_node
from versioned_state.values.tree import Tree, empty

MAX_TEXT: Final = 1 << 16
"""Bytes of a message, an author, or packed meta: a commit is read by every log."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One round. Two commits are equal if their ids are.

    Attributes:
        id: 48 hex digits, the address of the commit.
        parents: the ids of the commits it came from; none for the empty root commit that every store shares.
        root: 48 hex digits, the address of the top node of the state's tree: equal roots, equal states.
        time: microseconds since 1970, UTC.
        author: who made it, or None.
        message: what it is about; where the caller gave none, a summary of the change.
        meta: data of the caller's.
        skipped: paths that ``commit(skip_unserializable=True)`` left out; known to that call only, not stored.
        generation: 1 more than the greatest of its parents; 0 for the root commit.
    """

    id: str
    parents: tuple[str, ...] = field(compare=False)
    time: int = field(compare=False)
    author: str | None = field(compare=False)
    message: str = field(compare=False)
    meta: Mapping[str, Any] = field(compare=False)
    generation: int = field(compare=False)
    tree: Tree = field(compare=False, repr=False)
    height: int = field(compare=False, repr=False)
    jump: str | None = field(compare=False, repr=False)
    skipped: tuple[str, ...] = field(default=(), compare=False)

    @property
    def root(self) -> str:
        top = self.tree.top
        return (top if isinstance(top, bytes) else address_of(write_node(Shape.MAP, top))).hex()

    @property
    def short(self) -> str:
        """The first 12 digits of the id."""
        return self.id[:12]

    @property
    def datetime(self) -> datetime:
        return datetime.fromtimestamp(self.time // 1_000_000, UTC).replace(microsecond=self.time % 1_000_000)


def write_commit(
    *,
    tree: Tree,
    parents: tuple[str, ...],
    time: int,
    author: str | None,
    message: str,
    meta: bytes | None,
    generation: int,
    height: int,
    jump: str | None,
) -> bytes:
    """The raw bytes of a commit, kind first. ``meta`` is a cell. Raises ``LimitExceededError`` for a text beyond ``MAX_TEXT``."""
    for what, text in (("a message", message), ("an author", author or "")):
        if len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT:
            raise LimitExceededError(f"{what} of {len(text)} characters", limit=MAX_TEXT)
    if meta is not None and len(meta) > MAX_TEXT:
        raise LimitExceededError(f"meta of {len(meta)} bytes", limit=MAX_TEXT)
    top = tree.top if isinstance(tree.top, bytes) else [write_node(tree.shape, tree.top)]
    lineage = [generation, None if height == generation else height, None if jump is None else bytes.fromhex(jump)]
    body = [tree.count, top, bytes.fromhex("".join(parents)), time, author, message, meta, *lineage]
    packed: bytes = msgpack.packb(body, unicode_errors="surrogatepass")
    return bytes((Kind.COMMIT,)) + packed


def read_commit(address: Address, raw: bytes, read_meta: Any) -> Commit:
    """The commit in these raw bytes. ``read_meta`` decodes the cell of its meta.

    Raises:
        CorruptObjectError: they are no commit.
    """
    if raw[0] != Kind.COMMIT:
        raise CorruptObjectError(address.hex(), f"expected a commit, found kind {raw[0]}")
    try:
        body = msgpack.unpackb(memoryview(raw)[1:], unicode_errors="surrogatepass")
        count, top, parents, time, author, message, meta, generation, height, jump = body
        tree = read_tree(Shape.MAP, [count, top])
        ids = tuple(parents[i : i + ADDRESS_SIZE].hex() for i in range(0, len(parents), ADDRESS_SIZE))
        if not (is_plain([time, author, message, generation, height]) and type(parents) is bytes and len(parents) % ADDRESS_SIZE == 0):
            raise ValueError("a field of another type")
        return Commit(
            id=address.hex(),
            parents=ids,
            time=time,
            author=author,
            message=message,
            meta={} if meta is None else read_meta(meta),
            generation=generation,
            tree=tree,
            height=generation if height is None else height,
            jump=None if jump is None else jump.hex(),
        )
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise CorruptObjectError(address.hex(), f"it does not decode as a commit: {error}") from error


ROOT_RAW: Final = write_commit(
    tree=empty(Shape.MAP), parents=(), time=0, author=None, message="", meta=None, generation=0, height=0, jump=None
)
"""The empty commit that every store begins with, so that any two commits have a common ancestor."""

ROOT_ID: Final = address_of(ROOT_RAW).hex()
