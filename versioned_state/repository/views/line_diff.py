"""The lines of a text, and the elements of an array, that differ between two cells. Layer: repository.

Small values are decoded. Of a large one only the chunks that differ are read, and of these at most ``_READ`` bytes are
shown.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import accumulate
from math import prod
from os.path import commonprefix  # of any strings, character by character
from typing import Any, Final, NamedTuple

import msgpack

from versioned_state.errors import LimitExceededError
from versioned_state.objects.address import Address, Kind, expect
from versioned_state.repository.views.preview import WHOLE, array_type, describe
from versioned_state.repository.views.render import one_line
from versioned_state.values.cells import Code, code_of, decoded_text, is_text, key_of_cell, payload_of, split_cells
from versioned_state.values.changes.diff import Replaced, align_unique, diff_lists
from versioned_state.values.codec.arrays import read_array
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.references import tree_of
from versioned_state.values.trees.tree import Tree, nodes_from

Line = tuple[str, str]
"""``"-"`` or ``"+"`` and a line that was removed or added; ``"@"`` and where a stretch of them begins."""

_READ: Final = 1 << 18
"""Bytes of a large text that are read to be shown line by line; what differs beyond them is only measured."""

_ALIGNED: Final = 2000
"""Lines up to which every line is aligned; beyond, lines that occur once are the anchors."""

_ELEMENTS: Final = 5
"""Elements of an array that are shown; the others are counted."""

_CHUNKS: Final = 1 << 21
"""Chunks of a blob that are compared: 4 GiB hold half as many at most."""


def text_lines(nodes: Nodes, decoder: Decoder, old: bytes, new: bytes) -> list[Line]:
    """Return the lines that differ between two texts, or none unless both are texts, and one has several lines.

    Cost: the texts up to ``WHOLE`` bytes, else the addresses of their chunks and ``_READ`` bytes.
    """
    if not (is_text(old) and is_text(new)):
        return []
    if max(_size(old), _size(new)) > WHOLE:
        return list(_large_text_lines(nodes, old, new))
    a, b = decoder.decode(old), decoder.decode(new)
    if "\n" not in a and "\n" not in b:
        return []
    return list(_differing(a.split("\n"), b.split("\n"), lambda line: f"line {line + 1}"))


def changed_part(decoder: Decoder, old: bytes, new: bytes, width: int) -> list[str]:
    """Return about ``width`` characters of each of two texts around the place where they begin to differ.

    Returns nothing unless both are texts of up to ``WHOLE`` bytes, and the place lies beyond what the beginning of the
    longer one shows.
    """
    if not (is_text(old) and is_text(new)) or not width < max(_size(old), _size(new)) <= WHOLE:
        return []
    texts = [decoder.decode(cell) for cell in (old, new)]
    same = len(commonprefix(texts))  # noqa: RUF071 - they are not paths
    if max(map(len, texts)) <= width or same <= width // 2:
        return []
    start = same - width // 4
    shown = []
    for text in texts:
        part = text[start : start + width - 10]
        rest = "…" if start + len(part) < len(text) else ""
        shown.append(f"…{one_line(part, width=2 * width)}{rest} ({len(text)} characters)")
    return shown


def _size(cell: bytes) -> int:
    tree = tree_of(cell)
    return len(cell) if tree is None else tree.count


def _differing(a: list[str], b: list[str], where: Any) -> Iterator[Line]:
    for part in _replaced(a, b):
        yield "@", where(part.new_start)
        yield from (("-", line) for line in a[part.old_start : part.old_end])
        yield from (("+", line) for line in b[part.new_start : part.new_end])


def _replaced(a: list[str], b: list[str]) -> Iterator[Replaced]:
    if len(a) > _ALIGNED or len(b) > _ALIGNED:
        yield from diff_lists(a, b)
        return
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag != "equal":
            yield Replaced(i1, i2, j1, j2)


# Large texts


class _Chunk(NamedTuple):
    """A chunk of a blob by its address. A text without chunks counts as one, with its bytes for an address."""

    address: bytes
    size: int


class _Chunks:
    """The chunks of a blob and their bytes, or ``inline``, the bytes of a value without chunks."""

    def __init__(self, nodes: Nodes, tree: Tree | None, inline: bytes = b"") -> None:
        self._nodes = nodes
        self._inline = inline if tree is None else None
        self.chunks = [_Chunk(inline, len(inline))] if tree is None else list(_chunks_of(nodes, tree))
        self.starts = list(accumulate((chunk.size for chunk in self.chunks), initial=0))

    def size(self, start: int, end: int) -> int:
        return self.starts[end] - self.starts[start]

    def read(self, start: int, end: int) -> bytes:
        if self._inline is not None:
            return self._inline if start < end else b""
        addresses = [Address(chunk.address) for chunk in self.chunks[start:end]]
        raws = self._nodes.reader.read_many(addresses)
        for address in addresses:
            expect(raws[address], address, Kind.CHUNK)
        return b"".join(raws[address][1:] for address in addresses)

    def read_bytes(self, start: int, end: int) -> bytes:
        """Return the bytes [start, end), whatever chunks they lie in."""
        first, last = bisect_right(self.starts, start) - 1, bisect_left(self.starts, end)
        return self.read(first, last)[start - self.starts[first] : end - self.starts[first]]


def _chunks_of(nodes: Nodes, tree: Tree) -> Iterator[_Chunk]:
    """Yield the chunks of a blob by address and size.

    Cost: the nodes above them. Raises ``LimitExceededError`` beyond ``_CHUNKS``.
    """
    node = nodes.get(Shape.BLOB, tree.top)
    if not node.level:
        if isinstance(tree.top, bytes):
            yield _Chunk(tree.top, tree.count)
        return
    found = 0
    for _, inner in nodes_from(nodes, Shape.BLOB, node, 1, 0):
        found += len(inner.items)
        if found > _CHUNKS:
            raise LimitExceededError("the number of chunks of a stored value", limit=_CHUNKS)
        yield from map(_Chunk, inner.items, inner.counts or ())


def _large_text_lines(nodes: Nodes, old: bytes, new: bytes) -> Iterator[Line]:
    a, b = (
        _Chunks(nodes, tree_of(cell), key_of_cell(cell)[1:] if tree_of(cell) is None else b"") for cell in (old, new)
    )
    left = _READ
    for gap in _replaced_chunks(a.chunks, b.chunks):
        size = a.size(gap.old_start, gap.old_end) + b.size(gap.new_start, gap.new_end)
        if size > left:
            yield "@", f"byte {b.starts[gap.new_start]:,}"
            for mark, side, start, end in (("-", a, gap.old_start, gap.old_end), ("+", b, gap.new_start, gap.new_end)):
                if start < end:
                    head = side.read(start, start + 1)[:400].decode("utf-8", "replace").partition("\n")[0]
                    yield mark, f"{head[:100]}… ({side.size(start, end):,} bytes)"
            continue
        left -= size
        before, after = _rest_of_lines(a, gap)
        texts = [
            decoded_text(before + side.read(start, end) + after)
            for side, start, end in ((a, gap.old_start, gap.old_end), (b, gap.new_start, gap.new_end))
        ]
        start = b.starts[gap.new_start] - len(before)
        olds, news = ([*text.removesuffix("\n").split("\n")] if text else [] for text in texts)
        offsets = list(accumulate((len(line.encode("utf-8", "surrogatepass")) + 1 for line in news), initial=start))
        yield from _differing(olds, news, lambda line, offsets=offsets: f"byte {offsets[line]:,}")


def _replaced_chunks(a: list[_Chunk], b: list[_Chunk]) -> Iterator[Replaced]:
    least = min(len(a), len(b))
    prefix = next((i for i in range(least) if a[i] != b[i]), least)
    suffix = next((i for i in range(least - prefix) if a[-1 - i] != b[-1 - i]), least - prefix)
    olds, news = a[prefix : len(a) - suffix], b[prefix : len(b) - suffix]
    i = j = 0
    for p, q in [*align_unique(olds, news), (len(olds), len(news))]:
        if i < p or j < q:
            yield Replaced(prefix + i, prefix + p, prefix + j, prefix + q)
        i, j = p + 1, q + 1


def _rest_of_lines(a: _Chunks, gap: Replaced) -> tuple[bytes, bytes]:
    """Return the beginning of the line before a gap, and the end of the line after it, which both texts have.

    A chunk, and so a gap, may end within a long line.
    """
    before = a.read(gap.old_start - 1, gap.old_start).rpartition(b"\n")[2] if gap.old_start else b""
    after = b""
    if gap.old_end < len(a.chunks) and not a.read(max(gap.old_end - 1, 0), gap.old_end).endswith(b"\n"):
        head, newline, _ = a.read(gap.old_end, gap.old_end + 1).partition(b"\n")
        after = head + newline
    return before, after


# Arrays


def is_array_cell(cell: bytes) -> bool:
    """Return whether a cell is a numpy array."""
    return code_of(cell) in (Code.NUMPY_ARRAY, Code.ARRAY_BLOB)


def array_lines(nodes: Nodes, decoder: Decoder, old: bytes, new: bytes) -> list[Line]:
    """Return how two arrays differ: in type and shape, or in how many elements, and the first of these.

    None unless both are arrays that are too long to be shown whole. Cost: the chunks that differ, some at a time.
    """
    if not (is_array_cell(old) and is_array_cell(new)):
        return []
    types = [array_type(decoder, cell) for cell in (old, new)]
    if types[0] != types[1] and types[0][0] == types[1][0] and len(types[0][1]) == len(types[1][1]) == 1:
        try:
            lines = _lines_of_lengths(nodes, old, new, types[0][0])
        except ImportError:
            lines = []
        if lines:
            return lines
    if types[0] != types[1]:
        return [(mark, describe(*each)) for mark, each in zip("-+", types, strict=True)]
    if all(_size(cell) <= WHOLE for cell in (old, new)):
        shown = [one_line(decoder.decode(cell)) for cell in (old, new)]
        if shown[0] != shown[1] and not any("..." in text or "…" in text for text in shown):
            return []
    try:
        return _element_lines(nodes, old, new, *types[0])
    except ImportError:  # arrays show as ``Tagged`` without numpy
        return []


def _element_lines(nodes: Nodes, old: bytes, new: bytes, descr: Any, shape: list[int]) -> list[Line]:
    total = prod(shape)
    a, b = (_array_chunks(nodes, cell) for cell in (old, new))
    size = a.starts[-1] // max(total, 1)
    found = 0
    lines: list[Line] = []
    for start, end in _differing_ranges(a, b, size):
        olds, news = (read_array(descr, [end - start], side.read_bytes(start * size, end * size)) for side in (a, b))
        differing = _differing_elements(olds, news)
        for index in differing[: max(_ELEMENTS - found, 0)]:
            at = ", ".join(map(str, _position(start + int(index), shape)))
            lines += [("-", f"[{at}] {_element(olds[index])}"), ("+", f"[{at}] {_element(news[index])}")]
        found += len(differing)
    more = [("@", f"and {found - _ELEMENTS:,} more")] if found > _ELEMENTS else []
    return [("@", f"{found:,} of {total:,} elements"), *lines, *more]


def _element(value: Any) -> str:
    """Return an element of an array without its type, which the array has: ``1.5``, not ``np.float64(1.5)``."""
    return str(value) if value.dtype.kind in "biufcmM" else one_line(value)


def _lines_of_lengths(nodes: Nodes, old: bytes, new: bytes, descr: Any) -> list[Line]:
    """Return how two arrays of one dimension and different lengths differ.

    They differ in the run between what they have in common at both ends. The result is empty if they differ in more
    than ``WHOLE`` bytes. Cost: the chunks behind the first that differs.
    """
    a, b = (_array_chunks(nodes, cell) for cell in (old, new))
    common = next(
        (i for i, (x, y) in enumerate(zip(a.chunks, b.chunks, strict=False)) if x != y),
        min(len(a.chunks), len(b.chunks)),
    )
    size = read_array(descr, [0], b"").dtype.itemsize
    first = a.starts[common] // size
    if max(a.starts[-1], b.starts[-1]) - first * size > WHOLE:
        return []
    olds, news = (
        read_array(
            descr,
            [side.starts[-1] // size - first],
            side.read_bytes(first * size, side.starts[-1]) if side.starts[-1] else b"",
        )
        for side in (a, b)
    )
    least = min(len(olds), len(news))
    differing = _differing_elements(olds[:least], news[:least]) if least else []
    prefix = int(differing[0]) if len(differing) else least
    left = least - prefix
    differing = _differing_elements(olds[len(olds) - left :], news[len(news) - left :]) if left else []
    suffix = left - 1 - int(differing[-1]) if len(differing) else left
    lines: list[Line] = []
    for mark, side in (("-", olds), ("+", news)):
        run = side[prefix : len(side) - suffix]
        lines += [(mark, f"[{first + prefix + index}] {_element(each)}") for index, each in enumerate(run[:_ELEMENTS])]
        lines += [("@", f"and {len(run) - _ELEMENTS:,} more")] if len(run) > _ELEMENTS else []
    gone, come = (len(side) - suffix - prefix for side in (olds, news))
    counted = ", ".join(f"{count:,} {kind}" for count, kind in ((gone, "removed"), (come, "added")) if count)
    return [("@", f"{counted} at [{first + prefix}]"), *lines]


def _array_chunks(nodes: Nodes, cell: bytes) -> _Chunks:
    if code_of(cell) == Code.ARRAY_BLOB:
        return _Chunks(nodes, tree_of(cell))
    return _Chunks(nodes, None, msgpack.unpackb(split_cells(payload_of(cell))[2]))


def _differing_ranges(a: _Chunks, b: _Chunks, size: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of elements of ``size`` bytes that hold all that differ.

    They are the ranges of the chunks that differ, a few chunks at a time.
    """
    count = min(len(a.chunks), len(b.chunks))
    differing = [index for index in range(count) if a.chunks[index] != b.chunks[index]] if a.starts == b.starts else [0]
    done = 0
    for index in differing:
        end = a.starts[index + 1] if a.starts == b.starts else a.starts[-1]
        first, last = max(done, a.starts[index] // size), -(-end // size)
        if first < last:
            yield first, last
        done = last


def _differing_elements(olds: Any, news: Any) -> Any:
    """Return the indexes at which two arrays of one type differ, by their bytes, so that a NaN equals itself."""
    numpy = sys.modules["numpy"]
    a, b = (side.view(numpy.uint8).reshape(len(side), -1) for side in (olds, news))
    return numpy.nonzero((a != b).any(axis=1))[0]


def _position(index: int, shape: Sequence[int]) -> list[int]:
    position: list[int] = []
    for length in reversed(shape):
        index, at = divmod(index, length)
        position.append(at)
    return position[::-1]
