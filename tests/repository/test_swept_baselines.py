"""Objects known as stored before a sweep and needed after it: what is staged, and each baseline, keep the older number.

In each test another process makes the content of ours unreachable and collects it. Our process learns of the sweep by
another commit, moves to the new head, and brings its content back. Everything that is acknowledged then must be
readable.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from tests.support.handles import committed
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import MergeConflictError, MissingObjectError, StateError
from versioned_state.objects.envelope import IN_SEGMENTS, seal
from versioned_state.objects.keys import OBJECTS, address_in
from versioned_state.objects.store import ObjectStore
from versioned_state.services.agent_state.state_service import VersionedStateService
from versioned_state.storage import Wrapper

NOW = timedelta(0)


def elements(count: int = 300) -> list[dict[str, Any]]:
    return [{"i": i, "text": f"{i} " * 60} for i in range(count)]


def text() -> str:
    return "".join(f"line {n} of a long text {n * 7919}\n" for n in range(3_000))


class Trip:
    """Our handle on ``main`` with a value under ``kept``, and another process on the same store."""

    def __init__(self, value: Any) -> None:
        self.store = Memory()
        self.ours, self.theirs = Repository(self.store), Repository(self.store)
        self.state = Versioned(self.ours)
        self.state["kept"] = value
        self.state.commit("kept")
        self.state["other"] = 1
        self.state.commit("other")
        self.side = Versioned(self.ours, branch="side")
        self.side["n"] = 0
        self.side.commit()

    def lose(self) -> None:
        """Their process replaces our content, drops its history and collects it.

        Our handle learns that something was deleted.
        """
        other = Versioned(self.theirs)
        other["kept"] = "theirs"
        other.commit("theirs")
        self.theirs.prune(keep_last=1, expire=NOW, gc=True)
        self.side["n"] += 1
        self.side.commit()

    def check(self, expected: Any) -> None:
        """A new process reads what ours has acknowledged, also after another gc."""
        for _ in range(2):
            fresh = Repository(self.store)
            found = Versioned(fresh)["kept"]
            assert np.array_equal(found, expected) if isinstance(expected, np.ndarray) else found == expected
            report = fresh.fsck()
            assert report.ok, report.findings
            fresh.gc(expire=NOW)


def edit(value: Any) -> Any:
    """Change a value, in place if that is possible. Return it."""
    if isinstance(value, str):
        return value[:5_000] + "an edit\n" + value[5_000:]
    if isinstance(value, np.ndarray):
        value[1] += 1
    elif isinstance(value, list):
        value.append({"mine": 1})
    else:
        value["mine"] = 1
    return value


VALUES: dict[str, Callable[[], Any]] = {
    "list": elements,
    "dict": lambda: {f"key {n}": {"text": f"{n} " * 40} for n in range(300)},
    "nested": lambda: {"agent": {"memory": elements()}},
    "text": text,
    "array": lambda: np.arange(40_000.0),
    "set in a list": lambda: [{f"{n} " * 9 for n in range(400)}, 1],
}


def change_before(trip: Trip) -> None:
    trip.state["kept"] = edit(trip.state["kept"])
    trip.lose()
    trip.state.refresh(policies={"**": "ours"})


def change_and_commit_at_once(trip: Trip) -> None:
    trip.state["kept"] = edit(trip.state["kept"])
    trip.lose()


def change_in_a_transaction(trip: Trip) -> None:
    with suppress(ZeroDivisionError), trip.state.transaction("undone"):
        trip.state["kept"] = edit(trip.state["kept"])
        trip.state["other"] = 2
        raise ZeroDivisionError
    trip.state["kept"] = edit(trip.state["kept"])
    trip.lose()
    trip.state.refresh(policies={"**": "ours"})


def change_beside_a_failed_key(trip: Trip) -> None:
    trip.state["kept"] = edit(trip.state["kept"])
    trip.state["n"] = 1
    trip.state.commit("only n", keys=["n"])
    trip.lose()
    trip.state.refresh(policies={"**": "ours"})
    trip.state["n"] = 2
    trip.state.commit("only n again", keys=["n"])


WAYS = [change_before, change_and_commit_at_once, change_in_a_transaction, change_beside_a_failed_key]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", VALUES)
def test_a_change_outlives_the_sweep_of_what_it_was_made_on(way: Callable[[Trip], None], name: str):
    trip = Trip(VALUES[name]())
    way(trip)
    expected = trip.state["kept"]
    trip.state.commit("ours", policies={"**": "ours"})
    trip.check(expected)


def test_an_edit_of_a_sequence_whose_list_was_swept_is_not_dropped_silently():
    trip = Trip(elements())
    trip.state.release("kept")
    trip.state.sequence("kept").append({"mine": 1})
    trip.lose()
    with pytest.raises(MergeConflictError):
        trip.state.refresh()
    trip.state.refresh(policies={"**": "ours"})
    trip.state.commit("ours", policies={"**": "ours"})
    trip.check([{"mine": 1}])  # the elements that were never read are gone


def test_a_rollback_brings_back_what_was_swept_meanwhile():
    trip = Trip(elements())
    state = trip.state
    with suppress(ZeroDivisionError), state.transaction("all of it"):
        state["kept"].append({"in the savepoint": 1})
        with suppress(KeyError), state.transaction("a part of it"):
            del state["kept"][:]
            raise KeyError
        raise ZeroDivisionError
    state["kept"].append({"mine": 1})
    trip.lose()
    state.refresh(policies={"**": "ours"})
    state.commit("ours")
    trip.check([*elements(), {"mine": 1}])


@pytest.mark.parametrize("way", ["undone", "overwritten", "expired"])
async def test_a_save_after_the_sweep_of_the_save_before(way: str):
    content = elements(400)

    store = Memory()
    one = VersionedStateService(Repository(store), max_rounds=3)
    await one.start()
    for number in (1, 2):
        await one.save_state("u", {"n": number}, "s")
    await one.save_state("u", {"n": 3, "content": content}, "s")
    if way == "undone":
        with Versioned(one.repository, branch=one.branch("u", "s")) as handle:
            handle.undo()
        one.repository.gc(expire=NOW)
    else:
        two = VersionedStateService(Repository(store), max_rounds=3)
        await two.start()
        await two.save_state("u", {"n": "other"}, "s", round_id=3)
        await two.retain("u", "s", keep_last=1 if way == "overwritten" else 2, gc=True)
        await one.save_state("u", {"n": 1}, "another session")  # learns of the sweep
    saved = await one.save_state("u", {"n": 9, "content": content}, "s")
    three = VersionedStateService(Repository(store))
    await three.start()
    assert await three.export_state("u", "s", saved) == {"n": 9, "content": content}
    assert three.repository.fsck().ok
    three.repository.gc(expire=NOW)
    assert await three.export_state("u", "s", saved) == {"n": 9, "content": content}


class Between(Wrapper):
    """Calls ``between`` once, after the next read of several keys that include one with ``part`` in it."""

    def __init__(self, store: Memory, part: str) -> None:
        super().__init__(store)
        self.part = part
        self.between: Callable[[], None] = lambda: None
        self.is_armed = False

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = list(keys)
        found = super().get_many(wanted)
        if self.is_armed and any(self.part in key for key in wanted):
            self.is_armed = False
            self.between()
        return found


@pytest.mark.parametrize("how", ["purged", "reset"])
@pytest.mark.parametrize("call", ["fork", "tag", "merge"])
def test_a_head_read_before_a_sweep_is_not_known_after_it(how: str, call: str):
    store = Memory()
    seed = Versioned(Repository(store), branch="alice")
    seed["n"] = 1
    seed.commit()
    seed["secret"] = elements(40)
    head = seed.commit()
    watched = Between(store, "alice")
    shared = Repository(watched)
    own = committed(shared, n=0)
    assert shared.commit("alice") == head

    def between() -> None:
        other = Repository(store)
        if how == "purged":
            other.purge(branches="alice")
        else:
            Versioned(other, branch="alice").reset("HEAD~1")
            other.gc(expire=NOW)
        own["n"] += 1  # another thread of the process learns of the sweep
        thread = threading.Thread(target=own.commit)
        thread.start()
        thread.join()

    watched.between = between
    watched.is_armed = True
    with suppress(StateError):
        if call == "fork":
            shared.branches.create("fork", at="alice")
        elif call == "tag":
            shared.tags.create("fork", at="alice")
        else:
            Versioned(shared, branch="fork").merge("alice")
    assert not watched.is_armed
    fresh = Repository(store)
    for name in fresh.branches:
        for commit in fresh.log(name):
            dict(fresh.snapshot(commit).items())
    report = fresh.fsck()
    assert report.ok, report.findings
    fresh.gc(expire=NOW)


def test_a_fork_of_a_swept_head_is_refused():
    store = Memory()
    ours, theirs = Repository(store), Repository(store)
    state = Versioned(theirs, branch="alice")
    state["n"] = 1
    head = state.commit()
    theirs.purge(branches="alice")
    with pytest.raises(MissingObjectError):
        ours.branches.create("fork", at=head)
    assert "fork" not in Repository(store).branches


def test_a_savepoint_keeps_the_number_at_which_its_objects_were_known():
    worktree = Versioned()._handle.worktree
    worktree.mark_stored(3)
    savepoint = worktree.save()
    worktree.mark_stored(5)  # a commit of another part of the state, after two sweeps
    assert worktree.stage().staging.since == 5
    worktree.restore(savepoint)
    assert worktree.stage().staging.since == 3


def store_of_an_older_release() -> Memory:
    """A store that has a list as an older release stored it: whole, so a newer release's segments are garbage there."""
    store = Memory()
    with Versioned(Repository(store), branch="old") as state:
        state["kept"] = elements(400)
        state.commit()
    for key, stored in list(store.items(OBJECTS)):
        if stored[:1] in IN_SEGMENTS:
            raw = bytes(ObjectStore(store).read(address_in(key)))
            store.apply({}, {}, [key])
            store.apply({}, {}, objects={key: seal(raw)})
    Repository(store).gc(expire=NOW)
    return store


@pytest.mark.parametrize("way", ["loaded", "sequence", "another handle", "together"])
def test_a_cached_leaf_names_no_segment_that_was_swept(way: str):
    store = store_of_an_older_release()
    ours = Repository(store)
    state, other = Versioned(ours), Versioned(ours, branch="other")
    state["kept"] = elements(400)
    state.commit()  # the leaf is there already; its segments come beside it
    if way == "sequence":
        state.release("kept")
    assert Repository(store).gc(expire=NOW).freed
    state["n"] = other["n"] = 1
    if way == "together":
        ours.commit_together([state, other], "both")
    else:
        state.commit()
    if way == "another handle":
        state = Versioned(ours)
    (state.sequence("kept") if way == "sequence" else state["kept"]).append({"mine": 1})
    state.commit()
    fresh = Repository(store)
    assert Versioned(fresh)["kept"] == [*elements(400), {"mine": 1}]
    assert fresh.fsck().ok


async def test_a_saved_leaf_names_no_segment_that_was_swept():
    store = store_of_an_older_release()
    async with VersionedStateService(Repository(store)) as service:
        await service.save_state("u", {"kept": elements(400), "n": 1}, "s")
        assert Repository(store).gc(expire=NOW).freed
        await service.save_state("u", {"kept": elements(400), "n": 2}, "s")
        saved = await service.save_state("u", {"kept": [*elements(400), {"mine": 1}], "n": 2}, "s")
    fresh = Repository(store)
    async with VersionedStateService(fresh) as service:
        assert await service.export_state("u", "s", saved) == {"kept": [*elements(400), {"mine": 1}], "n": 2}
    assert fresh.fsck().ok
