"""``repository.records``: data by name beside the history, which goes with the branch that it is named after."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import pytest

from tests.support.handles import committed
from versioned_state import Disk, KVStore, Memory, Repository, Versioned
from versioned_state.errors import (
    CorruptObjectError,
    InvalidArgumentError,
    LimitExceededError,
    ReadOnlyError,
    StateError,
    StoreClosedError,
    UnknownRecordError,
    UnserializableValueError,
)
from versioned_state.objects.keys import record_key
from versioned_state.repository.refs import named_records
from versioned_state.storage import Counting, ReadOnly
from versioned_state.storage.testing.writers import run_together
from versioned_state.storage.wrapper import Wrapper
from versioned_state.storage.wrappers.faulty import Fault, Faulty


@dataclass
class Point:
    x: int


@pytest.fixture
def repository() -> Repository:
    return Repository(Memory())


def begun(repository: Repository, *branches: str) -> None:
    for branch in branches:
        with Versioned(repository, branch=branch) as state:
            state["branch"] = branch
            state.commit()


def test_a_record_is_a_dict_by_name(repository):
    records = repository.records
    assert not records
    records["t/1"] = {"a": 1, "list": [b"\0", (1, 2)], "point": Point(3)}
    records.update({"t/2": {}, "t/ü \0": {"b": 2}})
    assert records["t/1"] == {"a": 1, "list": [b"\0", (1, 2)], "point": Point(3)}
    assert records.get("t/3") is None
    assert "t/2" in records
    assert sorted(records) == ["t/1", "t/2", "t/ü \0"]
    assert len(records) == 3
    assert dict(records.items()) == {name: records[name] for name in records}
    del records["t/1"]
    assert "t/1" not in records
    with pytest.raises(UnknownRecordError) as caught:
        records["t/1"]
    assert caught.value.name == "t/1"
    with pytest.raises(KeyError):
        del records["t/1"]
    assert records.pop("t/2") == {}
    assert repository.fsck().ok
    assert repository.gc().freed == 0
    assert records["t/ü \0"] == {"b": 2}


def test_data_of_any_size_is_compressed_and_comes_back(repository):
    values = {"text": "the same line\n" * 400_000, "bytes": bytes(range(256)) * 8192, "n": list(range(100_000))}
    repository.records["large"] = values
    stored = repository.store.get("record/large")
    assert stored is not None
    assert len(stored) < 1_000_000
    assert repository.records["large"] == values
    assert repository.fsck().ok


def test_each_call_is_one_request():
    store = Counting(Memory())
    records = Repository(store).records

    def cost(call):
        before = store.counts.round_trips
        call()
        return store.counts.round_trips - before

    assert cost(lambda: records.update({f"t/{n:04}": {"n": n} for n in range(1000)})) == 1
    assert cost(lambda: records["t/0001"]) == 1
    assert cost(lambda: records.get_many(f"t/{n:04}" for n in range(1000))) == 1
    assert cost(lambda: list(records.iter_items("t/", limit=1000))) <= 2
    store.reset()
    assert len(records.delete_many(prefix="t/")) == 1000
    assert (store.counts.applies, store.counts.round_trips) == (1, 2), "a listing, and one batch"
    assert not list(records)


def test_as_many_as_the_limit_are_read_though_one_is_deleted_meanwhile():
    class Deleting(Wrapper):
        """Reads keys and values one after the other, as a server is asked."""

        def page_items(self, *arguments, **options):
            return KVStore.page_items(self, *arguments, **options)

        def get_many(self, keys):
            self.store.delete(record_key("t/1"))
            return super().get_many(keys)

    records = Repository(Deleting(Memory())).records
    records.update({f"t/{n}": {"n": n} for n in range(6)})
    assert [name for name, _ in records.iter_items("t/", limit=3)] == ["t/0", "t/2", "t/3"]


def test_pages_of_names(repository):
    records = repository.records
    records.update({f"{branch}/{n:03}": {"n": n} for branch in "ab" for n in range(300)})
    assert [values["n"] for _, values in records.iter_items("a/")] == list(range(300))
    assert [name for name, _ in records.iter_items("b/", after="b/100", limit=2)] == ["b/101", "b/102"]
    assert list(records.iter_items("b/", limit=0)) == []
    assert list(records.get_many(["b/002", "no", "b/001"])) == ["b/002", "b/001"]
    assert records.get_many([]) == {}
    assert records.delete_many(["a/000", "no"]) == ["a/000"]
    assert records.delete_many(["b/000"], prefix="a/29") == ["b/000", *(f"a/{n}" for n in range(290, 300))]
    assert records.delete_many() == []
    records.clear()
    assert not records


def test_steps_beside_other_writers(repository):
    records = repository.records
    assert records.create("new", {"n": 0})
    assert not records.create("new", {"n": 7})
    assert records.pop("new") == {"n": 0}
    assert records.setdefault("a", {"n": 0}) == {"n": 0}
    assert records.setdefault("a", {"n": 7}) == {"n": 0}

    def add(found):
        return {"n": found["n"] + 1}

    run_together(lambda: [records.edit("a", add) for _ in range(50)] for _ in range(4))
    assert records["a"] == {"n": 200}
    assert records.edit("a", lambda found: found) == {"n": 200}
    assert records.edit("a", lambda _: None) is None
    assert "a" not in records


@pytest.mark.parametrize(
    ("values", "error"),
    [([1], InvalidArgumentError), ({1: 2}, InvalidArgumentError), ({"a": object()}, UnserializableValueError)],
)
def test_values_that_cannot_be_kept_change_nothing(repository, values, error):
    records = repository.records
    records["a"] = {"n": 1}
    for call in (
        lambda: records.update({"a": {}, "b": values}),
        lambda: records.setdefault("c", values),
        lambda: records.edit("a", lambda _: values),
    ):
        with pytest.raises(error):
            call()
    assert dict(records.items()) == {"a": {"n": 1}}


@pytest.mark.parametrize("name", ["", "x" * 1001, "\ud800", 7, None])
def test_names_that_cannot_be(repository, name):
    for call in (
        repository.records.__getitem__,
        lambda name: repository.records.update({name: {}}),
        lambda name: repository.records.get_many([name]),
    ):
        with pytest.raises(InvalidArgumentError):
            call(name)
    assert name not in repository.records if type(name) is not str else True
    with pytest.raises(InvalidArgumentError):
        repository.records.delete_many("abc")


def test_a_record_beyond_the_limit(repository, monkeypatch):
    monkeypatch.setattr(named_records, "MAX_CELL", 1000)
    with pytest.raises(LimitExceededError):
        repository.records["a"] = {"text": "x" * 1000}
    assert "a" not in repository.records


def test_closed_and_read_only(repository):
    repository.records["a"] = {"n": 1}
    reader = Repository(ReadOnly(repository.store))
    assert reader.records["a"] == {"n": 1}
    for call in (
        lambda: reader.records.update({"a": {}}),
        lambda: reader.records.delete_many(prefix=""),
        lambda: reader.records.setdefault("b", {}),
    ):
        with pytest.raises(ReadOnlyError):
            call()
    repository.close()
    with pytest.raises(StoreClosedError):
        repository.records["a"]


def test_damage_is_named(repository):
    repository.records["a"] = {"n": 1}
    stored = repository.store.get("record/a")
    repository.store.set("record/b", stored)
    with pytest.raises(CorruptObjectError):
        repository.records["b"]
    assert [(each.what, each.id) for each in repository.fsck().findings] == [("record", "record/b")]


@pytest.mark.parametrize("fault", list(Fault))
def test_a_failed_write_is_whole_or_not_there(fault):
    for at in range(1, 6):
        store = Memory()
        faulty = Faulty(store, at=10_000, fault=fault)
        records = Repository(faulty).records
        records["a"] = {"n": 1}
        faulty.calls, faulty.at = 0, at
        with suppress(StateError):
            records.update({"a": {"n": 2}, "b": {"n": 2}})
            records.edit("a", lambda found: {"n": (found or {"n": 0})["n"] + 1})
        found = dict(Repository(store).records.items())
        assert found in ({"a": {"n": 1}}, {"a": {"n": 2}, "b": {"n": 2}}, {"a": {"n": 3}, "b": {"n": 2}})


# With their branches


def test_a_deleted_branch_takes_its_records_along(repository):
    begun(repository, "main", "a", "a/b", "ab")
    names = ["a", "a/1", "a/b", "a/b/1", "a/bc", "ab/1", "b"]
    repository.records.update({name: {"of": name} for name in names})
    repository.branches.delete("a", force=True)
    assert sorted(repository.records) == ["a/b", "a/b/1", "ab/1", "b"]
    repository.branches.delete("a/b", force=True)
    assert sorted(repository.records) == ["ab/1", "b"]
    assert repository.fsck().ok


def test_an_expired_branch_takes_its_records_along():
    now = [1_700_000_000_000_000]
    repository = Repository(Memory(), clock=lambda: now[0])
    state = Versioned(repository, branch="s", ttl_seconds=10)
    state["n"] = 1
    state.commit()
    repository.records.update({"s/1": {}, "t/1": {}})
    now[0] += 20_000_000
    assert repository.expire(dry_run=True) == ["s"]
    assert len(repository.records) == 2
    assert repository.expire() == ["s"]
    assert list(repository.records) == ["t/1"]


def test_a_renamed_branch_takes_its_records_along(repository):
    begun(repository, "main", "old", "old/inner")
    repository.records.update({name: {"of": name} for name in ("old", "old/1", "old/inner/1")})
    repository.branches.rename("old", "new/name")
    assert dict(repository.records.items()) == {
        "new/name": {"of": "old"},
        "new/name/1": {"of": "old/1"},
        "old/inner/1": {"of": "old/inner/1"},
    }
    repository.records["new/name/" + "x" * 985] = {}
    with pytest.raises(LimitExceededError):
        repository.branches.rename("new/name", "longer/than/that/is")
    assert "new/name" in repository.branches
    assert repository.fsck().ok


@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_purge_erases_the_records_of_branches_and_of_those_that_never_were(tmp_path, kind, thorough):
    store = Memory() if kind == "memory" else Disk(tmp_path / "store")
    repository = Repository(store)
    begun(repository, "main", "u1/a", "u1/b", "u2/a", "u2")
    repository.gc()
    names = ["u1/a/1", "u1/early/1", "u1/b", "u2/a/1", "u1"]
    repository.records.update({name: {"secret": f"the secret of {name}"} for name in names})
    dry = repository.purge(branches="u1/*", thorough=thorough, dry_run=True)
    assert dry.records == ("u1/a/1", "u1/b", "u1/early/1")
    assert len(repository.records) == 5
    report = repository.purge(branches="u1/*", thorough=thorough)
    assert report.records == dry.records
    assert sorted(repository.records) == ["u1", "u2/a/1"]
    if kind == "disk":
        raw = b"".join(path.read_bytes() for path in (tmp_path / "store").iterdir())
        assert b"secret of u1/a" not in raw
        assert b"secret of u2/a" in raw
    assert repository.purge(branches="u2").records == ()
    assert "u2/a/1" in repository.records, "it belongs to u2/a, which is there"
    assert repository.fsck().ok


class RecordsLate(Wrapper):
    """A store in which somebody writes a record of a branch just before the branch is deleted."""

    def apply(self, expected, puts, deletes=(), *, objects=None):
        if "ref/branch/u1" in deletes:
            Repository(self.store).records["u1/late"] = {"secret": "the secret of u1/late"}
        return super().apply(expected, puts, deletes, objects=objects)


@pytest.mark.parametrize("thorough", [False, True])
def test_purge_erases_records_that_are_written_while_it_works(thorough):
    memory = Memory()
    begun(Repository(memory), "main", "u1")
    report = Repository(RecordsLate(memory)).purge(branches="u1", thorough=thorough)
    assert report.records == ("u1/late",)
    assert list(Repository(memory).records) == []


def test_purge_finds_mentions_and_replaces_words(repository):
    begun(repository, "main")
    repository.records.update(
        {"a": {"text": "by alice", "list": ["alice", 1]}, "b": {"text": "by bob"}, "of alice": {}}
    )
    state = Versioned(repository)
    state["alice"] = 1
    state.commit("add")
    report = repository.purge("alice")
    assert {each for each in report.mentions if each.startswith("record")} == {"record a", "record of alice"}
    repository.purge(replace={"alice": "X"})
    assert dict(repository.records.items()) == {
        "a": {"text": "by X", "list": ["X", 1]},
        "b": {"text": "by bob"},
        "of alice": {},
    }


def test_a_fork_and_an_undo_leave_them_alone(repository):
    state = committed(repository, n=1)
    repository.records["main/1"] = {"n": 1}
    state.fork("fork")
    state["n"] = 2
    state.commit()
    state.undo()
    repository.gc(expire=timedelta(0))
    assert dict(repository.records.items()) == {"main/1": {"n": 1}}
