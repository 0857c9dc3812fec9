"""``ServiceWithLifecycleManager``, the base of all services, and the check of the ids that callers give.

Layer: services.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from versioned_state.arguments import count, instance_of


class ServiceWithLifecycleManager(ABC):
    """A service that is started and stopped.

    ``async with service:`` starts it, and stops it at the end of the block.
    """

    def __new__(cls, *_: Any, **__: Any) -> Self:
        if cls.__abstractmethods__ and "over" in vars(cls):  # not an adapter that lacks a method: Python names that
            name = cls.__name__
            raise TypeError(f"{name} is abstract: use {name}.over(store_or_url), or InMemory{name}() for one in memory")
        return super().__new__(cls)

    async def start(self) -> None:  # noqa: B027 - an adapter may need neither
        """Get ready: open connections. A second call does nothing."""

    async def stop(self) -> None:  # noqa: B027 - as above
        """Finish the accepted calls, and release the resources of ``start``.

        A second call does nothing. ``start`` works again.
        """

    @abstractmethod
    async def health(self) -> bool:
        """Return whether the service can do its work now. Never raises."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()


def as_id(name: str, id: object) -> str:
    """Return an id as a plain string.

    Raises ``InvalidArgumentError``, which names the argument, if it is not a string.
    """
    return id if type(id) is str else str.__str__(instance_of(name, id, str))


def check_counts(**counts: int | None) -> None:
    """Raise ``InvalidArgumentError``, which names the argument, for one that is neither None nor a count."""
    for name, value in counts.items():
        if value is not None:
            count(name, value)
