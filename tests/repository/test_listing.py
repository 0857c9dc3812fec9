"""Listings of branches and tags: what they give in which order, and that they read no more than that."""

from __future__ import annotations

import fnmatch
import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from typing import Any

import pytest

from tests.support.handles import asked
from tests.support.histories import SECOND, Clock
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.names.listing import Order
from versioned_state.repository.refs.ref import WINDOW, Place
from versioned_state.storage import Counting, KVStore


def with_sessions(
    total: int,
    *,
    users: int = 10,
    rounds: int = 1,
    clock: Callable[[], int] | None = None,
    store: KVStore | None = None,
) -> KVStore:
    store = Memory() if store is None else store
    repository = Repository(store, clock=clock or Clock())
    for n in range(total):
        state = Versioned(repository, branch=f"user-{n % users:03}/{n:05}")
        for number in range(rounds):
            state["n"] = n, number
            state.commit(meta={"user": n % users, "session": n})
    return store


@cache
def same_sessions(total: int) -> KVStore:
    """Sessions in memory, for tests that only read them."""
    return with_sessions(total)


def names(infos: Iterator[object]) -> list[str]:
    return [info.name for info in infos]  # type: ignore[attr-defined]


def test_by_name_by_prefix_and_page_by_page(any_store):
    repository = Repository(with_sessions(200, store=any_store))
    every = sorted(repository.branches)
    assert names(repository.branches.iter_info()) == every
    assert names(repository.branches.iter_info(reverse=True)) == every[::-1]
    mine = [name for name in every if name.startswith("user-003/")]
    assert names(repository.branches.iter_info(prefix="user-003/")) == mine
    assert names(repository.branches.iter_info(prefix="user-003/", reverse=True, limit=3)) == mine[::-1][:3]
    seen: list[str] = []
    while page := list(repository.branches.iter_info(after=seen[-1] if seen else None, limit=7)):
        seen += names(iter(page))
    assert seen == every
    assert names(repository.branches.iter_info(prefix="nobody")) == names(repository.branches.iter_info(limit=0)) == []


def test_an_info_says_what_the_head_is_and_when_it_moved(any_store):
    clock = Clock()
    repository = Repository(any_store, clock=clock)
    state = Versioned(repository, branch="a")
    state["n"] = 1
    first = state.commit(meta={"round": 1})
    state["n"] = 2
    state.commit()
    state.reset(first)
    repository.tags.create("t", "a~0", message="why")
    (branch,), (tag,) = repository.branches.iter_info(), repository.tags.iter_info()
    assert (branch.name, branch.head, branch.meta, branch.cursor) == ("a", first, {"round": 1}, "a")
    assert first.time < branch.changed < tag.changed <= clock.now
    assert (tag.head, tag.meta, tag.annotation and tag.annotation.message) == (first, {"round": 1}, "why")
    state["n"] = 3
    third = state.commit()
    assert [info.changed for info in repository.branches.iter_info()] == [third.time]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("step", [1, SECOND, 100 * SECOND, 1000 * SECOND])
def test_by_change_with_pages_is_the_order_of_the_last_moves(any_store, step, seed):
    rng = random.Random(seed)
    clock = Clock(step=step)
    repository = Repository(any_store, clock=clock)
    for _ in range(120):
        name = f"u{rng.randrange(3)}/{rng.randrange(12)}"
        if rng.random() < 0.1 and name in repository.branches:
            repository.branches.delete(name, force=True)
            continue
        state = Versioned(repository, branch=name)
        if rng.random() < 0.1 and state.head.height > 1:
            state.reset("HEAD~1")
            continue
        state["n"] = rng.random()
        state.commit()
        if rng.random() < 0.05:
            clock.now -= rng.choice([1, 50, 900]) * step
    for prefix in ("", "u1/"):
        infos = [info for info in repository.branches.iter_info() if info.name.startswith(prefix)]
        oldest = [info.name for info in sorted(infos, key=lambda info: (info.changed, info.name))]
        for reverse, order in ((False, oldest[::-1]), (True, oldest)):
            assert names(repository.branches.iter_info(by="changed", prefix=prefix, reverse=reverse)) == order
            seen: list[str] = []
            cursor = None
            while page := list(
                repository.branches.iter_info(by="changed", prefix=prefix, after=cursor, limit=5, reverse=reverse)
            ):
                seen += names(iter(page))
                cursor = page[-1].cursor
            assert seen == order
    assert repository.fsck().ok


def test_many_with_one_prefix_are_listed_through_the_index():
    repository = Repository(with_sessions(700, users=1))
    newest = [f"user-000/{n:05}" for n in range(699, -1, -1)]
    assert names(repository.branches.iter_info(by="changed", prefix="user-000/")) == newest
    assert names(repository.branches.iter_info(by="changed", prefix="user-000/", limit=4)) == newest[:4]


def test_where_keeps_the_heads_with_these_values_in_their_meta(any_store):
    repository = Repository(with_sessions(60, store=any_store))
    for by in ("name", "changed"):
        found = list(repository.branches.iter_info(by=by, where={"user": 3}))
        assert {info.name for info in found} == {name for name in repository.branches if name.startswith("user-003/")}
        assert names(repository.branches.iter_info(by=by, where={"user": 3, "session": 13})) == ["user-003/00013"]
        assert names(repository.branches.iter_info(by=by, where={"user": 3.0})) == []
        assert names(repository.branches.iter_info(by=by, where={"nothing": None})) == []
        assert len(names(repository.branches.iter_info(by=by, where={"user": 3}, limit=2))) == 2
    state = Versioned(repository, branch="odd")
    state["n"] = 1
    meta = {"text": "x" * 5000, "yes": True, "list": [1, {"a": 2.5}], "none": None, "é": "ü"}
    state.commit(meta=meta)
    for key, value in meta.items():
        assert names(repository.branches.iter_info(where={key: value})) == ["odd"]
    assert names(repository.branches.iter_info(where={"yes": 1})) == []


@pytest.mark.parametrize(
    "options",
    [
        {"by": "time"},
        {"limit": -1},
        {"limit": "3"},
        {"prefix": 3},
        {"after": 3},
        {"where": [1]},
        {"by": "changed", "after": "user-001"},
    ],
)
def test_a_bad_argument_raises_at_the_call(options):
    repository = Repository(Memory())
    for refs in (repository.branches, repository.tags):
        with pytest.raises(InvalidArgumentError):
            refs.iter_info(**options)


@pytest.mark.parametrize(
    "act",
    [
        lambda repository: list(repository.branches.iter_info(limit=10)),
        lambda repository: list(repository.branches.iter_info(prefix="user-003/0000")),
        lambda repository: list(repository.branches.iter_info(after="user-007/00007", limit=10)),
        lambda repository: list(repository.branches.iter_info(by="changed", limit=10)),
        lambda repository: list(repository.branches.iter_info(by="changed", limit=10, prefix="user-00")),
        lambda repository: repository.default_branch(),
    ],
)
def test_a_listing_reads_what_it_gives_however_many_there_are(act):
    few, many = asked(same_sessions(100), act), asked(same_sessions(1000), act)
    assert many.round_trips <= few.round_trips + 2  # with a prefix, the first one tells that there are many
    assert many.objects_read <= few.objects_read
    assert many.bytes_read <= few.bytes_read * 1.5 + 200


def test_a_page_by_change_reads_none_of_the_pages_before_it():
    store = with_sessions(500)
    cursor = list(Repository(store).branches.iter_info(by="changed", limit=300))[-1].cursor
    counts = asked(store, lambda repository: list(repository.branches.iter_info(by="changed", limit=10, after=cursor)))
    assert counts.objects_read <= 60


def test_branches_in_steady_use_are_read_beside_the_newest_and_no_others():
    clock = Clock(step=60 * SECOND)  # five rounds fill the window
    store = with_sessions(300, rounds=3, clock=clock)
    counts = asked(store, lambda repository: list(repository.branches.iter_info(by="changed", limit=5)))
    assert counts.objects_read <= 6 + 12, "pages of six and of twelve"


def test_the_first_name_is_there_before_the_rest_is_read():
    counts = asked(same_sessions(1000), lambda repository: next(repository.branches.iter_info()))
    assert counts.objects_read <= 64


def test_most_commits_leave_the_index_alone():
    clock = Clock(step=SECOND)
    repository = Repository(Memory(), clock=clock)
    state = Versioned(repository, branch="a")
    places = set()
    for n in range(600):
        state["n"] = n
        state.commit()
        places.add(repository.database.ref("branch", "a").bound)
    assert len(places) <= 2 + 600 * SECOND // WINDOW


def test_a_place_holds_the_time_of_the_last_change():
    rng = random.Random(0)
    place, now = Place(0), 0
    for _ in range(5000):
        now += rng.choice([1, SECOND, WINDOW // 3, WINDOW, 2 * WINDOW, -SECOND, -2 * WINDOW, 0])
        place = place.after(now)
        assert place.earliest <= now <= place.latest


def test_tags_are_listed_like_branches():
    repository = Repository(with_sessions(30))
    for n, name in zip(count(), sorted(repository.branches, reverse=True), strict=False):
        repository.tags.create(f"t/{n % 3}/{n:02}", name)
    every = sorted(repository.tags)
    assert names(repository.tags.iter_info()) == every
    assert (
        names(repository.tags.iter_info(prefix="t/1/", limit=2, reverse=True))
        == [n for n in every if n.startswith("t/1/")][::-1][:2]
    )
    newest = sorted(every, key=lambda name: name[-2:], reverse=True)
    assert names(repository.tags.iter_info(by="changed")) == newest
    assert names(repository.tags.iter_info(by="changed", reverse=True, limit=3)) == newest[::-1][:3]
    assert names(repository.tags.iter_info(where={"session": 7})) == [
        name for name in every if repository.tags[name].meta["session"] == 7
    ]


def test_the_only_branch_is_the_default_one_whatever_was_deleted():
    repository = Repository(Memory())
    state = Versioned(repository, branch="only")
    state["n"] = 1
    state.commit()
    for n in range(5):
        repository.branches.create(f"b{n}", state.head)
    assert repository.default_branch() == "main"
    for n in range(5):
        repository.branches.delete(f"b{n}")
    assert repository.default_branch() == "only"


# By a part of the name


@pytest.mark.parametrize("by", ["name", "changed"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_search_for_a_part_of_a_name_finds_those_that_have_it(by: Order, *, reverse: bool):
    repository = Repository(same_sessions(1_200))
    every = names(repository.branches.iter_info(by=by, reverse=reverse))
    for pattern in ("*/00?17", "*7", "user-003/*1", "[!u]*", "", "user-003/00003"):
        wanted = [name for name in every if re.fullmatch(fnmatch.translate(pattern), name)] if pattern else []
        assert names(repository.branches.iter_info(by=by, reverse=reverse, like=pattern)) == wanted
    both = names(repository.branches.iter_info(by=by, reverse=reverse, like=("*01", "*02"), prefix="user-001"))
    assert both == [name for name in every if name.startswith("user-001") and name[-2:] in ("01", "02")]
    assert (
        names(repository.branches.iter_info(by=by, reverse=reverse, like="*7", limit=3))
        == [n for n in every if n.endswith("7")][:3]
    )


def test_of_the_names_that_a_search_does_not_find_no_record_is_read():
    store = same_sessions(1_200)
    repository = Repository(Counting(store))
    counting = repository.store
    assert isinstance(counting, Counting)
    orders: tuple[Order, ...] = ("name", "changed")
    for by in orders:
        before = counting.counts.objects_read, counting.counts.bytes_read
        assert len(names(repository.branches.iter_info(by=by, like="*/00017"))) == 1
        assert counting.counts.objects_read - before[0] <= 2
        assert counting.counts.bytes_read - before[1] < 2_000
    repository.tags.create("a-release", "user-000/00000")
    repository.tags.create("b-other", "user-000/00000")
    assert names(repository.tags.iter_info(like="*release*")) == ["a-release"]
    repository.tags.delete("a-release")
    repository.tags.delete("b-other")


@pytest.mark.parametrize("like", [(1,), 1, None, b"x"])
def test_a_pattern_is_a_string(like: Any):
    with pytest.raises(InvalidArgumentError, match="like must be a string, not"):
        Repository(Memory()).branches.iter_info(like=like)


def test_heads_that_were_read_lately_are_not_read_again():
    store = with_sessions(200)
    counting = Counting(store)
    repository = Repository(counting)

    def objects_read(**listing: Any) -> int:
        before = counting.counts.objects_read
        infos = list(repository.branches.iter_info(**listing))
        assert {info.name: info.head for info in infos} == {
            name: repository.branches[name] for name in names(iter(infos))
        }
        return counting.counts.objects_read - before

    assert objects_read(prefix="user-001/") == 20
    assert objects_read(prefix="user-001/") == 0
    state = Versioned(Repository(store), branch="user-001/00001")
    state["n"] = "changed by another"
    head = state.commit()
    assert objects_read(prefix="user-001/") == 1
    assert next(repository.branches.iter_info(prefix="user-001/00001")).head == head
    assert objects_read(where={"user": 1, "session": 11}, prefix="user-001/") == 0


def test_a_long_listing_leaves_the_commits_that_were_read_lately_in_memory():
    counting = Counting(with_sessions(1_500))
    repository = Repository(counting)
    kept = next(repository.branches.iter_info(prefix="user-003/00003"))
    assert len(list(repository.branches.iter_info(limit=1_400))) == 1_400
    before = counting.counts.objects_read
    assert repository.branches["user-003/00003"] == kept.head
    assert counting.counts.objects_read == before
