"""AgentScope: ``VersionedSession`` of modules beside ``JSONSession``, which rewrites all and keeps no history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.frameworks.tables import OURS, THEIRS
from benchmarks.frameworks.threads import Framework, parts


class _Sessions:
    """Sessions, and the memory of an agent that is saved in the last one."""

    def __init__(self, sessions: Any) -> None:
        self.sessions = sessions
        self._thread = ""
        self._memory: Any = None

    async def put(self, thread: str, step: int, texts: list[str]) -> None:
        from agentscope.memory import InMemoryMemory
        from agentscope.message import Msg

        if thread != self._thread or len(texts) == 1:
            self._thread, self._memory = thread, InMemoryMemory()
        await self._memory.add(Msg("guide" if step % 2 else "ann", texts[-1], "assistant" if step % 2 else "user"))
        await self.sessions.save_session_state(thread, memory=self._memory)

    async def get(self, thread: str) -> list[str]:
        from agentscope.memory import InMemoryMemory

        memory = InMemoryMemory()
        await self.sessions.load_session_state(thread, memory=memory)
        return [message.content for message in await memory.get_memory()]


@contextmanager
def _ours(folder: Path) -> Iterator[_Sessions]:
    from versioned_state import Disk
    from versioned_state.agents.modules import VersionedSession

    with Disk(folder) as store:
        yield _Sessions(VersionedSession(store))


@contextmanager
def _theirs(folder: Path) -> Iterator[_Sessions]:
    import logging

    from agentscope.session import JSONSession

    logging.getLogger("as").setLevel(logging.WARNING)  # else it logs a line for each save and load
    yield _Sessions(JSONSession(str(folder)))


PARTS: Final = parts(
    Framework("JSONSession", {OURS: _ours, THEIRS: _theirs}, _Sessions.put, _Sessions.get, is_log=False)
)
