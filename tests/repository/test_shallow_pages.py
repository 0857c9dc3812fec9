"""Many shallow commits lie in pages: a prune writes what it adds, and readers see the same as from a single record."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from tests.support.damage import damage
from tests.support.garbage import assert_whole
from tests.support.histories import Clock, numbered
from tests.support.stores import memory_of
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import CorruptRefError
from versioned_state.objects.keys import SHALLOW, SHALLOW_PAGES
from versioned_state.repository.history import shallow as shallow_module
from versioned_state.repository.history.shallow import Shallow, ShallowCommit, all_cuts, read_shallow, with_cuts
from versioned_state.storage import Counting, Fault, Faulty
from versioned_state.storage.wrappers.faulty import InjectedFaultError


def some(count: int, *, start: int = 0) -> dict[bytes, ShallowCommit]:
    return {
        number.to_bytes(24, "big"): ShallowCommit(number % 7 + 1, number % 2) for number in range(start, start + count)
    }


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shallow_module, "_PER_PAGE", 5)


@pytest.mark.usefixtures("small_pages")
def test_the_content_is_that_of_one_record():
    store = Memory()
    shallow: Shallow | None = Shallow({})
    expected: dict[bytes, ShallowCommit] = {}
    for number in range(60):
        made = some(number % 4 + 1, start=number * 3 % 40)  # some of them again, and some that change
        if number % 5 == 0:
            made = {address: ShallowCommit(cut.height, 3) for address, cut in made.items()}
        expected |= made
        assert shallow is not None
        store.set_many(with_cuts(shallow, made))
        later, anew = (
            read_shallow(store.get(SHALLOW), store.get_many, shallow),
            read_shallow(store.get(SHALLOW), store.get_many),
        )
        assert later is not None
        assert anew is not None
        assert dict(later) == dict(anew) == expected
        assert len(later) == len(expected)
        assert later._heights == anew._heights
        shallow = later
    assert len(shallow.pages if shallow else ()) > 5
    store = memory_of(all_cuts(expected))
    whole = read_shallow(store.get(SHALLOW), store.get_many)
    assert whole is not None
    assert dict(whole) == expected


def pruned(sessions: int) -> Repository:
    repository = Repository(Counting(Memory()), clock=Clock())
    for n in range(sessions):
        state = Versioned(repository, branch=f"s{n}")
        for number in range(4):
            state["n"] = [n, number]
            state.commit()
        repository.prune(keep_last=2, branches=f"s{n}")
    return repository


@pytest.mark.usefixtures("small_pages")
def test_history_ends_where_it_was_pruned_for_every_reader():
    repository = pruned(23)
    store = repository.store
    assert len(list(store.keys(SHALLOW_PAGES))) == 4
    for each in (repository, Repository(store)):
        assert all(len(list(each.log(f"s{n}"))) == 2 for n in range(23))
    assert_whole(store)
    for n in range(0, 20, 2):
        repository.branches.delete(f"s{n}", force=True)
    repository.gc(expire=timedelta(0))
    assert len(repository.database.commits.refresh_shallow()) == 13
    assert len(list(store.keys(SHALLOW_PAGES))) == 2
    other = Repository(store)
    assert all(len(list(other.log(f"s{n}"))) == 2 for n in (1, 3, 21))
    assert_whole(store)


def test_a_prune_writes_what_it_adds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shallow_module, "_PER_PAGE", 60)
    written = []
    for sessions in (20, 140):
        repository = pruned(sessions)
        store = repository.store
        assert isinstance(store, Counting)
        state = Versioned(repository, branch="last")
        numbered(state, range(4))
        store.reset()
        repository.prune(keep_last=2, branches="last")
        written.append(store.counts.bytes_written)
        assert store.counts.round_trips <= 14
    assert max(written) < 2_400
    assert len(list(repository.store.keys(SHALLOW_PAGES))) == 2


@pytest.mark.usefixtures("small_pages")
def test_a_page_that_is_damaged_or_gone_is_an_error_and_a_record_that_was_replaced_is_not():
    repository = pruned(13)
    store = repository.store
    page = next(store.keys(SHALLOW_PAGES))
    stored = damage(store, page)
    with pytest.raises(CorruptRefError):
        Repository(store)
    assert not Repository.fsck(repository).ok
    store.delete(page)
    with pytest.raises(CorruptRefError):
        Repository(store)
    store.set(page, stored)
    old = store.get(SHALLOW)
    for n in range(4, 13):
        repository.branches.delete(f"s{n}", force=True)
    repository.gc(expire=timedelta(0))
    assert page not in store
    commits = Repository(store).database.commits
    commits.shallow = Shallow({})
    assert len(commits.take_shallow(old)) == 4, "read before gc replaced it"


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("fault", Fault)
def test_a_prune_that_fails_as_it_makes_a_page(fault: Fault):
    prepared = dict(pruned(9).store.items())
    for k in range(1, 30):
        store = memory_of(prepared)
        faulty = Faulty(store)
        repository = Repository(faulty, clock=Clock(1_800_000_000_000_000))
        state = Versioned(repository, branch="more")
        numbered(state, range(4))
        faulty.arm(k, fault=fault)
        with suppress(InjectedFaultError):
            repository.prune(keep_last=2, branches="more")
        faulty.arm(None)
        assert_whole(store)
        assert len(list(Repository(store).log("more"))) in (2, 4)
        repository.prune(keep_last=2, branches="more")
        other = Repository(store)
        assert len(list(other.log("more"))) == 2
        assert all(len(list(other.log(f"s{n}"))) == 2 for n in range(9))
        assert_whole(store)
