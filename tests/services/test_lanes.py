"""Lanes: items that wait in a row are done together, each with a result of its own."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from threading import Event

import pytest

from tests.support import processes
from versioned_state.services.calls.lanes import Lanes, LanesClosedError


class Adder:
    """Notes which items were done together."""

    def __init__(self) -> None:
        self.together: list[list[int]] = []

    def double(self, items: list[int]) -> list[int | BaseException]:
        self.together.append(items)
        if 13 in items:
            raise LookupError("all of them")
        return [ValueError("odd") if item % 2 else item * 2 for item in items]

    def other(self, items: list[int]) -> list[int | BaseException]:
        self.together.append(items)
        return [*items]


def held(lanes: Lanes, lane: str) -> tuple[Event, Future[bool]]:
    """A lane that is busy until the event is set."""
    let_go = Event()
    return let_go, lanes.submit(lane, lambda: let_go.wait(20))


def test_items_in_a_row_are_done_together_and_others_in_their_order():
    lanes, adder = Lanes(2), Adder()
    let_go, busy = held(lanes, "a")
    first = [lanes.submit_item("a", n, adder.double) for n in (2, 3, 4)]
    between = lanes.submit("a", lambda: adder.together.append([]))
    second = [lanes.submit_item("a", n, adder.double) for n in (6, 8)]
    third = lanes.submit_item("a", 9, adder.other)
    assert lanes.submit_item("b", 10, adder.double).result(20) == 20  # no other lane waits
    let_go.set()
    assert third.result(20) == 9
    assert adder.together == [[10], [2, 3, 4], [], [6, 8], [9]]
    assert [first[0].result(), first[2].result(), *(each.result() for each in second)] == [4, 8, 12, 16]
    with pytest.raises(ValueError, match="odd"):
        first[1].result()
    assert between.done()
    assert busy.result()
    lanes.close()


def test_an_item_that_is_cancelled_first_is_left_out_and_an_error_of_all_reaches_all():
    lanes, adder = Lanes(2), Adder()
    let_go, _ = held(lanes, "a")
    futures = [lanes.submit_item("a", n, adder.double) for n in (2, 4, 6)]
    lanes.submit_item("a", 1, adder.other)
    failing = [lanes.submit_item("a", n, adder.double) for n in (13, 2)]
    assert futures[1].cancel()
    let_go.set()
    lanes.close()
    assert adder.together == [[2, 6], [1], [13, 2]]
    assert (futures[0].result(), futures[2].result()) == (4, 12)
    with pytest.raises(CancelledError):
        futures[1].result()
    for each in failing:
        with pytest.raises(LookupError):
            each.result()
    with pytest.raises(LanesClosedError):
        lanes.submit_item("a", 2, adder.double)


def test_at_most_so_many_items_are_done_together():
    lanes, adder = Lanes(1), Adder()
    let_go, _ = held(lanes, "a")
    futures = [lanes.submit_item("a", 2 * n, adder.double) for n in range(200)]
    let_go.set()
    lanes.close()
    assert [each.result() for each in futures] == [4 * n for n in range(200)]
    assert max(map(len, adder.together)) == 64
    assert len(adder.together) == 4


def test_a_function_that_forgets_a_result_fails():
    lanes = Lanes(1)

    def forgets(items: list[int]) -> list[int]:
        return items[1:]

    with pytest.raises(AssertionError, match="a result for each item"):
        lanes.submit_item("a", 1, forgets).result(20)
    lanes.close()


def test_a_forked_process_has_threads_of_its_own_and_none_of_the_calls():
    lanes = Lanes(2)
    let_go, busy = held(lanes, "a")

    def child() -> None:
        assert lanes.submit("a", lambda: 1).result(20) == 1
        lanes.close()

    processes.join(processes.fork(child))
    let_go.set()
    assert busy.result(20)
    assert lanes.submit("a", lambda: 2).result(20) == 2
    lanes.close()
