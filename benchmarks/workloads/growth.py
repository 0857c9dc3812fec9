"""``growth``: how the cost of ours grows with the length of a list, the number of keys and the number of commits.

Alone, without peers: in time, and in objects read from and written to the store, which no drift of the machine touches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import folder_bytes, median, timed
from benchmarks.results import Result, Table, Unit
from benchmarks.sides import OURS
from benchmarks.workloads.base import Context, Workload
from benchmarks.workloads.keys import state_of

LENGTHS = (100, 1000, 10_000, 100_000)
KEYS = (100, 1000, 10_000, 100_000)
FULL_KEYS = (*KEYS, 1_000_000)
COMMITS = (10, 100, 1000, 10_000)
QUICK = (10, 100)
ROUNDS = 9
PAGE = 20  # commits on the first page of a log

Row = list[str | tuple[float, Unit]]


def run(context: Context, workload: Workload) -> Result:
    """Lists, states and histories; a million keys only in a full run."""
    result = Result(
        workload.name,
        "how the cost of ours grows; the last line of a table is the growth from its first size to its last",
    )
    if OURS not in context.sides:
        result.notes.append("ours does not take part in this run")
        return result
    for lazily in (False, True):
        kind = "state.sequence" if lazily else "plain list"
        rows = [_list(context, length, lazily=lazily) for length in (QUICK if context.quick else LENGTHS)]
        columns = ["messages", "first commit", "append 2, commit", "objects read", "objects written", "bytes a round"]
        result.tables.append(_table(f"list, {kind}", columns, rows))
    sizes = QUICK if context.quick else FULL_KEYS if context.full else KEYS
    columns = [
        "keys",
        "first commit",
        "open, read 1",
        "objects read",
        "change 1, commit",
        "objects read",
        "objects written",
        "bytes a round",
    ]
    result.tables.append(_table("state of many keys, few watched", columns, [_keys(context, count) for count in sizes]))
    columns = [
        "commits",
        "open",
        "objects read",
        "read 1",
        "objects read",
        f"log {PAGE}",
        "objects read",
        "checkout",
        "objects read",
    ]
    result.tables.append(
        _table("history", columns, [_history(context, count) for count in (QUICK if context.quick else COMMITS)])
    )
    result.notes.append(
        f"a history of {COMMITS[0]} commits does not fill the first page of its log, which holds {PAGE}"
    )
    if not context.quick and not context.full:
        result.notes.append("1,000,000 keys are measured with --full")
    return result


class _Meter:
    """A store in a folder below a counting wrapper, opened anew for each use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self) -> tuple[Any, Any]:
        """A fresh state, and the counts of its store calls."""
        from versioned_state import Disk, Versioned
        from versioned_state.storage import Counting

        store = Counting(Disk(self.folder))
        return Versioned(store), store

    def rounds(
        self, state: Any, store: Any, work: Callable[[int], Any], numbers: Iterable[int]
    ) -> tuple[float, float, float]:
        """Median seconds of a round of ``work`` and a commit, and the medians of objects read and written."""
        seconds: list[float] = []
        read: list[float] = []
        written: list[float] = []

        def once(number: int) -> None:
            work(number)
            state.commit()

        for number in numbers:
            store.reset()
            seconds.append(timed(partial(once, number)))
            read.append(store.counts.objects_read)
            written.append(store.counts.objects_written)
        return median(seconds), median(read), median(written)


def _list(context: Context, length: int, *, lazily: bool) -> Row:
    context.progress(f"growth: a list of {length} messages, {'sequence' if lazily else 'plain'}")
    meter = _Meter(context.fresh("list"))
    state, store = meter.open()
    messages = context.data.messages(length)

    def first_commit() -> None:
        state["messages"] = messages
        state.commit()

    first = timed(first_commit)
    state.close()
    store.close()
    before = folder_bytes(meter.folder)
    state, store = meter.open()
    # Made before the clock starts; a round takes its own two.
    new = [context.data.messages(2, start=length + 2 * number) for number in range(ROUNDS)]
    if not lazily:
        len(state["messages"])

    def work(number: int) -> None:
        target = state.sequence("messages") if lazily else state["messages"]
        target.extend(new[number])

    seconds, read, written = meter.rounds(state, store, work, range(ROUNDS))
    state.close()
    store.close()
    stored = (folder_bytes(meter.folder) - before) / ROUNDS
    return [
        f"{length:,}",
        (first, Unit.SECONDS),
        (seconds, Unit.SECONDS),
        (read, Unit.COUNT),
        (written, Unit.COUNT),
        (stored, Unit.BYTES),
    ]


def _keys(context: Context, count: int) -> Row:
    context.progress(f"growth: a state of {count} keys")
    meter = _Meter(context.fresh("keys"))
    state, store = meter.open()
    items = state_of(count)

    def first_commit() -> None:
        for key, value in items.items():
            state[key] = value
        state.commit()

    first = timed(first_commit)
    state.close()
    store.close()
    before = folder_bytes(meter.folder)
    places = [f"item-{(number * 2 + 1) * count // (2 * ROUNDS + 2):06}" for number in range(ROUNDS + 1)]

    state, store = meter.open()
    state.close()
    store.close()
    opening: list[float] = []
    opening_read: list[float] = []
    for _ in range(ROUNDS):
        found: list[Any] = []
        opening.append(timed(partial(_open_and_read, meter, places[-1], found)))
        state, store = found
        opening_read.append(store.counts.objects_read)
        state.close()
        store.close()

    state, store = meter.open()

    def work(number: int) -> None:
        state[places[number]]["score"] += 1

    seconds, read, written = meter.rounds(state, store, work, range(ROUNDS))
    state.close()
    store.close()
    stored = (folder_bytes(meter.folder) - before) / ROUNDS
    return [
        f"{count:,}",
        (first, Unit.SECONDS),
        (median(opening), Unit.SECONDS),
        (median(opening_read), Unit.COUNT),
        (seconds, Unit.SECONDS),
        (read, Unit.COUNT),
        (written, Unit.COUNT),
        (stored, Unit.BYTES),
    ]


def _open(meter: _Meter, found: list[Any]) -> None:
    found.extend(meter.open())


def _open_and_read(meter: _Meter, key: str, found: list[Any]) -> None:
    state, store = meter.open()
    found.extend((state, store))
    state[key]


def _history(context: Context, count: int) -> Row:
    context.progress(f"growth: a history of {count} commits")
    meter = _Meter(context.fresh("history"))
    state, store = meter.open()
    state["messages"] = context.data.messages(5)
    state["step"] = 0
    ids: list[str] = []
    for number in range(count):
        state["step"] = number + 1
        ids.append(state.commit().id)
    state.close()
    store.close()

    figures: list[list[tuple[float, float]]] = [[], [], [], []]
    for _ in range(ROUNDS):
        found: list[Any] = []
        seconds = timed(partial(_open, meter, found))
        state, store = found
        figures[0].append((seconds, store.counts.objects_read))

        def read_one(state: Any = state) -> object:
            return state["messages"]

        def first_page(state: Any = state) -> list[Any]:
            return list(state.log(limit=PAGE))

        def checkout(state: Any = state) -> object:
            return state.checkout(ids[len(ids) // 3])["step"]

        for figure, work in zip(figures[1:], (read_one, first_page, checkout), strict=True):
            store.reset()
            figure.append((timed(work), store.counts.objects_read))
        state.close()
        store.close()
    row: Row = [f"{count:,}"]
    for figure in figures:
        row += [
            (median([seconds for seconds, _ in figure]), Unit.SECONDS),
            (median([read for _, read in figure]), Unit.COUNT),
        ]
    return row


def _table(title: str, columns: Sequence[str], rows: list[Row]) -> Table:
    growth: Row = ["growth"]
    for first, last in zip(rows[0][1:], rows[-1][1:], strict=True):
        assert not isinstance(first, str)
        assert not isinstance(last, str)
        growth.append((last[0] / first[0], Unit.RATIO) if first[0] else "-")
    return Table(title, columns, [*rows, growth])


WORKLOADS = (Workload("growth", "how the cost of ours grows with lists, keys and commits", run),)
