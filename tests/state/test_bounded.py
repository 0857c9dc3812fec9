"""Bounded lists: what is trimmed, what stays in history, in which calls, and at which cost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from tests.support.handles import cold, committed
from tests.support.interrupts import Interrupt, interrupts
from versioned_state import Bounded, Disk, Memory, Schema, Versioned, checkpoint, parallel, task
from versioned_state.errors import InvalidArgumentError, SchemaError, StorageError, UnserializableValueError
from versioned_state.storage import Counting, Faulty
from versioned_state.storage.testing.writers import run_together


def bounded(store: Any = None, **options: Any) -> Versioned:
    state = Versioned(Memory() if store is None else store, schema={"messages": Bounded(**options)})
    state.repository.set_merge_policy("messages", "append")  # what both sides append stands, as in a log
    return state


def in_history(state: Versioned) -> set[Any]:
    """Every element that some commit has."""
    found: set[Any] = set()
    for commit in state.log():
        found.update(state.checkout(commit).get("messages", []))
    return found


def test_a_commit_trims_the_live_list_in_place_and_history_keeps_what_leaves():
    state = bounded(max_items=3)
    state["messages"] = messages = ["a", "b", "c"]
    state.commit("1")
    messages += ["d", "e"]
    assert str(state.status()).count("+ messages") == 2, "status shows the change as it was made"
    second = state.commit("2")
    assert messages == ["c", "d", "e"]
    assert messages is state["messages"]
    assert not state.status()
    assert [commit.message for commit in state.log()] == ["2", "1"]
    assert state.head == second
    messages.append("f")
    state.commit("3")
    assert state.checkout("HEAD")["messages"] == messages == ["d", "e", "f"]
    assert in_history(state) == set("abcdef")
    state.undo()
    assert messages == ["c", "d", "e"]


def test_what_was_in_no_commit_is_committed_in_full_first():
    state = bounded(max_items=3)
    state["messages"] = ["a"]
    state.commit("1")
    state["messages"] += "bcdefg"
    state.commit("2", meta={"round": 2})
    assert [commit.message for commit in state.log()] == ["2", "2 (in full)", "1"]
    assert state.head.meta == {"round": 2}
    assert state["messages"] == ["e", "f", "g"]
    assert in_history(state) == set("abcdefg")
    state["messages"][0] = "E"  # changed, and removed by the very same commit
    state["messages"].append("h")
    state.commit("3")
    assert "E" in in_history(state)


@pytest.mark.parametrize("where", ["messages", "agent.memory.messages", "runs[1].messages"])
@pytest.mark.parametrize("size", [4, 40, 100, 300, 1500, 5000])
def test_a_trimmed_list_has_the_form_of_its_place(where: str, size: int):
    """A short list is inline in a dict, a longer one by itself, and one in a list may be longer than in a dict."""

    def made(messages: list[str]) -> dict[str, Any]:
        nested = {"agent": {"memory": {"messages": messages}}, "runs": [{}, {"messages": messages}]}
        name = where.partition(".")[0].partition("[")[0]
        return {name: nested.get(name, messages)}

    messages = [f"{number}" * (size // 3) for number in range(5)]
    state = Versioned(Memory(), schema={where: Bounded(max_items=3)})
    state.update(made(messages.copy()))
    state.commit()
    plain = Versioned(Memory())
    plain.update(made(messages[2:]))
    assert state.head.root == plain.commit().root
    assert state.repository.fsck().findings == ()


def test_a_first_commit_and_a_replaced_list_are_trimmed_too():
    state = bounded(max_items=2)
    state["messages"] = list("abc")
    state.commit("1")
    assert state["messages"] == ["b", "c"]
    state["messages"] = list("defg")
    state.commit("2")
    assert state["messages"] == ["f", "g"]
    assert in_history(state) == set("abcdefg")


def test_a_list_at_its_bound_and_one_that_did_not_change_stay():
    store = Memory()
    committed(store, messages=list(range(10)))
    state = bounded(store, max_items=3)
    state["other"] = 1
    state.commit()
    assert len(state["messages"]) == 10
    with pytest.raises(SchemaError, match="max_items=3"):
        Schema({"messages": Bounded(max_items=3)}).check(state)
    state["messages"].append(10)
    state.commit()
    assert state["messages"] == [8, 9, 10]


def test_a_list_that_is_not_loaded_is_trimmed_too():
    store = Memory()
    state = bounded(store, max_items=3)
    state["messages"] = [1, 2, 3]
    state.commit()
    state = bounded(store, max_items=3)
    state.sequence("messages").extend([4, 5])
    state.commit()
    assert list(state.sequence("messages")) == [3, 4, 5]
    assert not state.status()


def test_keep_trims_further_so_that_it_overflows_less_often():
    state = bounded(max_items=10, keep=4)
    state["messages"] = list(range(10))
    state.commit()
    state["messages"].append(10)
    state.commit()
    assert state["messages"] == [7, 8, 9, 10]


@dataclass
class Room:
    messages: list[int] = field(default_factory=list)


def test_bounds_by_pattern_within_dicts_lists_and_instances():
    state = Versioned(
        schema={
            "rooms.*.messages": Bounded(max_items=2),
            "**.log": Bounded(max_items=1),
            "@w.list": Bounded(max_items=1),
        }
    )
    large = {f"k{index}": index for index in range(500)}
    state["rooms"] = [Room([1, 2, 3]), {"messages": [1], **large}, {"messages": [4, 5, 6], **large, "log": [1, 2]}]
    state["deep"] = {"a": [{"log": list(range(3000))}]}
    state.namespace("w")["list"] = [1, 2]
    state.commit()
    assert [state["rooms"][0].messages, state["rooms"][1]["messages"], state["rooms"][2]["messages"]] == [
        [2, 3],
        [1],
        [5, 6],
    ]
    assert list(state["rooms"][2]) == ["messages", *large, "log"]
    assert (state["rooms"][2]["log"], state["deep"]["a"][0]["log"], state.namespace("w")["list"]) == ([2], [2999], [2])
    assert not state.status()
    fresh = Versioned(state.repository, branch="other")
    for key in ("rooms", "deep"):
        fresh[key] = state[key]
    fresh.namespace("w")["list"] = [2]
    assert fresh.commit().root == state.head.root, "the canonical root of that content"


class Conversation(BaseModel):
    title: str = ""
    messages: Annotated[list[str], Bounded(max_items=2)] = []


def test_a_bound_stands_beside_a_type():
    for schema in (Conversation, {"messages": Annotated[list[str], Bounded(max_items=2)]}):
        state = Versioned(schema=schema)
        state["messages"] = ["a", "b", "c"]
        state.commit()
        assert state["messages"] == ["b", "c"]
        state["messages"].append(1)
        with pytest.raises(SchemaError) as caught:
            state.commit()
        assert caught.value.path == "messages[2]"
        assert state["messages"] == ["b", "c", 1]


# Overflow


def test_a_summary_takes_the_place_of_what_leaves_and_counts():
    calls = []

    def summarize(removed: list[Any]) -> list[Any]:
        calls.append(removed)
        return [f"<{'+'.join(removed)}>"]

    state = bounded(max_items=3, on_overflow=summarize)
    state["messages"] = messages = list("abc")
    state.commit()
    messages.append("d")
    state.commit()
    assert messages == ["<a+b>", "c", "d"]
    assert calls == [["a", "b"]]
    messages.append("e")
    state.commit()
    assert messages == ["<<a+b>+c>", "d", "e"]
    assert messages is state["messages"]
    assert {"a", "b", "c", "<a+b>"} <= in_history(state)


def test_a_summary_of_several_elements_gets_more_room():
    calls = []

    def summarize(removed: list[Any]) -> list[str]:
        calls.append(len(removed))
        return ["s"] * 3

    state = bounded(max_items=5, on_overflow=summarize)
    state["messages"] = list(range(6))
    state.commit()
    assert state["messages"] == ["s", "s", "s", 4, 5]
    assert calls == [2, 4]


@pytest.mark.parametrize(
    "overflow",
    [lambda removed: [*removed, "more"], lambda removed: "text", lambda removed: None, lambda removed: ["x"] * 9],
)
def test_a_result_that_does_not_fit_is_refused(overflow):
    state = bounded(max_items=3, on_overflow=overflow)
    state["messages"] = messages = list(range(4))
    with pytest.raises(SchemaError) as caught:
        state.commit()
    assert caught.value.path == "messages"
    assert messages == [0, 1, 2, 3]
    assert state.head.message == ""


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_a_function_that_raises_leaves_everything(error):
    def fail(removed: list[Any]) -> list[Any]:
        raise error

    state = bounded(max_items=2, on_overflow=fail)
    state["messages"] = messages = [1, 2]
    head = state.commit()
    messages.append(3)
    with pytest.raises(error):
        state.commit()
    assert state.head == head
    assert messages == state["messages"] == [1, 2, 3]
    assert str(state.status()) == "+ messages[2] = 3"
    state["messages"] = [1]
    state.commit()


def test_a_summary_that_cannot_be_stored():
    state = bounded(Faulty(Memory()), max_items=1, on_overflow=lambda removed: [(x for x in removed)])
    state["messages"] = [1, 2, 3]
    with pytest.raises((UnserializableValueError, SchemaError)):
        state.commit()
    assert state["messages"] == [1, 2, 3]


def test_a_function_is_given_copies():
    def summarize(removed: list[Any]) -> list[Any]:
        removed[0]["text"] = "changed"
        assert first == {"text": "a"}
        return removed[:1]

    state = bounded(max_items=2, on_overflow=summarize)
    first = {"text": "a"}
    state["messages"] = [first, {"text": "b"}, {"text": "c"}]
    state.commit()
    assert state["messages"][0] == {"text": "changed"}
    assert state.checkout("HEAD~1")["messages"][0] == {"text": "a"}


def test_a_summary_is_not_asked_for_again_when_the_branch_moves():
    calls = []
    store = Memory()

    def summarize(removed: list[Any]) -> list[Any]:
        calls.append(removed)
        if len(calls) == 1:
            committed(store, note=1)
        return ["s"]

    state = bounded(store, max_items=2, on_overflow=summarize)
    state["messages"] = [1, 2, 3]
    state.commit()
    assert len(calls) == 1
    assert dict(state) == {"messages": ["s", 3], "note": 1}


# Tokens


def test_tokens_are_counted_by_the_callers_function():
    state = bounded(max_tokens=10, count_tokens=len)
    state["messages"] = messages = ["aaaa", "bbbb"]
    state.commit()
    messages.append("cccc")
    state.commit()
    assert messages == ["bbbb", "cccc"]
    messages.append("dd")
    state.commit()
    assert messages == ["bbbb", "cccc", "dd"]
    messages[0] = "b" * 6
    state.commit()
    assert messages == ["cccc", "dd"]


def test_tokens_are_estimated_by_default():
    state = bounded(max_tokens=100)
    state["messages"] = [{"role": "user", "content": "x" * 100} for _ in range(10)]
    state.commit()
    assert len(state["messages"]) == 3  # 4 + 112 / 4 each


def test_a_summary_counts_its_tokens():
    state = bounded(max_tokens=10, count_tokens=len, on_overflow=lambda removed: ["sum"])
    state["messages"] = ["aaaa", "bbbb", "cccc", "dddd"]
    state.commit()
    assert state["messages"] == ["sum", "dddd"]


def test_one_element_beyond_the_bound_is_refused_and_stays():
    state = bounded(max_tokens=10, count_tokens=len)
    state["messages"] = ["a"]
    state.commit()
    state["messages"].append("x" * 11)
    with pytest.raises(SchemaError) as caught:
        state.commit()
    assert caught.value.path == "messages[1]"
    assert len(state["messages"]) == 2


@pytest.mark.parametrize("tokens", [-1, 1.5, None, True])
def test_a_count_that_is_none_is_refused(tokens):
    state = bounded(max_tokens=10, count_tokens=lambda _: tokens)
    state["messages"] = ["a"]
    with pytest.raises(SchemaError, match="count_tokens"):
        state.commit()


def test_counting_tokens_costs_the_new_elements():
    counted = []

    def tokens(each: Any) -> int:
        counted.append(each)
        return 1

    state = bounded(max_tokens=10**9, count_tokens=tokens)
    state["messages"] = list(range(5000))
    state.commit()
    assert len(counted) == 5000
    del counted[:]
    for index in range(5):
        state["messages"].append(-index)
        state.commit()
    state["messages"][7] = "new"
    state.commit()
    assert len(counted) <= 5 + 2


def test_a_failed_commit_does_not_confuse_the_count():
    store = Faulty(Memory())
    state = bounded(store, max_tokens=5000, count_tokens=len)
    state["messages"] = [f"{index:0100}" for index in range(45)]
    state.commit()
    state["messages"] += ["y" * 100] * 2
    store.arm(1)
    with pytest.raises(StorageError):
        state.commit()
    store.arm(None)
    state["messages"] += ["z" * 100] * 5
    state.commit()
    assert len(state["messages"]) == 50


# In every call


@pytest.mark.parametrize("value", ["text", (1, 2, 3), {"a": 1}, 7, None, {1, 2}])
def test_a_value_that_is_not_a_list_is_refused(value):
    state = bounded(max_items=2)
    state["messages"] = value
    with pytest.raises(SchemaError, match="not a list"):
        state.commit()
    del state["messages"]
    state["other"] = 1
    state.commit()


def test_two_writers_append_to_a_full_list():
    store = Memory()
    first = bounded(store, max_items=4)
    first["messages"] = [1, 2, 3, 4]
    first.commit()
    second = bounded(store, max_items=4)
    ours, theirs = first["messages"], second["messages"]
    theirs += [5, 6]
    second.commit()
    ours += [7]
    first.commit()
    assert ours == [4, 5, 6, 7]
    second.refresh()
    assert theirs == ours
    assert theirs is second["messages"]
    assert in_history(first) == {1, 2, 3, 4, 5, 6, 7}


def test_two_writers_who_summarize_do_not_conflict():
    store = Memory()

    def make() -> Versioned:
        return bounded(store, max_items=4, on_overflow=lambda removed: [("sum", len(removed))])

    first, second = make(), make()
    first["messages"] = [1, 2, 3, 4]
    first.commit()
    second.refresh()
    second["messages"] += [5]
    first["messages"] += [6]
    second.commit()
    first.commit()
    assert first["messages"] == [("sum", 2), 4, 5, 6] or first["messages"][-2:] == [5, 6]
    assert len(first["messages"]) == 4


def test_merged_branches_are_trimmed():
    state = bounded(max_items=4)
    state["messages"] = messages = [1, 2, 3, 4]
    state.commit()
    fork = state.fork("fork")
    fork["messages"] += [5, 6]
    fork.commit()
    messages += [7]
    state.commit()
    state.merge("fork")
    assert len(messages) == 4
    assert messages is state["messages"]
    assert {5, 6, 7} <= set(messages)


def test_commits_of_some_keys_transactions_and_tasks():
    state = bounded(max_items=2)
    state["messages"], state["other"] = [1, 2, 3], 1
    state.commit(keys=["other"])
    assert state["messages"] == [1, 2, 3]
    state.commit(keys=["messages"])
    assert state["messages"] == [2, 3]
    with state.transaction("t"):
        state["messages"].append(4)
        assert len(state["messages"]) == 3
    assert state["messages"] == [3, 4]
    with pytest.raises(TypeError), state.transaction():
        state["messages"] += [5, *7]  # type: ignore[misc]
    assert state["messages"] == [3, 4]

    @task
    def talk(state: Any) -> None:
        state["messages"].append(5)
        checkpoint()
        assert state["messages"] == [4, 5]
        state["messages"].append(6)

    talk(state=state)
    assert state["messages"] == [5, 6]
    assert state.head.meta["outcome"] == "success"


def test_parallel_calls_are_merged_and_trimmed():
    @task
    def say(what: int, state: Any) -> None:
        state["messages"].append(what)

    state = bounded(max_items=3)
    state["messages"] = [1, 2, 3]
    state.commit()
    parallel(state, [partial(say, 4), partial(say, 5)])
    assert len(state["messages"]) == 3
    assert {4, 5} <= set(state["messages"])


def test_threads_that_append_lose_nothing():
    store = Memory()

    def work(name: int) -> None:
        state = bounded(store, max_items=10)
        for index in range(8):
            state.sequence("messages").append(f"{name}/{index}")
            state.commit()

    bounded(store, max_items=10).commit()
    committed(store, messages=[])
    run_together(partial(work, name) for name in range(4))
    state = bounded(store, max_items=10)
    assert len(state["messages"]) == 10
    assert in_history(state) == {f"{name}/{index}" for name in range(4) for index in range(8)}


async def test_in_asyncio_what_is_appended_meanwhile_stays():
    state = bounded(max_items=3)
    state["messages"] = messages = [1, 2, 3]
    await state.aio.commit()
    messages += [4, 5]
    commit = asyncio.create_task(state.aio.commit())
    await asyncio.sleep(0)
    messages.append(6)
    await commit
    assert messages[-1] == 6
    await state.aio.commit()
    assert messages == [4, 5, 6]
    assert messages is state["messages"]


@pytest.mark.parametrize("most", [3, 60])
def test_an_interrupt_at_any_line_trims_whole_or_not_at_all(most, long_run):
    numbers = [f"{number:0100}" for number in range(most + 2)]  # 60 are a tree
    content = committed(Memory(), messages=numbers[:most])

    def prepared(at: int) -> tuple[Versioned, list[str]]:
        content.fork(f"b{at}").close()
        # one that has the nodes of the run before in memory takes fewer lines
        repository = cold(content.repository.store)
        state = Versioned(repository, branch=f"b{at}", schema={"messages": Bounded(max_items=most)})
        messages = state["messages"]
        messages.append(numbers[most])
        return state, messages

    for trace in interrupts(1 if long_run else 97):
        state, messages = prepared(trace.at)
        with suppress(Interrupt):
            trace.run(state.commit)
        assert messages in (numbers[: most + 1], numbers[1 : most + 1])
        assert messages is state["messages"]
        messages.append(numbers[-1])
        state.commit()
        assert messages == numbers[2:], trace.at
        assert state.checkout("HEAD")["messages"] == messages


def test_trimming_reads_and_writes_what_changes():
    costs = {}
    for count in (1000, 20_000):
        store = Counting(Memory())
        state = bounded(store, max_items=count)
        state["messages"] = [{"content": f"message {index}"} for index in range(count)]
        state.commit()
        fresh = bounded(store, max_items=count)
        fresh.sequence("messages").append({"content": "new"})
        store.reset()
        fresh.commit()
        costs[count] = store.counts.objects_written, store.counts.objects_read
        assert fresh.checkout("HEAD").keys_at("messages") == count
    (wrote, read), (wrote_more, read_more) = costs.values()
    assert wrote_more <= wrote + 6
    assert read_more <= read + 20


def test_a_long_list_that_is_loaded_is_trimmed_at_the_cost_of_what_leaves():
    reads = {}
    for count in (1000, 20_000):
        store = Counting(Memory())
        state = bounded(store, max_items=count)
        state["messages"] = [{"content": f"message {index}", "notes": []} for index in range(count)]
        state.commit()
        state = bounded(store, max_items=count)
        messages = state["messages"]
        kept = messages[-1]
        messages.append({"content": "new", "notes": []})
        store.reset()
        state.commit()
        reads[count] = store.counts.objects_read
        assert (len(messages), messages[0]["content"], messages[-2] is kept) == (count, "message 1", True)
        assert not state.status()
        kept["notes"].append("seen")
        assert str(state.status()) == f"+ messages[{count - 2}].notes[0] = 'seen'"
        state.commit()
        assert state.checkout("HEAD")["messages"] == messages
    assert reads[20_000] <= reads[1000] + 25


def test_on_disk(tmp_path):
    with Versioned(Disk(tmp_path / "s"), schema={"messages": Bounded(max_items=2)}) as state:
        state["messages"] = [1]
        state.commit()
        state["messages"] += [2, 3, 4]
        state.commit()
        assert state.repository.fsck().findings == ()
        state.repository.gc()
    with Versioned(Disk(tmp_path / "s")) as state:
        assert state["messages"] == [3, 4]
        assert state.checkout("HEAD~1")["messages"] == [1, 2, 3, 4]


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 99), max_size=6), st.booleans(), st.booleans()), max_size=12),
    st.integers(1, 5),
    st.booleans(),
)
def test_any_edits_give_the_last_elements_and_lose_none(rounds, most, summarizes):
    """Against a model: two handles that append to, edit and commit one list."""
    store = Memory()
    summary: list[Any] = [-1]
    options: dict[str, Any] = (
        {"max_items": most, "on_overflow": lambda removed: summary} if summarizes else {"max_items": most}
    )
    handles = [bounded(store, **options) for _ in range(2)]
    handles[0]["messages"] = []
    handles[0].commit()
    handles[1].refresh()
    seen: set[int] = set()
    for number, (values, second, refreshes) in enumerate(rounds):
        state = handles[second]
        new = [number * 1000 + value for value in values]
        state["messages"].extend(new)
        seen.update(new)
        state.commit(allow_empty=refreshes)
        assert len(state["messages"]) <= most
        kept = [each for each in state["messages"] if each != -1]
        assert kept[len(kept) - min(len(kept), len(new)) :] == new[len(new) - min(len(kept), len(new)) :]
        assert state["messages"] == state.checkout("HEAD")["messages"]
        assert not state.status()
    handles[0].refresh()
    assert seen <= in_history(handles[0])


def test_commits_together_are_trimmed():
    store = Memory()
    first = bounded(store, max_items=2)
    second = Versioned(store, branch="other", schema={"messages": Bounded(max_items=1)})
    first["messages"], second["messages"] = [1, 2, 3], [4, 5]
    first.repository.commit_together([first, second], "both")
    assert (first["messages"], second["messages"]) == ([2, 3], [5])
    assert [commit.message for commit in second.log()] == ["both", "both (in full)"]
    assert not first.status()


def test_options_are_checked_when_the_bound_is_declared():
    async def later(_: Any) -> list[Any]:
        return []

    for options in (
        {},
        {"max_items": 1, "max_tokens": 1},
        {"max_items": 0},
        {"max_items": "3"},
        {"max_tokens": -1},
        {"keep": 4, "max_items": 3},
        {"on_overflow": later, "max_tokens": 3},
        {"on_overflow": 3, "max_tokens": 3},
        {"on_overflow": "keep", "max_items": 3},
        {"count_tokens": 3, "max_tokens": 3},
        {"count_tokens": later, "max_tokens": 3},
    ):
        with pytest.raises(InvalidArgumentError, match=next(iter(options), "max_items")):
            Bounded(**options)


def test_undo_takes_the_trim_and_the_commit_in_full_one_by_one():
    state = bounded(max_items=2)
    state["messages"] = [1, 2]
    state.commit("one")
    state["messages"] += [3, 4, 5]
    state.commit("two")
    state.undo()
    assert state["messages"] == [1, 2, 3, 4, 5]
    state.undo()
    assert state["messages"] == [1, 2]
    state.redo(2)
    assert state["messages"] == [4, 5]


@pytest.mark.parametrize("change", ["set", "append", "same", "commit"])
def test_a_function_that_changes_the_state_is_refused_and_no_change_is_lost(change):
    asked = True

    def summarize(removed: list[Any]) -> list[Any]:
        if not asked:
            return []
        if change == "set":
            state["summary"] = len(removed)
        elif change == "append":
            state["notes"].append(len(removed))
        elif change == "same":
            state["messages"].append("late")
        else:
            state.commit("inner")
        return []

    state = Versioned(schema={"messages": Bounded(max_items=2, on_overflow=summarize)})
    state["messages"] = [1, 2]
    state["notes"] = []
    state.commit("one")
    state["messages"].append(3)
    with pytest.raises(SchemaError, match="it commits the state" if change == "commit" else "it changed the state"):
        state.commit("two")
    assert state.head.message == "one"
    assert state["messages"] == [1, 2, 3, "late"] if change == "same" else [1, 2, 3]
    assert (state.get("summary"), state["notes"]) == (2 if change == "set" else None, [2] if change == "append" else [])
    asked = False
    state.commit("two")
    again = Versioned(state.repository)
    assert again["messages"] == state["messages"]
    assert (again.get("summary"), again["notes"]) == (state.get("summary"), state["notes"])
