"""``Checkpoints``: whole states as commits, by handles that stay open, and do what a new handle would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.counted_calls import calls_of
from versioned_state import Memory, Repository
from versioned_state.errors import PickleRefusedError, RefExistsError
from versioned_state.integrations.adapter import Adapter, Checkpoints
from versioned_state.storage import Counting


@pytest.fixture
def checkpoints() -> Iterator[Checkpoints]:
    with Adapter(Memory()) as adapter:
        yield adapter.checkpoints


def save(checkpoints: Checkpoints, tag: str, after: str | None = None, *, branch: str = "b", **values: Any) -> None:
    checkpoints.commit(branch, values, message=tag, meta={"tag": tag}, tag=tag, after=after)


def content(checkpoints: Checkpoints, tag: str) -> dict[str, Any]:
    return dict(repository(checkpoints).snapshot(tag))


def line(checkpoints: Checkpoints, rev: str = "b") -> list[str]:
    """Return the checkpoints that lead to one, the newest first."""
    return [commit.message for commit in repository(checkpoints).log(rev)]


def repository(checkpoints: Checkpoints) -> Repository:
    return checkpoints._repository


def test_a_checkpoint_has_its_values_and_no_others(checkpoints):
    save(checkpoints, "1", a=[1], b={"x": 1})
    save(checkpoints, "2", "1", a=[1, 2])
    save(checkpoints, "3", "2", a=[1, 2], c="new")
    assert [content(checkpoints, tag) for tag in "123"] == [
        {"a": [1], "b": {"x": 1}},
        {"a": [1, 2]},
        {"a": [1, 2], "c": "new"},
    ]
    assert line(checkpoints) == ["3", "2", "1"]


def test_a_value_that_its_caller_goes_on_with_is_another_one_in_the_next(checkpoints):
    messages: list[Any] = [{"text": "hi"}]
    save(checkpoints, "1", messages=messages)
    messages[0]["text"] = "changed"
    messages.append({"text": "more"})
    save(checkpoints, "2", "1", messages=messages)
    messages.clear()
    save(checkpoints, "3", "2", other=1)
    assert content(checkpoints, "1") == {"messages": [{"text": "hi"}]}
    assert content(checkpoints, "2") == {"messages": [{"text": "changed"}, {"text": "more"}]}
    assert content(checkpoints, "3") == {"other": 1}


def test_a_checkpoint_after_any_other_leaves_the_values_of_its_callers_alone(checkpoints):
    with Adapter(repository(checkpoints)) as adapter:
        both = checkpoints, adapter.checkpoints
        values: dict[str, Any] = {}
        before: str | None = None
        for number in range(8):
            tag = str(number)
            values[tag] = {"n": number, "list": [{"n": each} for each in range(number)]}
            after = "1" if number == 5 else None if number == 6 else before
            save(both[number // 2 % 2], tag, after, state=values[tag])
            before = tag
    for tag, value in values.items():
        number = int(tag)
        assert value == {"n": number, "list": [{"n": each} for each in range(number)]}
        assert content(checkpoints, tag) == {"state": value}
    assert [line(checkpoints, tag) for tag in "4567"] == [list("43210"), list("510"), ["6"], ["7", "6"]]


def test_a_checkpoint_follows_the_one_that_took_the_place_of_another(checkpoints):
    save(checkpoints, "1", n=1)
    with Adapter(repository(checkpoints)) as other:
        other.repository.tags.delete("1")
        save(other.checkpoints, "1", n=100)
    save(checkpoints, "2", "1", n=2)
    assert [dict(repository(checkpoints).snapshot(rev)) for rev in ("b", "b~1")] == [{"n": 2}, {"n": 100}]


def test_a_checkpoint_that_was_erased_does_not_come_back(checkpoints):
    save(checkpoints, "1", secret="secret", n=1)
    Repository(repository(checkpoints).store).purge("secret")
    save(checkpoints, "2", "1", n=2)
    assert [content(checkpoints, tag) for tag in "12"] == [{"n": 1}, {"n": 2}]
    log = list(repository(checkpoints).log("b"))
    assert [dict(repository(checkpoints).snapshot(commit)) for commit in log] == [{"n": 2}, {"n": 1}]
    assert repository(checkpoints).fsck().ok


def test_what_cannot_be_stored_leaves_nothing_for_the_next(checkpoints):
    save(checkpoints, "1", n=1)
    with pytest.raises(RefExistsError):
        save(checkpoints, "1", n=2, more=1)
    with pytest.raises(PickleRefusedError):
        save(checkpoints, "2", "1", n=3, more=iter(()))
    save(checkpoints, "2", "1", n=4)
    assert [content(checkpoints, tag) for tag in "12"] == [{"n": 1}, {"n": 4}]
    assert line(checkpoints) == ["2", "1"]


def test_the_next_checkpoint_is_one_request_and_its_work_is_that_of_what_differs():
    def cost(count: int) -> int:
        store = Counting(Memory())
        checkpoints = Checkpoints(Repository(store))
        messages = [f"message {number} " * 30 for number in range(count)]
        save(checkpoints, "1", messages=messages[:-2])
        save(checkpoints, "2", "1", messages=messages[:-1])
        store.reset()
        calls = calls_of(lambda: save(checkpoints, "3", "2", messages=messages))
        assert store.reset().round_trips == 1
        checkpoints.close()
        return calls

    costs = [cost(count) for count in (200, 2_000)]
    assert costs[1] < 1.5 * costs[0]
