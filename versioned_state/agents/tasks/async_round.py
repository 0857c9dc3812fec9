"""``AsyncRound``: the round of a call that is a coroutine. It loads asyncio. Layer: agents."""

from __future__ import annotations

from asyncio import current_task

from versioned_state.agents.call import Call
from versioned_state.agents.tasks.round import Round
from versioned_state.agents.tasks.ways import at_once, directly, off_loop
from versioned_state.off_loop import to_the_end
from versioned_state.state.aio.block import AsyncBlock


class AsyncRound(AsyncBlock):
    """A ``Round`` for a call that is a coroutine: the event loop never waits for the store.

    If a call is cancelled while it ends, its commit or its failure is recorded when ``CancelledError`` is raised.
    """

    def __init__(self, this: Round) -> None:
        super().__init__()
        self._round = this

    async def __aenter__(self) -> Call:
        self._round.reference = self.reference
        await self._round.begin(off_loop(current_task()))
        self.ends.append(self._leave)
        return self._round.call

    async def _leave(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        if kind is GeneratorExit:  # the coroutine is closed, and cannot wait
            at_once(self._round.finish(error, directly))
            return
        try:
            await to_the_end(self._round.finish(error, off_loop(current_task())))
        finally:
            self._round.call.has_ended = True  # unless a signal handler raised: then the next call on the state ends it
            self._round.leave_context()
