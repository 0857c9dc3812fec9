"""What takes the room is what naive counting says."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from tests.support.histories import Clock
from tests.support.segments import own_bytes
from tests.support.worlds import reached
from versioned_state import KVStore, Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError
from versioned_state.objects.address import Address, Role
from versioned_state.objects.keys import object_key
from versioned_state.objects.store import Staging
from versioned_state.repository.history.reach import Reference
from versioned_state.repository.inspect.stats import Size, stats
from versioned_state.repository.maintenance.prune import prune


@pytest.fixture
def repository(real_conversations) -> Repository:
    """Three branches of real messages, one of them merged history, a tag, a branch that was deleted, and garbage."""
    repository = Repository(Memory(), clock=Clock())
    state = Versioned(repository)
    state["messages"] = []
    state["agent"] = {"memory": {"facts": ["a fact " * 100] * 20, "n": 0}, "name": "a"}
    for message in real_conversations[0][:10]:
        state["messages"].append(message)
        state.commit()
    for name in ("side", "gone"):
        repository.branches.create(name)
        branch = Versioned(repository, branch=name)
        for message in real_conversations[1][:10] if name == "side" else real_conversations[2][:5]:
            branch["messages"].append(message)
            branch.commit()
    for message in real_conversations[3][:10]:
        state["messages"].append(message)
        state.commit()
    repository.branches.delete("gone", force=True)
    repository.tags.create("v1", "main~3")
    raw = b"\x14" + random.Random(0).randbytes(1000)
    staging = Staging(repository.database.objects)
    staging.add(raw)
    repository.store.apply({}, {}, objects=staging.sealed())
    return repository


def size_of(store: KVStore, addresses: set[Address]) -> Size:
    values = store.get_many(map(object_key, addresses)).values()
    return Size(len(addresses), sum(map(len, values)), sum(len(own_bytes(value)) for value in values))


def reach(repository: Repository, *starts: tuple[Address | None, Role]) -> set[Address]:
    """The addresses that are reachable, by the walk of gc without its jumps and batches."""
    references = [Reference(address, role) for address, role in starts if address is not None]
    return set(reached(repository.database.objects, references, shallow=repository.database.commits.shallow))


def naive(repository: Repository) -> dict[str, set[Address]]:
    """Of each branch and tag, what it and its reflog reach."""
    refs = {f"branch {name}": repository.database.ref("branch", name) for name in ("main", "side", "gone")}
    refs["tag v1"] = repository.database.ref("tag", "v1")
    return {name: reach(repository, (ref.head, Role.COMMIT), (ref.log, Role.LOG_ENTRY)) for name, ref in refs.items()}


def test_branches_are_what_a_walk_of_each_finds(repository: Repository):
    found = stats(repository.database)
    over = naive(repository)
    store = repository.store
    assert {branch.name for branch in found.branches} == {"main", "side"}
    for branch in found.branches:
        assert branch.total == size_of(store, over[f"branch {branch.name}"])
        others = set().union(*(addresses for name, addresses in over.items() if name != f"branch {branch.name}"))
        assert branch.unique == size_of(store, over[f"branch {branch.name}"] - others)
    everything = set().union(*over.values())
    assert found.reachable == size_of(store, everything)
    shared = {address for address in everything if sum(address in addresses for addresses in over.values()) > 1}
    assert found.shared == size_of(store, shared)
    assert found.total.objects == sum(1 for _ in store.keys("o/"))
    assert found.total.stored - found.reachable.stored > 1000  # the garbage
    assert found.branches[0].unique.stored >= found.branches[1].unique.stored > 0


def test_kinds_and_compression_add_up(repository: Repository):
    found = stats(repository.database)
    for field in ("objects", "stored", "raw"):
        assert sum(getattr(size, field) for size in found.kinds.values()) == getattr(found.total, field)
    assert found.kinds["commits"].objects == 36
    assert found.ratio == found.total.stored / found.total.raw
    assert 0.2 < found.ratio < 0.9


def test_paths_by_depth(repository: Repository):
    shallow = {size.path: size for size in stats(repository.database, depth=1).paths}
    deep = {size.path: size for size in stats(repository.database, depth=3, top=10_000).paths}
    assert set(shallow) == {"messages", "agent"}
    assert {"agent.memory.facts", "agent.memory.n", "agent.name", "messages[0].role"} <= set(deep)
    assert deep["agent.memory.facts"].raw > 700  # 20 times the same, in one packed value
    assert "agent.memory" not in deep
    assert len(stats(repository.database, depth=3, top=2).paths) == 2
    sizes = [size.stored for size in stats(repository.database, depth=2).paths]
    assert sizes == sorted(sizes, reverse=True)


def test_growth_is_what_each_round_added(repository: Repository):
    found = stats(repository.database, commits=8).growth
    line = list(repository.log(first_parent=True))
    assert [growth.commit for growth in found] == line[:8][::-1]
    for growth in found:
        parent = repository.parents(growth.commit)[0]
        new = reach(repository, (Address(bytes.fromhex(growth.commit.id)), Role.COMMIT))
        old = reach(repository, (Address(bytes.fromhex(parent.id)), Role.COMMIT))
        assert growth.stored == size_of(repository.store, new - old).stored
    assert len(stats(repository.database, commits=1000).growth) == len(line)
    assert stats(repository.database, commits=0).growth == ()


def test_cut_history_is_not_counted_as_reachable(repository: Repository):
    before = stats(repository.database)
    repository.branches.delete("side", force=True)
    repository.tags.delete("v1")
    prune(repository.database, keep_last=3, expire=timedelta(0))
    after = stats(repository.database)
    assert after.branches[0].total.objects < before.branches[0].total.objects
    assert len(after.growth) == 3


def test_an_empty_store():
    found = stats(Repository(Memory()).database)
    assert (found.total.objects, found.branches, found.paths, found.growth) == (1, (), (), ())


@pytest.mark.parametrize("options", [{"depth": 0}, {"commits": -1}, {"top": -1}])
def test_numbers_that_make_no_sense(options):
    with pytest.raises(InvalidArgumentError):
        stats(Repository(Memory()).database, **options)


def test_what_a_branch_has_of_its_own_is_part_of_what_it_has():
    state = Versioned()
    for n in range(50):
        state["n"] = [n] * 200
        state.commit()
    state.reset("HEAD~40")
    (branch,) = stats(state.repository.database).branches
    assert 0 < branch.unique.stored <= branch.total.stored
    assert branch.unique.objects <= branch.total.objects
