"""The check of a store finds each fault that is planted, says what it is and who needs it, and raises nothing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import msgpack
import pytest
from blake3 import blake3

from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.damage import flipped
from tests.support.garbage import set_gc_record
from tests.support.histories import numbered
from tests.support.mutations import sample
from tests.support.stores import memory_of
from tests.support.strategies import make_large
from versioned_state import Disk, KVStore, Memory, Repository, Versioned
from versioned_state.errors import CorruptObjectError, FormatError
from versioned_state.objects.address import Address, Kind, address_of
from versioned_state.objects.envelope import seal
from versioned_state.objects.keys import address_in, object_key
from versioned_state.objects.store import Staging
from versioned_state.repository.database import Publication
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.history.shallow import ShallowCommit, write_shallow
from versioned_state.repository.maintenance.fsck import MAX_FINDINGS, check
from versioned_state.repository.maintenance.fsck_report import Finding
from versioned_state.repository.refs.ref import read_ref, write_ref
from versioned_state.storage import Cache, Encrypted
from versioned_state.values.trees.nodes import Node, Nodes, Shape, read_node, write_node
from versioned_state.values.trees.tree import Tree

T = TypeVar("T", bound=KVStore)

BIG = random.Random(2).randbytes(3_000_000)  # so that its chunks lie under two levels


@cache
def made() -> dict[str, bytes]:
    return dict(fill(Memory()).items())


def make() -> Memory:
    """A store with an object of every kind."""
    return memory_of(made())


def fill(store: T) -> T:
    state = Versioned(store, author="a")
    state["list"] = make_large("list", 2000, 1)
    state["dict"] = make_large("dict", 1000, 1)
    state["sample"] = sample(random.Random(1), 30)
    state["blob"] = BIG
    for n in range(200):
        state[f"key {n}"] = n
    state.commit("one", meta={"k": 1})
    state["list"].append({"n": 1})
    state.commit("two")
    state.repository.tags.create("v1", "HEAD~1")
    numbered(state, range(5))
    state.reset("HEAD~1")
    state.repository.branches.create("side", "v1")
    side = Versioned(state.repository, branch="side")
    side["only here"] = make_large("text", 1000, 4)
    side.commit("on the side")
    side.reset("HEAD~1")
    state.repository.branches.create("gone")
    state.repository.branches.delete("gone")
    return store


def kinds(store: Memory) -> dict[Kind, list[Address]]:
    found: dict[Kind, list[Address]] = {}
    objects = Repository(store).database.objects
    for key in sorted(store.keys("o/")):
        address = address_in(key)
        found.setdefault(Kind(objects.read(address)[0]), []).append(address)
    return found


def findings(store: Memory) -> tuple[Finding, ...]:
    return check(store).findings


def test_a_sound_store_has_no_fault():
    store = make()
    report = Repository(store).fsck()
    assert report.ok, report.findings
    assert (report.findings, report.more) == ((), 0)
    assert report.objects == sum(1 for _ in store.keys("o/"))
    assert report.commits >= 8
    assert (report.refs, report.dangling) == (4, 0)
    assert set(Kind) == set(kinds(store)), "an object of every kind"


def test_every_kind_of_store_and_any_memory(tmp_path):
    with Disk(tmp_path / "store") as disk:
        fill(disk)
        for store in (disk, Cache(disk)):
            report = check(store, in_memory=50)
            assert report.ok
            assert report.dangling == 0


def test_dangling_objects_are_counted_and_no_fault():
    store = make()
    state = Versioned(store, branch="lost")
    state["x"] = make_large("nested", 400, 5)
    state.commit()
    made = sum(1 for _ in store.keys("o/"))
    store.delete_many(("ref/branch/lost", "born/branch/lost"))
    report = check(store)
    assert report.ok
    assert report.dangling >= 5
    assert report.objects == made


def test_progress_ends_complete():
    store = make()
    told: list[tuple[int, int | None]] = []
    report = check(store, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (report.objects, report.objects)


@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.name)
def test_missing_and_damaged_objects_of_each_kind(kind):
    store = make()
    addresses = kinds(store)[kind]
    for address in random.Random(1).sample(addresses, min(2, len(addresses))):
        key = object_key(address)
        whole = store.get(key)
        assert whole is not None
        store.delete(key)
        found = [each for each in findings(store) if each.problem == "missing"]
        assert [each.id for each in found] == [address.hex()], "once, however many name it"
        (finding,) = found
        assert finding.named_by
        if kind not in (Kind.COMMIT, Kind.LOG_ENTRY):
            assert Repository(store).commit(finding.commit).id == finding.commit
        for damaged in (flipped(whole), whole[:-1], b"", b"\x07" + whole):
            store.delete(key)
            store.set(key, damaged)
            found = [each for each in findings(store) if each.problem == "corrupt"]
            assert [each.id for each in found] == [address.hex()]
            assert found[0].named_by == finding.named_by
        store.delete(key)
        store.set(key, whole)
    assert check(store).ok


def test_damage_of_what_dangles_is_found():
    store = make()
    address = address_of(b"\x14chunk")
    store.set(object_key(address), seal(b"\x14chunl"))
    store.set("o/zz", b"x")
    store.set(object_key(address_of(b"\x55what")), seal(b"\x55what"))
    assert {(each.problem, each.id, each.named_by) for each in findings(store)} == {
        ("corrupt", address.hex(), ""),
        ("corrupt", "o/zz", ""),
        ("corrupt", address_of(b"\x55what").hex(), ""),
    }


# Records


@pytest.mark.parametrize(
    ("plant", "problem", "what", "id"),
    [
        (lambda store: store.delete("ref/branch/main"), "missing", "branch", "main"),
        (lambda store: store.delete("ref/tag/v1"), "missing", "tag", "v1"),
        (lambda store: store.delete("born/tag/v1"), "missing", "record", "born/tag/v1"),
        (
            lambda store: store.set("ref/branch/main", flipped(store.get("ref/branch/main"))),
            "corrupt",
            "branch",
            "main",
        ),
        (lambda store: store.set("ref/branch/main", store.get("ref/branch/side") or b""), "corrupt", "branch", "main"),
        (lambda store: store.set("born/tag/v1", b"!"), "corrupt", "record", "born/tag/v1"),
        (lambda store: store.delete("format"), "missing", "record", "format"),
        (lambda store: store.set("format", b"versioned-state\n\x01xxxxxxxx"), "corrupt", "record", "format"),
        (lambda store: store.set("format", b"something else"), "corrupt", "record", "format"),
        (lambda store: store.set("cuts", b"something else"), "corrupt", "record", "cuts"),
        (lambda store: store.set("gc", b"something else"), "corrupt", "record", "gc"),
        (lambda store: store.set("merge", b"something else"), "corrupt", "record", "merge"),
    ],
)
def test_lost_and_damaged_records(plant, problem, what, id):
    store = make()
    plant(store)
    assert [
        (each.problem, each.what, each.id) for each in findings(store) if each.what in ("branch", "tag", "record")
    ] == [(problem, what, id)]


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_birth_records_that_were_swapped_are_named_where_that_changes_something(encrypted):
    stored = Memory()
    store: Any = Encrypted(stored, bytes(32)) if encrypted else stored
    state = Versioned(store)
    state.commit("first", allow_empty=True)
    state.repository.tags.create("v0")
    others = set(stored.keys())
    state.repository.tags.create("v1")
    state.repository.tags.create("v2")
    created = [key for key in sorted(set(stored.keys()) - others) if encrypted or key.startswith("born/")]
    births = [
        key for key in created if len(stored.get(key) or b"") == min(len(stored.get(each) or b"") for each in created)
    ]
    one, other = births
    stored.set_many({one: stored.get(other) or b"", other: stored.get(one) or b""})
    expected = [("corrupt", "record", "born/tag/v1"), ("corrupt", "record", "born/tag/v2")] if encrypted else []
    found = findings(store)
    assert sorted((each.problem, each.what, each.id) for each in found) == expected
    assert all(each.id.rpartition("/")[2] in each.error for each in found)


def test_a_newer_store_is_refused():
    store = make()
    body = b"versioned-state\n" + msgpack.packb(99)
    store.set("format", body + blake3(body).digest(length=8))
    with pytest.raises(FormatError):
        check(store)


def test_a_ref_to_what_is_no_commit():
    store = make()
    leaf = kinds(store)[Kind.MAP_LEAF][0]
    store.set("ref/branch/main", write_ref("branch", "main", leaf, None))
    (finding,) = [each for each in findings(store) if each.problem == "misplaced"]
    assert (finding.id, finding.named_by) == (leaf.hex(), "branch main")
    assert "expected a commit" in finding.error


# What is sound in itself, and lies about its place


def plant_commit(store: Memory, change: Callable[[list[Any]], None], *, of: Commit | None = None) -> str:
    """Make a commit that differs from the head of main in some fields, as the head of a branch. Return its id."""
    repository = Repository(store)
    head = of or repository.branches["main"]
    fields = msgpack.unpackb(repository.database.objects.read(Address(bytes.fromhex(head.id)))[1:])
    change(fields)
    raw = b"\x01" + msgpack.packb(fields)
    address = address_of(raw)
    store.set(object_key(address), seal(raw))
    ref = read_ref(store, "branch", "planted")
    store.apply(
        {}, {"ref/branch/planted": write_ref("branch", "planted", address, ref.log), "born/branch/planted": b"\x01"}
    )
    return address.hex()


def _field(index: int, value: Any) -> Callable[[list[Any]], None]:
    def change(fields: list[Any]) -> None:
        fields[index] = value(fields[index]) if callable(value) else value

    return change


COUNT, TOP, PARENTS, META, GENERATION, HEIGHT, JUMP = 0, 1, 2, 6, 7, 8, 9


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (_field(GENERATION, lambda generation: generation + 1), "generation"),
        (_field(GENERATION, lambda generation: generation - 1), "generation"),
        (_field(HEIGHT, [2, 1]), "height"),
        (_field(HEIGHT, [6, 3]), "newest merge"),
        (_field(HEIGHT, 6), "not decode"),
        (_field(JUMP, bytes.fromhex(ROOT_ID)), "jump"),
        (_field(JUMP, None), "jump"),
        (_field(COUNT, lambda count: count + 1), "elements"),
        (_field(META, b"\x01"), "meta"),
        (_field(META, b"\xc1"), "decode"),
    ],
)
def test_a_commit_that_lies_about_its_place_or_its_tree(change, error):
    store = make()
    id = plant_commit(store, change)
    found = findings(store)
    assert any(error in each.error for each in found), found
    assert any(id in (each.id, each.named_by) for each in found)


def test_a_jump_to_a_commit_beside_history():
    store = make()
    beside = Repository(store).commit("side@{1}")
    id = plant_commit(store, _field(JUMP, bytes.fromhex(beside.id)))
    assert [(each.problem, each.id) for each in findings(store)] == [("misplaced", id)]


def test_a_commit_without_parents_is_the_root_commit_only():
    store = make()

    def orphan(fields: list[Any]) -> None:
        fields[PARENTS], fields[GENERATION], fields[HEIGHT], fields[JUMP] = b"", 0, None, None

    id = plant_commit(store, orphan)
    assert [(each.id, "no parents" in each.error) for each in findings(store)] == [(id, True)]


def test_a_tree_of_another_kind_than_its_place_asks_for():
    store = make()
    for kind in (Kind.SEQUENCE_LEAF, Kind.SEQUENCE_NODE, Kind.CHUNK, Kind.LOG_ENTRY, Kind.COMMIT):
        other = kinds(store)[kind][0]
        id = plant_commit(store, _field(TOP, other))
        found = findings(store)
        assert [
            (each.problem, each.id, each.named_by, each.commit) for each in found if each.problem == "misplaced"
        ] == [("misplaced", other.hex(), id, id)], "also where it is sound in another place"


def an_inner_node(store: Memory) -> tuple[Address, Node]:
    """One that shares no child with another: a child is held against the node that it was first reached from."""
    objects = Repository(store).database.objects
    nodes = {address: read_node(Shape.MAP, objects.read(address)) for address in kinds(store)[Kind.MAP_NODE]}
    parents = Counter(child for node in nodes.values() for child in node.items)
    return next((address, node) for address, node in nodes.items() if all(parents[child] == 1 for child in node.items))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda node: node.counts.__setitem__(0, node.counts[0] + 1), "should have"),
        (lambda node: node.keys.__setitem__(1, node.keys[1] + b"!"), "first key"),
        (lambda node: (node.keys.reverse(), node.items.reverse(), node.counts.reverse()), "order"),
        (lambda node: setattr(node, "level", node.level + 1), "level"),
    ],
)
def test_an_inner_node_that_lies_about_its_children(change, error):
    store = make()
    _, node = an_inner_node(store)
    count = node.count
    assert node.level
    assert node.counts is not None
    change(node)
    raw = write_node(Shape.MAP, node)
    address = address_of(raw)
    store.set(object_key(address), seal(raw))

    def replace(fields: list[Any]) -> None:
        fields[TOP], fields[COUNT] = address, sum(node.counts or [])

    plant_commit(store, replace)
    assert count
    assert any(error in each.error for each in findings(store))


def test_an_inlined_map_whose_keys_are_not_in_order():
    store = make()
    raw = b"\x12\x82" + msgpack.packb(b"kb") + b"\x01" + msgpack.packb(b"ka") + b"\x01"

    def replace(fields: list[Any]) -> None:
        fields[TOP], fields[COUNT] = [raw], 2

    id = plant_commit(store, replace)
    assert [(each.id, "order" in each.error) for each in findings(store)] == [(id, True)]


def test_a_leaf_whose_cells_do_not_decode():
    store = make()
    raw = b"\x12" + b"\x81" + msgpack.packb(b"kbad") + msgpack.packb(msgpack.ExtType(15, b"no decimal"))
    address = address_of(raw)
    store.set(object_key(address), seal(raw))

    def replace(fields: list[Any]) -> None:
        fields[TOP], fields[COUNT] = address, 1

    plant_commit(store, replace)
    assert [(each.problem, each.id) for each in findings(store)] == [("corrupt", address.hex())]


def test_expired_log_entries_and_cut_history_are_no_faults():
    store = make()
    repository = Repository(store)
    repository.prune(keep_last=2, expire=timedelta(0), gc=True)
    report = check(store)
    assert report.ok, report.findings
    state = Versioned(store)
    for n in range(9):
        state["n"] = -n
        state.commit()
    report = check(store)
    assert report.ok, report.findings
    store.delete("cuts")
    assert any(each.problem == "missing" and each.what == "commit" for each in findings(store))


def test_what_is_collected_while_it_checks_is_looked_at_again():
    """A branch is reset, and what it held is deleted, after the check has read where the branch stood."""
    fired = 0
    for k in range(1, 40):
        store = make_small()
        between = ActsBeforeCall(store, lambda: drop_and_collect(store), at=k)  # noqa: B023 - called within this round
        report = check(between)
        assert report.ok, report.findings
        fired += between.fired
    assert fired > 10


def make_small() -> Memory:
    store = Memory()
    state = Versioned(store)
    for n in range(4):
        state["list"] = make_large("list", 200, n)
        state.commit()
    return store


def drop_and_collect(store: Memory) -> None:
    Versioned(store).reset("HEAD~2")
    Repository(store).gc(expire=timedelta(0))


def test_findings_are_bounded():
    store = Memory()
    state = Versioned(store)
    for n in range(MAX_FINDINGS + 5):
        state["n"] = [n] * 80
        state["m"] = "x" * 300 + str(n)
        state.commit()
    for key in list(store.keys("o/")):
        whole = store.get(key) or b""
        store.delete(key)
        store.set(key, whole + b"!")
    report = check(store)
    assert len(report.findings) == MAX_FINDINGS
    assert report.more > 0
    assert not report.ok


def test_a_finding_reads_as_a_line():
    finding = Finding("missing", "map", "a" * 48, "b" * 48, "c" * 48, "it is not in the store")
    assert (
        str(finding)
        == f"missing map {'a' * 48}: it is not in the store, named by {'b' * 48}, needed by commit {'c' * 12}"
    )


def test_a_damaged_file_is_reported(tmp_path):
    """The driver itself fails where pages of the file are damaged.

    What it cannot read is a finding, and the rest is checked.
    """
    with Disk(tmp_path / "store") as store:
        fill(store)
    file = tmp_path / "store" / "store.sqlite3"
    whole = file.read_bytes()
    damaged = bytearray(whole)
    for page in range(10, len(whole) // 4096, 40):
        damaged[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    file.write_bytes(damaged)
    with Disk(tmp_path / "store", read_only=True) as store:
        report = check(store)
    assert not report.ok
    assert any(each.problem == "corrupt" for each in report.findings)


def test_a_gc_at_work_is_no_fault():
    store = make()
    set_gc_record(store, owner=b"someone", generation=1)
    assert check(store).ok


@pytest.mark.no_oracle("a tree made by hand")
def test_a_key_that_belongs_under_the_next_node():
    """Every object is sound, and every node in order: only the range that a leaf has in its parent is not kept."""
    repository = Repository(Memory())
    state = Versioned(repository)
    state.update({f"k{n:04}": "v" * 60 for n in range(300)})
    state.commit()
    staging = Staging(repository.database.objects)
    nodes = Nodes(staging, staging=staging)
    path = [nodes.get(Shape.MAP, state.head.tree.top)]
    while path[-1].level:
        path.append(nodes.get(Shape.MAP, path[-1].items[0]))
    leaf = path.pop()
    assert leaf.keys is not None
    assert path[-1].keys is not None
    lost = path[-1].keys[1] + b"x"
    new = Node(0, leaf.items, keys=[*leaf.keys[:-1], lost])
    for parent in reversed(path):
        new = Node(parent.level, [nodes.add(Shape.MAP, new), *parent.items[1:]], keys=parent.keys, counts=parent.counts)
    planted = Tree(Shape.MAP, state.head.tree.count, nodes.add(Shape.MAP, new))
    commit = repository.database.write_commit(planted, (state.head,), staging=staging, message="planted")
    assert repository.database.publish([Publication(repository.database.ref("branch", "main"), commit, staging)])
    snapshot = repository.snapshot("main")
    assert lost[1:].decode() not in snapshot
    with pytest.raises(CorruptObjectError, match="order"):
        list(snapshot)
    (finding,) = [each for each in check(repository.store).findings if each.problem != "not canonical"]
    assert (finding.problem, finding.what, finding.commit) == ("misplaced", "map", commit.id)
    assert "node after it" in finding.error


@pytest.mark.parametrize("others", [0, 12, 40])
def test_the_keys_of_a_value_need_not_lie_in_the_range_of_the_leaf_that_holds_it(others):
    state = Versioned()
    # its keys are stored as "sk…", and lie behind "kx…", a key of the state
    state["dict"] = {f"k{n}": "v" * 400 for n in range(20)}
    state.update({f"x{n:02}": "y" * 100 for n in range(others)})
    state.commit()
    assert check(state.repository.store).findings == ()


def test_a_ref_that_is_neither_a_branch_nor_a_tag():
    store = make()
    store.set("ref/weird/x", b"x")
    (finding,) = check(store).findings
    assert (finding.problem, finding.what, finding.id) == ("misplaced", "record", "ref/weird/x")


def test_a_ref_that_nobody_could_name():
    store = make()
    head = Repository(store).database.ref("branch", "main").head
    store.set("ref/branch/bad name~", write_ref("branch", "bad name~", head, None))
    store.set("born/branch/bad name~", b"\x01")
    (finding,) = check(store).findings
    assert (finding.problem, finding.what, finding.id) == ("misplaced", "branch", "bad name~")


@pytest.mark.parametrize(("higher", "kept"), [(5, 0), (0, 2), (0, 1)])
def test_a_cut_that_does_not_fit_its_commit(higher, kept):
    store = make()
    commit = Repository(store).branches["main"]
    store.set("cuts", write_shallow({bytes.fromhex(commit.id): ShallowCommit(commit.height + higher, kept)}))
    assert ("misplaced", "record", "cuts") in {(each.problem, each.what, each.id) for each in check(store).findings}


@pytest.mark.parametrize("damage", ["missing", "corrupt"])
def test_what_a_backup_has_can_be_put_back(damage):
    backup, store = make(), make()
    for key in list(store.keys("o/"))[::7]:
        store.delete(key)
        if damage == "corrupt":
            store.set(key, seal(b"\x12\x80"))
    assert not check(store).ok
    while findings := check(store).findings:  # what lay below a node could not be looked at before it was back
        for finding in findings:
            key = object_key(Address(bytes.fromhex(finding.id)))
            store.delete(key)
            store.apply({}, {}, objects=backup.get_many([key]))
    assert dict(store.items("o/")) == dict(backup.items("o/"))
