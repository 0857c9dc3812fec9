"""No read returns bytes that do not match their hash, missing objects are errors, stores of other kinds are left alone.

Bits are flipped in everything that a store holds. Every read then raises a ``StateError`` or returns the right thing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgpack
import pytest
from blake3 import blake3

from tests.support.exact import exact
from tests.support.mutations import sample
from tests.support.stores import memory_of
from tests.support.strategies import make_large
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import (
    CorruptObjectError,
    CorruptRefError,
    FormatError,
    MissingObjectError,
    NotAStoreError,
    ReadOnlyError,
    StateError,
    StoreNotFoundError,
    UnknownRevisionError,
)
from versioned_state.objects.address import Address, address_of
from versioned_state.objects.envelope import seal
from versioned_state.objects.keys import address_in
from versioned_state.storage import ReadOnly, Wrapper


def make() -> Memory:
    store = Memory()
    state = Versioned(store, author="a")
    state["sample"] = sample(random.Random(1), 10)
    state["list"] = make_large("list", 300, 1)
    state.commit("one", meta={"k": 1})
    state["list"].append({"n": 1})
    state["text"] = "line\n" * 3000
    state["buffer"] = bytearray(200_000)
    state.commit("two")
    state.repository.tags.create("v1", "HEAD~1")
    state["list"][3]["x"] = [1]
    state.namespace("n")["k"] = {str(n): "v" * n for n in range(100)}
    state.commit("three")
    state.reset("v1")
    state.reset("main@{1}")
    state.repository.branches.create("side")
    return store


READS: dict[str, Callable[[Repository], Any]] = {
    "content of main": lambda r: exact(r.snapshot("main").copy()),
    "content of the tag": lambda r: exact(r.snapshot("v1").copy()),
    "a path": lambda r: exact(r.snapshot("main").at("list[3].x")),
    "a namespace": lambda r: exact(r.snapshot("main").namespace("n").copy()),
    "log": lambda r: [(c.id, c.message, c.author, dict(c.meta), c.time, c.root, c.parents) for c in r.log("main")],
    "diff": lambda r: str(r.diff("v1", "main")),
    "branches": lambda r: {name: commit.id for name, commit in r.branches.items()},
    "tags": lambda r: {name: commit.id for name, commit in r.tags.items()},
    "is side there": lambda r: "side" in r.branches,
    "is other there": lambda r: "other" in r.branches,
    "reflog": lambda r: [(p.action, p.commit and p.commit.id) for p in r.reflog("main")],
    "revisions": lambda r: [r.commit(rev).id for rev in ("main~1", "main@{2}", "side", "HEAD")],
    "a handle": lambda r: exact(Versioned(r).copy()),
    "status": lambda r: str(Versioned(r).status()),
    "keys": lambda r: list(Versioned(r)),
    "a sequence": lambda r: exact(list(Versioned(r).sequence("list"))),
    "merge base": lambda r: r.merge_base("v1", "main").id,
}


def answers(store: Memory) -> dict[str, Any]:
    """What each read gives, or the error that it raises."""
    try:
        repository = Repository(store)
    except StateError as error:
        return dict.fromkeys(READS, error)
    found: dict[str, Any] = {}
    for name, read in READS.items():
        try:
            found[name] = read(repository)
        except StateError as error:
            found[name] = error
    return found


def damage(rng: random.Random, stored: bytes) -> bytes:
    data = bytearray(stored)
    match rng.randrange(5) if stored else 1:  # the keys of an index have no value
        case 0:
            del data[rng.randrange(len(data)) :]
        case 1:
            data += rng.randbytes(3)
        case 2:
            data = bytearray()
        case _:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def test_damage_anywhere_is_an_error_or_makes_no_difference():
    store = make()
    right = answers(store)
    assert not any(isinstance(answer, StateError) for answer in right.values())
    rng = random.Random(5)
    noticed = 0
    keys = sorted(store.keys())
    for key in [*keys, *rng.choices([key for key in keys if not key.startswith("o/")], k=60)]:
        whole = store.get(key)
        assert whole is not None
        store.delete(key)
        store.set(key, damage(rng, whole))
        for name, answer in answers(store).items():
            if isinstance(answer, StateError):
                noticed += 1
            else:
                assert answer == right[name], (key, name)
        store.delete(key)
        store.set(key, whole)
    assert answers(store) == right
    assert noticed > 3 * len(keys)


def test_whatever_is_missing_is_an_error_or_makes_no_difference():
    store = make()
    right = answers(store)
    for key in sorted(store.keys()):
        whole = store.get(key)
        assert whole is not None
        store.delete(key)
        for name, answer in answers(store).items():
            if isinstance(answer, StateError):
                assert isinstance(answer, (MissingObjectError, CorruptRefError, NotAStoreError)), (key, name, answer)
            else:
                assert answer == right[name], (key, name)
        store.set(key, whole)
    assert answers(store) == right


def test_objects_swapped_for_each_other_are_noticed():
    store = make()
    right = answers(store)
    objects = sorted(store.keys("o/"))
    rng = random.Random(6)
    for _ in range(40):
        a, b = rng.sample(objects, 2)
        first, second = store.get(a) or b"", store.get(b) or b""
        store.delete_many((a, b))
        store.set_many({a: second, b: first})
        for name, answer in answers(store).items():
            assert isinstance(answer, CorruptObjectError) or answer == right[name], name
        store.delete_many((a, b))
        store.set_many({a: first, b: second})


def test_an_object_of_another_kind_is_no_commit_and_no_part_of_a_value():
    store = make()
    repository = Repository(store)
    head = repository.branches["main"]
    address = repository.snapshot("main")
    read = repository.database.objects.read
    leaf = next(key[2:] for key in store.keys("o/") if read(Address(bytes.fromhex(key[2:])))[0] == 0x10)
    assert address is not None
    with pytest.raises(CorruptObjectError, match="commit"):
        repository.database.commits.read(address_in("o/" + leaf))
    with pytest.raises(UnknownRevisionError):
        repository.commit(leaf)
    # A list whose only leaf is a commit.
    state = Versioned(store, branch="other")
    state["x"] = ["y" * 3000, "z" * 3000]
    commit = state.commit()
    raw = repository.database.objects.read(bytes.fromhex(commit.id))  # type: ignore[arg-type]
    parts = [key for key in store.keys("o/") if bytes.fromhex(key[2:]) in raw]
    assert parts
    for part in parts:
        planted = raw.replace(bytes.fromhex(part[2:]), bytes.fromhex(head.id))
        id = address_of(planted).hex()
        store.set("o/" + id, seal(planted))
        if repository.commit(id).parents == commit.parents:
            with pytest.raises(StateError):
                repository.snapshot(id).copy()


def test_a_commit_whose_objects_are_missing_says_which():
    store = make()
    repository = Repository(store)
    head = repository.branches["main"]
    store.delete("o/" + head.id)
    with pytest.raises(MissingObjectError) as caught:
        Repository(Wrapper(store)).snapshot("main")
    assert caught.value.id == head.id
    assert not isinstance(caught.value, KeyError), "a mapping's get() would take it for: there is no such key"


def test_a_missing_object_is_no_missing_key():
    """A ``KeyError`` from a mapping would read as: there is no such key."""
    store = make()
    kept = {key: store.get(key) or b"" for key in store.keys("o/")}
    for key, stored in kept.items():
        store.delete(key)
        try:
            repository = Repository(store)
            for mapping in (repository.snapshot("main"), Versioned(repository), repository.branches):
                for name in ("sample", "list", "text", "main"):
                    with suppress(MissingObjectError):
                        assert (name in mapping) == (
                            name == "main" if mapping is repository.branches else name != "main"
                        )
                        assert mapping.get(name, "missing") != "missing" or name not in mapping
        except MissingObjectError:
            pass
        store.set(key, stored)


def test_a_ref_that_is_gone_is_not_an_empty_branch():
    store = make()
    store.delete("ref/branch/main")
    for call in (
        lambda: Versioned(store),
        lambda: Repository(store).branches["main"],
        lambda: "main" in Repository(store).branches,
    ):
        with pytest.raises(CorruptRefError, match="main"):
            call()
    with pytest.raises(CorruptRefError):
        Repository(store).branches.create("main", "side")
    assert Versioned(store, branch="side").head.message == "three"


def test_a_ref_is_its_own():
    """A record that was copied from another name, or belongs to a tag, does not pass."""
    store = make()
    records = {key: store.get(key) or b"" for key in ("ref/branch/main", "ref/branch/side", "ref/tag/v1")}
    for key, own in records.items():
        for record in set(records.values()) - {own}:
            store.set(key, record)
            with pytest.raises(CorruptRefError):
                answers_of(store, key)
        store.set(key, own)


def answers_of(store: Memory, key: str) -> Any:
    _, kind, name = key.split("/")
    repository = Repository(store)
    return (repository.branches if kind == "branch" else repository.tags)[name]


# Stores of another kind


def _format(version: Any) -> bytes:
    body: bytes = b"versioned-state\n" + msgpack.packb(version)
    return body + blake3(body).digest(length=8)


def test_a_newer_format_is_refused_and_left_as_it_was():
    store = make()
    store.set("format", _format(99))
    before = dict(store.items())
    for call in (Repository, Versioned):
        with pytest.raises(FormatError, match="version 99; this release reads up to 1") as caught:
            call(store)
        assert (caught.value.found, caught.value.supported) == (99, 1)
        assert "upgrade" in caught.value.hint
    assert dict(store.items()) == before


@pytest.mark.parametrize(
    "content", [{"key": b"value"}, {"o/abc": b"x"}, {"format": b"something"}, {"ref/branch/main": b"x"}]
)
def test_a_store_that_is_something_elses_is_refused_and_left_as_it_was(content):
    store = memory_of(content)
    with pytest.raises(NotAStoreError, match="not touched"):
        Versioned(store)
    assert dict(store.items()) == content


def test_a_damaged_format_record():
    for stored in (
        b"versioned-state\n\x01",
        _format(1)[:-1] + b"x",
        b"versioned-state\n" + b"x" * 50,
        _format("one"),
        _format(None),
    ):
        store = make()
        store.set("format", stored)
        with pytest.raises(CorruptObjectError, match="format"):
            Versioned(store)


def test_a_store_that_may_only_be_read():
    store = make()
    before = dict(store.items())
    state = Versioned(ReadOnly(store))
    assert answers(ReadOnly(store)) == answers(store)  # type: ignore[arg-type]
    state["list"].append("staged")
    assert len(state.status()) == 1
    refs = state.repository
    for call in (
        state.commit,
        lambda: state.reset("v1"),
        lambda: refs.branches.create("x"),
        lambda: refs.tags.delete("v1"),
    ):
        with pytest.raises(ReadOnlyError):
            call()
        assert [str(change.kind) for change in state.status()] == ["added"]
    state.discard()
    assert not state.status()
    assert dict(store.items()) == before
    with pytest.raises(StoreNotFoundError):
        Versioned(ReadOnly(Memory()))


def test_a_read_only_folder(tmp_path):
    with Versioned(Disk(tmp_path / "store")) as state:
        state["a"] = [1]
        state.commit()
    with Versioned(Disk(tmp_path / "store", read_only=True)) as state:
        state["a"].append(2)
        with pytest.raises(ReadOnlyError):
            state.commit()
        assert state["a"] == [1, 2]
        assert len(state.status()) == 1
        state.discard()  # a handle that is left with changes warns
