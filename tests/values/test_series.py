"""A series has one form, whatever the order and the steps in which its entries came."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.support.codec import new_nodes
from versioned_state import Memory
from versioned_state.errors import CorruptObjectError
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.values.cells import pack
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.series import EMPTY, GROUP, Series, leaves_of, merge_series, parts_of, series_of
from versioned_state.values.trees.chunker import MapLeafChunker
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Node, Nodes, Shape
from versioned_state.values.trees.tree import empty, iter_items, same


@pytest.fixture
def nodes() -> Nodes:
    return new_nodes()


def entries(numbers: Iterable[int]) -> dict[str, bytes]:
    return {f"{number:06}": pack(f"entry {number}") for number in numbers}


def extend(nodes: Nodes, cell: bytes | None, more: Mapping[str, bytes]) -> bytes:
    return series_of(nodes, cell).extended(nodes, more).cell


def extended(nodes: Nodes, cell: bytes | None, steps: Iterable[Mapping[str, bytes]]) -> bytes | None:
    for step in steps:
        cell = extend(nodes, cell, step)
    return cell


@pytest.mark.parametrize("count", [0, 1, 5, 6, 7, 44, 45, 300])
def test_equal_entries_have_one_form(nodes: Nodes, count: int):
    whole = extend(nodes, None, entries(range(count)))
    dice = random.Random(count)
    assert extended(nodes, None, (entries([number]) for number in range(count))) in (whole, None)
    shuffled = dice.sample(range(count), count)
    assert extended(nodes, None, (entries([number]) for number in shuffled)) in (whole, None)
    assert extended(nodes, None, (entries(shuffled[at : at + 7]) for at in range(0, count, 7))) in (whole, None)
    if count:
        changed = {f"{count - 1:06}": pack("changed"), "999999": pack("new")}
        assert extend(nodes, whole, changed) == extend(nodes, None, {**entries(range(count)), **changed})


@pytest.mark.parametrize("count", [1, 7, 60, 300])
def test_a_merge_has_the_form_of_all_entries_whichever_side_is_ours(nodes: Nodes, count: int):
    dice = random.Random(count)
    base = entries(range(0, 3 * count, 3))
    ours, theirs = (entries(dice.sample(range(start, 4 * count, 3), count)) for start in (1, 2))
    cells = [extend(nodes, None, {**base, **more}) for more in ({}, ours, theirs)]
    merged = extend(nodes, None, {**base, **ours, **theirs})
    assert merge_series(nodes, cells[0], cells[1], cells[2]) == merged
    assert merge_series(nodes, cells[0], cells[2], cells[1]) == merged
    assert merge_series(nodes, None, cells[1], cells[2]) == merged


def test_the_complete_part_ends_at_a_boundary_and_the_others_hold_none(nodes: Nodes):
    cell = None
    for number in range(200):
        cell = extend(nodes, cell, entries([number]))
        complete, last, newest = (part.tree for part in parts_of(cell))
        for trees, pending in (((complete,), 0), ((last, newest), last.count + newest.count)):
            chunker = MapLeafChunker()
            keys = [key for tree in trees for key, _ in iter_items(nodes, tree)]
            sizes = chunker.feed(keys, keys)
            assert chunker.pending == pending, number
            assert sum(sizes) == len(keys) - pending
        series = Series(nodes, cell, Decoder(nodes))
        assert len(series) == number + 1
        assert [name for name, _ in series.iter_entries()] == list(entries(range(number + 1)))


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_group_ends_with_the_byte_that_completes_it(nodes: Nodes, before: int, more: int):
    first = entries(range(before))
    size = sum(len(f"s{name}") + len(cell) for name, cell in first.items())
    last = {"999999": pack("x" * (GROUP - size - len("s999999") - 3 + more))}
    whole = extend(nodes, None, {**first, **last})
    assert parts_of(whole).newest.tree.count == (before + 1 if more < 0 else 0)
    assert series_of(nodes, None).extended(nodes, first).extended(nodes, last).cell == whole


@pytest.mark.parametrize("size", [10, 100, GROUP // 2, GROUP, 2000])
def test_the_newest_entries_are_fewer_bytes_than_a_group_and_cost_no_object(nodes: Nodes, size: int):
    cell, written = None, 0
    for number in range(60):
        before = len(nodes.staging)
        cell = extend(nodes, cell, {f"{number:06}": pack("x" * size)})
        parts = parts_of(cell)
        newest = sum(len(key) + len(item) for key, item in iter_items(nodes, parts.newest.tree))
        assert newest < GROUP
        assert len(cell) < newest + 150, "the other parts are addresses"
        assert parts.newest.tree.count or len(nodes.staging) > before
        written += len(nodes.staging) > before
    assert written <= 60 * (size + 20) / GROUP + 20


def test_a_complete_node_is_staged_once_more_at_most(nodes: Nodes):
    """As the top of the tree that has grown beyond it."""
    store, cell, again = ObjectStore(Memory()), None, 0
    for number in range(700):
        staging = Staging(store)
        nodes.bind(staging)
        cell = extend(nodes, cell, entries([number]))
        again += sum(key in store.kv for key in staging.sealed())
        store.kv.apply({}, {}, objects=staging.sealed())
    assert again <= 2, "the tree has three levels"
    assert [name for name, _ in Series(nodes, cell, Decoder(nodes)).iter_entries()] == list(entries(range(700)))


def test_it_is_read_from_both_ends_and_by_name(nodes: Nodes):
    held = entries(range(0, 200, 2))
    series = Series(nodes, extend(nodes, None, held), Decoder(nodes))
    for since in ("", "000000", "000101", "000198", "000199"):
        expected = [item for item in held.items() if item[0] >= since]
        assert list(series.iter_entries(since)) == expected
        assert list(series.iter_entries(since, reverse=True)) == expected[::-1]
    assert all(series.find(name) == cell for name, cell in held.items())
    assert series.find("000101") is None


@pytest.mark.parametrize("size", [100, 400, 480, 520, 2000])
def test_the_root_of_a_small_state_is_inlined_whatever_the_engine_has_beside_it(nodes: Nodes, size: int):
    series = series_of(nodes, None)
    for number in range(60):
        series = series.extended(nodes, {f"{number:06}": pack("x" * 90)})
        user = {b"kfirst": pack("a" * (size // 2)), b"ksecond": pack("b" * (size // 2))}
        root = edit_map(nodes, edit_map(nodes, empty(Shape.MAP), user), {b"eevents": series.cell})
        assert isinstance(root.top, Node) == (size < 500)
        assert same(root, edit_map(nodes, empty(Shape.MAP), {b"eevents": series.cell, **user})), "it is canonical"


@pytest.mark.parametrize(
    "cell",
    [b"\x90", b"\x92\x01\x02", b"\x80", b"\xa1a", b"\x93\xc0\xc0\xc0", b"\x93", EMPTY.cell[:-1], EMPTY.cell + b"\xc0"],
)
def test_anything_else_is_corrupt(cell: bytes):
    with pytest.raises(CorruptObjectError):
        parts_of(cell)


class Slices(list[bytes]):
    """A list that counts the elements that its slices copy."""

    copied = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if isinstance(index, slice):
            Slices.copied += len(found)
            return Slices(found)
        return found


def test_many_entries_at_once_are_each_copied_once_into_their_leaves(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Slices, "copied", 0)
    keys, items = (Slices(b"%d" % number for number in range(100)) for _ in range(2))
    leaves, done = leaves_of(keys, items, [7] * 13)
    assert done == 91
    assert [key for leaf in leaves for key in leaf.keys or ()] == keys[:done]
    assert Slices.copied == 3 * done  # the keys, the items, and the line above
