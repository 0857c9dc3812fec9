"""What is beneath the state service: a session is a branch, a round a commit, and git's verbs work on them."""

from __future__ import annotations

import pytest

from versioned_state import Memory, Repository, Versioned, branch_name
from versioned_state.services.agent_state import InMemoryStateService, StateService
from versioned_state.storage import Cache, Counting


async def test_rounds_are_commits_with_the_keys_of_the_state() -> None:
    async with InMemoryStateService() as service:
        await service.save_state("u@x", {"mood": "calm", "messages": ["a"]}, "trip")
        await service.save_state("u@x", {"mood": "glad", "messages": ["a", "b"]}, "trip")
        branch = service.branch("u@x", "trip")
        assert branch == branch_name("u@x", "trip")
        second, first = service.repository.log(branch)
        assert [commit.meta for commit in (first, second)] == [
            {"user_id": "u@x", "session_id": "trip", "round": n} for n in (1, 2)
        ]
        assert [commit.message for commit in (first, second)] == ["messages added, mood added", "messages +1, mood"]
        assert [str(change.path) for change in service.repository.diff(first, second)] == ["messages[1]", "mood"]
        with Versioned(service.repository, branch=branch) as state:
            assert dict(state) == {"messages": ["a", "b"], "mood": "glad"}
            assert state.namespaces() == []
        assert service.repository.blame("mood", branch)[0].commit == second


async def test_equal_content_is_stored_once_for_all_users() -> None:
    store = Counting(Memory())
    async with StateService.over(store) as service:
        state = {"messages": [{"role": "user", "content": f"message {n} " * 20} for n in range(200)]}
        await service.save_state("a", state)
        objects = sum(1 for _ in store.keys("o/"))
        for user in ("b", "c", "d"):
            await service.save_state(user, state)
        assert sum(1 for _ in store.keys("o/")) <= objects + 3  # a commit each


async def test_after_undo_the_round_before_is_the_latest() -> None:
    async with InMemoryStateService() as service:
        for number in (1, 10, 3):
            await service.save_state("u", {"n": number}, round_id=number)
        with Versioned(service.repository, branch=service.branch("u")) as state:
            state.undo()
            assert await service.list_rounds("u") == [1, 10]
            state.undo()
            assert await service.export_state("u") == {"n": 1}
            assert await service.export_state("u", None, 10) is None
            assert await service.save_state("u", {"n": 2}) == 2
            state.refresh()
            state.reset("HEAD~2")
        assert await service.list_rounds("u") == []
        assert await service.export_state("u") is None
        assert await service.save_state("u", {"n": "first"}) == 1


async def test_a_commit_by_hand_belongs_to_the_round_on_which_it_stands() -> None:
    async with InMemoryStateService() as service:
        await service.save_state("u", {"n": 1})
        await service.save_state("u", {"n": 2})
        with Versioned(service.repository, branch=service.branch("u")) as state:
            state["note"] = "mended"
            state.commit("by hand")
            state["note"] = "mended twice"
            state.commit("by hand")
        assert await service.list_rounds("u") == [1, 2]
        assert await service.export_state("u") == {"n": 2, "note": "mended twice"}
        assert await service.save_state("u", {"n": 3}) == 3
        assert await service.export_state("u") == {"n": 3}
        assert await service.export_state("u", None, 2) == {"n": 2, "note": "mended twice"}
        assert await service.export_state("u", None, 1) == {"n": 1}


@pytest.mark.parametrize("way", ["commit", "replace", "refresh", "transaction", "commit_together", "replace together"])
async def test_a_session_that_is_saved_beside_a_handle_keeps_its_rounds(way: str) -> None:
    async with InMemoryStateService() as service:
        await service.save_state("u", {"n": 1})
        with Versioned(service.repository, branch=service.branch("u")) as state:
            state["note"] = "by hand"
            if way == "refresh":
                state.commit()  # a handle that has loaded a value updates it
            await service.save_state("u", {"n": 2})
            if way == "refresh":
                state.refresh()
            elif way.endswith("together"):
                service.repository.commit_together(
                    [state], on_moved="replace" if way.startswith("replace") else "merge"
                )
            elif way in {"commit", "replace"}:
                state.commit(on_moved="replace" if way == "replace" else "merge")
            else:
                with state.transaction():
                    state["more"] = "by hand"
            assert await service.list_rounds("u") == [1, 2]
            assert (await service.export_state("u", None, 2) or {})["n"] == (1 if way.startswith("replace") else 2)
            assert await service.save_state("u", {"n": 3}) == 3
            state.refresh()
            state.undo()
            assert await service.list_rounds("u") == [1, 2]


async def test_a_fork_is_a_session_with_the_rounds_before_it() -> None:
    async with InMemoryStateService() as service:
        for number in range(1, 5):
            await service.save_state("u", {"n": number, "all": list(range(number))})
        second = next(commit for commit in service.repository.log(service.branch("u")) if commit.meta["round"] == 2)
        service.repository.branches.create(service.branch("u", "what-if"), at=second)
        assert await service.list_sessions("u") == ["default", "what-if"]
        assert await service.list_rounds("u", "what-if") == [1, 2]
        assert await service.save_state("u", {"n": "other", "all": [0, 1]}, "what-if") == 3
        with Versioned(service.repository, branch=service.branch("u")) as state:
            state.merge(service.branch("u", "what-if"), policies={"n": "theirs"})
        assert await service.list_rounds("u") == [1, 2, 3, 4]  # those of its own line
        assert await service.export_state("u") == {"n": "other", "all": [0, 1, 2, 3]}
        assert await service.export_state("u", None, 3) == {"n": 3, "all": [0, 1, 2]}
        assert service.repository.fsck().ok


async def test_a_fork_of_a_session_with_a_long_id_is_listed() -> None:
    async with InMemoryStateService() as service:
        long = "x" * 300
        await service.save_state("u", {"n": 1}, long)
        for fork in ("short", "y" * 300):
            service.repository.branches.create(service.branch("u", fork), at=service.branch("u", long))
        assert await service.list_sessions("u") == ["short", long]
        await service.save_state("u", {"n": 2}, "y" * 300)  # which keeps its id
        assert await service.list_sessions("u") == ["short", long, "y" * 300]


async def test_rounds_survive_squash_rebase_revert_and_purge() -> None:
    async with InMemoryStateService() as service:
        for number in range(1, 7):
            await service.save_state("u", {"n": number, "secret": f"s{number}"})
        branch = service.branch("u")
        with Versioned(service.repository, branch=branch) as state:
            third = next(commit for commit in state.log() if commit.meta.get("round") == 3)
            state.squash("HEAD~5", third)  # rounds 2 and 3 become one commit
            state.revert("HEAD")
        assert await service.export_state("u", None, 4) == {"n": 4, "secret": "s4"}
        assert await service.export_state("u", None, 1) == {"n": 1, "secret": "s1"}
        assert await service.export_state("u", None, 2) is None
        assert await service.export_state("u") == {"n": 5, "secret": "s5"}  # what the revert made of round 6
        assert await service.save_state("u", {"n": 7}) == 7
        service.repository.purge("secret")
        for number in (1, 4, 5, 7):
            assert await service.export_state("u", None, number) == {"n": number}


async def test_a_point_read_costs_the_logarithm_of_the_rounds() -> None:
    costs = []
    for rounds in (16, 256):
        store = Counting(Memory())
        async with StateService.over(store) as service:
            for number in range(rounds):
                await service.save_state("u", {"n": number})
        async with StateService.over(Repository(store)) as service:
            store.reset()
            assert await service.export_state("u", None, rounds // 3) == {"n": rounds // 3 - 1}
            assert await service.list_rounds("u") == list(range(1, rounds + 1))
            costs.append(store.counts.round_trips)
    assert costs[1] <= costs[0] + 12


async def test_a_save_is_one_request_of_the_store() -> None:
    store = Counting(Memory())
    async with StateService.over(Repository(Cache(store))) as service:
        messages = [{"role": "user", "content": f"message {n} " * 20} for n in range(200)]
        await service.save_state("u", {"messages": messages})
        await service.save_state("u", {"messages": [*messages, 1]})
        for turn in range(20):
            messages.append({"role": "user", "content": f"another {turn}"})
            store.reset()
            await service.save_state(
                "u", {"messages": [dict(each) if type(each) is dict else each for each in messages], "turn": turn}
            )
            assert store.counts.round_trips == store.counts.applies == 1
