"""The segments of open nodes: runs of their bytes that are stored as objects of their own. Layer: values.

Nearly every commit extends the last leaf of a list, and so replaces the last child of the last inner node of each
level. If these nodes were stored whole, each version would repeat the content of the one before. In segments, a version
of a leaf stores only its newest cells, a version of an inner node only its last child, and both name the segments with
the rest. A node that has reached its boundary is stored whole: it will not grow, and can be read in one piece.

The segments depend on the content of the node alone, as the nodes of a tree do. So they are the same for every writer
and every history.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import Final, NamedTuple

from versioned_state.objects.address import ADDRESS_SIZE, Address, address_of
from versioned_state.objects.envelope import MAX_HEAD, MAX_SEGMENT, MAX_SEGMENTS, Segment, Segmented, segment_of
from versioned_state.values.cells import array_header

SEGMENT_LEAST: Final = 384
"""A segment ends after the cell with which it reaches this many bytes."""

RUN: Final = 4
RUN_MOST: Final = 2560
"""This many successive segments, from the beginning of the leaf, become one if they have at most this many bytes."""

LEAF_IN_SEGMENTS: Final = 768
"""Raw bytes from which an open leaf of a sequence is stored in segments."""

NODE_IN_SEGMENTS: Final = 256
"""Raw bytes from which an open inner node of a sequence or blob is stored in segments.

Its one segment has the addresses of all children but the last. A reader that begins at the head pays with a call of the
store for each such node, so most of them, which have fewer than ten children, are stored whole.

These numbers are part of the format. They were measured on 100-byte elements and on 200 real conversations, with the
cost of a row: half of a segment is written again at each commit, and the address of each segment, so smaller segments
pay only if several become one.
"""


class Cuts(NamedTuple):
    """The ends of the segments of a node.

    Attributes:
        segments: the address and size of each, from the beginning of the node.
        ends: the number of items of the node before the end of each.
        places: the position of each in its run; ``RUN`` also for the segment that a run has become.
        size: the bytes of all segments.
    """

    segments: tuple[Segment, ...] = ()
    ends: tuple[int, ...] = ()
    places: tuple[int, ...] = ()
    size: int = 0


NO_CUTS: Final = Cuts()

Parts = list[tuple[Address, bytes]]
"""Segments as objects: address and raw bytes of each."""


def cuts_before(cuts: Cuts, index: int) -> Cuts:
    """Return the cuts of the cells before an index, which an edit from there on leaves as they are."""
    ends = cuts.ends
    if not ends or ends[-1] <= index:
        return cuts
    count = bisect_right(ends, index)
    segments = cuts.segments[:count]
    return Cuts(segments, ends[:count], cuts.places[:count], sum([size for _, size in segments]))


def leaf_in_segments(raw: bytes, cells: list[bytes], known: Cuts) -> tuple[bytes, Cuts, Parts]:
    """Return the raw bytes of an open leaf with its segments, its cuts, and the segments that are new.

    Args:
        known: cuts of these cells, in a leaf that is stored or staged.
    """
    if len(raw) < LEAF_IN_SEGMENTS:
        return raw, NO_CUTS, []
    segments, ends, places, size = known
    head = 1 + len(array_header(len(cells)))
    stop = head + size
    if len(raw) - stop < SEGMENT_LEAST:
        return (Segmented(raw, head, segments, stop), known, []) if segments else (raw, NO_CUTS, [])
    if ends and ends[-1] == len(cells) - 1 and places[-1] != RUN - 1:
        # One cell is new and makes a segment by itself, as most messages do.
        kept, runs = len(segments), [(stop, len(raw), len(cells), places[-1] % RUN + 1)]
    else:
        kept, runs = _runs(cells, known, stop)
        if not runs:
            return (Segmented(raw, head, segments, stop), known, []) if segments else (raw, NO_CUTS, [])
        if kept < len(segments):
            segments, ends, places = segments[:kept], ends[:kept], places[:kept]
        if kept + len(runs) > MAX_SEGMENTS:
            return raw, NO_CUTS, []
    parts = []
    for start, end, items, place in runs:
        part = segment_of(raw[start:end])
        if len(part) > MAX_SEGMENT:
            return raw, NO_CUTS, []
        address = address_of(part)
        parts.append((address, part))
        segments += ((address, end - start),)
        ends += (items,)
        places += (place,)
    return Segmented(raw, head, segments, end), Cuts(segments, ends, places, end - head), parts


def _runs(cells: list[bytes], known: Cuts, stop: int) -> tuple[int, list[tuple[int, int, int, int]]]:
    """Return how many known segments stay, and for each later one its start and end in bytes, end in items and place.

    Args:
        stop: where the known segments end in the raw bytes.
    """
    segments, ends, places, _ = known
    first = ends[-1] if ends else 0
    offsets = list(accumulate(map(len, cells[first:]), initial=stop))
    kept = len(segments)
    runs: list[tuple[int, int, int, int]] = []
    index = 0
    while (after := bisect_left(offsets, offsets[index] + SEGMENT_LEAST, index)) < len(offsets):
        start, end = offsets[index], offsets[after]
        place = (runs[-1][3] if runs else places[-1] if places else RUN) % RUN + 1
        if place == RUN:
            # The other segments of the run are the last ones, known or not.
            new = min(RUN - 1, len(runs))
            old = RUN - 1 - new
            begin = (runs[-new][0] if new else start) - (
                sum([size for _, size in segments[kept - old : kept]]) if old else 0
            )
            if end - begin <= RUN_MOST:
                start = begin
                kept -= old
                del runs[len(runs) - new :]
        runs.append((start, end, first + after, place))
        index = after
    return kept, runs


def cuts_of(raw: Segmented, cells: list[bytes]) -> Cuts:
    """Return the cuts of a leaf that was read in segments, or none if its segments do not match its cells."""
    _, runs = _runs(cells, NO_CUTS, raw.head)
    if [end - start for start, end, _, _ in runs] != [size for _, size in raw.segments]:
        return NO_CUTS
    return Cuts(raw.segments, tuple([run[2] for run in runs]), tuple([run[3] for run in runs]), raw.tail - raw.head)


def node_in_segments(raw: bytes, children: list[bytes], known: Cuts) -> tuple[bytes, Cuts, Parts]:
    """Do ``leaf_in_segments`` for an open inner node of a sequence or blob, whose end is its children's addresses."""
    head = len(raw) - ADDRESS_SIZE * len(children)
    if len(raw) < NODE_IN_SEGMENTS or head > MAX_HEAD:
        return raw, NO_CUTS, []
    part = segment_of(raw[head:-ADDRESS_SIZE])
    segments = ((address := address_of(part), len(part) - 1),)
    cuts = Cuts(segments, (len(children) - 1,), (RUN,), len(part) - 1)
    return (
        Segmented(raw, head, segments, len(raw) - ADDRESS_SIZE),
        cuts,
        [] if known.segments == segments else [(address, part)],
    )


def cuts_of_node(raw: Segmented, children: list[bytes]) -> Cuts:
    """Return the cut of an inner node that was read in segments."""
    if len(raw.segments) != 1 or raw.segments[0][1] != ADDRESS_SIZE * (len(children) - 1):
        return NO_CUTS
    return Cuts(raw.segments, (len(children) - 1,), (RUN,), raw.tail - raw.head)
