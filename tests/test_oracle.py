"""The oracle finds what an engine with a fault has written, and disturbs nothing where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.sides.ours import Ours
from benchmarks.workloads.base import opened
from tests.support.canonical_form import LONG, keeping_replaced_nodes, message
from tests.support.oracle import Oracle, installed
from tests.support.oracle_plugin import OraclePlugin
from versioned_state import Disk, Memory, Versioned
from versioned_state.state.worktree import stage
from versioned_state.storage import Cache, Counting
from versioned_state.values.detection.fingerprinter import Fingerprinter
from versioned_state.values.encode import encoder
from versioned_state.values.trees import edit

pytestmark = pytest.mark.no_oracle("breaks the engine on purpose")


def asked(act: Callable[[], object]) -> list[str]:
    """What an oracle finds in the commits that are made meanwhile."""
    oracle = Oracle(share=1.0, seed=1)
    with installed(oracle):
        act()
    assert oracle.checked
    return oracle.found


def filled(store: Any = None) -> Versioned:
    state = Versioned(Memory() if store is None else store)
    state["messages"] = [message(number) for number in range(300)]
    state["names"] = {f"name {number * 7919 % 1000}": number for number in range(400)}
    state["small"], state["gone"] = {"b": 1, "a": (1, 2.0, True)}, "x"
    state["text"] = "".join(f"line {number}\n" for number in range(3000))
    state.commit()
    return state


def changed(state: Versioned) -> None:
    state["messages"] += [message(300), message(301)]
    state["names"]["another"] = 1
    state["small"]["c"] = None
    del state["gone"]
    state["text"] += "more\n"
    state.commit()


def test_a_sound_engine_is_sound():
    state = filled()
    assert asked(lambda: changed(state)) == []


def dropping(monkeypatch: pytest.MonkeyPatch, which: Callable[[bytes, bytes | None], bool]) -> None:
    def edit_map(nodes: Any, tree: Any, changes: Mapping[bytes, bytes | None]) -> Any:
        return edit.edit_map(nodes, tree, {key: cell for key, cell in changes.items() if not which(key, cell)})

    monkeypatch.setattr(stage, "edit_map", edit_map)


def test_a_cell_that_is_dropped(monkeypatch: pytest.MonkeyPatch):
    state = filled()
    dropping(monkeypatch, lambda key, cell: key == b"ksmall")
    assert any("small is not the live value" in found for found in asked(lambda: changed(state)))


def test_a_removal_that_is_forgotten(monkeypatch: pytest.MonkeyPatch):
    state = filled()
    dropping(monkeypatch, lambda key, cell: cell is None)
    assert any("gone is still there" in found for found in asked(lambda: changed(state)))


@pytest.mark.usefixtures("earlier_leaves")
def test_a_child_that_is_kept_twice():
    state = Versioned(Memory())
    state["messages"] = [message(number) for number in range(LONG)]
    state.commit()

    def append() -> None:
        with keeping_replaced_nodes():
            state["messages"].append(message(LONG))
            state.commit()

    found = asked(append)
    assert any("not canonical" in each for each in found)
    assert any("messages is not the one of its value" in each for each in found)
    assert any("messages is not the live value" in each for each in found)


def test_two_elements_that_are_swapped(monkeypatch: pytest.MonkeyPatch):
    state = filled()

    def splice_cells(nodes: Any, tree: Any, replacements: list[tuple[int, int, list[bytes]]]) -> Any:
        return edit.splice_cells(nodes, tree, [(start, end, cells[::-1]) for start, end, cells in replacements])

    monkeypatch.setattr(encoder, "splice_cells", splice_cells)
    assert any("messages is not the live value" in found for found in asked(lambda: changed(state)))


def test_an_order_of_keys_that_is_not_stored(monkeypatch: pytest.MonkeyPatch):
    state = filled()
    monkeypatch.setattr(encoder, "_reorder", lambda *_: None)
    assert any("names is not the live value" in found for found in asked(lambda: changed(state)))


def test_a_change_in_place_that_is_missed(monkeypatch: pytest.MonkeyPatch):
    state = filled()
    monkeypatch.setattr(Fingerprinter, "find_list_runs", lambda *_: [])
    assert any("messages is not the live value" in found for found in asked(lambda: changed(state)))


def test_a_leaf_that_is_split_too_early(monkeypatch: pytest.MonkeyPatch):
    state = filled()
    original = edit._appended

    def appended(shape: Any, node: Any, items: list[bytes], counts: Any, keys: Any) -> Any:
        if node.level or len(items) < 2:
            return original(shape, node, items, counts, keys)
        _, row = original(shape, node, items[:1], counts, keys and keys[:1])
        return False, [
            *row,
            *original(shape, type(node)(0, [], None, keys and []), items[1:], None, keys and keys[1:])[1],
        ]

    monkeypatch.setattr(edit, "_appended", appended)
    found = asked(lambda: changed(state))
    assert any("not canonical" in each for each in found)


def test_a_top_that_is_not_inlined(monkeypatch: pytest.MonkeyPatch):
    state = filled()
    monkeypatch.setattr(edit, "INLINE_TOP", 10_000)
    assert any("too large" in each or "is not" in each for each in asked(lambda: changed(state)))


def test_it_reads_beneath_what_counts_and_caches(tmp_path: Any):
    counts = []
    for share in (1.0, 0.0):
        counting = Counting(Disk(tmp_path / str(share)))
        cache = Cache(counting)
        state = filled(cache)
        counting.reset()
        with installed(Oracle(share=share, seed=1)):
            for _ in range(5):
                state["messages"].append(message(1))
                state.commit()
        counts.append((counting.counts, cache.hits, cache.misses, cache.size))
    assert counts[0] == counts[1]


def test_a_seed_repeats_the_sample():
    def checked(seed: int) -> int:
        oracle = Oracle(share=0.3, seed=seed)
        oracle.begin("a test")
        with installed(oracle):
            state = Versioned(Memory())
            for number in range(60):
                state["n"] = number
                state.commit()
        return oracle.checked

    counts = [checked(seed) for seed in [*range(20), *range(20)]]
    assert counts[:20] == counts[20:]
    assert len(set(counts)) > 2  # a test that is not looked at has none
    assert max(counts) < 2 * 60


def test_what_a_fixture_commits_is_the_tests(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config):
    plugin = OraclePlugin(pytestconfig, wanted=False)
    plugin.oracle = Oracle(share=1.0, seed=1)
    item: Any = SimpleNamespace(nodeid="a test", get_closest_marker=lambda name: None)
    state = filled()
    dropping(monkeypatch, lambda key, cell: key == b"ksmall")
    with installed(plugin.oracle):
        next(plugin.pytest_runtest_setup(item))
        changed(state)
        call = plugin.pytest_runtest_call()
        next(call)
        with pytest.raises(AssertionError, match="the oracle disagrees"):
            next(call)


def test_it_steps_aside_from_a_store_that_is_damaged():
    oracle = Oracle(share=1.0, seed=1)
    state = filled()
    with installed(oracle):
        for key in list(state.repository.store.keys("o/")):
            state.repository.store.delete(key)
        state["n"] = 1
        state.commit()
    assert oracle.found == []
    assert oracle.aside


@pytest.mark.usefixtures("earlier_leaves")
def test_a_benchmark_of_an_engine_that_writes_wrongly_stops(tmp_path: Any):
    with opened({"ours": Ours}, {"ours": tmp_path}) as stores:
        session = stores["ours"].session("main")
        session.put("messages", [message(number) for number in range(LONG)])
        session.commit()

    def append() -> None:
        with opened({"ours": Ours}, {"ours": tmp_path}) as stores, keeping_replaced_nodes():
            session = stores["ours"].session("main")
            session.extend("messages", [message(LONG)])
            session.commit()

    with pytest.raises(RuntimeError, match="written wrongly"):
        append()


def test_a_key_of_a_map_that_is_kept_twice():
    state = Versioned(Memory())
    state.update({f"{number:06}": number for number in range(780)})
    state.commit()

    def add() -> None:
        with keeping_replaced_nodes():
            for number in range(780, 860):
                state[f"{number:06}"] = number
                state.commit()

    assert any("keys are not in order" in each for each in asked(add))
