"""``StoreService``: a service over a store: start, stop, sessions' branches, calls off the event loop. Layer: services.

::

    call ── accepted ── lane of the session ── worker: handle of the branch ── commit, sent with those of other sessions
              │ refused: RuntimeError, before ``start`` and after ``stop``
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any, ClassVar, Final, Self, TypeVar

from versioned_state.arguments import count, instance_of
from versioned_state.errors import InvalidArgumentError, ServiceNotStartedError
from versioned_state.objects.keys import FORMAT
from versioned_state.off_loop import off_loop, result_of, running_loop
from versioned_state.repository.names.branch_name import branch_name
from versioned_state.repository.repository import Repository
from versioned_state.services.base import ServiceWithLifecycleManager, as_id
from versioned_state.services.calls.handles import Handles
from versioned_state.services.calls.lanes import Lanes, LanesClosedError
from versioned_state.services.calls.telemetry import measure_calls
from versioned_state.services.calls.turn import Steps
from versioned_state.state.branch import port
from versioned_state.state.versioned import Versioned
from versioned_state.storage import Cache, KVStore, Memory, open_store
from versioned_state.storage.url import is_remote, redact
from versioned_state.storage.wrappers.cache import CACHE_BYTES

T = TypeVar("T")
Item = TypeVar("Item")

Place = KVStore | Repository | str | os.PathLike[str]
"""The store of a service: a store, a repository or a URL."""

THREADS: Final = 32
HANDLES: Final = 256
HANDLE_BYTES: Final = 64 << 20
_HEALTH_S: Final = 2.0
"""Seconds that the store has to answer ``health``."""


_REDIS: Final = "redis://localhost:6379/0"


def on_redis(place: Place | None, client: object) -> Place:
    """Return the store of a service on Redis, by default that of this machine.

    Raises ``InvalidArgumentError`` for a client.
    """
    if client is not None:  # it may decode values, and others may use its connections
        raise InvalidArgumentError(
            "redis_client is not supported", hint="pass redis_url=, or a versioned_state.storage.Redis"
        )
    return _REDIS if place is None else place


class StoreService(ServiceWithLifecycleManager):
    """A service over a ``KVStore``.

    Its calls are coroutines of any event loop, and do not wait for the store on the loop.

    The calls on one session run one after another, in the order in which they were made. Sessions do not wait for each
    other. A call that is cancelled before it has begun is dropped. One that has begun ends first, and then raises.
    Other processes and machines may work on the same store.

    Args:
        store: a ``KVStore``, a ``Repository`` or a URL for ``open_store``; by default a store in memory. A store that a
            URL names is opened by ``start`` and closed by ``stop``. Others stay open.
        threads: the largest number of threads that run calls. Another one begins only while calls wait and the process
            is not busy. A hook runs on such a thread: if it waits there for a call on its own session, or for any call
            while all threads do, it waits for ever.
        handles: how many sessions stay open between calls, so that the next call costs only what changed since.
        handle_bytes: approximate bytes of memory of all of them. The least recently used ones are closed first.
        cache_bytes: the size of the cache if the URL names a store across a network; 0 for none.
        encryption_key: as for ``open_store``.
    """

    kind: ClassVar[str] = ""
    """The first part of the branches' names.

    Two services over one store differ in it. It begins with a mark that begins no id.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        measure_calls(cls)

    def __init__(
        self,
        store: KVStore | Repository | str | os.PathLike[str] | None = None,
        *,
        threads: int = THREADS,
        handles: int = HANDLES,
        handle_bytes: int = HANDLE_BYTES,
        cache_bytes: int = CACHE_BYTES,
        encryption_key: bytes | None = None,
    ) -> None:
        instance_of("store", store, KVStore | Repository | str | os.PathLike | None)
        count("threads", threads, least=1)
        count("handles", handles)
        count("handle_bytes", handle_bytes)
        count("cache_bytes", cache_bytes)
        self._place = store
        self._threads = threads
        self._limit = handles
        self._handle_bytes = handle_bytes
        self._cache_bytes = cache_bytes
        self._encryption_key = encryption_key
        self._turn = Lock()  # of start and stop
        self._started = False
        self._stopped = False
        self._repository: Repository | None = None
        self._lanes: Lanes | None = None
        self._probe: Lanes | None = None  # for health: it must not wait behind the calls of sessions
        self._handles: Handles[Any] | None = None
        self._own_store: KVStore | None = None
        self._in_memory = store is None or isinstance(store, Memory)
        if store is None:
            self._place = Repository(Memory())

    def __repr__(self) -> str:
        place = self._place
        shown = redact(os.fspath(place)) if isinstance(place, str | os.PathLike) else repr(place)
        return f"<{type(self).__name__} over {shown}{'' if self._started else ', not started'}>"

    @classmethod
    def over(cls, store: KVStore | Repository | str | os.PathLike[str], **options: Any) -> Self:
        """Return the service over a store, which it does not close, a ``Repository`` or a URL.

        Options are those of the constructor.
        """
        if store is None:
            # Most likely a missing setting: a store in memory would lose everything at the end.
            raise InvalidArgumentError("None is not a store, a Repository or a URL", hint="memory is 'memory:'")
        return cls(store, **options)

    # Beginning and end

    async def start(self) -> None:
        """Open the store, if a URL names it. Cancelled, it leaves the service as it was.

        Raises:
            InvalidArgumentError: the URL is malformed.
            StorageError: the store cannot be opened, or is not a store of this library. The service is not started.
        """
        await off_loop(self._start, undo=self._undo_start)

    async def stop(self) -> None:
        """Refuse new calls, finish the accepted ones, and close what ``start`` opened.

        The content of a store in memory stays.
        """
        await off_loop(self._stop)

    async def health(self) -> bool:
        """Return whether the service is started, and its store answers within two seconds. Never raises."""
        probe, repository = self._probe, self._repository
        if not self._started or probe is None or repository is None:
            return False
        return await probe.answers(lambda: repository.store.get(FORMAT) is not None, _HEALTH_S)

    @property
    def repository(self) -> Repository:
        """The repository of the sessions: log, diff, checkout and the rest.

        Raises ``RuntimeError`` if the service is not started.
        """
        self._check_started()
        assert self._repository is not None
        return self._repository

    def _start(self) -> bool:
        """Start the service. Returns whether it was not started before."""
        with self._turn:
            if self._started:
                return False
            self._open()
            self._started, self._stopped = True, False
            return True

    async def _undo_start(self, began: bool) -> None:  # noqa: FBT001 - a result of ``_start``
        if began:  # ``async with`` stops only a service whose start has returned
            await self.stop()

    def join(self, other: StoreService) -> None:
        """Use another service's repository and lanes, and its handles if they are of one kind, until ``leave``."""
        self._repository, self._lanes, self._probe = other._repository, other._lanes, other._probe
        own = type(self)._open_handle is not type(other)._open_handle
        self._handles = Handles(self._limit, self._handle_bytes, self._open_handle) if own else other._handles
        self._started, self._stopped = True, False

    def leave(self) -> None:
        """Refuse calls, and release what belongs to the service that this one has joined."""
        handles, self._handles = self._handles, None
        self._started, self._stopped = False, True
        self._lanes = self._probe = None
        if handles is not None:
            handles.close()

    def _open(self) -> None:
        if self._lanes is not None:
            return
        place = self._place
        if isinstance(place, Repository):
            self._repository = place
        elif isinstance(place, KVStore):
            self._repository = Repository(place)
        else:
            assert place is not None
            store = open_store(place, encryption_key=self._encryption_key)
            try:
                cached = Cache(store, self._cache_bytes) if self._cache_bytes and is_remote(place) else store
                self._repository = Repository(cached)
            except BaseException:
                store.close()
                raise
            self._own_store = cached
        self._handles = Handles(self._limit, self._handle_bytes, self._open_handle)
        self._probe = Lanes(1)
        database = self._repository.database
        self._lanes = Lanes(self._threads, database.publish_each, together=database.store.sends_together)

    def _stop(self) -> None:
        with self._turn:
            lanes, probe, handles, store = self._lanes, self._probe, self._handles, self._own_store
            self._started, self._stopped = False, True
            if lanes is None or probe is None or handles is None:
                return
            try:
                lanes.close()
                probe.close()
                handles.close()
            finally:
                self._lanes = self._probe = self._handles = self._own_store = None
                if store is not None:
                    self._repository = None
                    store.close()

    def _check_started(self) -> None:
        if self._started:
            return
        if self._stopped or not self._in_memory:
            raise ServiceNotStartedError(type(self).__name__, stopped=self._stopped)
        with self._turn:
            if self._stopped:  # since the check
                raise ServiceNotStartedError(type(self).__name__, stopped=True)
            self._open()  # a service in memory needs no start

    @property
    def _accepted(self) -> tuple[Repository, Handles[Any]]:
        """The repository and the handles, for an accepted call, also while the service stops."""
        assert self._repository is not None
        assert self._handles is not None
        return self._repository, self._handles

    # Calls

    def branch(self, user_id: str, session_id: str) -> str:
        """Return the name of a session's branch. Raises ``InvalidArgumentError`` if an id is not a string."""
        name = branch_name(as_id("user_id", user_id), as_id("session_id", session_id))
        return f"{self.kind}/{name}" if self.kind else name

    async def run_in_turn(self, lane: str, function: Callable[[], T]) -> T:
        """Run a function off the loop, after the calls that its lane has already. Raises ``ServiceNotStartedError``."""
        return await self._submit(lambda lanes: lanes.submit(lane, function))

    async def _run_item(
        self, lane: str, item: Item, function: Callable[[list[Item]], Sequence[T | BaseException]]
    ) -> T:
        """Run a function of items off the loop, as ``Lanes.submit_item``: consecutive ones are processed together."""
        return await self._submit(lambda lanes: lanes.submit_item(lane, item, function))

    async def _run_steps(self, lane: str, function: Callable[[], Steps[T]]) -> T:
        """Run a generator function off the loop that yields ``Publication``s and gets ``publish_each``'s answers."""
        return await self._submit(lambda lanes: lanes.submit_steps(lane, function))

    async def _run_item_steps(
        self, lane: str, item: Item, function: Callable[[list[Item]], Steps[Sequence[T | BaseException]]]
    ) -> T:
        """Run a generator function of items off the loop, as ``_run_item`` and ``_run_steps``."""
        return await self._submit(lambda lanes: lanes.submit_item_steps(lane, item, function))

    async def _submit(self, submit: Callable[[Lanes], Future[T]]) -> T:
        running_loop()
        self._check_started()
        lanes = self._lanes
        try:
            if lanes is None:
                raise LanesClosedError
            future = submit(lanes)
        except LanesClosedError:  # stopped since the check
            raise ServiceNotStartedError(type(self).__name__, stopped=True) from None
        return await result_of(future)

    def _open_handle(self, branch: str) -> port.OpenHandle:
        """Open a handle on a branch. A service with handles of its own overrides this."""
        return Versioned(self._accepted[0], branch=branch)
