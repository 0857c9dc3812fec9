"""Each fast path gives what its slow twin gives, on trees of all structures.

| fast path | its slow twin | here, or in |
| --- | --- | --- |
| ``edit.splice``: one leaf, one path, appends (``_splice_leaf``, ``_replace_in_leaf``, ``_with_last``, ``_append_row``), ``grow`` | the tree built item by item (``reference_trees``); ``_rechunk`` alone | ``test_splices`` |
| ``edit.edit_map``, ``_edit_map_leaf`` | the same, from a sorted dict | ``test_edits_of_maps`` |
| ``edit.splice_cells``: equal cells at the ends are left out | the list with a slice assigned | ``test_splices_of_cells`` |
| ``chunker``: ``feed`` in parts, ``resume`` after a node | the rule, item by item | ``test_chunkers`` |
| ``append_leaves``, ``extended_leaf``, ``GrowingSeries`` | the three parts, from all entries | ``test_series`` |
| ``segments``: known cuts, one new cell | the cuts of the whole leaf | ``tests/values/test_segments.py``, ``assert_forms`` |
| ``tree``: ``cells_at``, ``iter_cells``, ``iter_items_back``, ``find``, ``locate`` | a Python list and ``bisect`` | ``test_reads`` |
| ``blob.write_blob``: only the chunks that differ | all chunks, item by item | ``test_blobs`` |
| ``inline``: packed as JSON at once; ``plain_cell``, ``encode_small``; ``exceeds`` and ``is_surely_large`` before packing | part by part; packed and measured | ``test_cells_of_small_values`` |
| ``encode_list``, ``encode_dict``, ``encode_text``, ``encode_buffer`` with a baseline; its groups (``find_runs``, moved groups, ``extended``, fingerprints that are leaves, ``is_surely_longer``, runs kept for the inner list) | without one, by another encoder | ``test_values_with_baselines`` |
| ``compose``: ``fit``, ``list_cell``, ``dict_cell``, ``splice_list`` | the value encoded for that place | ``tests/values/test_compose.py``, ``tests/values/test_splices.py`` |
| ``diff_maps``: two inlined leaves, leaves read ahead | two dicts; ``_walk_maps`` | ``tests/values/test_diff.py`` |
| ``held.are_held``, ``_add_held``: all elements at once | one by one | ``tests/state/test_held.py`` |
| ``diff_values``: scalars, and inline dicts of the same keys (``_changed_entries``) | as trees | ``tests/values/test_diff.py`` |
| ``worktree``: packs of suspects, assigned lists, elements of lists that are not loaded, ``_splice`` of a loaded list, pending entries | the state built from scratch, read anew | ``tests/state/test_sizes.py``, ``tests/reliability/test_sizes_of_logs.py`` |
"""  # noqa: E501 - a table

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import reference_trees as reference
from tests.support.codec import new_nodes
from tests.support.exact import exact, exact_data
from tests.support.mutations import mutate, sample
from tests.support.small_nodes import SMALL, WIDER, small_nodes
from versioned_state.errors import StateError
from versioned_state.objects.address import Address
from versioned_state.values import accelerator, cells as grammar
from versioned_state.values.cells import pack
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.decode.live import LiveDecoder
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.encode.inline import InlineEncoder, plain_cell
from versioned_state.values.encode.walks import exceeds, is_surely_large
from versioned_state.values.series import GrowingSeries, parts_of, series_of
from versioned_state.values.trees import blob, chunker, edit
from versioned_state.values.trees.edit import Edit, build, build_sequence, edit_map, splice, splice_cells
from versioned_state.values.trees.nodes import Node, Nodes, Shape, read_node, write_node
from versioned_state.values.trees.tree import (
    Tree,
    as_read,
    cells_at,
    empty,
    find,
    iter_cells,
    iter_items,
    iter_items_back,
    locate,
    same,
)

PICKLES = PicklePolicy("allow", private=True)


@pytest.fixture(autouse=True, params=["small", "wider"])
def _limits(request: pytest.FixtureRequest) -> Iterator[None]:
    with small_nodes(SMALL if request.param == "small" else WIDER):
        yield


def read_again(nodes: Nodes, tree: Tree) -> tuple[Nodes, Tree]:
    """The same tree for a reader that has no node of it."""
    return Nodes(nodes.staging, staging=nodes.staging), as_read(tree)


def assert_tree(nodes: Nodes, tree: Tree, cells: list[bytes], keys: list[bytes] | None = None) -> None:
    """A tree has these elements, the nodes that they ask for, and an inline top only where that is small."""
    assert tree.count == len(cells)
    raw = reference.raw_of(tree, nodes.reader)
    assert raw == reference.top_raw(tree.shape, cells, keys)
    assert list(iter_cells(nodes, tree)) == cells
    assert isinstance(tree.top, Node) == (len(raw) <= edit.INLINE_TOP)


def a_cell(rng: random.Random) -> bytes:
    size = rng.choice([1, 1, 3, 8, 8, 12, 30, 70])
    cell: bytes = pack("x" * size) if rng.random() < 0.1 else pack(rng.randbytes(size // 2 + 1).hex()[:size])
    return cell


def an_edit(rng: random.Random, size: int) -> tuple[int, int, int]:
    """Where an edit begins and ends, and how many items it brings: mostly one step, at either end or in the middle."""
    start = rng.choice([0, size, size, size // 2, rng.randrange(size + 1), max(size - 1, 0)])
    end = min(size, start + rng.choice([0, 0, 1, 1, 2, 9, 40]))
    return start, end, rng.choice([0, 1, 1, 1, 2, 5, 30])


@pytest.mark.parametrize("way", ["all paths", "rechunk alone"])
@pytest.mark.parametrize("shape", [Shape.SEQUENCE, Shape.MAP])
def test_splices(shape: Shape, way: str, long_run: bool, monkeypatch: pytest.MonkeyPatch):  # noqa: FBT001 - a fixture
    if way != "all paths":
        monkeypatch.setattr(edit, "_replace_in_leaf", lambda *_: None)
    for seed in range(2000 if long_run else 4):
        splice_and_compare(shape, random.Random(f"{shape} {seed}"))


def splice_and_compare(shape: Shape, rng: random.Random) -> None:
    nodes, tree = new_nodes(), empty(shape)
    cells: list[bytes] = []
    numbers: list[float] = []  # of which the keys are made: there is always one between two others
    for _ in range(60):
        edits = []
        starts = sorted(
            (an_edit(rng, len(cells)) for _ in range(rng.choice([1, 1, 1, 2, 4]))), key=lambda each: each[0]
        )
        last = -1
        changes = []
        for start, end, count in starts:
            if start <= last or (start == end and not count):
                continue
            last = end
            low = numbers[start - 1] if start else 0.0
            high = numbers[end] if end < len(numbers) else 1.0
            news = [low + (high - low) * (index + 1) / (count + 1) for index in range(count)]
            if any(b - a < 1e-12 for a, b in zip([low, *news], [*news, high], strict=True)):
                continue
            some = [a_cell(rng) for _ in news]
            edits.append(Edit(start, end, some, None, list(map(key_of, news)) if shape is Shape.MAP else None))
            changes.append((start, end, some, news))
        if not edits:
            continue
        tree = splice(nodes, tree, edits)
        for start, end, some, news in reversed(changes):
            cells[start:end], numbers[start:end] = some, news
        assert_tree(nodes, tree, cells, list(map(key_of, numbers)) if shape is Shape.MAP else None)
        if rng.random() < 0.3:
            nodes, tree = read_again(nodes, tree)


def key_of(number: float) -> bytes:
    return b"%.15f" % number


@pytest.mark.parametrize("shape", [Shape.SEQUENCE, Shape.MAP])
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_single_steps_at_every_size(shape: Shape, place: float):
    """From nothing to five levels and back, each step also by ``_rechunk`` alone and built at once."""
    nodes, tree, rng = new_nodes(), empty(shape), random.Random(7)
    cells: list[bytes] = []
    keys: list[int] = []
    heights = set()
    for step in range(240):
        at = round(place * len(cells))
        if step < 120:
            low, high = (keys[at - 1] if at else 0), (keys[at] if at < len(keys) else 1 << 400)
            key, cell = (low + high) // 2, a_cell(rng)
            change = Edit(at, at, [cell], None, [key_in(key)] if shape is Shape.MAP else None)
            keys.insert(at, key)
            cells.insert(at, cell)
        else:
            at = min(at, len(cells) - 1)
            change = Edit(at, at + 1, [], None, [] if shape is Shape.MAP else None)
            del cells[at], keys[at]
        tree = splice(nodes, tree, [change])
        whole = build(nodes, shape, 0, Edit(0, 0, cells, None, list(map(key_in, keys)) if shape is Shape.MAP else None))
        assert same(tree, whole)
        assert_tree(nodes, tree, cells, list(map(key_in, keys)) if shape is Shape.MAP else None)
        heights.add(nodes.get(shape, tree.top).level)
    assert heights >= {0, 1, 2}
    assert not tree.count


def key_in(number: int) -> bytes:
    return number.to_bytes(51, "big")


def test_edits_of_maps(long_run: bool):  # noqa: FBT001 - a fixture
    for seed in range(2000 if long_run else 4):
        rng = random.Random(seed)
        nodes, tree = new_nodes(), empty(Shape.MAP)
        model: dict[bytes, bytes] = {}
        for _ in range(60):
            some = [b"%03d" % rng.randrange(200) for _ in range(rng.choice([1, 1, 1, 3, 8, 40]))]
            changes = {
                key: None if rng.random() < 0.4 else model.get(key) if rng.random() < 0.1 else a_cell(rng)
                for key in some
            }
            before = tree
            tree = edit_map(nodes, tree, changes)
            was = dict(model)
            for key, cell in changes.items():
                model.pop(key, None)
                if cell is not None:
                    model[key] = cell
            keys = sorted(model)
            assert_tree(nodes, tree, [model[key] for key in keys], keys)
            assert was != model or tree is before, "nothing has changed"
            if rng.random() < 0.3:
                nodes, tree = read_again(nodes, tree)


def test_splices_of_cells(long_run: bool):  # noqa: FBT001 - a fixture
    for seed in range(2000 if long_run else 4):
        rng = random.Random(seed)
        nodes, tree = new_nodes(), empty(Shape.SEQUENCE)
        cells: list[bytes] = []
        for _ in range(60):
            start, end, count = an_edit(rng, len(cells))
            # with few, an end may match in two ways
            few = [pack("a" * 9), pack("b" * 9)] if seed % 2 else [*cells, a_cell(rng)]
            news = [rng.choice(few) if seed % 2 or rng.random() < 0.2 else a_cell(rng) for _ in range(count)]
            if rng.random() < 0.4:  # an element that is encoded again, unchanged
                news = [*cells[start : min(start + 1, end)], *news, *cells[max(start, end - 2) : end]]
            before = tree
            tree = splice_cells(nodes, tree, [(start, end, news)])
            is_same = cells[start:end] == news
            cells[start:end] = news
            assert_tree(nodes, tree, cells)
            assert not is_same or tree is before


def test_chunkers(long_run: bool):  # noqa: FBT001 - a fixture
    rules: list[tuple[Callable[[], chunker.Chunker], Callable[[list[bytes]], list[bool]]]] = [
        (chunker.SequenceLeafChunker, lambda items: reference.leaf_ends(items, None)),
        (chunker.MapLeafChunker, lambda items: reference.leaf_ends(items, items)),
        (
            chunker.InnerChunker,
            lambda items: reference.node_ends([item[0] < 256 // chunker.NODE_SCALE for item in items]),
        ),
    ]
    for seed in range(3000 if long_run else 60):
        rng = random.Random(seed)
        made, ends_of = rules[seed % 3]
        items = [
            rng.randbytes(24) if made is chunker.InnerChunker else a_cell(rng) for _ in range(rng.choice([1, 5, 60]))
        ]
        keys = items if made is chunker.MapLeafChunker else None
        ends = ends_of(items)
        expected = [b - a for a, b in reference._spans(ends) if ends[b - 1]]
        for _ in range(4):
            fed, sizes, at = made(), [], 0
            while at < len(items):
                more = rng.choice([1, 2, 7, len(items)])
                sizes += fed.feed(items[at : at + more], keys and keys[at : at + more])
                at += more
            assert sizes == expected
            assert fed.pending == len(items) - sum(sizes)
        # Resumed after any part of the last node, which is open, or is not.
        for first, last in reference._spans(ends):
            for stop in range(first, last):
                before = made()
                assert before.feed(items[first:stop], keys and keys[first:stop]) == []
                for weight in {0, before.weight}:  # not known, and as the chunker left it
                    resumed = made()
                    assert resumed.resume(items[first:stop], keys and keys[first:stop], weight)
                    rest = resumed.feed(items[stop:last], keys and keys[stop:last])
                    assert rest == ([last - first] if ends[last - 1] else [])
            assert made().resume(items[first:last], keys and keys[first:last], 0) is not ends[last - 1]
            if made is chunker.InnerChunker:
                assert chunker.is_open(items[first:last]) is not ends[last - 1]


def parts_from_scratch(model: dict[str, bytes]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Return the keys in each part of a series by rule: complete leaves, complete groups after them, and the rest."""
    keys = sorted(b"s" + name.encode() for name in model)
    ends = reference.leaf_ends(keys, keys)
    complete = max((index for index, is_end in enumerate(ends, 1) if is_end), default=0)
    size, grouped = 0, complete
    for index, key in enumerate(keys[complete:], complete + 1):
        size += len(key) + len(model[key[1:].decode()])
        if size >= series_of.__globals__["GROUP"]:
            size, grouped = 0, index
    return keys[:complete], keys[complete:grouped], keys[grouped:]


def test_series(long_run: bool):  # noqa: FBT001 - a fixture
    for seed in range(1000 if long_run else 3):
        rng = random.Random(seed)
        nodes = new_nodes()
        series = series_of(nodes, None)
        model: dict[str, bytes] = {}
        for step in range(120):
            late = rng.random() < 0.9
            names = [f"{step if late else rng.randrange(120):04}-{index}" for index in range(rng.choice([1, 1, 2, 6]))]
            more = {name: a_cell(rng) for name in names if name not in model}
            series = series.extended(nodes, more)
            model |= more
            assert_series(nodes, series, model)
            if rng.random() < 0.3:
                nodes = Nodes(nodes.staging, staging=nodes.staging)
                series = series_of(nodes, series.cell)


def assert_series(nodes: Nodes, series: GrowingSeries, model: dict[str, bytes]) -> None:
    parts = parts_of(series.cell)
    assert series.parts.cell == series.cell
    for part, keys in zip(parts, parts_from_scratch(model), strict=True):
        items = list(iter_items(nodes, part.tree))
        assert items == [(key, model[key[1:].decode()]) for key in keys]
        cells = [cell for _, cell in items]
        if keys:
            assert reference.raw_of(part.tree, nodes.reader) == reference.top_raw(Shape.MAP, cells, keys)
    newest = parts.newest.tree.top
    assert isinstance(newest, Node), "the newest entries lie in the cell"
    written = Node(0, newest.items, None, newest.keys)
    assert write_node(Shape.MAP, newest) == write_node(Shape.MAP, written), "extended bytes are those of the whole leaf"


def test_reads(long_run: bool):  # noqa: FBT001 - a fixture
    for seed in range(300 if long_run else 12):
        rng = random.Random(seed)
        size = rng.choice([0, 1, 2, 5, 9, 30, 150])
        keys = sorted({b"%04d" % rng.randrange(3000) for _ in range(size)})
        cells = [a_cell(rng) for _ in keys]
        nodes = new_nodes()
        sequence = build_sequence(nodes, cells)
        table = edit_map(nodes, empty(Shape.MAP), dict(zip(keys, cells, strict=True)))
        items = list(zip(keys, cells, strict=True))
        for _ in range(60):
            start, end = rng.randrange(size + 2), rng.randrange(size + 2)
            assert list(iter_cells(nodes, sequence, start, end)) == cells[start:end]
            assert list(iter_items(nodes, table, start, end)) == items[start:end]
            assert list(iter_items_back(nodes, table, start, end)) == items[start:end][::-1]
            picked = range(len(cells))[start : end : rng.choice([1, 1, 2, 3, 7])]
            assert cells_at(nodes, sequence, picked) == [cells[at] for at in picked]
            key = rng.choice(keys) if keys and rng.random() < 0.5 else b"%04d" % rng.randrange(3000)
            at = bisect_left(keys, key)
            held = cells[at] if at < len(keys) and keys[at] == key else None
            assert find(nodes, table, key) == held
            assert locate(nodes, table, key) == (at, held)


def test_blobs(long_run: bool):  # noqa: FBT001 - a fixture
    for seed in range(2000 if long_run else 20):
        rng = random.Random(seed)
        is_text = seed % 2
        nodes = new_nodes()
        data, old = b"", None
        for _ in range(30):
            start = rng.choice([0, len(data), len(data) // 2, rng.randrange(len(data) + 1)])
            end = min(len(data), start + rng.choice([0, 0, 1, 64, 200]))
            count = rng.choice([0, 1, 20, 64, 300])
            more = bytes(rng.choices(b"abcdefgh ,\n", k=count)) if is_text else rng.randbytes(count)
            data = data[:start] + more + (more if rng.random() < 0.1 else b"") + data[end:]
            spans = blob.text_spans(data) if is_text else blob.binary_spans(len(data))
            old = blob.write_spans(nodes, data, spans, old)
            chunks = reference.text_chunks(data) if is_text else reference.byte_chunks(data)
            assert old.tree.count == len(data)
            assert bytes(blob.read_blob(nodes, old.tree)) == data
            if data:
                assert reference.raw_of(old.tree, nodes.reader) == reference.top_raw(Shape.BLOB, chunks)
            if not is_text:
                assert same(blob.write_bytes(nodes, data), old.tree) or not data


def test_nodes_of_the_greatest_weight():
    """A repeated piece, after which no node may end by its hash: only the greatest weight ends one, exactly there."""
    for letter in "abcdefghijklmnopqrstuvwxyz":
        data = (letter * 7 + " ").encode() * 100
        assert [data[a:b] for a, b in blob.text_spans(data)] == reference.text_chunks(data)
        cells = [pack(letter * 7)] * 100
        nodes = new_nodes()
        assert_tree(nodes, build_sequence(nodes, cells), cells)


# Values


def samples(long_run: bool) -> Iterator[tuple[random.Random, Any]]:  # noqa: FBT001 - a fixture
    for seed in range(2000 if long_run else 25):
        rng = random.Random(seed)
        yield rng, exact_data(sample(rng, rng.choice([1, 3, 10]) if long_run else 1))


def test_cells_of_small_values(long_run: bool):  # noqa: FBT001 - a fixture
    for _, value in samples(long_run):
        slow = InlineEncoder(PICKLES)
        slow.begin(value)
        slow.is_plain = lambda part, *_: type(part) in (bool, int, float, type(None))  # part by part
        whole = slow.inline(value)
        assert InlineEncoder(PICKLES).encode_inline(value) == whole
        cell = plain_cell(value)
        assert cell in (None, whole)
        with pytest.MonkeyPatch.context() as without:
            without.setattr(accelerator, "fast", None)
            assert plain_cell(value) == cell, "with the accelerator and without it"
        encoder = Encoder(new_nodes(), PICKLES)
        small = encoder.encode_small(value)
        if small is not None:
            assert small == whole == encoder.encode_at(value, grammar.ENTRY_INLINE)
        for limit in (0, 10, len(whole) - 1, len(whole), len(whole) + 1):
            if exceeds(value, limit) or is_surely_large(value, limit):
                assert len(whole) > limit


def encoded(value: Any) -> bytes:
    return Encoder(new_nodes(), PICKLES).encode_at(value, grammar.ENTRY_INLINE)


def changed(rng: random.Random, value: Any, step: int) -> Any:
    """The value with another content: changed in place, at one place or at several, or made anew of its own parts."""
    if type(value) in (str, bytes):
        at = rng.randrange(len(value) + 1)
        return value[:at] + value[at // 2 : at // 2 + 9] + value[at + rng.randrange(5) :]
    if rng.random() < 0.8:
        for _ in range(rng.choice([1, 1, 3, 6])):
            mutate(rng, value)
        return exact_data(value)
    if type(value) is list and len(value) > 9:
        if rng.random() < 0.5:
            return rng.choice([value[2:], [*value[1:], value[0]], [*value, *value[:2]], value[:-1], value[::-1]])
        for place in rng.sample(range(len(value)), 5):
            value[place] = place * step
    return value


def test_values_with_baselines(long_run: bool):  # noqa: FBT001 - a fixture
    for rng, value in samples(long_run):
        if type(value) not in (list, dict, bytearray, set, str, bytes):
            continue
        nodes = new_nodes()
        encoder = Encoder(nodes, PICKLES)
        cell, base = encoder.encode(value, None, "value")
        for step in range(6):
            before, before_cell = exact(value), cell
            value = changed(rng, value, step)  # noqa: PLW2901
            try:
                expected = encoded(value)
            except StateError:
                break
            if base is not None and encoder.fingerprinter.is_unchanged(value, base):
                assert expected == before_cell, "a change was missed"
            cell, base = encoder.encode(value, base, "value")
            assert cell == expected, step
            if exact(value) == before:
                assert cell == before_cell
            if rng.random() < 0.3:  # a value that was read, whose fingerprints are its leaves
                nodes = Nodes(nodes.staging, staging=nodes.staging)
                encoder = Encoder(nodes, PICKLES)
                was = exact(value)
                value, base = LiveDecoder(nodes, PICKLES, encoder.fingerprinter).decode_live(cell)  # noqa: PLW2901
                assert exact(value) == was


def test_a_node_is_read_as_it_was_written():
    rng = random.Random(1)
    nodes = new_nodes()
    tree = build_sequence(nodes, [a_cell(rng) for _ in range(200)])
    seen = 0
    row: list[bytes] = [tree.top] if isinstance(tree.top, bytes) else []
    while row:
        top = row.pop()
        node = read_node(Shape.SEQUENCE, nodes.reader.read(Address(top)))
        assert write_node(Shape.SEQUENCE, node) == nodes.reader.read(Address(top))
        row += node.items if node.level else []
        seen += 1
    assert seen > 20
