"""``stream``: the events of one call, as they happen. Layer: agents.

A synchronous call runs in a thread of its own, in step with its reader, like a generator: after each event it waits
until the reader requests the next one. A coroutine does not wait.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import copy_context
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any, Final

from versioned_state.agents.tasks.round import OnEvent

_END: Final = object()


def stream(call: Callable[[OnEvent], object], on_event: OnEvent | None) -> Generator[Any, None, None]:
    """Iterate over the events of a call, which ``call`` makes with a listener.

    An exception of the call is raised after its last event.

    If the reader stops early, the call is closed at its next event: its changes are restored.
    """
    events: SimpleQueue[Any] = SimpleQueue()
    wanted = Semaphore(0)
    failures: list[BaseException] = []
    is_closed = False

    def listen(event: Any) -> None:
        if on_event is not None:
            on_event(event)
        if not is_closed:
            events.put(event)
            wanted.acquire()
        if is_closed:
            raise GeneratorExit

    def work() -> None:
        try:
            call(listen)
        except BaseException as error:  # noqa: BLE001 - raised below, by the reader
            failures.append(error)
        finally:
            events.put(_END)

    thread = Thread(target=copy_context().run, args=(work,), name="versioned-state stream", daemon=True)
    thread.start()
    try:
        while (event := events.get()) is not _END:
            yield event
            wanted.release()
    except BaseException:
        is_closed = True
        wanted.release()
        thread.join()
        raise
    thread.join()
    for failure in failures:
        raise failure


async def stream_async(call: Callable[[OnEvent], Any], on_event: OnEvent | None) -> AsyncGenerator[Any, None]:
    """Iterate over the events of a coroutine. If the reader stops early, the call is cancelled."""
    import asyncio

    events: asyncio.Queue[Any] = asyncio.Queue()

    def listen(event: Any) -> None:
        if on_event is not None:
            on_event(event)
        events.put_nowait(event)

    running = asyncio.ensure_future(call(listen))
    running.add_done_callback(lambda _: events.put_nowait(_END))
    try:
        while (event := await events.get()) is not _END:
            yield event
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait((running,))
            if not running.cancelled():
                running.exception()  # retrieved, so that asyncio does not report it
    await running
