"""A stateless server's requests: open a session, read its last 20 messages, append two, save.

Other savers do the same, in turns.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import Step, alternate, ms, timed, timed_call
from benchmarks.sessions.sample import MESSAGES, POPPED, long_messages, messages
from versioned_state import Disk, KVStore, Repository, Versioned
from versioned_state.storage import Counting

Make = Callable[[int], list[dict[str, str]]]

_TURNS: Final = 20
_REQUESTS: Final = 5
"""Requests of a side, one after another: as many as it can serve from what the one before left in memory."""


def rows(folder: Path, make: Make) -> Iterator[list[str]]:
    """By side: a request, its ratio to ours, a pop from a long list, and the requests to the store.

    ``make`` makes the messages of the session.
    """
    with ExitStack() as stack:
        sides = {}
        for name, side in _SIDES.items():
            with suppress(ImportError):
                sides[name] = stack.enter_context(side(folder / f"{make.__name__}-{name.split()[0]}", make))
        seconds = alternate({name: step for name, (step, _, _) in sides.items()}, _TURNS, batch=_REQUESTS)
        ours = statistics.median(seconds[_OURS])
        for name, (_, pop, asked) in sides.items():
            taken = statistics.median(seconds[name])
            popped = statistics.median(pop(number) for number in range(15))
            yield [name, ms(taken), f"{ours / taken:.2f}", ms(popped), asked()]


def request(repository: Repository, branch: str, make: Make = messages) -> None:
    """What a server without state does for a message: open, read the last ones, append two, commit."""
    with Versioned(repository, branch=branch) as state:
        list_ = state.sequence("messages")
        assert len(list_[-20:]) == 20
        list_.extend(make(2))
        state.commit()


def pop(store: KVStore) -> None:
    """The last message of a long list removed, by a process that has just opened the store."""
    with Versioned(Repository(store), branch="popped") as state:
        state.sequence("messages").pop()
        state.commit()


Side = tuple[Step, Step, Callable[[], str]]
"""A request, a pop, and what a request asks of the store."""


@contextmanager
def _ours(path: Path, make: Make) -> Iterator[Side]:
    with Disk(path) as store:
        counting = Counting(store)
        repository = Repository(counting)
        for branch, count in (("long", MESSAGES), ("popped", POPPED)):
            with Versioned(repository, branch=branch) as state:
                state["messages"] = make(count)
                state.commit()

        def asked() -> str:
            request(repository, "long", make)  # the first one in this process asks for more
            counting.reset()
            request(repository, "long", make)
            counts = counting.counts
            return (
                f"{counts.round_trips} round trips, {counts.objects_read} objects read, "
                f"{counts.objects_written} written"
            )

        # The counting takes a tenth of a request.
        plain = Repository(store)
        yield lambda _: timed(partial(request, plain, "long", make)), lambda _: timed(partial(pop, store)), asked


@contextmanager
def _langgraph(path: Path, make: Make) -> Iterator[Side]:
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.base.id import uuid6
    from langgraph.checkpoint.sqlite import SqliteSaver

    connection = sqlite3.connect(path.with_suffix(".sqlite"), check_same_thread=False)
    try:
        saver = SqliteSaver(connection)
        saver.setup()

        def put(thread: str, content: list[dict[str, str]]) -> None:
            checkpoint = empty_checkpoint()
            checkpoint["id"] = str(uuid6(clock_seq=-1))
            checkpoint["channel_values"] = {"messages": content}
            saver.put({"configurable": {"thread_id": thread, "checkpoint_ns": ""}}, checkpoint, {"source": "loop"}, {})

        def change(thread: str, edit: Callable[[list[dict[str, str]]], object]) -> None:
            found = saver.get_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
            assert found is not None
            content = found.checkpoint["channel_values"]["messages"]
            edit(content)
            put(thread, content)

        put("long", make(MESSAGES))
        put("popped", make(POPPED))
        yield (
            lambda _: timed(partial(change, "long", lambda content: content.extend(make(2)))),
            lambda _: timed(partial(change, "popped", lambda content: content.pop())),
            lambda: "",
        )
    finally:
        connection.close()


@contextmanager
def _openai(path: Path, make: Make) -> Iterator[Side]:
    from agents.memory import SQLiteSession

    long, popped = (
        SQLiteSession("long", path.with_suffix(".sqlite")),
        SQLiteSession("popped", path.with_suffix(".sqlite")),
    )

    def added(count: int) -> Any:
        return make(count)

    async def ask() -> None:
        assert len(await long.get_items(limit=20)) == 20
        await long.add_items(added(2))

    with asyncio.Runner() as runner:
        runner.run(long.add_items(added(MESSAGES)))
        runner.run(popped.add_items(added(POPPED)))
        yield lambda _: runner.run(timed_call(ask)), lambda _: runner.run(timed_call(popped.pop_item)), lambda: ""
    long.close()
    popped.close()


_OURS: Final = "versioned-state"
_SIDES: Final = {_OURS: _ours, "LangGraph SqliteSaver": _langgraph, "OpenAI Agents SQLiteSession": _openai}

KINDS: Final = {"65 bytes": messages, "1 KB": long_messages}
"""The messages of the requests, by their size."""
