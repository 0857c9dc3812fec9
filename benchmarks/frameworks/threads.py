"""Threads in the stores of a framework, ours and its own: the same calls of its interface, with the same content.

Each read is compared between the sides, and with the texts that were stored, before anything is timed.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.frameworks.tables import OURS, THEIRS, Table, bytes_row, row, text
from benchmarks.measure import alternate

_BATCH: Final = 10
_LARGE_BATCH: Final = 50
"""For short, many rounds: each turn begins with a garbage collection, which takes as long as a hundred of them."""

_THREAD: Final = "thread"


Open = Callable[[Path], AbstractContextManager[Any]]
"""Opens a store in a folder, and closes it after the block, which gets what the calls of the framework are made on."""


def adapter(name: str, wrap: Callable[[Any], Any] = lambda store: store) -> Open:
    """Return what opens one of our adapters by its module and class, and wraps it."""
    module, _, cls = name.partition(".")

    @contextmanager
    def opened(folder: Path) -> Iterator[Any]:
        with getattr(import_module(f"versioned_state.integrations.{module}"), cls)(folder) as store:
            yield wrap(store)

    return opened


def never_closed(make: Callable[[Path], Any]) -> Open:
    """Return what opens a store of a framework that has no call to close it."""

    @contextmanager
    def opened(folder: Path) -> Iterator[Any]:
        yield make(folder)

    return opened


@dataclass(frozen=True)
class Framework:
    """A framework, its two stores, and the calls on them.

    Attributes:
        name: of the framework's own store.
        open: opens the store of a side.
        put: stores the next step of a thread; called with the store, the thread, the number of the step and the texts
            so far, of which the last one is new.
        get: returns the texts of a thread. A thread of ``is_log`` has them all, any other those of its last step.
        begin: makes a thread before its first step, where the framework wants that. It counts as a part of the first
            step.
        reads: other reads, by name.
        delete: deletes a thread.
        is_log: whether a step appends; otherwise it stores a checkpoint with all texts.
        has_history: whether the framework's own store keeps the earlier steps too.
    """

    name: str
    open: Mapping[str, Open]
    put: Callable[[Any, str, int, list[str]], Awaitable[object]]
    get: Callable[[Any, str], Awaitable[list[str]]]
    begin: Callable[[Any, str], Awaitable[object]] | None = None
    reads: Mapping[str, Callable[[Any, str], Awaitable[Any]]] = field(default_factory=dict)
    delete: Callable[[Any, str], Awaitable[object]] | None = None
    is_log: bool = True
    has_history: bool = False


class _Sides:
    """Both stores of a framework, open, on an event loop of their own."""

    def __init__(self, framework: Framework, folder: Path) -> None:
        self._framework = framework
        self._folder = folder
        self._stack = ExitStack()
        self.stores: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._runner = self._stack.enter_context(asyncio.Runner())
        for name in (OURS, THEIRS):
            (self._folder / name).mkdir(exist_ok=True)
            self.stores[name] = self._stack.enter_context(self._framework.open[name](self._folder / name))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def result(self, call: Awaitable[Any]) -> Any:
        async def run() -> Any:
            return await call

        return self._runner.run(run())

    def row(
        self, name: str, call: Callable[[Any, int], Awaitable[Any]], turns: int, *, batch: int, aim: str = ""
    ) -> list[str]:
        """The row of a call on the store of each side, which gets the number of the round too."""
        cpu = dict.fromkeys(self.stores, 0.0)

        def seconds(side: str, at: int) -> float:
            async def run() -> float:
                before, start = time.process_time(), time.perf_counter()
                await call(self.stores[side], at)
                end = time.perf_counter()
                cpu[side] += time.process_time() - before
                return end - start

            return self._runner.run(run())

        return row(
            name, alternate({side: partial(seconds, side) for side in self.stores}, turns, batch=batch), aim, cpu
        )

    def check(self, read: Callable[[Any, str], Awaitable[Any]], thread: str, expected: Any = None) -> None:
        ours, theirs = (self.result(read(self.stores[name], thread)) for name in (OURS, THEIRS))
        assert ours == theirs, f"ours {ours!r:.300}, theirs {theirs!r:.300}"
        assert expected is None or ours == expected, f"{ours!r:.300} is not {expected!r:.300}"


async def _put(framework: Framework, thread: str, texts: Callable[[int], list[str]], store: Any, step: int) -> None:
    if step == 0 and framework.begin is not None:
        await framework.begin(store, thread)
    await framework.put(store, thread, step, texts(step))


def _reads(framework: Framework, sides: _Sides, thread: str, expected: list[str], turns: int) -> list[list[str]]:
    sides.check(framework.get, thread, expected)
    rows = []
    for name, read in {"get": framework.get, **framework.reads}.items():
        sides.check(read, thread)
        rows.append(sides.row(name, lambda store, _, read=read: read(store, thread), turns, batch=3))  # type: ignore[misc]
    return rows


def _delete(framework: Framework, sides: _Sides, threads: Sequence[str], batch: int = 1) -> list[list[str]]:
    delete = framework.delete
    if delete is None:
        return []
    rows = [
        sides.row("delete", lambda store, at: delete(store, threads[at]), len(threads) // batch, batch=batch, aim="1")
    ]
    for thread in threads:
        sides.check(framework.get, thread, [])
    return rows


def _conversation(framework: Framework, count: int, size: int, folder: Path, *, quick: bool) -> Table:
    count = count // 10 if quick else count
    dice = random.Random(1)
    texts = [text(dice, size) for _ in range(count)]
    with _Sides(framework, folder) as sides:
        put = partial(_put, framework, _THREAD, lambda at: texts[: at + 1])
        rows = [sides.row("put", put, count // _BATCH, batch=_BATCH, aim="1")]
        rows += _reads(framework, sides, _THREAD, texts, 3 if quick else 9)
    rows.append(bytes_row(folder, "0.1" if framework.has_history else "1.1"))
    with _Sides(framework, folder) as sides:
        rows += _delete(framework, sides, [_THREAD])
    return f"a conversation of {count} messages of {size} B, beside {framework.name}", rows


def _small(framework: Framework, folder: Path, *, quick: bool) -> Table:
    count = 300 if quick else 3_000
    with _Sides(framework, folder) as sides:
        put = partial(_put, framework, _THREAD, lambda at: [f"message {at}"])
        rows = [sides.row("put", put, count // _LARGE_BATCH, batch=_LARGE_BATCH, aim="1")]
        expected = [f"message {at}" for at in range(0 if framework.is_log else count - 1, count)]
        rows += _reads(framework, sides, _THREAD, expected, 3)
    rows.append(bytes_row(folder, "1.1"))
    with _Sides(framework, folder) as sides:
        rows += _delete(framework, sides, [_THREAD])
    return f"{count:,} small {'messages' if framework.is_log else 'checkpoints'}, beside {framework.name}", rows


def _threads(framework: Framework, folder: Path, *, quick: bool) -> Table:
    count = 200 if quick else 10_000
    dice = random.Random(1)
    names = [str(uuid.UUID(int=dice.getrandbits(128))) for _ in range(count)]

    def texts(at: int) -> list[str]:
        words = random.Random(at)
        return [text(words, 200) for _ in range(2)]

    async def two(store: Any, at: int) -> None:
        given = texts(at)
        for step in range(2):
            await _put(framework, names[at], lambda step: given[: step + 1], store, step)

    with _Sides(framework, folder) as sides:
        rows = [sides.row("two puts", two, count // _LARGE_BATCH, batch=_LARGE_BATCH, aim="1")]
        some = [(at, names[at]) for at in dice.sample(range(count), 60)]
        for at, name in some[:10]:
            sides.check(framework.get, name, texts(at))
        rows.append(sides.row("get", lambda store, at: framework.get(store, some[at][1]), 20, batch=3))
    rows.append(bytes_row(folder, "1.1"))
    with _Sides(framework, folder) as sides:
        rows += _delete(framework, sides, [name for _, name in some], batch=3)
    return f"{count:,} threads of two messages, beside {framework.name}", rows


def parts(framework: Framework) -> dict[str, Callable[..., Table]]:
    """Return the tables of a framework, by name: functions of a folder and ``quick``."""
    return {
        "conversation-200": partial(_conversation, framework, 200, 400),
        "conversation-400": partial(_conversation, framework, 400, 1_000),
        "small": partial(_small, framework),
        "threads": partial(_threads, framework),
    }
