"""Listings with a filter by a process that has seen nothing: from pages, and never otherwise than the commits say."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support import store_openers
from tests.support.langgraph_threads import config, put
from tests.support.long_runs import first
from tests.support.processes import fork, join
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.integrations.langgraph import VersionedSaver, lines as langgraph_lines, pages as langgraph_pages
from versioned_state.integrations.langgraph.filters import field_of
from versioned_state.integrations.langgraph.pages import LEAST
from versioned_state.repository.refs.named_records import read_named, write_named
from versioned_state.storage import Counting, InjectedCrash, KVStore, ReadOnly, Wrapper

MANY = 2 * LEAST
IS_PAGE = "/%m/"


def grown(saver: VersionedSaver, count: int = MANY, *, first: int = 0, thread: str = "1", **metadata: Any) -> list[Any]:
    """Put ``count`` checkpoints with the metadata ``step``, the newest first, and return their configurations."""
    newest = saver.get_tuple(config(thread))
    at = [config(thread) if newest is None else newest.config]
    for step in range(first, first + count):
        at.append(put(saver, at[-1], step=step, **metadata))
    return at[1:]


def steps(saver: VersionedSaver, thread: str = "1", **options: Any) -> list[int]:
    return [each.metadata["step"] for each in saver.list(config(thread), **options)]


def another(store: KVStore) -> VersionedSaver:
    """Return the saver of a process that has seen nothing: what is cached belongs to an object of a store."""
    return VersionedSaver(Repository(Wrapper(store)))


def listed_by_another(store: KVStore, **options: Any) -> list[int]:
    with another(store) as saver:
        return steps(saver, **options)


def pages(store: KVStore) -> list[str]:
    return [key for key in store.keys("record/") if IS_PAGE in key]


# What it costs


def test_a_process_that_has_seen_nothing_reads_what_it_yields():
    def reads(count: int) -> tuple[int, int]:
        store = Counting(Memory())
        with VersionedSaver(store) as saver:
            grown(saver, count)
        before = costs(store, count)
        after = costs(store, count)
        assert before[1] >= count
        store.reset()
        assert listed_by_another(store, filter={"none": 1}) == []
        assert store.counts.objects_read < 16
        return after

    def costs(store: Counting, count: int) -> tuple[int, int]:
        store.reset()
        assert listed_by_another(store, filter={"step": count // 2}) == [count // 2]
        return store.counts.round_trips, store.counts.objects_read

    few, many = reads(2 * LEAST), reads(6 * LEAST)
    assert few == many
    assert few[1] < 16


def test_a_thread_that_grows_has_few_pages_and_only_its_end_is_read():
    store = Counting(Memory())
    with VersionedSaver(store) as saver:
        for at in range(12):
            grown(saver, LEAST, first=at * LEAST, **{f"only {at}": "x"})
            listed_by_another(store, filter={"step": 0})
        grown(saver, LEAST // 2, first=12 * LEAST)
    assert len(pages(store)) <= 5
    store.reset()
    assert listed_by_another(store, filter={"step": 5}) == [5]
    assert LEAST // 2 < store.counts.objects_read < LEAST
    for at in range(12):
        assert len(listed_by_another(store, filter={f"only {at}": "x"})) == LEAST


def test_only_a_listing_with_a_filter_writes():
    store = Memory()
    with VersionedSaver(store) as saver:
        grown(saver)
        assert len(steps(saver)) == MANY
        assert saver.get_tuple(config())
        assert not pages(store)
        assert steps(saver, filter={"step": 3}, limit=1) == [3]
        assert len(pages(store)) == 1


def test_a_short_thread_has_no_page():
    store = Memory()
    with VersionedSaver(store) as saver:
        grown(saver, LEAST - 1)
        assert steps(saver, filter={"step": 3}) == [3]
    assert not pages(store)


def test_a_page_has_the_values_of_a_few_keys_if_each_checkpoint_has_its_own():
    store = Memory()
    with VersionedSaver(store) as saver:
        at: Any = config()
        for step in range(4 * MANY):
            own: dict[str, Any] = {f"key {step}": step}
            at = put(saver, at, step=step, **own)
            if step % MANY == MANY - 1:
                assert listed_by_another(store, filter={"step": step}) == [step]
    for wanted in (0, 1, MANY + 1, 4 * MANY - 1):
        assert listed_by_another(store, filter={f"key {wanted}": wanted}) == [wanted]
    found = [read_named(key, store.get(key) or b"") for key in pages(store)]
    assert found
    assert all("step" in page["fields"] and len(page["fields"]) == 64 for page in found)


# What the commits say


WANTED: list[dict[str, Any]] = [
    {"step": 3},
    {"step": 3.0},
    {"kind": "a"},
    {"kind": "a", "step": 5},
    {"kind": 1},
    {"kind": True},
    {"kind": None},
    {"kind": ["a"]},
    {"kind": {"a": "b"}},
    {"kind.a": "b"},
    {"kind": "x" * 200},
    {"kind": "ä\ud800"},
    {"source": "loop"},
    {"none": 1},
    {"checkpoint_id": "mine"},
]
KINDS: list[Any] = ["a", "b", 1, 1.0, True, None, ["a"], {"a": "b"}, "x" * 200, "ä\ud800", float("nan"), 2**70]


def fits(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(field_of(metadata, key) == value for key, value in wanted.items())


class Model:
    """A thread that grows and goes back in time, with two writers, and the metadata that each checkpoint must have."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.store = Memory()
        self.saver = VersionedSaver(Repository(self.store))
        self.metadata: dict[str, dict[str, Any]] = {}
        self.at: Any = config()
        self.other: Any = config()

    def step(self) -> None:
        metadata: dict[str, Any] = {"step": self.dice.randrange(12)}
        roll = self.dice.random()
        if roll < 0.05:
            metadata["kind"] = self.dice.choice(KINDS)
        elif roll < 0.9:
            metadata["kind"] = self.dice.choice("ab")
        if roll > 0.995:
            metadata |= {"checkpoint_id": "mine", "after": 1}
        if roll < 0.01:
            metadata["much"] = "x" * (1 << 17)  # more than a meta may have
        id = None
        roll = self.dice.random()
        if roll < 0.02 and self.metadata:
            self.at = config(id=self.dice.choice(sorted(self.metadata)))  # time travel
        elif roll < 0.03 and self.metadata:
            id = max(self.metadata)  # put again
            self.at = config(id=sorted(self.metadata)[-2]) if len(self.metadata) > 1 else config()
        elif roll < 0.035 and self.metadata:
            id = self.dice.choice(sorted(self.metadata))  # an old one put again
            earlier = max((each for each in self.metadata if each < id), default=None)
            put(self.saver, config(id=earlier), id=id, **metadata)
            self.metadata[id] = {"source": "loop", **metadata}
            return
        elif roll < 0.2:
            self.at, self.other = self.other, self.at  # two writers
        elif roll < 0.205 and self.metadata:
            with Versioned(self.saver.repository, branch=self.saver.branch("1")) as state:
                state["mine"] = roll
                state.commit()
        elif roll < 0.21 and len(self.metadata) > 100:
            gone = sorted(self.metadata)[self.dice.randrange(len(self.metadata))]
            run: dict[str, Any] = {"run_id": "gone"}
            self.at = put(self.saver, config(id=gone), **metadata, **run)
            self.saver.delete_for_runs(["gone"])
            self.at = config(id=gone)
            return
        self.at = put(self.saver, self.at, id=id, **metadata)
        self.metadata[self.at["configurable"]["checkpoint_id"]] = {"source": "loop", **metadata}

    def check(self, saver: VersionedSaver) -> None:
        ids = sorted(self.metadata, reverse=True)
        for wanted in WANTED:
            for before in (None, config(id=self.dice.choice(ids))):
                for limit in (None, 1, 7):
                    found = list(saver.list(config(), filter=wanted, before=before, limit=limit))
                    expected = [
                        id
                        for id in ids
                        if fits(self.metadata[id], wanted)
                        and (before is None or id < before["configurable"]["checkpoint_id"])
                    ][:limit]
                    assert [each.checkpoint["id"] for each in found] == expected, (wanted, before, limit)
        assert [each.checkpoint["id"] for each in saver.list(config())] == ids


@pytest.fixture
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (langgraph_pages, langgraph_lines):
        monkeypatch.setattr(module, "LEAST", 8)


@pytest.mark.usefixtures("short_pages")
@pytest.mark.parametrize("seed", first(3, range(100)))
def test_a_listing_says_what_the_commits_say(seed: int):
    model = Model(seed)
    found = 0
    for _ in range(6):
        for _ in range(model.dice.randrange(10, 80)):
            model.step()
        if model.dice.random() < 0.7:
            model.check(model.saver)
        for _ in range(2):
            with another(model.store) as saver:
                model.check(saver)
        found += len(pages(model.store))
    assert found
    assert model.saver.repository.fsck().ok


# What becomes of the pages


@pytest.fixture
def store() -> Iterator[KVStore]:
    """A thread with a page, of which 10 checkpoints have the metadata ``who``."""
    store = Memory()
    with VersionedSaver(store) as saver:
        grown(saver, MANY)
        grown(saver, 10, first=MANY, who="alice")
        assert steps(saver, filter={"who": "alice"}) == list(range(MANY + 9, MANY - 1, -1))
        assert len(pages(store)) == 1
        yield store


def has(store: KVStore, word: str) -> bool:
    return word in repr([read_named(key, store.get(key) or b"") for key in pages(store)])


def test_a_deleted_thread_has_none(store: KVStore):
    another(store).delete_thread("1")
    assert not pages(store)
    assert listed_by_another(store, filter={"step": 3}) == []


def test_deleted_checkpoints_are_in_none(store: KVStore):
    with another(store) as saver:
        put(saver, config(id=saver.get_tuple(config()).checkpoint["id"]), step=-1, run_id="a")  # type: ignore[union-attr]
        saver.delete_for_runs(["a"])
    assert not pages(store)
    assert listed_by_another(store, filter={"step": -1}) == []
    assert len(listed_by_another(store, filter={"who": "alice"})) == 10
    another(store).prune(["1"])
    assert not pages(store)
    assert listed_by_another(store, filter={"source": "loop"}) == [MANY + 9]


def test_a_page_that_a_killed_process_left_is_deleted(store: KVStore):
    (key,) = pages(store)
    left = store.get(key) or b""
    another(store).prune(["1"])
    store.set(key, left)
    assert listed_by_another(store, filter={"step": 3}) == []
    with another(store) as saver:
        grown(saver, 20)
        assert steps(saver, filter={"step": 3}) == [3]
    assert not pages(store)


def test_a_copy_finds_what_the_original_has(store: KVStore):
    with another(store) as saver:
        saver.copy_thread("1", "2")
        grown(saver, 1, first=1000, thread="2")
        assert steps(saver, "2", filter={"step": 1000}) == [1000]
        assert steps(saver, "2", filter={"step": 3}) == steps(saver, filter={"step": 3}) == [3]
        assert len(pages(store)) == 2, "the copy has a page of its own"
        saver.delete_thread("1")
    with another(store) as saver:
        assert steps(saver, "2", filter={"step": 3}) == [3]
    assert len(pages(store)) == 1


def test_a_purge_takes_words_out_of_them(store: KVStore):
    assert has(store, "alice")
    repository = Repository(Wrapper(store))
    repository.purge(replace={"alice": "somebody"})
    assert not has(store, "alice")
    assert repository.purge(replace={"alice": "somebody"}, dry_run=True).mentions == ()
    assert listed_by_another(store, filter={"who": "alice"}) == []
    assert len(listed_by_another(store, filter={"who": "somebody"})) == 10
    assert has(store, "somebody")
    assert len(pages(store)) == 1


@pytest.mark.parametrize("count", [0, 20], ids=["", "longer by then"])
def test_a_process_that_has_listed_the_thread_notices_a_purge(store: KVStore, count: int):
    with another(store) as saver:
        assert len(steps(saver, filter={"who": "alice"})) == 10
        Repository(Wrapper(store)).purge(replace={"alice": "somebody"})
        with another(store) as other:
            grown(other, count, first=1000)
        assert steps(saver, filter={"who": "alice"}) == []
        assert len(steps(saver, filter={"who": "somebody"})) == 10
        assert len(steps(saver)) == MANY + 10 + count


@pytest.mark.parametrize("thorough", [False, True])
def test_a_purged_thread_has_none(store: KVStore, *, thorough: bool):
    repository = Repository(Wrapper(store))
    repository.gc()
    repository.purge(branches="langgraph/1*", thorough=thorough)
    assert not pages(store)


def test_a_page_in_which_words_were_replaced_is_not_used(store: KVStore):
    """As it is while a purge has not moved the branch yet, and if it was killed there."""
    (key,) = pages(store)
    changed = read_named(key, store.get(key) or b"")
    changed["fields"]["who"] = [each and "somebody" for each in changed["fields"]["who"]]
    store.set(key, write_named(key, changed))
    assert len(listed_by_another(store, filter={"who": "alice"})) == 10
    assert has(store, "alice")
    assert len(pages(store)) == 1


class Overtaken(Wrapper):
    """A store in which something happens right before a page is written, once."""

    def __init__(self, store: KVStore, before: Callable[[], object]) -> None:
        super().__init__(store)
        self._before: Callable[[], object] | None = before

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        before = self._before
        if before is not None and any(IS_PAGE in key for key in puts):
            self._before = None
            before()
        return super().apply(expected, puts, deletes, objects=objects)


@pytest.mark.parametrize(
    "overtaking",
    [
        pytest.param(lambda store: another(store).delete_thread("1"), id="deleted"),
        pytest.param(lambda store: another(store).prune(["1"]), id="pruned"),
        pytest.param(lambda store: Repository(Wrapper(store)).purge(replace={"alice": "somebody"}), id="purged"),
        pytest.param(lambda store: Repository(Wrapper(store)).purge(branches="*"), id="purged with the branch"),
    ],
)
def test_what_was_erased_meanwhile_does_not_come_back(overtaking: Callable[[KVStore], object]):
    store = Memory()
    with VersionedSaver(Repository(store)) as saver:
        grown(saver, who="alice")
    assert len(listed_by_another(Overtaken(store, lambda: overtaking(store)), filter={"who": "alice"})) == MANY
    assert not pages(store)
    assert Repository(store).fsck().ok


def test_a_process_that_dies_as_it_writes_one_leaves_a_sound_store():
    store = Memory()
    with VersionedSaver(Repository(store)) as saver:
        grown(saver)

    def die() -> None:
        raise InjectedCrash

    with pytest.raises(InjectedCrash):
        listed_by_another(Overtaken(store, die), filter={"step": 3})
    assert not pages(store)
    assert listed_by_another(store, filter={"step": 3}) == [3]
    assert len(pages(store)) == 1


def test_a_damaged_page_is_written_anew(store: KVStore):
    (key,) = pages(store)
    sound = store.get(key) or b""
    for damaged in (sound[:-1], b"", sound[:40] + b"x" + sound[41:], write_named(key, {"ids": 3})):
        store.set(key, damaged)
        assert listed_by_another(store, filter={"step": 3}) == [3]
        assert store.get(key) == sound


def test_history_that_was_pruned_is_not_listed(store: KVStore):
    repository = Repository(Wrapper(store))
    repository.prune(keep_last=LEAST + 20)
    repository.gc()
    for _ in range(2):
        counting = Counting(store)
        with another(counting) as saver:
            assert steps(saver, filter={"step": 3}) == []
            assert len(steps(saver, filter={"source": "loop"})) == LEAST + 20
            assert len(steps(saver)) == LEAST + 20
        assert len(pages(store)) == 1
    assert counting.counts.applies == 0


@pytest.mark.parametrize("options", [{}, {"filter": {"source": "loop"}}], ids=["all", "filtered"])
def test_a_listing_leaves_out_what_another_process_has_pruned_and_collected(options: dict[str, Any]):
    store = Memory()
    with another(store) as saver, another(store) as other:
        at: Any = config()
        for step in range(40):
            at = put(saver, at, {"n": f"{step} " * 300}, step=step)
        assert steps(saver, **options) == list(range(39, -1, -1))
        listing = saver.list(config(), **options)
        assert next(listing).metadata["step"] == 39
        other.repository.prune(keep_last=5, expire=timedelta(0), gc=True)
        assert [each.metadata["step"] for each in listing] == [38, 37, 36, 35]
        assert steps(saver, **options) == [39, 38, 37, 36, 35]
        assert steps(saver, limit=3, **options) == [39, 38, 37]


def test_the_history_of_a_channel_ends_where_another_process_has_collected_it():
    store = Memory()
    with another(store) as writer:
        at = [put(writer, config(), {"log": "0 " * 3000}, step=0)]
        for step in range(1, 6):
            at.append(put(writer, at[-1], {"log": f"{step} " * 3000}, step=step))
    with another(store) as saver, another(store) as other:
        assert steps(saver, filter={"step": 5}) == [5], "it knows of the others, whose values it has not read"
        other.repository.prune(keep_last=2, expire=timedelta(0), gc=True)
        for gone in at[1:4]:
            assert saver.get_delta_channel_history(config=gone, channels=["log"]) == {"log": {"writes": []}}
        assert saver.get_delta_channel_history(config=at[5], channels=["log"])["log"]["seed"] == "4 " * 3000


def test_a_store_for_reading_only_is_listed():
    store = Memory()
    with VersionedSaver(Repository(store)) as saver:
        grown(saver)
    assert listed_by_another(ReadOnly(store), filter={"step": 3}) == [3]
    assert not pages(store)
    with another(store) as saver:
        assert steps(saver, filter={"step": 3}) == [3]
    assert listed_by_another(ReadOnly(store), filter={"step": 3}) == [3]


def test_a_checkpoint_that_gc_has_taken_is_not_listed(store: KVStore):
    with another(store) as saver:
        found = saver.list(config(), filter={"step": 3})
        listing = saver.list(config(), filter={"source": "loop"})
        assert [next(listing).metadata["step"] for _ in range(30)] == list(range(MANY + 9, MANY - 21, -1))
        with another(store) as other:
            other.delete_thread("1")
            assert other.repository.gc(expire=timedelta(0)).freed > MANY
        assert list(found) == []
        assert len(list(listing)) < MANY - 20
    assert not pages(store)


@pytest.mark.every_case
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(lambda request, folder: lambda: Disk(folder / "store"), id="disk"),
        pytest.param(store_openers.redis, id="redis"),
        pytest.param(store_openers.postgres, id="postgres"),
    ],
)
@pytest.mark.usefixtures("short_pages")
def test_processes_that_put_and_list_find_their_own(place: Any, request: pytest.FixtureRequest, tmp_path: Path):
    opened = place(request, tmp_path)

    def write(name: str) -> None:
        at = config()
        for count in range(1, 25):
            with opened() as store, VersionedSaver(store) as saver:
                at = put(saver, at, by=name, step=count)
                assert steps(saver, filter={"by": name}) == list(range(count, 0, -1))

    opened().close()
    join(*(fork(lambda name=name: write(name)) for name in "abc"))  # type: ignore[misc]
    with opened() as store, VersionedSaver(store) as saver:
        for name in "abc":
            assert steps(saver, filter={"by": name}) == list(range(24, 0, -1))
        assert saver.repository.fsck().ok
