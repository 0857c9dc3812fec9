"""``open_async``: a state at a URL, opened off the event loop. Layer: state."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, update_wrapper
from typing import Any, ParamSpec

from versioned_state.off_loop import off_loop
from versioned_state.state.open import open as open_state
from versioned_state.state.versioned import Versioned

P = ParamSpec("P")


def _twin(opening: Callable[P, Versioned]) -> Callable[P, Coroutine[Any, Any, Versioned]]:
    async def open_async(*args: P.args, **kwargs: P.kwargs) -> Versioned:
        """Do as ``versioned_state.open``, off the event loop: the state at a URL or path.

        ``await state.aio.close()`` closes the state and its store, and so does the end of ``async with await open_async(url) as state:``.
        If the call is cancelled, nothing stays open.

        Raises:
            EventLoopError: asyncio runs no event loop here.
        """
        return await off_loop(partial(opening, *args, **kwargs), undo=lambda state: state.aio.close())

    return update_wrapper(open_async, opening, assigned=())


open_async = _twin(open_state)
