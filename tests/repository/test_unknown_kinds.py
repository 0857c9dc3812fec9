"""Keys, records, objects, codes and envelopes that this release lacks: what leaves them alone, what refuses the store.

``docs/format.md``, section 12, has the rules: a later release of the same version may rely on them.
"""

from __future__ import annotations

from datetime import timedelta

import msgpack
import pytest

from tests.support.crafted_stores import craft, one, tree
from tests.support.handles import committed
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import CorruptObjectError, CorruptRefError, StateError, UnsafeStoreError
from versioned_state.objects.address import address_of
from versioned_state.objects.keys import ref_key
from versioned_state.objects.record import write_record
from versioned_state.repository.maintenance.fsck import check
from versioned_state.values.cells import Code

UNKNOWN = {
    "made-up": b"\x00a record without a name",
    "made-up/0123456789abcdef": b"",
    "made-up/main": b"one that is named after a branch",
    "later/side/x": b"\xff" * 300,
    "objects": b"begins like the key of an object",
    "refs/heads/main": b"begins like the key of a ref",
    "gc-later/00000001": b"begins like a record of gc",
}
NOW = timedelta(0)


@pytest.fixture
def repository():
    repository = Repository(Memory())
    state = committed(repository, k=[1, 2], erase={"a": 1})
    repository.branches.create("side/x", "main")
    for n in range(5):
        state["k"].append("x" * 500 * n)
        state.commit(str(n))
    for key, value in UNKNOWN.items():
        repository.store.set(key, value)
    return repository


MAINTENANCE = {
    "gc": lambda repository: repository.gc(expire=NOW),
    "gc in slices": lambda repository: repository.gc(expire=NOW, time_limit=0.001),
    "prune": lambda repository: repository.prune(keep_last=1, expire=NOW, gc=True),
    "purge of a path": lambda repository: repository.purge("erase"),
    "purge of a branch": lambda repository: repository.purge(branches="side/*"),
    "purge of a branch, thoroughly": lambda repository: repository.purge(branches="side/*", thorough=True),
    "expire": lambda repository: repository.expire(),
    "upgrade": lambda repository: repository.upgrade(),
    "a branch is renamed": lambda repository: repository.branches.rename("side/x", "main-2"),
    "a branch is deleted": lambda repository: repository.branches.delete("side/x"),
}


@pytest.mark.parametrize("call", MAINTENANCE.values(), ids=MAINTENANCE)
def test_records_of_unknown_kinds_are_left_alone(repository, call):
    call(repository)
    assert {key: repository.store.get(key) for key in UNKNOWN} == UNKNOWN


def test_they_are_no_fault_and_fsck_says_what_there_is(repository):
    report = repository.fsck()
    assert report.ok
    assert report.unknown == ("gc-later/", "later/", "made-up", "made-up/", "objects", "refs/")


def test_fsck_names_a_bounded_number_of_kinds():
    store = Memory()
    Repository(store)
    for number in range(300):
        store.set(f"kind{number:03}/x", b"")
    assert len(check(store).unknown) == 100


# Refs of an unknown kind: what they lead to cannot be told from garbage


@pytest.mark.parametrize("key", ["ref/remote/origin/main", "ref/a", "ref/zz/y", "ref/branches/x", "ref/tag"])
@pytest.mark.parametrize(
    "call",
    [
        lambda repository: repository.gc(expire=NOW),
        lambda repository: repository.gc(dry_run=True),
        lambda repository: repository.purge("erase"),
        lambda repository: repository.purge(branches="side/*"),
    ],
    ids=["gc", "dry run", "purge", "purge of a branch"],
)
def test_nothing_is_deleted_beside_a_ref_of_an_unknown_kind(repository, key, call):
    repository.gc()  # so that the purge of a branch could go by its marks
    repository.branches.delete("side/x", force=True)
    repository.store.set(key, b"\x01")
    objects = set(repository.store.keys("o/"))
    with pytest.raises(UnsafeStoreError, match=key):
        call(repository)
    assert objects <= set(repository.store.keys("o/"))
    assert repository.store.get(key) == b"\x01"
    (finding,) = repository.fsck().findings
    assert (finding.problem, finding.id) == ("misplaced", key)


def test_work_goes_on_beside_a_ref_of_an_unknown_kind(repository):
    repository.store.set("ref/remote/origin/main", b"\x01")
    state = Versioned(repository)
    state["k"].append("more")
    state.commit()
    repository.branches.create("new", "main")
    assert sorted(repository.branches) == ["main", "new", "side/x"]


# Objects, codes and envelopes of an unknown kind: damage, if anything leads there


def below(reachable: bytes) -> Memory:
    """A store whose head has a list with one leaf, which is this object."""
    return craft(lambda put: one(tree(Code.LIST_TREE, 1, put(reachable))))


UNREADABLE = {
    "an object of an unknown kind": b"\x16" + b"later",
    "a cell with a code of trees that has no meaning": b"\x10\x91"
    + msgpack.packb(msgpack.ExtType(42, msgpack.packb([1, b"a" * 24]))),
    "the last code of trees": b"\x10\x91" + msgpack.packb(msgpack.ExtType(47, b"x" * 40)),
}


@pytest.mark.parametrize("raw", UNREADABLE.values(), ids=UNREADABLE)
def test_gc_and_purge_stop_at_what_they_cannot_follow(raw):
    store = below(raw)
    garbage = "o/" + "ab" * 24
    store.set(garbage, b"\0\x14garbage")
    repository = Repository(store)
    before = set(store.keys("o/"))
    with pytest.raises(CorruptObjectError):
        repository.gc(expire=NOW)
    with pytest.raises(CorruptObjectError):
        repository.gc(dry_run=True)
    with pytest.raises(StateError):
        repository.purge("other")
    assert before <= set(store.keys("o/"))
    assert [finding.path for finding in repository.fsck().findings if finding.id == address_of(raw).hex()] == ["a"]


def test_a_code_of_no_tree_stops_its_reader_and_not_gc():
    raw = b"\x10\x91" + msgpack.packb(msgpack.ExtType(23, msgpack.packb(["later"])))
    repository = Repository(below(raw))
    assert repository.gc(expire=NOW).freed == 1  # the commit before, whose branch the crafted one took
    assert raw in {stored[1:] for stored in dict(repository.store.items("o/")).values()}
    with pytest.raises(CorruptObjectError, match="23"):
        repository.snapshot("main")["a"][0]


def test_an_object_of_an_unknown_kind_that_nothing_leads_to_is_garbage():
    repository = Repository(Memory())
    address = "o/" + "cd" * 24
    repository.store.set(address, b"\0\x16later")
    assert repository.gc(expire=NOW).freed == 1
    assert address not in repository.store


@pytest.mark.parametrize("form", range(4, 256, 63))
def test_an_envelope_of_an_unknown_form_is_refused(form):
    repository = Repository(Memory())
    state = committed(repository, k=1)
    commit = state.head
    key = "o/" + commit.id
    stored = repository.store.get(key) or b""
    repository.store.delete(key)
    repository.store.set(key, bytes([form]) + stored[1:])
    repository.database.forget()
    with pytest.raises(CorruptObjectError):
        Repository(repository.store).snapshot("main")
    with pytest.raises(CorruptObjectError):
        repository.gc(expire=NOW)


# Records of a known kind with another form


def test_a_ref_with_more_fields_is_refused_and_kept():
    repository = Repository(Memory())
    state = committed(repository, k=1)
    key = ref_key("branch", "main")
    fields = ["main", bytes.fromhex(state.head.id), 0, None, None, 0, 0, "later"]
    repository.store.set(key, write_record(key, msgpack.packb(fields)))
    before = dict(repository.store.items())
    with pytest.raises(CorruptRefError):
        state.refresh()
    with pytest.raises(CorruptRefError):
        repository.gc(expire=NOW)
    assert before.items() - repository.store.items() <= {("gc", before.get("gc"))}
