"""What the library asks of its surroundings, replaced in simulations: clocks, sleep, randomness, threads, event loops.

The names of the library's own modules are replaced, and what an ``import`` within a function finds from then on.
Pytest, its plugins and the standard library, which have imported theirs, go on as they were.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import pkgutil
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, Self, TypeVar

import versioned_state
from tests.simulation.scheduler import FiberLock, KilledError, Scheduler
from versioned_state import off_loop
from versioned_state.repository.maintenance import owner

T = TypeVar("T")

_LOCKS = (
    "versioned_state.repository.names.watching",
    "versioned_state.services.calls.locks",
    "versioned_state.state.aio.gate",
)
"""Modules whose locks are held while the store is asked."""

_VALUES = ("versioned_state.off_loop", "versioned_state.state.aio.gate", "versioned_state.state.aio.caller")
"""Modules that keep values by thread, as ``_this_thread``."""

_NOT_LOADED = ("cli", "sandbox", "integrations", "page", "redis", "postgres", "s3", "__main__")


class _World:
    scheduler: Scheduler | None = None
    rng = random.Random(0)
    outside: dict[str, Any] = {}  # noqa: RUF012 - the values of the thread outside of fibers


def scheduler() -> Scheduler | None:
    """Return the scheduler of the run, or None outside of one."""
    return _World.scheduler


def _now() -> int:
    world = _World.scheduler
    if world is None:
        return 0
    return world.now + (0 if world.current is None else world.current.process.skew)


def _time_ns() -> int:
    return _now() * 1000


def _time() -> float:
    return _now() / 1_000_000


def _monotonic() -> float:
    world = _World.scheduler
    return 0.0 if world is None else world.now / 1_000_000


def _sleep(seconds: float) -> None:
    world = _World.scheduler
    if world is None or world.current is None:
        return
    world.block(seconds)


def _bytes(n: int | None = None) -> bytes:
    return _World.rng.randbytes(16 if n is None else n)


def _hex(n: int | None = None) -> str:
    return _bytes(n).hex()


def _ident() -> int:
    world = _World.scheduler
    if world is None or world.current is None:
        return threading.get_ident()
    return world.current.number


def _uuid4() -> uuid.UUID:
    return uuid.UUID(bytes=_bytes(16), version=4)


class FiberFuture(Future[Any]):
    """A future for whose result a fiber waits."""

    def result(self, timeout: float | None = None) -> Any:
        world = _World.scheduler
        if world is not None and world.current is not None:
            while not self.done():
                world.block(0.001)
        return super().result(timeout)


class FiberExecutor:
    """Runs each call in a fiber of the process that submits it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        world = _World.scheduler
        assert world is not None
        assert world.current is not None
        future = FiberFuture()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = function(*args)
            except KilledError:
                raise
            except BaseException as error:  # noqa: BLE001 - it is the result
                future.set_exception(error)
            else:
                future.set_result(result)

        world.spawn(f"{world.current.name}.{getattr(function, '__name__', 'call')}", world.current.process, call)
        return future

    def shutdown(self, **_: Any) -> None:
        pass


_CLOCK = {
    "time": _time,
    "time_ns": _time_ns,
    "monotonic": _monotonic,
    "perf_counter": _monotonic,
    "process_time": _monotonic,
    "sleep": _sleep,
}


def _instead_of(module: ModuleType, replaced: dict[str, Any]) -> SimpleNamespace:
    """Return the public names of a module, some of them replaced."""
    return SimpleNamespace(**{name: value for name, value in vars(module).items() if name[0] != "_"} | replaced)


_RANDOM = {name: getattr(_World.rng, name) for name in dir(random) if name[0] != "_" and hasattr(_World.rng, name)}
_SECRETS = {
    "token_bytes": _bytes,
    "token_hex": _hex,
    "randbits": _World.rng.getrandbits,
    "randbelow": _World.rng.randrange,
}

_REPLACED: list[tuple[Any, Any]] = [
    (time, _instead_of(time, _CLOCK)),
    (random, _instead_of(random, _RANDOM)),
    (secrets, _instead_of(secrets, _SECRETS)),
    *((getattr(time, name), new) for name, new in _CLOCK.items()),
    (os.urandom, _bytes),
    (uuid.uuid4, _uuid4),
    (ThreadPoolExecutor, FiberExecutor),
    (threading.get_ident, _ident),
    # this process and its start: they are part of ids, and so of names and of addresses
    (owner._here, lambda _: (bytes(8), 1, 1)),
]


def _load_all() -> None:
    for module in pkgutil.walk_packages(versioned_state.__path__, "versioned_state."):
        if not set(module.name.split(".")) & set(_NOT_LOADED):
            importlib.import_module(module.name)


def _places() -> Iterator[tuple[dict[str, Any], str, Any]]:
    """The names to replace: the globals of a module, or all modules, the name, what it means in a simulation."""
    by_id = {id(old): new for old, new in _REPLACED}
    yield from ((sys.modules, module.__name__, new) for module, new in _REPLACED if isinstance(module, ModuleType))
    for name, module in sorted(sys.modules.items()):
        if not name.startswith("versioned_state"):
            continue
        space = vars(module)
        for key, value in list(space.items()):
            if id(value) in by_id:
                yield space, key, by_id[id(value)]
        if name in _LOCKS:
            yield space, "Lock", FiberLock
        if name in _VALUES:
            yield space, "_this_thread", FiberValues(space["_this_thread"])


@contextmanager
def simulated() -> Iterator[None]:
    """A block in which the library lives in simulations."""
    _load_all()
    replaced = []
    for space, key, new in list(_places()):
        replaced.append((space, key, space[key]))
        space[key] = new
    executor = off_loop._threads.executor
    off_loop._threads.executor = FiberExecutor()  # type: ignore[assignment]
    try:
        yield
    finally:
        off_loop._threads.executor = executor
        for space, key, old in replaced:
            space[key] = old


@contextmanager
def world(of: Scheduler, seed: int) -> Iterator[None]:
    """A block with a scheduler and its random numbers.

    Python's collector waits: what it finalizes must not depend on its timing.
    """
    _World.scheduler = of
    _World.rng.seed(f"{seed} surroundings")
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        _World.scheduler = None
        if was:
            gc.enable()


class FiberValues:
    """``threading.local`` for fibers: ``of`` has the values that a thread begins with."""

    def __init__(self, of: Any) -> None:
        object.__setattr__(self, "of", type(of))

    def _values(self) -> dict[str, Any]:
        world = _World.scheduler
        fiber = None if world is None else world.current
        return _World.outside if fiber is None else fiber.values.setdefault(id(self), {})

    def __getattr__(self, name: str) -> Any:
        values = self._values()
        return values[name] if name in values else getattr(object.__getattribute__(self, "of"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._values()[name] = value


class _Selector:
    def __init__(self, loop: FiberLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        world = _World.scheduler
        assert world is not None
        loop = self._loop
        loop.fiber = world.current
        if timeout is not None and timeout <= 0:
            world.point("the loop goes round")
        elif not loop.is_told:
            world.block(timeout)
        loop.is_told = False
        return []

    def close(self) -> None:
        pass


class FiberLoop(asyncio.BaseEventLoop):
    """An event loop of a fiber: while nothing is ready in it, the other fibers run."""

    def __init__(self) -> None:
        super().__init__()
        self.fiber: Any = None
        self.is_told = False
        self._selector = _Selector(self)
        self.set_exception_handler(lambda *_: None)

    def time(self) -> float:
        return _monotonic()

    def _write_to_self(self) -> None:
        world = _World.scheduler
        self.is_told = True
        if world is not None and self.fiber is not None:
            world.wake(self.fiber)

    def _process_events(self, _: Any) -> None:
        pass


def run_coroutine(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` in a fiber."""
    loop = FiberLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop._ready.clear()  # type: ignore[attr-defined]
        loop.close()
