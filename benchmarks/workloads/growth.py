"""``growth``: how the cost of ours grows with the length of a list, the number of keys and the number of commits.

Alone, without peers: in time, and in objects read from and written to the store, which no drift of the machine touches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import folder_bytes, median, timed
from benchmarks.results import Result, Table, Unit
from benchmarks.workloads.base import Context, Workload
from benchmarks.workloads.keys import state_of
from versioned_state import Disk, Versioned
from versioned_state.storage import Counting

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

    @contextmanager
    def opened(self) -> Iterator[tuple[Versioned, Counting]]:
        """A fresh state, and the counts of its store calls."""
        with Counting(Disk(self.folder)) as store, Versioned(store) as state:
            yield state, store

    def opening(self, read: Callable[[Versioned], object]) -> tuple[float, float]:
        """Seconds to open the store and read from it, and the objects read."""
        with ExitStack() as stack:
            found: list[Counting] = []

            def work() -> None:
                state, store = stack.enter_context(self.opened())
                found.append(store)
                read(state)

            return timed(work), found[0].counts.objects_read

    def first_commit(self, values: dict[str, Any]) -> float:
        """Seconds of a commit of these values in an empty store."""
        with self.opened() as (state, _):

            def work() -> None:
                state.update(values)
                state.commit()

            return timed(work)

    def rounds(self, state: Versioned, store: Counting, work: Callable[[int], object]) -> tuple[float, float, float]:
        """Median seconds of a round of ``work`` and a commit, and the medians of objects read and written."""
        seconds: list[float] = []
        read: list[float] = []
        written: list[float] = []

        def once(number: int) -> None:
            work(number)
            state.commit()

        for number in range(ROUNDS):
            store.reset()
            seconds.append(timed(partial(once, number)))
            read.append(store.counts.objects_read)
            written.append(store.counts.objects_written)
        return median(seconds), median(read), median(written)


def _list(context: Context, length: int, *, lazily: bool) -> Row:
    context.progress(f"growth: a list of {length} messages, {'sequence' if lazily else 'plain'}")
    meter = _Meter(context.fresh("list"))
    first = meter.first_commit({"messages": context.data.messages(length)})
    before = folder_bytes(meter.folder)
    # Made before the clock starts; a round takes its own two.
    new = [context.data.messages(2, start=length + 2 * number) for number in range(ROUNDS)]
    with meter.opened() as (state, store):
        if not lazily:
            len(state["messages"])

        def work(number: int) -> None:
            target = state.sequence("messages") if lazily else state["messages"]
            target.extend(new[number])

        seconds, read, written = meter.rounds(state, store, work)
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
    first = meter.first_commit(state_of(count))
    before = folder_bytes(meter.folder)
    places = [f"item-{(number * 2 + 1) * count // (2 * ROUNDS + 2):06}" for number in range(ROUNDS + 1)]
    with meter.opened():
        pass
    opening = [meter.opening(lambda state: state[places[-1]]) for _ in range(ROUNDS)]
    with meter.opened() as (state, store):

        def work(number: int) -> None:
            state[places[number]]["score"] += 1

        seconds, read, written = meter.rounds(state, store, work)
    stored = (folder_bytes(meter.folder) - before) / ROUNDS
    return [
        f"{count:,}",
        (first, Unit.SECONDS),
        *_medians(opening),
        (seconds, Unit.SECONDS),
        (read, Unit.COUNT),
        (written, Unit.COUNT),
        (stored, Unit.BYTES),
    ]


def _medians(figures: list[tuple[float, float]]) -> Row:
    """The cells of seconds and of objects read."""
    seconds, read = zip(*figures, strict=True)
    return [(median(list(seconds)), Unit.SECONDS), (median(list(read)), Unit.COUNT)]


def _history(context: Context, count: int) -> Row:
    context.progress(f"growth: a history of {count} commits")
    meter = _Meter(context.fresh("history"))
    ids: list[str] = []
    with meter.opened() as (state, _):
        state["messages"] = context.data.messages(5)
        state["step"] = 0
        for number in range(count):
            state["step"] = number + 1
            ids.append(state.commit().id)
    works: tuple[Callable[[Versioned], object], ...] = (
        lambda state: state["messages"],
        lambda state: list(state.log(limit=PAGE)),
        lambda state: state.checkout(ids[len(ids) // 3])["step"],
    )
    figures: list[list[tuple[float, float]]] = [[], [], [], []]
    for _ in range(ROUNDS):
        figures[0].append(meter.opening(lambda _: None))
        with meter.opened() as (state, store):
            for figure, work in zip(figures[1:], works, strict=True):
                store.reset()
                figure.append((timed(partial(work, state)), store.counts.objects_read))
    return [f"{count:,}", *(cell for figure in figures for cell in _medians(figure))]


def _table(title: str, columns: Sequence[str], rows: list[Row]) -> Table:
    growth: Row = ["growth"]
    for first, last in zip(rows[0][1:], rows[-1][1:], strict=True):
        assert not isinstance(first, str)
        assert not isinstance(last, str)
        growth.append((last[0] / first[0], Unit.RATIO) if first[0] else "-")
    return Table(title, columns, [*rows, growth])


WORKLOADS = (Workload("growth", "how the cost of ours grows with lists, keys and commits", run, ours_alone=True),)
