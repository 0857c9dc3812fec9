"""Session files: their names, and how they are written: off the event loop, in the order of the calls, each as a whole.

Layer: agents.

::

    session.json              a session of no user
    user%_session.json        a session of a user

The names are one to one from the ids, and safe on every file system. AgentScope writes ``session.json`` and
``user_session.json``. A session of no user whose id has only lower-case letters, digits and ``-_.@+=,`` has one name
there and here.

A reader of a file finds either the old content or the new. If several writes of one file wait, only the last is done,
at the turn of the first: so a burst costs two writes.

A temporary file is in the folder of its target, locked by the call that writes it. If the process is killed, the lock
ends, and the next call for that target reuses the file: so at most one temporary file remains for each concurrent call.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import IO, Final, TypeVar

from versioned_state.agents.modules.turns import Turns
from versioned_state.off_loop import off_loop
from versioned_state.repository.names.escape import escape

T = TypeVar("T")

_LONGEST_PART: Final = 100
"""In bytes: two parts, the separator and the ending of a temporary file make 255 at most."""

# Upper case, since some file systems do not distinguish it from lower case. A dot would hide the file. The last: CON,
# PRN, AUX, NUL, COM1, LPT1 and the like are devices on Windows, whatever ending they have.
_ESCAPED: Final = re.compile(
    r"[^a-z0-9_.@+=,-]|^\.|^(?:c(?=on(?:\.|$))|p(?=rn(?:\.|$))|a(?=ux(?:\.|$))|n(?=ul(?:\.|$))|[cl](?=(?:om|pt)\d(?:\.|$)))"
)

_UNSAFE: Final = re.compile(r"[/\\\x00]|^\.")


class _Call:
    """A call on a file, from its first step to its end: a write, which has data, or a read."""

    def __init__(self, data: bytes | None) -> None:
        self.data = data
        self.is_written = False


class SessionFiles:
    """The calls of this process on files. A forked process has none of its parent's."""

    def __init__(self) -> None:
        self._turns = Turns()
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = Lock()
        self._calls: dict[str, list[_Call]] = {}

    async def read(self, path: str, read: Callable[[], T]) -> T:
        """Run a function that reads a file, after its earlier and before its later writes, and return its result."""
        async with self._turn(path, None):
            return await off_loop(read)

    async def write(self, path: str, data: bytes) -> None:
        """Write a file, or leave it to a later call that writes newer content.

        Raises:
            OSError: the file is as it was before.
        """
        async with self._turn(path, data) as mine:
            if mine.is_written:
                return
            with self._lock:
                calls = self._calls[path]
                writes = list(takewhile(lambda call: call.data is not None, calls[calls.index(mine) :]))
            await off_loop(partial(replace_file, Path(path), writes[-1].data or b""))
            for write in writes:
                write.is_written = True

    @asynccontextmanager
    async def _turn(self, path: str, data: bytes | None) -> AsyncIterator[_Call]:
        mine = _Call(data)
        with self._lock:
            self._calls.setdefault(path, []).append(mine)
        try:
            async with self._turns.turn(path):
                yield mine
        finally:
            with self._lock:
                calls = self._calls[path]
                calls.remove(mine)
                if not calls:
                    del self._calls[path]


def replace_file(path: Path, data: bytes) -> None:
    """Replace the content of a file. Makes its folder if it is missing. Cost: one fsync.

    After a loss of power the file has the old content or the new.

    Raises:
        OSError: the file is as it was before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _temporary(path) as file:
        descriptor = file.fileno()
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
        with suppress(FileNotFoundError):
            os.fchmod(descriptor, stat.S_IMODE(path.stat().st_mode))
        Path(file.name).replace(path)


@contextmanager
def _temporary(path: Path) -> Iterator[IO[bytes]]:
    """Yield an empty file in the folder of a path, for this call alone.

    It is removed afterwards unless it was renamed.
    """
    number = 0
    while (file := _open_alone(path.with_name(f".{path.name}.{number}.tmp"))) is None:
        number += 1
    temporary = Path(file.name)
    with file:
        try:
            yield file
        except BaseException:
            # Only this call can rename it, so if it exists now, it stays until it is removed.
            if _is_at(file, temporary):
                temporary.unlink()
            raise


def _open_alone(temporary: Path) -> IO[bytes] | None:
    """Return a temporary file, emptied and locked, or None if another call works on it."""
    while True:
        with ExitStack() as stack:
            file = stack.enter_context(open(temporary, "ab", buffering=0, opener=_opener))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            if _is_at(file, temporary):  # if not, its call renamed or removed it before it was locked here
                file.truncate(0)  # a call that was killed had begun to write
                stack.pop_all()
                return file


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _is_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except FileNotFoundError:
        return False


# Names


def session_file(session_id: str, user_id: str) -> str:
    """Return the name of a session's file, which no other two ids have. No user is the empty id."""
    session = escape(session_id, _ESCAPED, longest=_LONGEST_PART)
    user = escape(user_id, _ESCAPED, longest=_LONGEST_PART) + "%_" if user_id else ""
    return f"{user}{session}.json"


def agentscope_file(session_id: str, user_id: str) -> str | None:
    """Return the name that AgentScope gave a session's file, or None if it is not the name of a file in the folder."""
    name = f"{user_id}_{session_id}.json" if user_id else f"{session_id}.json"
    try:
        is_safe = not _UNSAFE.search(name) and len(os.fsencode(name)) <= 255
    except UnicodeEncodeError:
        return None
    return name if is_safe else None
