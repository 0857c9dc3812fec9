"""The ledger in the store: over every kind of store, checked by fsck, left alone by gc and prune, erased by purge."""

from __future__ import annotations

import contextlib
import datetime as dt
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from blake3 import blake3

from tests.support import store_openers
from tests.support.handles import committed
from tests.support.personal_data import SECRET, agent, holds
from tests.support.stores import MinimalStore
from versioned_state import (
    Cache,
    Disk,
    KVStore,
    Memory,
    Repository,
    Versioned,
    effect,
    effects,
    forget_effect,
    settle_effect,
)
from versioned_state.errors import CorruptObjectError, EffectInDoubtError, ErasedResultError, InvalidArgumentError
from versioned_state.objects.keys import effect_key
from versioned_state.objects.record import write_record
from versioned_state.repository import ledger
from versioned_state.repository.ledger import read_entry
from versioned_state.repository.maintenance.owner import Life, Owner, life_of
from versioned_state.storage import Counting, DiskCache, Encrypted

LARGE = {"text": "".join(chr(97 + n * 7919 % 26) for n in range(26)) * 35_000, "numbers": list(range(1000))}

STORES: dict[str, Callable[[Path], KVStore]] = {
    "memory": lambda folder: Memory(),
    "disk": Disk,
    "diskcache": DiskCache,
    "cache": lambda folder: Cache(Memory()),
    "encrypted": lambda folder: Encrypted(Memory(), bytes(32)),
    "the least": lambda folder: MinimalStore(),
}


def fail() -> Any:
    raise ConnectionError


def in_doubt(state: Versioned | Repository, key: str) -> None:
    with pytest.raises(ConnectionError):
        effect(key, fail, state=state)


def opened(name: str, folder: Path, request: pytest.FixtureRequest) -> KVStore:
    if name == "s3":
        store: KVStore = request.getfixturevalue("s3_server").open(folder.name)
        return store
    servers = {"redis": store_openers.redis, "postgres": store_openers.postgres}
    return servers[name](request, folder)() if name in servers else STORES[name](folder / "store")


@pytest.mark.parametrize("name", [*STORES, "s3", "redis", "postgres"])
def test_it_lives_in_any_store(name, tmp_path, request):
    with opened(name, tmp_path, request) as store:
        state = Versioned(store)
        assert effect("large", lambda: LARGE, state=state) == LARGE
        in_doubt(state, "doubt")
        assert effect("large", fail, state=state) == LARGE
        with pytest.raises(EffectInDoubtError):
            effect("doubt", fail, state=state)
        assert [(each.key, each.status) for each in effects(state)] == [("large", "done"), ("doubt", "in doubt")]
        assert state.repository.fsck().ok
        settle_effect(state, "doubt", [1])
        forget_effect(state, "large")
        assert [(each.key, each.result) for each in effects(state)] == [("doubt", [1])]


def test_it_is_there_after_a_restart(tmp_path):
    with Disk(tmp_path) as store:
        effect("pay", lambda: LARGE, state=Versioned(store))
    with Disk(tmp_path) as store:
        assert effect("pay", fail, state=Versioned(store)) == LARGE


def test_maintenance_leaves_it_alone():
    state = Versioned()
    for n in range(5):
        state["n"] = n
        state.commit()
        effect(f"pay:{n}", lambda: LARGE, state=state)
    in_doubt(state, "doubt")
    repository = state.repository
    before = {key: repository.store.get(key) for key in repository.store.keys("effect/")}
    repository.prune(keep_last=1, expire=dt.timedelta(0), gc=True)
    repository.gc(expire=dt.timedelta(0))
    repository.branches.create("other")
    repository.branches.delete("other", force=True)
    assert {key: repository.store.get(key) for key in repository.store.keys("effect/")} == before
    assert len(before) == 6
    assert repository.fsck().ok
    assert repository.fsck().dangling == 0


def test_the_cost_of_an_effect_does_not_grow_with_the_ledger():
    store = Counting(Memory())
    state = Versioned(store)
    costs = []
    for n in range(400):
        store.reset()
        effect(f"pay:{n}", lambda: [1, 2, 3], state=state)
        costs.append((store.counts.round_trips, store.counts.bytes_written, store.counts.bytes_read))
    assert costs[10] == costs[90]  # keys of one length
    assert costs[110] == costs[390]


def test_the_bytes_of_a_record_are_those_of_the_format():
    """docs/format.md, section 10."""
    store = Memory()
    seen: list[bytes | None] = []
    key = "effect/" + blake3(b"pay").hexdigest(length=24)

    def stored(fields: list[object]) -> bytes:
        body: bytes = msgpack.packb(fields)
        return body + blake3(key.encode() + b"\0" + body).digest(length=8)

    def pay() -> dict[str, object]:
        seen.append(store.get(key))
        return {"receipt": [1, None]}

    state = Versioned(store, clock=lambda: 1_000_000)
    effect("pay", pay, state=state)
    result = b"\0\x14" + msgpack.packb({"receipt": [1, None]})
    facts = [blake3().digest(16), "main", 0, None]
    assert store.get(key) == stored(["pay", 1_000_000, None, [result], facts])
    (begun,) = seen
    assert begun is not None
    owner = msgpack.unpackb(begun[:-8])[2]
    assert len(owner) == 28
    assert begun == stored(["pay", 1_000_000, owner, [], facts])
    state.repository.purge(effects="pay")
    assert store.get(key) == stored([None, 1_000_000, None, []])
    forget_effect(state, "pay")
    in_doubt(state, "pay")
    assert store.get(key) == stored(["pay", 1_000_000, b"", [], facts])
    store.set(key, stored(["pay", 1_000_000, None, [result]]))  # of an older release
    assert effect("pay", pay, state=state) == {"receipt": [1, None]}
    forget_effect(state, "pay")
    effect("pay", pay, state=state.repository, arguments="any")
    assert store.get(key) == stored(["pay", 1_000_000, None, [result]])


# Damage


def test_damage_is_an_error_and_nothing_is_done():
    store = Memory()
    state = Versioned(store)
    effect("pay", lambda: {"receipt": 1}, state=state)
    key = effect_key("pay")
    sound = store.get(key)
    assert sound is not None
    rng = random.Random(1)
    damaged = [sound[:at] + bytes((sound[at] ^ rng.randrange(1, 256),)) + sound[at + 1 :] for at in range(len(sound))]
    for stored in [*damaged, b"", sound[:-1], sound + b"\0"]:
        store.set(key, stored)
        for call in (
            lambda: effect("pay", fail, state=state),
            lambda: effects(state),
            lambda: settle_effect(state, "pay"),
        ):
            with pytest.raises(CorruptObjectError, match="effect/"):
                call()
        (finding,) = state.repository.fsck().findings
        assert (finding.problem, finding.what, finding.id) == ("corrupt", "effect", key)


def test_a_damaged_effect_can_be_forgotten_and_holds_up_no_purge():
    repository = Repository()
    effect("pay", lambda: {"receipt": 1}, state=repository)
    effect("mail:alice", int, state=repository)
    key = effect_key("pay")
    repository.store.set(key, b"damaged")
    assert set(repository.purge("users.alice").mentions) == {"effect mail:alice", f"effect in {key}"}
    with pytest.raises(CorruptObjectError, match=key):
        repository.purge(effects="*")
    forget_effect(repository, "pay")
    assert [each.key for each in effects(repository)] == ["mail:alice"]
    assert effect("pay", lambda: 2, state=repository) == 2


def test_one_record_does_not_pass_for_another():
    store = Memory()
    state = Versioned(store)
    effect("pay", lambda: 1, state=state)
    stored = store.get(effect_key("pay"))
    assert stored is not None
    store.set(effect_key("other"), stored)
    with pytest.raises(CorruptObjectError):
        effect("other", fail, state=state)


OWNER = bytes(28)


@pytest.mark.parametrize(
    "fields",
    [
        ["pay", 1, None],
        ["pay", "1", None, []],
        ["pay", 10**17 * 5, None, []],
        [7, 1, None, []],
        ["other", 1, None, []],
        ["pay", 1, b"short", []],
        ["pay", 1, OWNER, [b"\0\x14\x01"]],
        ["pay", 1, None, b"\x14\x01"],
        ["pay", 1, None, [b"\0\x14"] * 600],
        {"pay": 1},
        None,
    ],
)
def test_a_record_that_no_writer_writes_is_refused(fields):
    key = effect_key("pay")
    with pytest.raises(CorruptObjectError):
        read_entry(key, write_record(key, msgpack.packb(fields)))


@pytest.mark.parametrize(
    "part", [b"", b"\0", b"\0\x10\x01", b"\x05\x14\x01", b"\0\x14", b"\0\x14\xc1", b"\0\x14\xd4\x7f\0", b"\x01zstd"]
)
def test_a_result_that_no_writer_writes_is_refused(part):
    store = Memory()
    state = Versioned(store)
    key = effect_key("pay")
    store.set(key, write_record(key, msgpack.packb(["pay", 1, None, [part]])))
    with pytest.raises(CorruptObjectError):
        effect("pay", fail, state=state)
    assert not state.repository.fsck().ok


def test_a_reference_in_a_result_is_damage():
    """Nothing that gc could delete belongs to a result."""
    store = Memory()
    state = committed(store, list=["x" * 100] * 1000)
    cell = state.repository.snapshot("HEAD").cell_at("list")
    assert cell is not None
    key = effect_key("pay")
    store.set(key, write_record(key, msgpack.packb(["pay", 1, None, [b"\0\x14" + bytes(cell)]])))
    with pytest.raises(CorruptObjectError):
        effect("pay", fail, state=state)
    assert not state.repository.fsck().ok


def test_too_large_a_result_is_not_lost(monkeypatch):
    monkeypatch.setattr(ledger, "MAX_RESULT", 10_000)
    state = Versioned()
    with pytest.raises(EffectInDoubtError, match="beyond the limit") as caught:
        effect("pay", lambda: "x" * 20_000, state=state)
    assert caught.value.result == "x" * 20_000


# Purge


def test_purge_erases_keys_and_results(tmp_path):
    with Disk(tmp_path) as store:
        repository = Repository(store)
        agent(repository)
        effect("mail:alice", lambda: SECRET, state=repository)
        in_doubt(repository, "call:alice/17 Chestnut Row")
        effect("mail:bob", lambda: "for Bob", state=repository)
        dry = repository.purge("users.alice", dry_run=True)
        assert {"effect mail:alice", "effect call:alice/17 Chestnut Row"} <= set(dry.mentions)
        assert "effect mail:bob" not in dry.mentions
        assert repository.purge(effects=["*alice*"], dry_run=True).effects == (
            "call:alice/17 Chestnut Row",
            "mail:alice",
        )
        assert len(effects(repository)) == 3
        report = repository.purge("users.alice", effects="*alice*")
        assert report.effects == ("call:alice/17 Chestnut Row", "mail:alice")
        assert not [each for each in report.mentions if each.startswith("effect")]
        assert not holds(store)
        assert repository.fsck().ok
        with pytest.raises(ErasedResultError):
            effect("mail:alice", fail, state=repository)
        with pytest.raises(EffectInDoubtError):
            effect("call:alice/17 Chestnut Row", fail, state=repository)
        assert effect("mail:bob", fail, state=repository) == "for Bob"
        assert [(each.key, each.status, each.result) for each in effects(repository)] == [
            ("", "done", None),
            ("", "in doubt", None),
            ("mail:bob", "done", "for Bob"),
        ]
        settle_effect(repository, "mail:alice", "again")
        assert effect("mail:alice", fail, state=repository) == "again"
        forget_effect(repository, "call:alice/17 Chestnut Row")
        assert effect("call:alice/17 Chestnut Row", int, state=repository) == 0
    assert not any(SECRET.encode() in file.read_bytes() for file in tmp_path.iterdir())


def test_purge_takes_one_pattern_and_refuses_none():
    repository = Repository()
    effect("a", int, state=repository)
    assert repository.purge(effects="b*").effects == ()
    assert repository.purge(effects="a").effects == ("a",)
    assert repository.purge(effects="a").effects == (), "what was erased has no key to match"
    with pytest.raises(InvalidArgumentError, match="an effect"):
        repository.purge(effects=())


def test_an_effect_that_is_purged_while_it_runs_is_recorded():
    repository = Repository()

    def pay() -> int:
        repository.purge(effects="*")
        return 7

    assert effect("pay", pay, state=repository) == 7
    assert effect("pay", fail, state=repository) == 7


# Owners


def test_an_owner_runs_until_it_ends_or_is_gone():
    owner = Owner()
    id = owner.id
    assert life_of(id) is Life.RUNS
    owner.end()
    assert life_of(id) is Life.ENDED
    owner.end()
    other = Owner()
    id = other.id
    assert life_of(id) is Life.RUNS
    del other  # an interrupt kept it from being ended
    assert life_of(id) is Life.ENDED
    assert life_of(b"") is Life.UNKNOWN
    assert life_of(bytes(28)) is Life.UNKNOWN  # another machine


def test_an_attempt_of_another_machine_is_asked_about():
    """Nothing is known of its process, so ``check`` decides."""
    store = Memory()
    state = Versioned(store)
    key = effect_key("pay")
    store.set(key, write_record(key, msgpack.packb(["pay", 1, OWNER, []])))
    with pytest.raises(EffectInDoubtError, match="1970"):
        effect("pay", int, state=state)
    assert effect("pay", int, state=state, check=lambda _: False) == 0
    store.set(key, write_record(key, msgpack.packb(["pay", 1, OWNER, []])))
    with contextlib.suppress(ConnectionError):
        effect("pay", fail, state=state, idempotent=True)
    assert effects(state)[0].since == dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)
