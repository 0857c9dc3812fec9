"""``VersionedSession``: every save is a commit. Concurrent saves are merged or refused, and never lost."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.support.lossy import Lossy
from tests.support.modules import Agent, Memory, Message, ObjectMemory, Toolkit
from tests.support.processes import fork, join
from tests.support.watched_stores import Stopped
from versioned_state import Disk, Repository, Versioned, branch_name
from versioned_state.agents.modules import VersionedSession
from versioned_state.errors import (
    CommitInDoubtError,
    InvalidArgumentError,
    MergeConflictError,
    StateError,
    StorageError,
    UnknownRevisionError,
    UnserializableValueError,
)
from versioned_state.state.branch import port
from versioned_state.storage import Counting, Faulty, InjectedCrash, Memory as Store
from versioned_state.storage.testing.writers import run_together


@dataclass
class Note:
    lines: list[Any]


def messages(count: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"message {number} of a long conversation"} for number in range(count)]


# A save is a commit


async def test_a_save_is_a_commit_of_the_fields_by_path():
    store = Store()
    session, agent = VersionedSession(store), Agent("Friday", messages(2))
    first = await session.save_session_state("trip to Rome", "bob", agent=agent, tools=Toolkit(a=True))
    agent.memory.content += [{"role": "user", "content": "new"}]
    second = await session.save_session_state("trip to Rome", "bob", agent=agent)
    assert first.meta == second.meta == {"session_id": "trip to Rome", "user_id": "bob"}
    with session.state("trip to Rome", "bob") as state:
        assert state.branch == session.branch("trip to Rome", "bob") == branch_name("bob", "trip to Rome")
        assert state["agent"] == agent.state_dict()
        assert state["tools"] == {"active_groups": ["a"]}, "modules that a save does not name keep their states"
        assert [str(change.path) for change in state.diff(first, second)] == ["agent.memory.content[2]"]
        assert [commit.id for commit in state.log()] == [second.id, first.id]
    assert Versioned(store, branch="bob/trip%20to%20Rome")["agent"]["name"] == "Friday"


async def test_a_save_that_changes_nothing_makes_no_commit():
    session, agent = VersionedSession(), Agent()
    first = await session.save_session_state("one", agent=agent)
    assert await session.save_session_state("one", agent=agent) == first
    agent.memory.content = list(agent.memory.content)
    assert await session.save_session_state("one", agent=agent) == first
    assert (await session.save_session_state("one")) == first
    assert list(session.repository.branches) == ["%/one"]


async def test_types_come_back_as_they_were():
    session, memory = VersionedSession(), Memory()
    memory.content = [(1, 2), {1: "a", (2, 3): {4}}, b"x", 1 << 100, "\ud800"]
    await session.save_session_state("one", memory=memory)
    other = Memory()
    await session.load_session_state("one", memory=other)
    assert other.content == memory.content
    assert type(other.content[0]) is tuple
    assert other.content is not memory.content


async def test_modules_that_say_themselves_what_their_state_is():
    session, memory, tools = VersionedSession(), ObjectMemory(), Toolkit(a=True, b=False)
    memory.content.append(Message("hi"))
    await session.save_session_state("one", memory=memory, tools=tools)
    other, others = ObjectMemory(), Toolkit(a=False, b=True)
    await session.load_session_state("one", memory=other, tools=others)
    assert ([message.text for message in other.content], others.groups) == (["hi"], {"a": [True], "b": [False]})


async def test_sessions_of_any_ids_are_apart():
    store = Store()
    pairs = [
        ("a", ""),
        ("a", "b"),
        ("a/b", ""),
        ("main", ""),
        ("b_c", "a"),
        ("c", "a_b"),
        ("x" * 300, "\x00"),
        ("\ud800", "x" * 300),
    ]
    pairs += [("", ""), ("", "a")]
    for pair in pairs:
        await VersionedSession(store).save_session_state(*pair, memory=Memory([list(pair)]))
    for pair in pairs:
        memory = Memory()
        await VersionedSession(store).load_session_state(*pair, allow_not_exist=False, memory=memory)
        assert memory.content == [list(pair)]
    assert len(list(Repository(store).branches)) == len(pairs)
    assert dict(Versioned(store)) == {}, "no session is on main"


# Loads


async def test_a_session_that_was_never_saved():
    session, agent = VersionedSession(), Agent("kept")
    await session.load_session_state("one", agent=agent)
    with pytest.raises(ValueError, match="'one' was never saved") as caught:
        await session.load_session_state("one", allow_not_exist=False, agent=agent)
    assert isinstance(caught.value, StateError)
    await session.save_session_state("one", other=Memory())
    await session.load_session_state("one", allow_not_exist=False, agent=agent)
    assert agent.name == "kept", "a name that was not saved is skipped"


async def test_any_revision_is_loaded_and_a_save_goes_on_from_there():
    session, agent = VersionedSession(), Agent("0")
    commits = []
    for number in range(4):
        agent.name = str(number)
        agent.memory.content.append(number)
        commits.append(await session.save_session_state("one", agent=agent))
    revisions: list[tuple[int, Any]] = [
        (1, commits[1]),
        (2, "HEAD~1"),
        (0, commits[0].id),
        (3, "HEAD"),
        (1, commits[1].id[:12]),
    ]
    for number, revision in revisions:
        await session.load_session_state("one", revision=revision, agent=agent)
        assert (agent.name, agent.memory.content) == (str(number), list(range(number + 1)))
    agent.memory.content.append("another way")
    await session.save_session_state("one", agent=agent)
    with session.state("one") as state:
        assert state["agent"] == {"memory": {"content": [0, 1, "another way"]}, "name": "1"}
        assert len(list(state.log())) == 5
    with pytest.raises(UnknownRevisionError):
        await session.load_session_state("one", revision="nothing", agent=agent)
    assert agent.name == "1"


async def test_a_load_that_fails_changes_nothing_in_any_module():
    session = VersionedSession()
    await session.save_session_state("one", first=Agent("new"), tools=Toolkit(a=True), last=Memory(["new"]))
    for name, value in {"last": {}, "tools": {"more": 1}, "first": 5}.items():
        with session.state("one") as state:
            state[name] = value
            state.commit()
            first, tools, last = Agent("old"), Toolkit(a=False), Memory()
            with pytest.raises((KeyError, ValueError)):
                await session.load_session_state("one", first=first, tools=tools, last=last)
            assert (first.name, tools.groups, last.content) == ("old", {"a": [False]}, [])
            state.undo()


async def test_what_is_no_session_or_no_module():
    session: Any = VersionedSession()
    for call in (session.save_session_state, session.load_session_state):
        with pytest.raises(InvalidArgumentError, match="no session_id"):
            await call(agent=Agent())
        with pytest.raises(InvalidArgumentError, match="agent= must be a StateModule"):
            await call("one", agent=5)
    with pytest.raises(InvalidArgumentError):
        session.state(5)
    with pytest.raises(InvalidArgumentError, match=r"'\./here' is not a store"):
        VersionedSession("./here")  # type: ignore[arg-type]


async def test_a_module_may_change_right_after_a_load_or_during_a_save():
    session, memory = VersionedSession(), Memory([[1]])
    save = asyncio.ensure_future(session.save_session_state("one", memory=memory))
    await asyncio.sleep(0)
    memory.content[0].append("later")
    await save
    await session.load_session_state("one", memory=memory)
    assert memory.content == [[1]]
    memory.content[0].append(2)
    with session.state("one") as state:
        assert state["memory"] == {"content": [[1]]}


async def test_an_instance_may_change_during_a_save():
    session, memory = VersionedSession(), Memory()
    memory.register_state("content", lambda content: content, lambda content: content)
    for number in range(2):
        memory.content = [Note([number])]
        save = asyncio.ensure_future(session.save_session_state("one", memory=memory))
        await asyncio.sleep(0)
        memory.content[0].lines.append("later")
        await save
        with session.state("one") as state:
            assert state["memory"] == {"content": [Note([number])]}


class Stubborn(Note):
    """A note that cannot be copied."""

    def __deepcopy__(self, memo: Any) -> Stubborn:
        raise TypeError


async def test_a_save_of_one_module_leaves_the_others_as_they_were_saved():
    session, memory, other = VersionedSession(), Memory(), Memory()
    memory.register_state("content", lambda content: content, lambda content: content)
    memory.content = [Stubborn(["saved"])]
    await session.save_session_state("one", memory=memory)
    memory.content[0].lines.append("not saved")
    for number in range(2):
        other.content.append(number)
        await session.save_session_state("one", other=other)
    with session.state("one") as state:
        assert state["memory"]["content"] == [Stubborn(["saved"])]
        assert state["other"]["content"] == [0, 1]


# Saves beside others


async def test_saves_of_others_are_merged_by_path():
    store = Store()
    here, there = VersionedSession(store), VersionedSession(store)
    mine, theirs = Agent(), Agent()
    await here.save_session_state("one", agent=mine)
    await there.load_session_state("one", agent=theirs)
    theirs.name = "theirs"
    await there.save_session_state("one", agent=theirs)
    mine.memory.content.append("mine")
    await here.save_session_state("one", agent=mine)
    with here.state("one") as state:
        assert state["agent"] == {"memory": {"content": ["mine"]}, "name": "theirs"}
        count = len(list(state.log()))
        assert list(here.repository.branches) == [state.branch], "nothing is left of the merge"
    assert mine.name == "Friday", "a save does not change a module"
    # What others changed is not taken for a change of ours, however often we save.
    await here.save_session_state("one", agent=mine)
    mine.memory.content.append("more")
    await here.save_session_state("one", agent=mine)
    with here.state("one") as state:
        assert state["agent"] == {"memory": {"content": ["mine", "more"]}, "name": "theirs"}
        assert len(list(state.log())) > count


async def test_what_a_killed_process_leaves_of_a_merge_expires():
    left = 0
    for at in range(1, 60):
        store = Store()
        there = VersionedSession(store)
        mine, theirs = Agent(), Agent()
        faulty = Faulty(store)
        here = VersionedSession(faulty)
        await here.save_session_state("one", agent=mine)
        await there.load_session_state("one", agent=theirs)
        theirs.name = "theirs"
        await there.save_session_state("one", agent=theirs)
        mine.memory.content.append("mine")
        faulty.arm(at, crash=True)
        with suppress(InjectedCrash):
            await here.save_session_state("one", agent=mine)
        if not faulty.fired:
            break
        branches = there.repository.branches
        saving = [info for info in branches.iter_info() if info.name.startswith("saving/")]
        left += len(saving)
        assert all(info.expires is not None for info in saving), at
        later = Repository(store, clock=lambda: time.time_ns() // 1000 + 4_000_000_000)
        assert sorted(later.expire()) == sorted(info.name for info in saving)
        assert list(branches) == [there.branch("one")]
    assert left


async def test_the_same_field_changed_by_two_is_a_conflict_that_loses_nothing():
    store = Store()
    here, there = VersionedSession(store), VersionedSession(store)
    mine, theirs, other = Agent(), Agent(), Memory()
    await here.save_session_state("one", agent=mine)
    await there.load_session_state("one", agent=theirs)
    theirs.name = "theirs"
    head = await there.save_session_state("one", agent=theirs)
    mine.name = "mine"
    with pytest.raises(MergeConflictError, match=r"agent\.name") as caught:
        await here.save_session_state("one", agent=mine, other=other)
    (conflict,) = caught.value.conflicts
    assert (conflict.base, conflict.ours, conflict.theirs) in [
        ("Friday", "mine", "theirs"),
        ("Friday", "theirs", "mine"),
    ]
    assert "load_session_state" in caught.value.hint
    with here.state("one") as state:
        assert state.head == head, "nothing was saved, not of the other module either"
        assert list(here.repository.branches) == [state.branch]
    await here.load_session_state("one", agent=mine)
    mine.name += " and mine"
    await here.save_session_state("one", agent=mine, other=other)
    with here.state("one") as state:
        assert state["agent"]["name"] == "theirs and mine"


async def test_a_policy_of_the_repository_decides():
    store = Store()
    here, there = VersionedSession(store), VersionedSession(store)
    here.repository.set_merge_policy("memory.content", "append")
    mine, theirs = Memory(), Memory()
    await here.save_session_state("one", memory=mine)
    await there.load_session_state("one", memory=theirs)
    theirs.content.append("theirs")
    mine.content.append("mine")
    await there.save_session_state("one", memory=theirs)
    await here.save_session_state("one", memory=mine)
    with here.state("one") as state:
        assert sorted(state["memory"]["content"]) == ["mine", "theirs"]


async def test_requests_on_one_session_object_that_load_and_save_at_once():
    """The base is what a module has seen, not what the session has: else the second request would undo the first."""
    session = VersionedSession()
    session.repository.set_merge_policy("agent.memory.content", "append")
    await session.save_session_state("one", agent=Agent())

    async def request(field: str) -> None:
        agent = Agent()
        await session.load_session_state("one", agent=agent)
        await asyncio.sleep(0)
        agent.memory.content.append(field)
        await session.save_session_state("one", agent=agent)

    for number in range(5):
        await asyncio.gather(request(f"a{number}"), request(f"b{number}"))
    with session.state("one") as state:
        assert sorted(state["agent"]["memory"]["content"]) == sorted(
            f"{who}{number}" for who in "ab" for number in range(5)
        )


async def test_a_hundred_saves_of_one_module_at_once_are_in_order():
    session, memory = VersionedSession(), Memory()
    saves = []
    for number in range(100):
        memory.content.append(number)
        saves.append(asyncio.ensure_future(session.save_session_state("one", memory=memory)))
        await asyncio.sleep(0)
    await asyncio.gather(*saves)
    with session.state("one") as state:
        assert state["memory"]["content"] == list(range(100))
        assert [len(state.checkout(commit)["memory"]["content"]) for commit in state.log()] == list(range(100, 0, -1))


async def test_a_module_that_has_seen_nothing_takes_the_place_of_what_is_there():
    session = VersionedSession()
    first = await session.save_session_state("one", memory=Memory(["old"]))
    await session.save_session_state("one", memory=Memory(["new"]))
    with session.state("one") as state:
        assert state["memory"]["content"] == ["new"]
        assert state.checkout(first)["memory"]["content"] == ["old"]


async def test_a_module_that_found_nothing_to_load_does_not_undo_the_first_save_of_another():
    store = Store()
    here, there = VersionedSession(store), VersionedSession(store)
    mine, theirs = Memory(), Memory()
    await here.load_session_state("one", memory=mine)
    await there.load_session_state("one", memory=theirs)
    mine.content.append("mine")
    theirs.content.append("theirs")
    await here.save_session_state("one", memory=mine)
    try:
        await there.save_session_state("one", memory=theirs)
    except MergeConflictError:
        await there.load_session_state("one", memory=theirs)
        theirs.content.append("theirs")
        await there.save_session_state("one", memory=theirs)
    with here.state("one") as state:
        assert sorted(state["memory"]["content"]) == ["mine", "theirs"]


def test_processes_that_save_one_session_lose_nothing(tmp_path):
    asyncio.run(VersionedSession(Disk(tmp_path)).save_session_state("one", memory=Memory()))

    async def work(number: int) -> None:
        session, memory = VersionedSession(Disk(tmp_path)), Memory()
        await session.load_session_state("one", memory=memory)
        for turn in range(8):
            memory.content.append([number, turn])
            while True:
                try:
                    await session.save_session_state("one", memory=memory)
                    break
                except MergeConflictError:
                    await session.load_session_state("one", memory=memory)
                    memory.content.append([number, turn])

    def run_work(number: int) -> None:
        asyncio.run(work(number))

    join(*[fork(partial(run_work, number)) for number in range(2)])
    with VersionedSession(Disk(tmp_path)).state("one") as state:
        found = [tuple(each) for each in state["memory"]["content"]]
        assert sorted(found) == [(number, turn) for number in range(2) for turn in range(8)]
        assert list(state.repository.branches) == [state.branch]


def test_threads_with_event_loops_of_their_own():
    session = VersionedSession()

    async def work(number: int) -> None:
        for turn in range(5):
            modules: dict[str, Any] = {f"m{number}": Memory([turn])}
            await session.save_session_state("one", **modules)

    run_together([partial(asyncio.run, work(number)) for number in range(4)])
    with session.state("one") as state:
        assert {name: value["content"] for name, value in state.items()} == {f"m{number}": [4] for number in range(4)}


# What it costs


async def test_a_save_costs_what_changed_whatever_the_length_of_the_memory():
    costs = []
    for count in (1_000, 10_000):
        store = Counting(Store())
        session, agent = VersionedSession(store), Agent(content=messages(count))
        await session.save_session_state("one", agent=agent)
        for _ in range(2):
            agent.memory.content += messages(2)
            store.reset()
            await session.save_session_state("one", agent=agent)
            costs.append(store.reset())
        await session.save_session_state("one", agent=agent)
        assert store.reset().objects_written == 0
    for small, large in zip(costs[:2], costs[2:], strict=True):
        assert large.round_trips == small.round_trips == 2
        assert large.objects_read == 0
        assert large.objects_written <= small.objects_written + 2
        assert large.bytes_written < 2_000


def open_handles(session: VersionedSession) -> list[Versioned]:
    gc.collect()
    return [
        each
        for each in gc.get_objects()
        if type(each) is Versioned and not port.is_closed(each) and each.repository is session.repository
    ]


async def test_the_handles_of_eight_sessions_stay_open():
    session = VersionedSession()
    names = [str(number) for number in range(12)]
    for name in names:
        await session.save_session_state(name, memory=Memory([name]))
    branches = {session.branch(name) for name in names}
    kept = open_handles(session)
    assert len(kept) == 8
    assert {state.branch for state in kept} < branches
    for name in names:
        await session.save_session_state(name, memory=Memory([name, "more"]))
        with session.state(name) as state:
            assert state["memory"]["content"] == [name, "more"]


async def test_a_handle_whose_branch_cannot_be_read_is_closed():
    store = Faulty(Store())
    session = VersionedSession(Repository(store))
    await session.save_session_state("one", memory=Memory(["one"]))
    (kept,) = open_handles(session)
    assert kept.branch == session.branch("one")
    store.arm(1)
    with pytest.raises(StorageError):
        await session.save_session_state("one", memory=Memory(["two"]))
    assert port.is_closed(kept)
    await session.save_session_state("one", memory=Memory(["two"]))
    with session.state("one") as state:
        assert state["memory"]["content"] == ["two"]


async def test_a_save_after_a_load_by_another_process_writes_what_changed():
    store = Counting(Store())
    await VersionedSession(store).save_session_state("one", agent=Agent(content=messages(2_000)))
    session, agent = VersionedSession(store), Agent()
    await session.load_session_state("one", agent=agent)
    agent.memory.content += messages(2)
    store.reset()
    await session.save_session_state("one", agent=agent)
    assert store.counts.objects_read == 0, "what the load has read is at hand"
    assert store.counts.bytes_written < 2_000


async def test_the_event_loop_does_not_wait_for_the_store():
    store = Stopped(Store())
    session = VersionedSession(store)
    store.stop(1)
    save = asyncio.ensure_future(session.save_session_state("one", memory=Memory()))
    assert await store.is_reached(save), "the loop goes on"
    store.go()
    await save


def test_a_module_is_not_kept_alive():
    session, memory = VersionedSession(), Memory()
    asyncio.run(session.save_session_state("one", memory=memory))
    gone = weakref.ref(memory)
    del memory
    for _ in range(500):
        gc.collect()
        if gone() is None:
            break
        time.sleep(0.01)  # the thread of the save drops its references a moment after the result is there
    assert gone() is None


# Failures


async def test_a_value_that_cannot_be_stored_is_named_and_nothing_is_saved():
    session, bad = VersionedSession(), Memory()
    bad.content = [threading.Lock()]
    with pytest.raises(UnserializableValueError, match=r"bad\.content\[0\]"):
        await session.save_session_state("one", good=Memory(), bad=bad)
    with session.state("one") as state:
        assert list(state.log()) == []


async def test_a_cancelled_save_ends_first_and_the_next_one_knows():
    session, memory = VersionedSession(), Memory()
    for steps in range(10):
        memory.content.append(steps)
        save = asyncio.ensure_future(session.save_session_state("one", memory=memory))
        for _ in range(steps):
            await asyncio.sleep(0)
        save.cancel()
        await asyncio.gather(save, return_exceptions=True)
    await session.save_session_state("one", memory=memory)
    with session.state("one") as state:
        assert state["memory"]["content"] == list(range(10))


@pytest.mark.parametrize("lands", [True, False])
async def test_after_a_lost_reply_the_next_save_finds_out(lands):
    store = Lossy()
    session, memory = VersionedSession(store), Memory([0])
    await session.save_session_state("one", memory=memory)
    memory.content.append(1)
    store.lose("reply" if lands else "request", silent=math.inf)
    with pytest.raises(CommitInDoubtError):
        await session.save_session_state("one", memory=memory)
    store.silent = 0
    memory.content.append(2)
    await session.save_session_state("one", memory=memory)
    with session.state("one") as state:
        assert state["memory"]["content"] == [0, 1, 2]
        assert len(list(state.log())) == 3 if lands else 2


async def test_a_closed_store():
    store = Store()
    session, memory = VersionedSession(store), Memory(["kept"])
    await session.save_session_state("one", memory=memory)
    store.close()
    for call in (session.save_session_state, session.load_session_state):
        with pytest.raises(StateError):
            await call("one", memory=memory)
    assert memory.content == ["kept"]


async def test_a_session_that_was_deleted_or_taken_back_meanwhile():
    session, memory = VersionedSession(), Memory([1])
    await session.save_session_state("one", memory=memory)
    memory.content.append(2)
    await session.save_session_state("one", memory=memory)
    with session.state("one") as state:
        state.undo()
    memory.content.append(3)
    await session.save_session_state("one", memory=memory)
    with session.state("one") as state:
        assert state["memory"]["content"] == [1, 2, 3], "the module has it all"
    session.repository.branches.delete(session.branch("one"), force=True)
    await session.save_session_state("one", memory=memory)
    with session.state("one") as state:
        assert state["memory"]["content"] == [1, 2, 3]
