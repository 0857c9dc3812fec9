"""``Commit``, and its bytes. Layer: repository.

A commit names the root of a state's tree and its parents. It also has its height and one jump to an earlier ancestor,
so that the n-th ancestor is found in O(log n) reads (the skew-binary jump pointers of Myers, 1983), and the height of
the newest merge, so that a line without merges is recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

import msgpack

from versioned_state.errors import CorruptObjectError, LimitExceededError, StateError
from versioned_state.objects.address import ADDRESS_SIZE, Address, Kind, address_of, expect
from versioned_state.records import dataclass, field, replace
from versioned_state.values.decode.decoder import decode_inline
from versioned_state.values.trees.nodes import Shape, write_node
from versioned_state.values.trees.references import read_tree
from versioned_state.values.trees.tree import Tree, empty

MAX_TEXT: Final = 1 << 16
"""The most bytes of a message, an author, or packed meta: every log reads the commit."""

SIGNATURE_SIZE: Final = 72
"""Bytes of the field that a signed commit ends with: 8 that identify the key, then an Ed25519 signature."""

KEY_ID_SIZE: Final = 8
_UNSIGNED: Final = {b"\x9b": b"\x9a", b"\x9c": b"\x9b"}
"""The header of a signed commit, and that of the same one unsigned: MessagePack arrays of ten to twelve."""
_SIGNED: Final = {unsigned: signed for signed, unsigned in _UNSIGNED.items()}
_SIGNATURE_HEADER: Final = b"\xc4" + bytes((SIGNATURE_SIZE,))

EARLIEST: Final = -62_135_596_800_000_000
LATEST: Final = 253_402_300_799_999_999
"""Microseconds from the start of the year 1 to the end of the year 9999, as far as a datetime goes."""

_pack = msgpack.Packer(unicode_errors="surrogatepass").pack  # made once: that takes longer than packing a commit


_PLAIN: Final = frozenset({str, int, float, bool, type(None)})

_INTERNAL: Final = frozenset(
    {"address", "is_root", "jump", "jump_address", "meta_cell", "parent_addresses", "parents_but_root", "tree"}
)
"""Attributes of a commit for the layers of this library, which completion does not offer."""


class _Stored:
    """The tree of a commit as its bytes have it, until ``tree`` is used: count and top, then None."""

    __slots__ = ("_stored_tree",)
    _stored_tree: Any


@dataclass(frozen=True, slots=True, repr=False)
class Commit(_Stored):
    """A commit. Two commits are equal if their ids are.

    Attributes:
        address: the address of the commit; ``id`` is the same in 48 hex digits.
        parent_addresses: the parents, or none for the empty root commit that every store shares. In shallow history,
            only the parents that were kept. ``parents`` has their ids.
        time: microseconds since 1970, UTC.
        author: the author, or None.
        message: the caller's message, or else a summary of the changes.
        generation: 1 more than the greatest of its parents; 0 for the root commit.
        tree: the tree of the state. ``root`` is the address of its top node in hex: equal roots, equal states.
        height: how many first parents lead to the root commit.
        merge_height: the height of the newest merge on its line of first parents, itself included; 0 if there is none.
        jump_address: an earlier commit on that line, from which the n-th ancestor is found fast, or None if there is
            none.
        meta_cell: the stored form of ``meta``, or None.
        tag: the name of the tag that ``commit(tag=)`` made for it, or None. The tag may be gone.
        skipped: paths that ``commit(skip_unserializable=True)`` left out. Only that call has them; they are not stored.
        shallow: whether ``prune`` ended history here, so that some original parents are not among ``parent_addresses``.
        signature: the id of the signing key, then the signature: see ``signing``, or None if it is not signed.
    """

    address: Address
    parent_addresses: tuple[Address, ...] = field(compare=False)
    time: int = field(compare=False)
    author: str | None = field(compare=False)
    message: str = field(compare=False)
    generation: int = field(compare=False)
    tree: Tree = field(compare=False)
    height: int = field(compare=False)
    merge_height: int = field(compare=False)
    jump_address: Address | None = field(compare=False)
    meta_cell: bytes | None = field(default=None, compare=False)
    tag: str | None = field(default=None, compare=False)
    skipped: tuple[str, ...] = field(default=(), compare=False)
    shallow: bool = field(default=False, compare=False)
    signature: bytes | None = field(default=None, compare=False)

    @property
    def id(self) -> str:
        """48 hex digits."""
        return self.address.hex()

    @property
    def short(self) -> str:
        """The first 12 digits of the id."""
        return self.address.hex()[:12]

    @property
    def parents(self) -> tuple[str, ...]:
        """The ids of the parents that history still has."""
        return tuple(address.hex() for address in self.parent_addresses)

    @property
    def is_root(self) -> bool:
        """Whether it is the empty commit that every history begins with."""
        return self.address == ROOT.address

    @property
    def parents_but_root(self) -> list[str]:
        """The ids of the parents without the empty root commit, which nobody made and no list shows."""
        return [address.hex() for address in self.parent_addresses if address != ROOT.address]

    @property
    def jump(self) -> str | None:
        """``jump_address`` as an id."""
        return None if self.jump_address is None else self.jump_address.hex()

    @property
    def root(self) -> str:
        """The address of the top node of the state's tree, in 48 hex digits."""
        top = self.tree.top
        return (top if isinstance(top, bytes) else address_of(write_node(Shape.MAP, top))).hex()

    @property
    def meta(self) -> dict[str, Any]:
        """The caller's data: task, session, step. Decoded at each access, so changing the dict changes no commit."""
        if self.meta_cell is None:
            return {}
        meta = decode_inline(self.meta_cell)
        return meta if type(meta) is dict else {"meta": meta}

    @property
    def signed_by(self) -> str | None:
        """The id of the key that the signature names, 16 hex digits, or None. ``verify`` checks the signature."""
        return None if self.signature is None else self.signature[:KEY_ID_SIZE].hex()

    @property
    def datetime(self) -> datetime:
        """``time`` as a datetime, UTC."""
        return datetime.fromtimestamp(self.time // 1_000_000, UTC).replace(microsecond=self.time % 1_000_000)

    if not TYPE_CHECKING:  # which would believe in any attribute

        def __getattr__(self, name):
            """Decode the tree at its first use, as long as its slot is unset. Raises ``CorruptObjectError``.

            It takes half the time of reading a commit, and walks of history use few trees.
            """
            if name != "tree":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            stored = self._stored_tree
            if stored is not None:
                try:
                    tree = read_tree(Shape.MAP, stored)
                except (ValueError, TypeError, msgpack.UnpackException) as error:
                    raise _damaged(self.address, error) from error
                object.__setattr__(self, "tree", tree)
                object.__setattr__(self, "_stored_tree", None)  # after the tree: another thread may be here
            return object.__getattribute__(self, "tree")

    def __repr__(self) -> str:
        by = "" if self.author is None else f" by {self.author}"
        return f"<Commit {self.short} {self.message!r}{by}{self._meta_names()}>"

    def _meta_names(self) -> str:
        if self.meta_cell is None:
            return ""
        try:
            return f", meta: {', '.join(map(str, self.meta))}"
        except StateError:  # a repr must not raise in a debugger or a traceback
            return ", meta: damaged"

    def _repr_html_(self) -> str:
        from versioned_state.repository.shown import notebook

        return notebook.commit(self)

    def __dir__(self) -> list[str]:
        return sorted(set(object.__dir__(self)) - _INTERNAL)


_Draft: Any = dataclass(slots=True, eq=False, repr=False)(
    type("_Draft", (_Stored,), {"__slots__": (), "__annotations__": dict.fromkeys(Commit.__match_args__, "Any")})
)
"""A commit that is not frozen yet.

A frozen instance takes three times as long to make, since each field goes through ``__setattr__``.
"""


def system_clock() -> int:
    """Return the microseconds since 1970."""
    return time_ns() // 1000


def new_commit(
    tree: Tree,
    parents: tuple[Commit, ...],
    *,
    time: int,
    author: str | None,
    message: str,
    meta_cell: bytes | None,
    jump: Address | None,
    tag: str | None = None,
    sign: Callable[[bytes], bytes] | None = None,
) -> tuple[Commit, bytes]:
    """Return a commit and its raw bytes, kind first.

    Args:
        tag: the name of the tag that is made with it.
        sign: returns the signature field for the raw bytes of the unsigned commit.

    Raises:
        LimitExceededError: a text is longer than ``MAX_TEXT``.
    """
    _check_length("a message", message)
    if author is not None:
        _check_length("an author", author)
    if meta_cell is not None and len(meta_cell) > MAX_TEXT:
        raise LimitExceededError(f"meta of {len(meta_cell)} bytes", limit=MAX_TEXT, remains="nothing was changed")
    if len(parents) == 1:
        (parent,) = parents
        generation, height, merge_height = parent.generation + 1, parent.height + 1, parent.merge_height
        addresses: tuple[Address, ...] = (parent.address,)
    else:
        generation = 1 + max((parent.generation for parent in parents), default=-1)
        height = merge_height = parents[0].height + 1 if parents else 0
        addresses = tuple(parent.address for parent in parents)
    stored = (addresses, time, author, message, generation, tree, height, merge_height, jump, meta_cell, tag)
    raw = _write(stored)
    signature = None if sign is None else sign(raw)
    if signature is not None:
        raw = raw[:1] + _SIGNED[raw[1:2]] + raw[2:] + _SIGNATURE_HEADER + signature
    commit: Any = _Draft(address_of(raw), *stored, (), False, signature)
    commit.__class__ = Commit
    return commit, raw


def _check_length(what: str, text: str) -> None:
    if len(text) > MAX_TEXT // 4 and len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT:
        raise LimitExceededError(f"{what} of {len(text)} characters", limit=MAX_TEXT, remains="nothing was changed")


def with_address(commit: Commit) -> tuple[Commit, bytes]:
    """Return the commit with these fields, its own address and no signature, and its raw bytes, kind first."""
    c = commit
    place = (c.generation, c.tree, c.height, c.merge_height, c.jump_address)
    raw = _write((c.parent_addresses, c.time, c.author, c.message, *place, c.meta_cell, c.tag))
    return replace(commit, address=address_of(raw), signature=None), raw


_Fields = tuple[
    tuple[Address, ...], int, str | None, str, int, Tree, int, int, Address | None, bytes | None, str | None
]
"""The stored fields of a ``Commit`` in its order, from the parents to the tag."""


def _write(stored: _Fields) -> bytes:
    """Return the raw bytes of a commit without a signature."""
    parents, time, author, message, generation, tree, height, merge_height, jump, meta_cell, tag = stored
    body = [
        tree.count,
        tree.top if isinstance(tree.top, bytes) else [write_node(tree.shape, tree.top)],
        b"".join(parents),
        time,
        author,
        message,
        meta_cell,
        generation,
        # Without a merge on the line height and generation are the same.
        [height, merge_height] if merge_height else None,
        jump,
    ]
    if tag is not None:
        body.append(tag)
    packed: bytes = _pack(body)
    return bytes((Kind.COMMIT,)) + packed


def unsigned(raw: bytes) -> bytes:
    """Return the raw bytes that were signed, from the stored bytes of a signed commit: the same without the signature.

    They are cut out of the stored bytes, not written again, so a signature does not verify for a commit with another
    encoding.
    """
    return raw[:1] + _UNSIGNED[raw[1:2]] + raw[2 : -len(_SIGNATURE_HEADER) - SIGNATURE_SIZE]


def read_commit(address: Address, raw: bytes) -> Commit:
    """Return the commit in these raw bytes. Raises ``CorruptObjectError`` if they are not a commit.

    Its tree is not decoded yet: ``commit.tree`` raises ``CorruptObjectError`` if that is damaged.
    """
    expect(raw, address, Kind.COMMIT)
    try:
        body = msgpack.unpackb(memoryview(raw)[1:], unicode_errors="surrogatepass")
        count, top, parents, time, author, message, meta, generation, place, jump, *rest = body
        tag = signature = None
        if rest:
            tag = rest.pop(0) if type(rest[0]) is str else None
            signature = rest.pop(0) if rest and _is_signature(rest[0], raw) else None
            if rest:
                raise ValueError("the bytes after its fields are not a signature")
        if place is None:
            height, merge_height = generation, 0
        elif type(place) is list and len(place) == 2:
            height, merge_height = place
        else:
            raise ValueError("heights that are not a pair")
        # One expression: every walk of history comes here for each commit.
        if not (
            type(parents) is bytes
            and type(time) is int
            and type(message) is str
            and type(generation) is type(height) is type(merge_height) is int
            and (author is None or type(author) is str)
            and (meta is None or type(meta) is bytes)
            and (jump is None or type(jump) is bytes)
        ):
            raise ValueError("a field of another type")
        addresses: Any = (parents,) if len(parents) == ADDRESS_SIZE else _split(parents)
        if len(parents) % ADDRESS_SIZE or (jump is not None and len(jump) != ADDRESS_SIZE):
            raise ValueError("an address of another size")
        if (
            not 0 <= merge_height <= height <= generation
            or (height > 0) != bool(addresses)
            or not EARLIEST <= time <= LATEST
        ):
            raise ValueError("its place in history, or its time, cannot be")
        if (merge_height == 0) != (place is None) or (len(addresses) > 1) != (merge_height == height > 0):
            raise ValueError("its place in history, or its time, cannot be")
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise _damaged(address, error) from error
    place = (generation, None, height, merge_height, jump)
    commit: Any = _Draft(address, addresses, time, author, message, *place, meta, tag, (), False, signature)
    del commit.tree  # which its first use decodes
    commit._stored_tree = [count, top]
    commit.__class__ = Commit
    made: Commit = commit
    return made


def _damaged(address: Address, error: Exception) -> CorruptObjectError:
    return CorruptObjectError(address.hex(), f"it does not decode as a commit: {error}")


def _split(parents: bytes) -> tuple[bytes, ...]:
    return tuple(parents[i : i + ADDRESS_SIZE] for i in range(0, len(parents), ADDRESS_SIZE))


def meta_values(commit: Commit, keys: Collection[str]) -> dict[str, Any]:
    """Return the values of those of some keys that the meta of a commit has. Raises ``CorruptObjectError``.

    Cost: a fraction of ``meta``, if they are numbers, texts or None.
    """
    if commit.meta_cell is None:
        return {}
    try:
        found: Any = msgpack.unpackb(commit.meta_cell, strict_map_key=False, unicode_errors="surrogatepass")
    except (ValueError, TypeError, msgpack.UnpackException):
        found = None
    if type(found) is dict:
        values = {key: found[key] for key in keys if key in found}
        if _PLAIN.issuperset(map(type, values.values())):
            return values
    found = commit.meta  # perhaps an extension, or holds one
    return {key: found[key] for key in keys if key in found}


def _is_signature(field: Any, raw: bytes) -> bool:
    """Return whether the last field of a commit is a signature, in the one form that ``unsigned`` can cut out."""
    start = len(raw) - SIGNATURE_SIZE
    shaped = raw[1:2] in _UNSIGNED and raw[start - len(_SIGNATURE_HEADER) : start] == _SIGNATURE_HEADER
    return type(field) is bytes and len(field) == SIGNATURE_SIZE and shaped


ROOT, ROOT_RAW = new_commit(empty(Shape.MAP), (), time=0, author=None, message="", meta_cell=None, jump=None)
"""The empty commit that every store begins with, so that any two commits have a common ancestor."""

ROOT_ID: Final = ROOT.id
ROOT_ADDRESS: Final = ROOT.address
