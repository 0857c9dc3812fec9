"""The canonical form of trees: which node may be at which place. Layer: values.

A tree is canonical if its nodes are those that building it at once from its content would give. Since a node begins
after a boundary, its own content shows where the boundary rule (``trees.chunker``) ends it. So each node is examined by
itself, once, and the rest follows from the places where it is named::

    a node                     its traits: does a boundary end it? is it small enough to inline? has it one child only?
    a place that names it      the traits refused there: an open node anywhere but at the end of its level, and so on

The trees of a state have several forms, each with rules of its own (``Form``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgpack

from versioned_state.errors import CorruptObjectError
from versioned_state.objects.address import Address
from versioned_state.values.cells import MALFORMED, Code, are_sorted, key_of_cell
from versioned_state.values.codec.scalars import RAW_READERS
from versioned_state.values.containers import guarded
from versioned_state.values.decode.decoder import decode_inline
from versioned_state.values.keys import ENGINE, OLDER_ROUNDS, is_internal, name_in, path_of
from versioned_state.values.paths.path import StatePath
from versioned_state.values.series import GROUP, parts_of, size_of_groups
from versioned_state.values.trees.blob import CHUNK_BYTES, text_cuts
from versioned_state.values.trees.chunker import MapLeafChunker
from versioned_state.values.trees.edit import INLINE_TOP, chunker_of, fits_inline
from versioned_state.values.trees.nodes import Node, Nodes, Shape
from versioned_state.values.trees.references import SHAPES, may_refer, read_tree
from versioned_state.values.trees.tree import Tree


class Form(Enum):
    """The content of a tree, which decides the rules for its nodes.

    The maps of one series are ``COMPLETE`` and ``GROUPS``, and a map that is inlined in the series itself
    (``values.series``).
    """

    ROOT = "state"
    DICT = "dict"
    ROUNDS = "older rounds"
    COMPLETE = "complete leaves of a series"
    GROUPS = "groups of a series"
    LIST = "list"
    SET = "set"
    ORDER = "order of keys"
    TEXT = "text"
    BINARY = "bytes"

    __hash__: Any = object.__hash__

    @property
    def shape(self) -> Shape:
        """The shape of such a tree."""
        return _SHAPES[self]


_SHAPES: Final = {
    **dict.fromkeys((Form.ROOT, Form.DICT, Form.ROUNDS, Form.COMPLETE, Form.GROUPS), Shape.MAP),
    **dict.fromkeys((Form.LIST, Form.SET, Form.ORDER), Shape.SEQUENCE),
    **dict.fromkeys((Form.TEXT, Form.BINARY), Shape.BLOB),
}
_FORMS: Final[dict[int | None, Form]] = {
    Code.LIST_TREE: Form.LIST,
    Code.TUPLE_TREE: Form.LIST,
    Code.SET_TREE: Form.SET,
    Code.FROZENSET_TREE: Form.SET,
    Code.DICT_TREE: Form.DICT,
    None: Form.ORDER,
    Code.TEXT: Form.TEXT,
}
_KNOWN: Final = frozenset(Code)
_NEVER_INLINED: Final = frozenset({Form.ROUNDS, Form.COMPLETE, Form.GROUPS})


class Trait(IntEnum):
    """A property of a node that is right at some places only. Several are a sum of these numbers."""

    OPEN = 1
    CLOSED = 2
    OPEN_LEAF = 4
    OPEN_CHUNK = 8
    SHORT_CHUNK = 16
    SMALL = 32
    LARGE = 64
    INNER = 128
    ONE_CHILD = 256
    SORTED = 512


_REASONS: Final = {
    Trait.OPEN: "it does not end in a boundary, and is not the last node of its level",
    Trait.OPEN_LEAF: "it does not end in a boundary, and only complete leaves may be here",
    Trait.CLOSED: "it ends in a boundary, and complete leaves may not be here",
    Trait.OPEN_CHUNK: "it does not end in a boundary, and is not the last chunk",
    Trait.SHORT_CHUNK: f"its last chunk is shorter than {CHUNK_BYTES:,} bytes, and is not the last one of all",
    Trait.SMALL: "it is small enough to be inlined, and is an object of its own",
    Trait.LARGE: "it is inlined, and is too large for that",
    Trait.INNER: "it is not a leaf, and only one leaf may be here",
    Trait.ONE_CHILD: "it is the top of its tree, and has one child only",
    Trait.SORTED: "the keys are in sorted order, which is not stored",
}


@dataclass(frozen=True, slots=True)
class Place:
    """The place where a node is named: the form of its tree, and whether the node is its top and the last of its level.

    Attributes:
        refused: the traits that an object must not have here.
        refused_inline: the traits that an inlined node must not have here. Only tops are inlined.
    """

    form: Form
    is_top: bool
    is_last: bool
    refused: int
    refused_inline: int


def _place(form: Form, *, is_top: bool, is_last: bool) -> Place:
    refused = 0 if is_last else Trait.OPEN | Trait.OPEN_CHUNK | Trait.SHORT_CHUNK
    if is_top:
        refused |= Trait.ONE_CHILD | Trait.SORTED
    if form is Form.COMPLETE:
        refused |= Trait.OPEN_LEAF
    elif form is Form.GROUPS:
        refused |= Trait.CLOSED | Trait.INNER
    has_least = is_top and form not in _NEVER_INLINED
    return Place(form, is_top, is_last, refused | (Trait.SMALL if has_least else 0), refused | Trait.LARGE)


_TOP: Final = {form: _place(form, is_top=True, is_last=True) for form in Form}
_INSIDE: Final = {form: _place(form, is_top=False, is_last=False) for form in Form}
_AT_END: Final = {form: _place(form, is_top=False, is_last=True) for form in Form}


Trail = tuple[Any, bytes | int] | None
"""The way to a tree: the way to the tree that holds it, and the key or index there. None for the tree of a state."""


class Below(NamedTuple):
    """A node that another node or its values name.

    Attributes:
        address: its address.
        place: where it is named.
        offset: its first offset in its own tree.
        trail: the way to that tree.
        level, total, key: stated where it is named: its level, the elements under it, and its first key. The level and
            key of a top are None.
    """

    address: Address
    place: Place
    offset: int
    trail: Trail
    level: int | None
    total: int
    key: bytes | None

    @property
    def extent(self) -> str:
        """The part of its tree that is under it, in words."""
        unit = "bytes" if self.place.form.shape is Shape.BLOB else "elements"
        return f"{self.total:,} {unit} from {self.offset:,} on"


@dataclass(frozen=True, slots=True)
class Examined:
    """The facts that a node shows by itself.

    Attributes:
        traits: its properties.
        faults: what is wrong with it, or with a tree that is inlined in it, wherever it is.
        below: the nodes that it names: its children, or the tops of the trees in its values.
    """

    traits: int
    faults: list[str]
    below: list[Below]


def reasons(conflict: int) -> str:
    """Return the traits of a node that are refused where it is, in words."""
    return ", and ".join(reason for trait, reason in _REASONS.items() if trait & conflict)


def path_of_trail(trail: Trail) -> StatePath:
    """Return the path to the value that a tree belongs to, or if no path leads to it, to the value that contains it."""
    steps: list[bytes | int] = []
    while trail is not None:
        trail, step = trail
        steps.append(step)
    if not steps:
        return StatePath()
    first = steps.pop()
    assert isinstance(first, bytes)
    path = path_of(first)
    for step in reversed(steps):
        if isinstance(step, int):
            path = path.index(step)
        elif step[:1] == b"s":
            path = path.key(step[1:].decode("utf-8", "surrogatepass"))
        else:
            try:
                path = path.key(decode_inline(step[1:]))
            except (CorruptObjectError, *MALFORMED):
                return path
    return path


def examine_top(tree: Tree, form: Form = Form.ROOT) -> Examined:
    """Return what a tree shows without reading a node: its top if that is inlined, else where the top is.

    Raises as ``examine``.
    """
    place = _TOP[form]
    if not isinstance(tree.top, Node):
        return Examined(0, [], [Below(Address(tree.top), place, 0, None, None, tree.count, None)])
    if not tree.count:
        return Examined(0, [], [])
    found = examine(tree.top, place)
    if conflict := found.traits & place.refused_inline:
        found.faults.append(reasons(conflict))
    return found


def examine(node: Node, place: Place, *, offset: int = 0, trail: Trail = None) -> Examined:
    """Examine one node by itself. Cost: hashes of its items, and a look at its values if they refer to trees.

    Args:
        offset: its first offset in its tree, and ``trail`` the way to that, for ``Below``.

    Raises:
        CorruptObjectError: a value in it does not decode.
    """
    return guarded(_examine, node, place, offset, trail)


def _examine(node: Node, place: Place, offset: int, trail: Trail) -> Examined:
    form = place.form
    shape = form.shape
    if shape is Shape.BLOB and not node.level:
        return _examine_chunk(node, place)
    traits, faults = _examine_items(node, form)
    if node.level:
        return Examined(traits, faults, list(_children(node, place, offset, trail)))
    below: list[Below] = []
    if may_refer(node.raw or b"".join(node.items)):
        for index, cell in enumerate(node.items):
            if may_refer(cell):
                step = index + offset if node.keys is None else node.keys[index]
                _examine_value(cell, form, (trail, step), faults, below)
    return Examined(traits, faults, below)


def _examine_items(node: Node, form: Form) -> tuple[int, list[str]]:
    """Return the traits of a node, and what is wrong with it, apart from trees in its values."""
    traits, faults = _ends(form.shape, node)
    traits |= _size(form.shape, node)
    if node.level:
        traits |= Trait.INNER
        if len(node.items) == 1:
            traits |= Trait.ONE_CHILD
        if form is Form.BINARY and node.level == 1:
            traits |= _examine_sizes(node, faults)
    elif form is Form.SET and any(a > b for a, b in pairwise(node.items)):
        faults.append("the elements of the set are not in the order of their bytes")
    elif form is Form.ORDER and are_sorted(map(key_of_cell, node.items)):
        traits |= Trait.SORTED
    elif form is Form.GROUPS and size_of_groups(node.keys or [], node.items) != node.count:
        faults.append("it does not end with a complete group")
    return traits, faults


def _ends(shape: Shape, node: Node) -> tuple[int, list[str]]:
    """Return whether a node is open, and what is wrong with its end."""
    chunker = chunker_of(shape, node.level)
    sizes = chunker.feed(node.items, node.keys)
    if not sizes:
        return Trait.OPEN if node.level else Trait.OPEN | Trait.OPEN_LEAF, []
    return Trait.CLOSED, [] if sizes[0] == len(node.items) else [
        f"a boundary is within it, after {sizes[0]:,} of {len(node.items):,}"
    ]


def _size(shape: Shape, node: Node) -> int:
    """Return whether a node is small enough to be inlined.

    Most are so much larger that they need not be written to find out.
    """
    keys = node.keys
    if sum(map(len, node.items)) > INLINE_TOP and not (keys and not node.level and keys[0][:1] == ENGINE):
        return Trait.LARGE
    return Trait.SMALL if fits_inline(shape, node) else Trait.LARGE


def _examine_chunk(node: Node, place: Place) -> Examined:
    chunk = node.items[0] if node.items else b""
    if place.form is Form.BINARY:
        faults = (
            []
            if len(chunk) <= CHUNK_BYTES
            else [f"a chunk of {len(chunk):,} bytes, which is more than {CHUNK_BYTES:,}"]
        )
        return Examined(0, faults, [])
    first = next(text_cuts(chunk), None)
    if first is None:
        return Examined(Trait.OPEN_CHUNK, [], [])
    faults = [] if first == len(chunk) else [f"a boundary is within it, after {first:,} of {len(chunk):,} bytes"]
    return Examined(0, faults, [])


def _examine_sizes(node: Node, faults: list[str]) -> int:
    """Return the trait of a node over chunks of bytes, all of which have one size but the last."""
    assert node.counts is not None
    *others, last = node.counts
    if any(count != CHUNK_BYTES for count in others) or last > CHUNK_BYTES:
        faults.append(f"its chunks have not {CHUNK_BYTES:,} bytes each")
    return 0 if last == CHUNK_BYTES else Trait.SHORT_CHUNK


def _children(node: Node, place: Place, offset: int, trail: Trail) -> Iterator[Below]:
    assert node.counts is not None
    inside = _INSIDE[place.form]
    at_end = _AT_END[place.form] if place.is_last else inside
    last = len(node.items) - 1
    for index, (item, count) in enumerate(zip(node.items, node.counts, strict=True)):
        key = None if node.keys is None else node.keys[index]
        yield Below(Address(item), at_end if index == last else inside, offset, trail, node.level - 1, count, key)
        offset += count


def _examine_value(cell: bytes, form: Form, trail: Trail, faults: list[str], below: list[Below]) -> None:
    """Examine the trees that a cell refers to, as far as they are in the cell."""
    if form is Form.ROOT:
        assert trail is not None
        key = trail[1]
        assert isinstance(key, bytes)
        if is_internal(key):
            if name_in(key) == name_in(OLDER_ROUNDS):
                for _, tree in _trees_in(cell):
                    _examine_tree(tree, Form.ROUNDS, trail, faults, below)
                return
            if _examine_series(cell, trail, faults, below):
                return
    pending = [(cell, trail)]
    while pending:
        cell, trail = pending.pop()
        for code, tree in _trees_in(cell):
            _examine_tree(tree, _FORMS.get(code, Form.BINARY), trail, faults, below)
            top = tree.top
            if isinstance(top, Node) and not top.level and tree.shape is not Shape.BLOB:
                steps: Iterable[bytes | int] = top.keys or range(len(top.items))
                pending += [
                    (item, (trail, step)) for step, item in zip(steps, top.items, strict=True) if may_refer(item)
                ]


def _examine_tree(tree: Tree, form: Form, trail: Trail, faults: list[str], below: list[Below]) -> None:
    """Examine the top of a tree in a cell if it is inlined, but not the values in it."""
    place = _TOP[form]
    top = tree.top
    if not isinstance(top, Node):
        below.append(Below(Address(top), place, 0, trail, None, tree.count, None))
        return
    if not tree.count:
        return
    if form in _NEVER_INLINED:
        faults.append(f"the {form.value} are inlined, and should be an object")
    traits, found = _examine_items(top, form)
    if top.level:
        below += _children(top, place, 0, trail)
    if conflict := traits & place.refused_inline:
        found.append(reasons(conflict))
    faults += [f"in an inlined {form.value}: {fault}" for fault in found]


def _examine_series(cell: bytes, trail: Trail, faults: list[str], below: list[Below]) -> bool:
    """Examine the three parts of a series. Returns whether the cell is one."""
    try:
        complete, last, newest = (part.tree for part in parts_of(cell))
    except CorruptObjectError:
        return False
    _examine_tree(complete, Form.COMPLETE, trail, faults, below)
    _examine_tree(last, Form.GROUPS, trail, faults, below)
    top = newest.top
    if not isinstance(top, Node) or top.level:
        faults.append("the newest entries of a series are not inlined")
        return True
    keys = top.keys or []
    chunker = MapLeafChunker()
    chunker.pending = last.count
    if chunker.feed(top.items, keys):
        faults.append("a boundary is within the newest entries of a series")
    if sum(map(len, keys)) + sum(map(len, top.items)) >= GROUP:
        faults.append("the newest entries of a series have a complete group")
    for key, item in zip(keys, top.items, strict=True):
        if may_refer(item):
            _examine_value(item, Form.DICT, (trail, key), faults, below)
    return True


def _trees_in(cells: bytes) -> Iterator[tuple[int | None, Tree]]:
    """Yield the trees that a cell names, but not those within inlined ones, each with its code.

    The order of keys has no code.
    """
    pending: list[tuple[int, bytes]] = []

    def note(code: int, payload: bytes) -> None:
        pending.append((code, payload))

    def unpack(data: bytes) -> Any:
        return msgpack.unpackb(data, ext_hook=note, strict_map_key=False, unicode_errors="surrogatepass")

    unpack(cells)
    while pending:
        code, payload = pending.pop()
        if code in RAW_READERS:
            continue
        if code not in _KNOWN:
            raise ValueError(f"unknown extension {code}")
        parts = unpack(payload)
        if code < Code.LIST_TREE:
            continue
        yield code, read_tree(SHAPES[code], parts)
        if code == Code.DICT_TREE and len(parts) > 2:
            yield None, read_tree(Shape.SEQUENCE, parts[2:])


# Whole trees


@dataclass(frozen=True, slots=True)
class Flaw:
    """A node that breaks a rule.

    Attributes:
        address: the id of the node; of the object that it is inlined in, or empty if that is the top of the tree
            itself.
        form: what the tree holds.
        level: the level of the node in its tree, 0 for a leaf.
        offset: its first offset there.
        path: the value that the tree belongs to, or that contains it.
        reason: the rule.
    """

    address: str
    form: Form
    level: int
    offset: int
    path: str
    reason: str


Known = dict[tuple[bytes, Form], int]
"""The traits of nodes that have been examined, in trees of a form."""


def find_flaws(nodes: Nodes, tree: Tree, form: Form = Form.ROOT, *, known: Known | None = None) -> Iterator[Flaw]:
    """Yield the nodes of a tree, and of all trees in its values, that break a rule of the canonical form.

    Cost: reads each node once. Memory: the nodes that are still to be read, and ``known``.

    Args:
        known: gets the nodes that were examined. Nodes in it are not read again, so the trees of a next commit cost
            what is new in them.

    Raises:
        MissingObjectError, CorruptObjectError: a node cannot be read, or is not what the node above it says.
    """
    known = {} if known is None else known
    top = examine_top(tree, form)
    level = tree.top.level if isinstance(tree.top, Node) else 0
    yield from _flaws_of(top, 0, "", (form, level, 0, None))
    pending = top.below[::-1]
    while pending:
        each = pending.pop()
        form = each.place.form
        traits = known.get((each.address, form))
        if traits is None:
            node = nodes.get(form.shape, each.address)
            _check(each, node)
            found = examine(node, each.place, offset=each.offset, trail=each.trail)
            known[each.address, form] = found.traits
            yield from _flaws_of(
                found, each.place.refused, each.address.hex(), (form, node.level, each.offset, each.trail)
            )
            if node.level and form.shape is not Shape.BLOB:
                nodes.fetch(form.shape, *(below.address for below in found.below if (below.address, form) not in known))
            pending += reversed(found.below)
        elif conflict := traits & each.place.refused:
            found = Examined(conflict, [], [])
            yield from _flaws_of(found, conflict, each.address.hex(), (form, each.level or 0, each.offset, each.trail))


def _check(named: Below, node: Node) -> None:
    """Raise ``CorruptObjectError`` if a node is not the one that is named."""
    if (
        node.count != named.total
        or (named.level is not None and node.level != named.level)
        or (named.key is not None and node.keys is not None and node.keys[:1] != [named.key])
    ):
        raise CorruptObjectError(
            named.address.hex(), "its level, count or first key is not what the node above it says"
        )


def _flaws_of(found: Examined, refused: int, id: str, at: tuple[Form, int, int, Trail]) -> Iterable[Flaw]:
    conflict = found.traits & refused
    faults = [*found.faults, reasons(conflict)] if conflict else found.faults
    form, level, offset, trail = at
    return [
        Flaw(id, form, level, offset, "" if trail is None else str(path_of_trail(trail)), fault) for fault in faults
    ]
