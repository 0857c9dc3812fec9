"""Open leaves in segments: an append stores what is new, and the form of a leaf is a function of its content."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.support.codec import new_nodes
from tests.support.segments import assert_forms, in_segments, own_bytes, runs_of, segments_due
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.objects.address import Kind, address_of
from versioned_state.objects.envelope import Segmented, join, seal, segments_in
from versioned_state.objects.keys import object_key
from versioned_state.objects.store import ObjectStore
from versioned_state.storage import Counting
from versioned_state.values.cells import array, pack
from versioned_state.values.trees.edit import Edit, build_sequence, splice
from versioned_state.values.trees.nodes import Node, Shape, write_node
from versioned_state.values.trees.segments import NO_CUTS, leaf_in_segments as segmented
from versioned_state.values.trees.tree import Tree, top_of

WORDS = (
    "the flight from Oslo to Rome leaves at nine and costs less on a Tuesday than it does on any other day of the week"
).split()


def texts(seed: int, length: int = 100) -> Any:
    rng = random.Random(seed)
    while True:
        yield (" ".join(rng.choices(WORDS, k=length // 2)) + f" {rng.random()}")[-length:]


SIZES = st.sampled_from((1, 5, 40, 100, 300, 700, 1500, 4000))
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("append", "extend", "pop", "replace last", "replace", "insert", "delete", "cut")),
        SIZES,
        st.integers(0, 999),
    )
)


def edit(values: Any, step: tuple[str, int, int]) -> None:
    """One edit of a list, or of a sequence that is one."""
    kind, size, number = step
    text = f"{number} " * (size // 4 + 1)
    place = number % (len(values) + 1)
    if kind == "append" or (not values and kind not in ("extend", "insert")):
        values.append(text)
    elif kind == "extend":
        values.extend(f"{text}{n}" for n in range(number % 60))
    elif kind == "pop":
        values.pop()
    elif kind == "replace last":
        values[-1] = text
    elif kind == "replace":
        values[place - 1] = text
    elif kind == "insert":
        values.insert(place, text)
    elif kind == "delete":
        del values[place - 1]
    else:
        del values[place:]


@given(STEPS, st.booleans())
@settings(max_examples=60)
def test_the_form_of_a_leaf_follows_from_its_content_whatever_led_to_it(steps, in_parts):
    store = Memory()
    state = Versioned(store)
    state["log"] = model = [f"{number:>100}" for number in range(50)]
    state.commit()
    model = list(model)
    handle = state.sequence("log") if in_parts else state["log"]
    for step in steps:
        edit(handle, step)
        edit(model, step)
        state.commit(allow_empty=True)
    assert_forms(store)
    fresh = Memory()
    built = Versioned(fresh)
    built["log"] = model
    built.commit()
    # Whoever wrote an object, its value is the same: a copy of it is never stale, in a cache or in a tier.
    for key, stored in fresh.items("o/"):
        if own_bytes(stored)[:1] != b"\x01":
            assert store.get(key) == stored
    assert list(Repository(store).snapshot("main")["log"]) == model
    assert Repository(store).fsck().ok


@given(st.lists(SIZES.map(lambda size: pack("x" * size)), min_size=1, max_size=60), st.data())
def test_cuts_that_are_continued_are_those_of_the_whole(cells, data):
    raw = b"\x10" + array(cells)
    whole, cuts, parts = segmented(raw, cells, NO_CUTS)
    assert [part[1:] for _, part in parts] == (runs_of(cells) if len(raw) >= 768 else [])
    at = data.draw(st.integers(0, len(cells)))
    _, before, _ = segmented(b"\x10" + array(cells[:at]), cells[:at], NO_CUTS)
    again, continued, new = segmented(raw, cells, before)
    assert (again, continued) == (whole, cuts)
    stays = sum(1 for old, now in zip(before.segments, cuts.segments, strict=False) if old == now)
    assert new == parts[stays:]
    if isinstance(whole, Segmented):
        stored = seal(whole)
        assert segments_in(stored) == [address for address, _ in cuts.segments]
        joined = join(stored, segments_in(stored), dict(whole.parts()))
        assert (joined, joined.head, joined.segments) == (raw, whole.head, whole.segments)


@pytest.mark.parametrize("length", [30, 1000, 10_000])
def test_an_append_of_100_bytes_stores_a_kilobyte(length, tmp_path):
    source = texts(length)
    store = Memory()
    state = Versioned(store)
    state["log"] = [next(source) for _ in range(length)]
    state.commit()
    log = state.sequence("log")
    before, rounds = stored_bytes(store), 400
    for _ in range(rounds):
        log.append(next(source))
        state.commit()
    assert (stored_bytes(store) - before) / rounds <= 1024
    assert len(Versioned(store)["log"]) == length + rounds


def stored_bytes(store: Memory) -> int:
    """Values, and keys as ``Disk`` keeps them."""
    return sum(len(value) + (24 if key.startswith("o/") else len(key)) for key, value in store.items())


def test_a_leaf_that_is_complete_is_stored_whole_and_one_that_is_open_shares_its_segments():
    source = texts(1, 150)
    store = Memory()
    state = Versioned(store)
    state["log"] = [next(source)]
    for _ in range(120):
        state["log"].append(next(source))
        state.commit()
    assert assert_forms(store) > 40
    leaves = [names for _, names in in_segments(store)]
    assert len({name for names in leaves for name in names}) < len(leaves), "segments are shared"
    stats = Repository(store).stats()
    assert stats.kinds["list segments"].objects == len({name for names in leaves for name in names})
    assert stats.total == stats.reachable


def test_reading_a_list_costs_one_call_more_however_many_segments_and_versions_it_has():
    calls = []
    for length in (1, 12):
        source = texts(2)
        store = Counting(Memory())
        state = Versioned(store)
        state["log"] = [next(source) for _ in range(50)]
        for _ in range(length):
            state["log"].append(next(source))
            state.commit()
        reader = Repository(store).snapshot("main")
        store.reset()
        assert len(reader["log"]) == 50 + length
        calls.append(store.counts.round_trips)
    assert len(segments_in(store.get(next(key for key, names in in_segments(store) if len(names) > 1)) or b"")) > 1
    assert calls[1] == calls[0] <= 3


def test_small_open_nodes_and_other_kinds_stay_whole():
    found = []
    for length in range(130, 180):
        store = Memory()
        state = Versioned(store)
        state["list"] = [f"{number:>100}" for number in range(length)]
        state["packed"] = ["x" * 30] * 100
        state["dict"] = {f"k{n}": "v" * 100 for n in range(60)}
        state["text"] = "some text\n" * 3000
        state.commit()
        found.append(assert_forms(store))
        for key, _ in in_segments(store):
            assert own_bytes(store.get(key) or b"")[0] == Kind.SEQUENCE_LEAF
    assert set(found) == {0, 1}


def test_inner_nodes_with_many_children_are_in_segments_while_they_are_open():
    source = texts(4, 900)
    store = Memory()
    state = Versioned(store)
    state["log"] = [next(source) for _ in range(700)]
    log = state.sequence("log")
    for _ in range(150):
        log.append(next(source))
        state.commit()
    assert assert_forms(store) > 100
    kinds = {own_bytes(store.get(key) or b"")[0] for key, _ in in_segments(store)}
    assert kinds == {Kind.SEQUENCE_LEAF, Kind.SEQUENCE_NODE}
    log.pop()
    log[300] = "changed"
    state.commit()
    assert_forms(store)
    assert Repository(store).fsck().ok
    assert len(Versioned(Repository(store))["log"]) == 849


def test_disk_keeps_leaves_in_segments(tmp_path):
    source = texts(3)
    with Versioned(Disk(tmp_path / "s")) as state:
        state["log"] = [next(source) for _ in range(50)]
        for _ in range(30):
            state["log"].append(next(source))
            state.commit()
        written = state["log"]
    with Disk(tmp_path / "s") as disk:
        assert assert_forms(disk) > 10
        for _, names in in_segments(disk):
            assert set(disk.get_many(map(object_key, names))) == set(map(object_key, names))
        assert Versioned(disk)["log"] == written
    assert segments_due(b"\x10\x91" + pack("x" * 2000)) != []


def test_a_leaf_in_segments_that_no_chunker_has_made_is_divided_when_it_grows():
    """The form of the stored bytes is outside the address, so it proves nothing of the content."""
    cells = [pack(f"{n} " + "x" * 90) for n in range(600)]
    store = Memory()
    nodes = new_nodes(ObjectStore(store))
    wanted = build_sequence(nodes, cells)
    assert len(top_of(nodes, wanted).items) > 1, "there are boundaries within the cells"
    raw = write_node(Shape.SEQUENCE, Node(0, cells[:-1]))
    whole, _, parts = segmented(raw, cells[:-1], NO_CUTS)
    assert isinstance(whole, Segmented)
    for address, part in parts:
        store.set(object_key(address), seal(part))
    store.set(object_key(address_of(raw)), seal(whole))
    read = Tree(Shape.SEQUENCE, len(cells) - 1, address_of(raw))
    leaf = top_of(nodes, read)
    assert leaf.is_open, "so its stored form says"
    assert leaf.weight == 0
    end = len(cells) - 1
    found = splice(nodes, read, [Edit(end, end, cells[end:])])
    assert top_of(nodes, found).items == top_of(nodes, wanted).items
