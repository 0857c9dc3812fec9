"""``SandboxService``: sandboxes by session and user, and their files with the session's state. Layer: services."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

from versioned_state.arguments import count, instance_of, list_of, seconds
from versioned_state.errors import InvalidArgumentError, ServiceNotStartedError
from versioned_state.off_loop import off_loop
from versioned_state.sandbox.enums import SandboxType
from versioned_state.sandbox.local.temporary import TemporaryFolder
from versioned_state.sandbox.registry import check_type, is_local, make
from versioned_state.sandbox.sandbox import MAX_FILE_BYTES, MAX_FOLDER_BYTES, MAX_MEMORY, MAX_TOTAL_MEMORY, TIMEOUT
from versioned_state.services.agent_state.state_service import DEFAULT_SESSION, StateService, VersionedStateService
from versioned_state.services.base import ServiceWithLifecycleManager
from versioned_state.services.sandbox.session_files import SessionFiles

T = TypeVar("T")

_Key = tuple[str, str | None]
_NOT_MADE: Final = "no sandbox was made"


class SandboxService(ServiceWithLifecycleManager):
    """The sandboxes of each session of each user. A falsy ``session_id`` is ``"default"``.

    Calls may come from several threads. Those on one session wait for each other, those on different sessions do not.

    With ``state_service``, the sandboxes of a session share one folder, and its files belong to the session's state:
    ``save_state`` commits them with it, ``connect`` restores those of the latest round, and ``restore`` those of any
    round. Unsaved changes are lost at the release. Without ``state_service``, they share a folder too, which is not
    saved.

    Args:
        state_service: keeps the states of the sessions: a service over a store in this process.
        timeout: seconds that a call of a sandbox may take.
        max_memory: bytes of memory of each process of a sandbox.
        max_file_bytes: the largest file of a sandbox.
        max_total_memory: bytes of memory of all processes of a sandbox together.
        max_folder_bytes: the largest size of a session's files that ``save_state`` commits. Each file counts 4 KiB more
            than its size. If they take more on disk, the processes of the sandbox are ended.
        base_url, bearer_token: of a cluster of sandboxes, for registered factories. The library has none for clusters.
    """

    def __init__(
        self,
        state_service: StateService | None = None,
        timeout: float = TIMEOUT,
        max_memory: int = MAX_MEMORY,
        max_file_bytes: int = MAX_FILE_BYTES,
        *,
        max_total_memory: int = MAX_TOTAL_MEMORY,
        max_folder_bytes: int = MAX_FOLDER_BYTES,
        base_url: str | None = None,
        bearer_token: str | None = None,
    ) -> None:
        over_store = (
            "one over a store in this process keeps the files of sandboxes: "
            "InMemoryStateService(), StateService.over(store)"
        )
        self._states: VersionedStateService | None
        self._states = instance_of("state_service", state_service, VersionedStateService | None, hint=over_store)
        self._options: dict[str, Any] = {
            "timeout": seconds("timeout", timeout, above=True, remains=_NOT_MADE),
            "max_memory": count("max_memory", max_memory, least=1, remains=_NOT_MADE),
            "max_file_bytes": count("max_file_bytes", max_file_bytes, least=1, remains=_NOT_MADE),
            "max_total_memory": count("max_total_memory", max_total_memory, least=1, remains=_NOT_MADE),
            "max_folder_bytes": count("max_folder_bytes", max_folder_bytes, least=1, remains=_NOT_MADE),
            "base_url": base_url,
            "bearer_token": bearer_token,
        }
        self._started = False
        self._stopped = False
        self._renew()
        _all.add(self)

    def _renew(self) -> None:
        """Begin without sandboxes, as in the child of a fork, since they belong to the parent."""
        self._sessions: dict[_Key, SessionSandboxes] = {}
        self._lock = Lock()  # of the dict

    # Beginning and end

    async def start(self) -> None:
        """Start the service. Local sandboxes can be connected before that."""
        self._started, self._stopped = True, False

    async def stop(self) -> None:
        """Release the sandboxes of all sessions.

        Calls under way on them end. Raises what ``release`` raises, once all are released.
        """
        with self._lock:
            self._started, self._stopped = False, True
        await off_loop(self._release_all)

    async def health(self) -> bool:
        """Return whether the service is started."""
        return self._started

    # Sessions

    def connect(
        self,
        session_id: str,
        user_id: str | None = None,
        env_types: Iterable[Any] | None = None,
        tools: Iterable[Any] | None = None,
        *,
        sandbox_types: Iterable[Any] | None = None,
    ) -> list[Any]:
        """Return the sandboxes of a session, one for each type, in the order of the types.

        A session keeps its existing sandboxes.

        The types are those of ``env_types`` (or ``sandbox_types``) and those that the ``tools`` need; a function
        without ``sandbox_type`` needs none. If nothing names a type, they are all of the session, or ``base``. Makes
        all missing ones, or none.

        It is not a coroutine, and does not start a process. With ``state_service``, the first call of a session reads
        the store and writes the files of the latest round. ``await asyncio.to_thread(service.connect, …)`` keeps that
        off the event loop.

        Raises:
            InvalidArgumentError: an id is not a string, or a type is unknown or has no factory (with ``base_url``, a
                registered one).
            ServiceNotStartedError: the service was stopped, or the state service is not started.
            SandboxError, WorkspaceError, StorageError: the folder or its files cannot be made. Errors of factories too.
        """
        key = _key(session_id, user_id)
        types = self._types(env_types, sandbox_types, tools)
        return self._with_session(key, lambda session: session.connect(types))

    def release(self, session_id: str, user_id: str | None = None) -> bool:
        """Release the sandboxes of a session, with their processes and their folder. Returns whether there were any.

        Unsaved changes of files are lost. A save under way commits the files first.

        Raises:
            InvalidArgumentError: an id is not a string.
            ExceptionGroup: the errors of plug-ins that were closed. The others are released.
        """
        with self._lock:
            session = self._sessions.pop(_key(session_id, user_id), None)
        if session is None:
            return False
        with session.lock:
            session.close()
        return True

    async def restore(
        self,
        session_id: str,
        user_id: str | None = None,
        round_id: int | None = None,
        overwrite: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        """Restore the session's files to a round, by default the latest one, as ``export_state`` exports the state.

        The next save commits them. Files that are not in the round are removed. A session without sandboxes gets its
        folder.

        Args:
            overwrite: replace and remove also files whose content is in no round.

        Raises:
            DirtyWorkspaceError: such files would be lost. The error names them. Nothing was changed.
            UnknownRevisionError: the session has no such round.
            InvalidArgumentError: there is no ``state_service``, or an id is not a string.
            ServiceNotStartedError, WorkspaceError, StorageError: as ``connect``.
        """
        await self._on_files(session_id, user_id, lambda files: files.restore(round_id, overwrite=overwrite))

    async def keep(self, session_id: str, user_id: str | None = None) -> None:
        """Keep the files in the folder after a refused save: the next one replaces those of another process.

        Raises as ``restore``.
        """
        await self._on_files(session_id, user_id, lambda files: files.keep())

    async def _on_files(self, session_id: str, user_id: str | None, function: Callable[[Any], None]) -> None:
        key = _key(session_id, user_id)
        if self._states is None or user_id is None:
            what = "without state_service=" if self._states is None else "of a session without a user"
            raise InvalidArgumentError(f"files {what} are in no round")
        # In the session's lane, so that it waits for the saves that were called before.
        await self._states.run_in_turn(
            self._states.branch(user_id, session_id),
            lambda: self._with_session(key, lambda session: function(session.files)),
        )

    def _with_session(self, key: _Key, function: Callable[[SessionSandboxes], T]) -> T:
        """Call a function with a session, which is made if it is new.

        If that or the call fails, a new session is removed.
        """
        while True:
            session = self._session(key)
            with session.lock:
                if session.is_closed:
                    continue  # released since
                is_new = not session.is_open
                try:
                    self._open(session, key)
                    return function(session)
                except BaseException:
                    if is_new:
                        with self._lock:
                            if self._sessions.get(key) is session:
                                del self._sessions[key]
                        session.close()
                    raise

    def _session(self, key: _Key) -> SessionSandboxes:
        with self._lock:
            if self._stopped:
                raise ServiceNotStartedError(type(self).__name__, stopped=True)
            session = self._sessions.get(key)
            if session is None:
                session = self._sessions[key] = SessionSandboxes(
                    {**self._options, "session_id": key[0], "user_id": key[1]}
                )
            return session

    def _open(self, session: SessionSandboxes, key: _Key) -> None:
        session_id, user_id = key
        if self._states is None or user_id is None:
            session.open(None, "", 0)
        else:
            session.open(self._states, self._states.branch(user_id, session_id), self._options["max_folder_bytes"])

    def _types(
        self, env_types: Iterable[Any] | None, sandbox_types: Iterable[Any] | None, tools: Iterable[Any] | None
    ) -> list[str]:
        wanted: list[Any] = []
        for name, types in (("env_types", env_types), ("sandbox_types", sandbox_types)):
            wanted += [each for each in _list(name, types) if each is not None]
        for tool in _list("tools", tools):
            if not callable(tool) and not hasattr(tool, "sandbox_type"):
                raise InvalidArgumentError(
                    f"{tool!r:.100} is not a tool", remains=_NOT_MADE, hint="pass the tool, not its name"
                )
            if (needed := getattr(tool, "sandbox_type", None)) is not None:
                wanted.append(needed)
        found = list(dict.fromkeys(check_type(each) for each in wanted))
        if self._options["base_url"] is not None:
            for each in found or ["base"]:
                if is_local(each):
                    raise InvalidArgumentError(
                        f"sandboxes of type {each!r} on {self._options['base_url']!r} need a factory: "
                        "the library makes only local ones",
                        remains=_NOT_MADE,
                        hint=f"versioned_state.sandbox.register({each!r}, factory); "
                        "it receives base_url and bearer_token",
                    )
        return found

    def _release_all(self) -> None:
        with self._lock:
            keys = list(self._sessions)
        errors: list[Exception] = []
        for session_id, user_id in keys:
            try:
                self.release(session_id, user_id)
            except Exception as error:  # noqa: BLE001 - of a plug-in; raised below
                errors.append(error)
        if errors:
            raise ExceptionGroup("sandboxes could not be released", errors)


_all: Final[weakref.WeakSet[SandboxService]] = weakref.WeakSet()


def _renew_all() -> None:
    for each in list(_all):
        each._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


def _key(session_id: str, user_id: str | None) -> _Key:
    instance_of("session_id", session_id, str)
    instance_of("user_id", user_id, str | None)
    return str(session_id) or DEFAULT_SESSION, None if user_id is None else str(user_id)


def _list(name: str, values: Iterable[Any] | None) -> list[Any]:
    return [] if values is None else list_of(name, values, remains=_NOT_MADE)


_DEFAULT: Final = (str(SandboxType.BASE),)


class SessionSandboxes:
    """The sandboxes of one session, by type, and the folder that they share. ``lock`` is held around each call.

    Args:
        options: the options for factories, except the folder.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.lock: Final = Lock()
        self.is_closed: bool = False
        self.files: SessionFiles | None = None
        self._options = options
        self._place: TemporaryFolder | None = None
        self._folder = Path()
        self._sandboxes: dict[str, Any] = {}

    def open(self, service: VersionedStateService | None, branch: str, max_bytes: int) -> None:
        """Make the folder unless it exists, with the files of the session's last round if there is a state service."""
        if self._place is not None:
            return
        place = TemporaryFolder()
        try:
            if service is None:
                self._folder = place.path / "files"
                self._folder.mkdir()
            else:
                self.files = SessionFiles(service, branch, place, max_bytes)
                self._folder = self.files.folder
        except BaseException:
            place.remove()
            raise
        self._place = place

    @property
    def is_open(self) -> bool:
        """Whether there is a folder."""
        return self._place is not None

    def connect(self, types: Sequence[str]) -> list[Any]:
        """Return the sandboxes of these types, by default all, or a new ``base``.

        The missing ones are made: all of them, or none.
        """
        wanted = types or list(self._sandboxes) or _DEFAULT
        made: dict[str, Any] = {}
        try:
            for each in wanted:
                if each not in self._sandboxes and each not in made:
                    made[each] = make(each, {**self._options, "folder": self._folder})
        except BaseException:
            close_all(made.values())
            raise
        self._sandboxes |= made
        return [self._sandboxes[each] for each in dict.fromkeys(wanted)]

    def close(self) -> None:
        """Close all sandboxes, and remove the folder. Raises their errors once all is done. Idempotent."""
        self.is_closed = True
        sandboxes, self._sandboxes = self._sandboxes, {}
        try:
            close_all(sandboxes.values())
        finally:
            if self.files is not None:
                self.files.close()
            elif self._place is not None:
                self._place.remove()


def close_all(sandboxes: Any) -> None:
    """Close all sandboxes, even if some fail. Raises their errors in an ``ExceptionGroup``."""
    errors: list[Exception] = []
    for each in sandboxes:
        close = getattr(each, "close", None)
        if callable(close):
            try:
                close()
            except Exception as error:  # noqa: BLE001 - of a plug-in; raised below
                errors.append(error)
    if errors:
        raise ExceptionGroup("sandboxes could not be closed", errors)
