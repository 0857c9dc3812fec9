"""Commits: what one is, and its bytes. Layer: repository.

A commit names the root of a state's tree and the commits it came from. It also holds its height and one jump to an earlier
ancestor, so that the n-th ancestor is found in O(log n) reads (the skew-binary jump pointers of Myers, 1983), and where the newest
merge lies, so that a line without one is known to be a line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import msgpack

from versioned_state.errors import CorruptObjectError, LimitExceededError
from versioned_state.objects.address import ADDRESS_SIZE, Address, Kind, address_of, expect
from versioned_state.values.decode.decoder import decode_inline
from versioned_state.values.trees.nodes import Shape, write_node
from versioned_state.values.trees.references import read_tree
from versioned_state.values.trees.tree import Tree, empty

MAX_TEXT: Final = 1 << 16
"""Bytes of a message, an author, or packed meta: a commit is read by every log."""

SIGNATURE_SIZE: Final = 72
"""Bytes of the field that a signed commit ends with: 8 that say with which key, then an Ed25519 signature."""

KEY_ID_SIZE: Final = 8
_SIGNED, _UNSIGNED = b"\x9b", b"\x9a"  # the headers of a MessagePack array of eleven, and of ten
_SIGNATURE_HEADER: Final = b"\xc4" + bytes((SIGNATURE_SIZE,))

EARLIEST: Final = -62_135_596_800_000_000
LATEST: Final = 253_402_300_799_999_999
"""Microseconds from the start of the year 1 to the end of the year 9999, as far as a datetime goes."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One round. Two commits are equal if their ids are.

    Attributes:
        id: 48 hex digits, the address of the commit.
        parents: the ids of the commits it came from; none for the empty root commit that every store shares. Where history was cut,
            those that were kept.
        root: 48 hex digits, the address of the top node of the state's tree: equal roots, equal states.
        time: microseconds since 1970, UTC.
        author: who made it, or None.
        message: what it is about; where the caller gave none, a summary of the change.
        skipped: paths that ``commit(skip_unserializable=True)`` left out; known to that call only, not stored.
        meta: data of the caller's: task, session, step.
        generation: 1 more than the greatest of its parents; 0 for the root commit.
        height: how many first parents lead to the root commit.
        merge_height: the height of the newest commit with several parents on its line of first parents, itself included; 0: none has.
        jump: the id of an earlier commit on that line, by which the n-th ancestor is found fast; None where there is none.
        signature: with which key it was signed, and the signature: see ``signing``; None where it was not signed.
        cut: whether history was cut here (``prune``), so that parents it was made with are not among ``parents``.
    """

    id: str
    parents: tuple[str, ...] = field(compare=False)
    time: int = field(compare=False)
    author: str | None = field(compare=False)
    message: str = field(compare=False)
    generation: int = field(compare=False)
    tree: Tree = field(compare=False, repr=False)
    height: int = field(compare=False, repr=False)
    merge_height: int = field(compare=False, repr=False)
    jump: str | None = field(compare=False, repr=False)
    meta_cell: bytes | None = field(default=None, compare=False, repr=False)
    skipped: tuple[str, ...] = field(default=(), compare=False)
    cut: bool = field(default=False, compare=False, repr=False)
    signature: bytes | None = field(default=None, compare=False, repr=False)

    @property
    def root(self) -> str:
        top = self.tree.top
        return (top if isinstance(top, bytes) else address_of(write_node(Shape.MAP, top))).hex()

    @property
    def meta(self) -> dict[str, Any]:
        """A dict of your own, decoded anew: changing it changes no commit."""
        if self.meta_cell is None:
            return {}
        meta = decode_inline(self.meta_cell)
        return meta if type(meta) is dict else {"meta": meta}

    @property
    def short(self) -> str:
        """The first 12 digits of the id."""
        return self.id[:12]

    @property
    def signed_by(self) -> str | None:
        """The id of the key that it says it was signed with, 16 hex digits, or None. Whether that is so, ``verify`` finds out."""
        return None if self.signature is None else self.signature[:KEY_ID_SIZE].hex()

    @property
    def datetime(self) -> datetime:
        return datetime.fromtimestamp(self.time // 1_000_000, UTC).replace(microsecond=self.time % 1_000_000)


def new_commit(
    tree: Tree,
    parents: tuple[Commit, ...],
    *,
    time: int,
    author: str | None,
    message: str,
    meta_cell: bytes | None,
    jump: str | None,
    sign: Callable[[bytes], bytes] | None = None,
) -> tuple[Commit, bytes]:
    """A commit and its raw bytes, kind first. Raises ``LimitExceededError`` for a text beyond ``MAX_TEXT``.

    ``sign`` gives the signature of the raw bytes that it would have without one.
    """
    for what, text in (("a message", message), ("an author", author or "")):
        if len(text) > MAX_TEXT // 4 and len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT:
            raise LimitExceededError(f"{what} of {len(text)} characters", limit=MAX_TEXT)
    if meta_cell is not None and len(meta_cell) > MAX_TEXT:
        raise LimitExceededError(f"meta of {len(meta_cell)} bytes", limit=MAX_TEXT)
    generation = 1 + max((parent.generation for parent in parents), default=-1)
    height = parents[0].height + 1 if parents else 0
    merge_height = height if len(parents) > 1 else parents[0].merge_height if parents else 0
    ids = tuple(parent.id for parent in parents)
    fields = (ids, time, author, message, generation, tree, height, merge_height, jump, meta_cell)
    raw = _write(fields)
    signature = None if sign is None else sign(raw)
    if signature is not None:
        raw = raw[:1] + _SIGNED + raw[2:] + _SIGNATURE_HEADER + signature
    return Commit(address_of(raw).hex(), *fields, signature=signature), raw


def with_id(commit: Commit) -> tuple[Commit, bytes]:
    """A commit of these fields under the id that they give it, and its raw bytes, kind first. A signature that it had is left out."""
    c = commit
    raw = _write((c.parents, c.time, c.author, c.message, c.generation, c.tree, c.height, c.merge_height, c.jump, c.meta_cell))
    return replace(commit, id=address_of(raw).hex(), signature=None), raw


_Fields = tuple[tuple[str, ...], int, str | None, str, int, Tree, int, int, str | None, bytes | None]
"""The fields of a ``Commit`` after its id that are stored, in its order, but for the signature."""


def _write(fields: _Fields) -> bytes:
    """The raw bytes of a commit without a signature."""
    parents, time, author, message, generation, tree, height, merge_height, jump, meta_cell = fields
    body = [
        tree.count,
        tree.top if isinstance(tree.top, bytes) else [write_node(tree.shape, tree.top)],
        bytes.fromhex("".join(parents)),
        time,
        author,
        message,
        meta_cell,
        generation,
        # Without a merge on the line height and generation are the same.
        [height, merge_height] if merge_height else None,
        None if jump is None else bytes.fromhex(jump),
    ]
    packed: bytes = msgpack.packb(body, unicode_errors="surrogatepass")
    return bytes((Kind.COMMIT,)) + packed


def unsigned(raw: bytes) -> bytes:
    """The raw bytes that were signed, from those of a signed commit as it is stored: the same but for the signature.

    They are cut out, not written again, so a commit that is written in another way than ours has no signature that holds.
    """
    return raw[:1] + _UNSIGNED + raw[2 : -len(_SIGNATURE_HEADER) - SIGNATURE_SIZE]


def read_commit(address: Address, raw: bytes) -> Commit:
    """The commit in these raw bytes. Raises ``CorruptObjectError`` where they are none."""
    expect(raw, address, Kind.COMMIT)
    try:
        body = msgpack.unpackb(memoryview(raw)[1:], unicode_errors="surrogatepass")
        count, top, parents, time, author, message, meta, generation, place, jump, *signature = body
        if signature and not _is_signature(signature[0], raw):
            raise ValueError("what follows its fields is no signature")
        if place is not None and (type(place) is not list or len(place) != 2):
            raise ValueError("heights that are no pair")
        height, merge_height = (generation, 0) if place is None else place
        for value, cls in ((parents, bytes), (time, int), (message, str), (generation, int), (height, int), (merge_height, int)):
            if type(value) is not cls:
                raise ValueError(f"a field of type {type(value).__name__}, not {cls.__name__}")
        for value, cls in ((author, str), (meta, bytes), (jump, bytes)):
            if value is not None and type(value) is not cls:
                raise ValueError(f"a field of type {type(value).__name__}, not {cls.__name__}")
        ids = tuple(parents[i : i + ADDRESS_SIZE].hex() for i in range(0, len(parents), ADDRESS_SIZE))
        if len(parents) % ADDRESS_SIZE or (jump is not None and len(jump) != ADDRESS_SIZE):
            raise ValueError("an address of another size")
        if not 0 <= merge_height <= height <= generation or (height > 0) != bool(ids) or not EARLIEST <= time <= LATEST:
            raise ValueError("its place in history, or its time, cannot be")
        if (merge_height == 0) != (place is None) or (len(ids) > 1) != (merge_height == height > 0):
            raise ValueError("its place in history, or its time, cannot be")
        tree = read_tree(Shape.MAP, [count, top])
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptObjectError(address.hex(), f"it does not decode as a commit: {error}") from error
    return Commit(
        id=address.hex(),
        parents=ids,
        time=time,
        author=author,
        message=message,
        generation=generation,
        tree=tree,
        height=height,
        merge_height=merge_height,
        jump=None if jump is None else jump.hex(),
        meta_cell=meta,
        signature=signature[0] if signature else None,
    )


def _is_signature(field: Any, raw: bytes) -> bool:
    """Whether the last field of a commit is a signature, and lies in the raw bytes in the one form that ``unsigned`` can cut out."""
    start = len(raw) - SIGNATURE_SIZE
    shaped = raw[1:2] == _SIGNED and raw[start - len(_SIGNATURE_HEADER) : start] == _SIGNATURE_HEADER
    return type(field) is bytes and len(field) == SIGNATURE_SIZE and shaped


ROOT, ROOT_RAW = new_commit(empty(Shape.MAP), (), time=0, author=None, message="", meta_cell=None, jump=None)
"""The empty commit that every store begins with, so that any two commits have a common ancestor."""

ROOT_ID: Final = ROOT.id
