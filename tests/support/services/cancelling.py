"""Cancels a call of a service at a step: at a request to the store, before or after it, or where the call waits."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tests.support.dice import dice
from tests.support.services.service_changes import Change, look, prepare
from versioned_state.storage import KVStore
from versioned_state.storage.wrapper import Wrapper

_TURNS = 5
"""Turns of the loop after which a cancellation has reached whatever it reaches."""


class Step(NamedTuple):
    """A step of a call: the number of a request, or of a place where it waits."""

    kind: Literal["begin", "store", "waits", "ready"]
    number: int = 0


class Stepping(Wrapper):
    """A store that tells of each request, before and after it."""

    def __init__(self, store: KVStore) -> None:
        super().__init__(store)
        self.step: Callable[[], None] = lambda: None

    def get(self, key: str) -> bytes | None:
        self.step()
        found = super().get(key)
        self.step()
        return found

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        self.step()
        found = super().get_many(keys)
        self.step()
        return found

    def keys(self, prefix: str = "") -> Iterator[str]:
        self.step()
        return super().keys(prefix)

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        self.step()
        done = super().apply(expected, puts, deletes, objects=objects)
        self.step()
        return done


@dataclass
class Cancelling:
    """Runs a call, and does something to it, by default cancels it, at one step, if it gets there.

    Attributes:
        at: the step; None: none.
        seen: the steps that the call has taken.
    """

    at: Step | None = None
    interrupt: Callable[[], object] | None = None
    seen: list[Step] = field(default_factory=list)

    async def run(self, call: Awaitable[Any], store: Stepping | None = None) -> Any:
        """Return the result of the call, or the exception that it raised."""
        self._loop = asyncio.get_running_loop()
        self._turn = threading.Lock()
        self._requests = 0
        if store is not None:
            store.step = self._request
        self._task = asyncio.ensure_future(self._watched(call))
        self._take(Step("begin"))
        try:
            async with asyncio.timeout(30):
                results = await asyncio.gather(self._task, return_exceptions=True)
        finally:
            if store is not None:
                store.step = lambda: None
            if inspect.iscoroutine(call):
                call.close()  # it may never have begun
        return results[0]

    async def _watched(self, call: Awaitable[Any]) -> Any:
        return await _Waits(call, self)

    def _take(self, step: Step) -> None:
        self.seen.append(step)
        if step == self.at:
            (self.interrupt or self._task.cancel)()

    def _request(self) -> None:
        """A step of a thread, which goes on once the cancellation has arrived."""
        with self._turn:
            step = Step("store", self._requests)
            self._requests += 1
            self.seen.append(step)
        if step == self.at:
            arrived = threading.Event()
            self._loop.call_soon_threadsafe(self._interrupt_and_tell, arrived, _TURNS)
            assert arrived.wait(20)

    def _interrupt_and_tell(self, arrived: threading.Event, turns: int) -> None:
        if turns == _TURNS:
            (self.interrupt or self._task.cancel)()
        if turns:
            self._loop.call_soon(self._interrupt_and_tell, arrived, turns - 1)
        else:
            arrived.set()

    def _waits_for(self, future: asyncio.Future[Any], number: int) -> None:
        self.seen += [Step("waits", number), Step("ready", number)]
        interrupt = self.interrupt or self._task.cancel
        if self.at == Step("waits", number):
            self._loop.call_soon(interrupt)
        elif self.at == Step("ready", number):
            future.add_done_callback(lambda _: interrupt())  # before that of the task, which has not been told


class _Waits:
    """An awaitable that tells of each place where another one waits."""

    def __init__(self, call: Awaitable[Any], cancelling: Cancelling) -> None:
        self._call = call
        self._cancelling = cancelling

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._call.__await__()
        number = 0
        waits_for = next(steps)
        while True:
            if waits_for is not None:
                self._cancelling._waits_for(waits_for, number)
                number += 1
            try:
                try:
                    sent = yield waits_for
                except BaseException as error:  # noqa: BLE001 - passed on
                    waits_for = steps.throw(error)
                else:
                    waits_for = steps.send(sent)
            except StopIteration as end:
                return end.value


async def twice(change: Change, service: Any, store: Stepping) -> tuple[list[Any], list[Step]]:
    """Return the content before a change, after it, and after its repetition, and the steps of the change."""
    cancelling = Cancelling()
    await prepare(service)
    found = [await look(service)]
    for each in (cancelling, Cancelling()):
        result = await each.run(change.call(service), store)
        assert not isinstance(result, BaseException), result
        found.append(await look(service))
    return found, cancelling.seen


async def cancelled_at(
    step: Step, change: Change, service: Any, store: Stepping, expected: list[Any], ended: Callable[[], Awaitable[None]]
) -> bool:
    """Cancel a change at a step, and check the content then, and after its repetition. Returns whether it was done.

    Args:
        expected: the content before the change, after it, and after its repetition.
        ended: waits for the end of what goes on behind a cancelled call.
    """
    before, once, again = expected
    await prepare(service)
    result = await Cancelling(step).run(change.call(service), store)
    await ended()
    found = await look(service)
    if isinstance(result, BaseException):
        assert isinstance(result, asyncio.CancelledError), (step, result)
        assert found in (before, once), step
    else:
        assert found == once, step
    await asyncio.wait_for(change.call(service), 20)
    assert await look(service) == (again if found == once else once), step
    return bool(found == once)


def chosen(steps: list[Step], count: int | None) -> list[Step]:
    """Return the first and the last step of each kind, and some others, or all of them if there is no count."""
    if count is None:
        return steps
    ends = []
    for kind in dict.fromkeys(step.kind for step in steps):
        of_kind = [step for step in steps if step.kind == kind]
        ends += [of_kind[0], of_kind[-1]]
    others = [step for step in steps if step not in ends]
    return list(dict.fromkeys([*ends, *dice(steps).sample(others, min(count, len(others)))]))
