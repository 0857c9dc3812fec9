"""Effects behind a point of a branch: they are named, and rolled back only when that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.handles import committed
from versioned_state import Disk, Memory, Versioned, effect, effects, roll_back_effects, settle_effect, task
from versioned_state.agents import effects as effects_module
from versioned_state.errors import InvalidArgumentError, UnknownRevisionError
from versioned_state.storage import Counting

BOOKED: list[str] = []
REFUNDED: list[Any] = []


def book(city: str) -> dict[str, Any]:
    BOOKED.append(city)
    return {"city": city, "receipt": len(BOOKED)}


def refund(receipt: dict[str, Any]) -> str:
    REFUNDED.append(receipt["city"])
    return f"refunded {receipt['city']}"


def fails(receipt: dict[str, Any]) -> None:
    raise ZeroDivisionError


@pytest.fixture(autouse=True)
def _anew() -> None:
    BOOKED.clear()
    REFUNDED.clear()
    effects_module.FUNCTIONS.clear()


@task
def trip(city: str, state: Versioned, on_rollback: Any = refund) -> None:
    state.setdefault("trips", []).append(effect(f"book:{city}", book, city, on_rollback=on_rollback))


def behind(state: Versioned) -> list[str]:
    return [each.key for each in state.status().effects]


def test_undo_reset_and_forks_name_the_effects_behind_them() -> None:
    state = Versioned(Memory())
    for city in ("Rome", "Oslo", "Bonn"):
        trip(city, state=state)
    heads = [commit.id for commit in state.log()]
    assert behind(state) == []
    state.undo()
    assert behind(state) == ["book:Bonn"]
    assert "! effect book:Bonn (done) lies behind this point: rolled back by" in str(state.status())
    state.redo()
    assert behind(state) == []
    state.reset(heads[2])
    assert behind(state) == ["book:Oslo", "book:Bonn"]
    trip("Nice", state=state)
    assert behind(state) == ["book:Oslo", "book:Bonn"]  # the new round is not the one that was taken back
    state.reset(heads[0])
    assert behind(state) == ["book:Nice"]
    assert [each.key for each in state.fork("copy").status().effects] == []
    fork = state.fork("earlier", at=heads[1])
    assert behind(fork) == ["book:Bonn"]
    trip("Lyon", state=fork)
    assert behind(fork) == ["book:Bonn"]
    assert behind(state) == ["book:Nice"]
    fork.undo()
    assert behind(fork) == ["book:Bonn", "book:Lyon"]
    assert REFUNDED == []


def test_they_are_rolled_back_in_reverse_order_once_and_can_then_be_carried_out_again() -> None:
    state = Versioned(Memory())
    trip("Rome", state=state)
    start = state.head
    for city in ("Oslo", "Bonn"):
        trip(city, state=state)
    assert [each.key for each in roll_back_effects(state, to=start, dry_run=True)] == ["book:Bonn", "book:Oslo"]
    assert roll_back_effects(state) == []
    state.reset(start)
    done = roll_back_effects(state)
    assert [(each.key, each.result) for each in done] == [
        ("book:Bonn", "refunded Bonn"),
        ("book:Oslo", "refunded Oslo"),
    ]
    assert REFUNDED == ["Bonn", "Oslo"]
    assert behind(state) == []
    assert roll_back_effects(state) == []
    kept = [each.key for each in effects(state)]
    assert kept[0] == "book:Rome"
    assert [key.rpartition("/")[2] for key in kept[1:]] == ["book:Bonn", "book:Oslo"]
    assert all(key.startswith("@rollback/") for key in kept[1:])
    trip("Oslo", state=state)
    assert BOOKED == ["Rome", "Oslo", "Bonn", "Oslo"]
    assert [each.key for each in roll_back_effects(state, to=start)] == ["book:Oslo"]
    assert REFUNDED == ["Bonn", "Oslo", "Oslo"]


def test_a_name_in_the_store_is_never_imported(tmp_path: Path) -> None:
    state = Versioned(Disk(tmp_path / "store"))
    trip("Rome", state=state)
    trip("Oslo", state=state)
    state.undo()
    effects_module.FUNCTIONS.clear()  # as in another process
    with pytest.raises(
        InvalidArgumentError,
        match="test_effects_rollback:refund, which this process has not named; nothing was rolled back",
    ):
        roll_back_effects(state)
    assert behind(state) == ["book:Oslo"]
    assert [each.result for each in roll_back_effects(state, using=[refund])] == ["refunded Oslo"]


def test_a_rollback_that_fails_is_in_doubt_and_is_not_repeated_by_itself() -> None:
    state = Versioned(Memory())
    trip("Rome", state=state)
    trip("Oslo", state=state, on_rollback=fails)
    trip("Bonn", state=state)
    with pytest.raises(ZeroDivisionError):
        roll_back_effects(state, to="HEAD~2")
    assert REFUNDED == ["Bonn"]
    in_doubt = next(each.key for each in effects(state) if each.status == "in doubt")
    settle_effect(state, in_doubt, "refunded by hand")
    assert [(each.key, each.result) for each in roll_back_effects(state, to="HEAD~2")] == [
        ("book:Oslo", "refunded by hand")
    ]


def test_effects_without_a_function_stay_and_one_in_doubt_is_refused() -> None:
    state = committed(Memory(), n=1)
    trip("Rome", state=state, on_rollback=None)
    with pytest.raises(ZeroDivisionError):
        effect("pay", fails, {}, state=state, on_rollback=refund)
    state["n"] = 2
    state.commit()
    with pytest.raises(InvalidArgumentError, match="'pay' is in doubt"):
        roll_back_effects(state, to="HEAD~2")
    settle_effect(state, "pay", {"city": "Rome"})
    assert [each.key for each in roll_back_effects(state, to="HEAD~2")] == ["pay"]
    assert effects(state)[0].key == "book:Rome"


@pytest.mark.parametrize("wrong", [lambda receipt: None, 5, "refund"])
def test_a_function_that_cannot_be_found_later_is_refused(wrong: Any) -> None:
    state = Versioned(Memory())
    with pytest.raises(InvalidArgumentError):
        effect("pay", book, "Rome", state=state, on_rollback=wrong)
    with pytest.raises(InvalidArgumentError, match="state"):
        roll_back_effects({})  # type: ignore[arg-type]
    with pytest.raises(UnknownRevisionError):
        roll_back_effects(state, to="nowhere")
    assert BOOKED == []


def test_a_branch_that_only_commits_have_moved_is_not_searched() -> None:
    store = Counting(Memory())
    state = Versioned(store)
    for city in ("Rome", "Oslo"):
        trip(city, state=state)
    store.reset()
    assert behind(state) == []
    assert store.reset().listings == 0
