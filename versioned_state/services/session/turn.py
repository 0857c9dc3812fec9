"""``Turn``: a block in which the state, the messages and the memory of a session change together. Layer: services."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from types import TracebackType
from typing import Any, Self

from versioned_state.errors import HandleClosedError, InvalidArgumentError
from versioned_state.repository.history.commit import Commit
from versioned_state.services.schemas.agent_schemas import Message
from versioned_state.services.session_history.messages import as_messages

Given = Message | Mapping[str, Any]


class TurnState(MutableMapping[str, Any]):
    """The state of a session during a turn: a mapping of its keys. Values may be changed in place.

    Args:
        values: the state's keys.
        hidden: keys that are not a part of it.
    """

    def __init__(self, values: MutableMapping[str, Any], hidden: frozenset[str] = frozenset()) -> None:
        self._values: MutableMapping[str, Any] | None = values
        self._hidden = hidden
        self.used: set[str] = set()

    def end(self) -> None:
        """Refuse further calls."""
        self._values = None

    @property
    def _open(self) -> MutableMapping[str, Any]:
        if self._values is None:
            raise HandleClosedError("the turn has ended, and its state with it")
        return self._values

    def __getitem__(self, key: str) -> Any:
        if key in self._hidden:
            raise KeyError(key)
        value = self._open[key]
        self.used.add(key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        if key in self._hidden:
            raise InvalidArgumentError(
                f"the key {key!r} belongs to the files of the session", remains="nothing was changed"
            )
        self._open[key] = value
        self.used.add(key)

    def __delitem__(self, key: str) -> None:
        if key in self._hidden:
            raise KeyError(key)
        del self._open[key]
        self.used.add(key)

    def __contains__(self, key: object) -> bool:
        return key not in self._hidden and key in self._open

    def __iter__(self) -> Iterator[str]:
        return (key for key in self._open if key not in self._hidden)

    def __len__(self) -> int:
        return len(self._open) - sum(key in self._open for key in self._hidden)

    def clear(self) -> None:
        for key in list(self):
            del self[key]

    def __repr__(self) -> str:
        return (
            "<the state of a turn that has ended>" if self._values is None else f"{type(self).__name__}({dict(self)!r})"
        )


class Turn(ABC):
    """A turn of a session: ``async with service.turn(user_id, session_id) as turn``. For one task, and for one block.

    At the end of the block, all changes become one commit, or none. If the block raises or is cancelled, nothing of it
    is left.

    Attributes:
        commit: after the block, the commit of the turn. If the turn changed nothing, the head of the session, or None
            if there is none.
    """

    def __init__(self) -> None:
        self.commit: Commit | None = None
        self._state: TurnState | None = None
        self._messages: list[dict[str, Any]] = []
        self._remembered: list[dict[str, Any]] = []

    @property
    def state(self) -> TurnState:
        """The keys of the session's state, to read and to change. Raises ``HandleClosedError`` outside of the block."""
        if self._state is None:
            raise HandleClosedError("a turn is used outside of its block", hint="async with service.turn(…) as turn:")
        return self._state

    def append(self, message: Given | Sequence[Given]) -> None:
        """Append a message or several to the history of the session, as they are now.

        A message that the session already has, with the same id and content, is not appended again.

        Raises:
            InvalidArgumentError: one is not a message. Nothing was appended.
            HandleClosedError: outside of the block.

            The end of the block raises ``IdempotencyConflictError`` if the session has another message with its id.
        """
        self._add(self._messages, message)

    def remember(self, messages: Given | Sequence[Given]) -> None:
        """Add a message or several to the memory of the user, in this session. Raises as ``append``."""
        self._add(self._remembered, messages)

    def _add(self, to: list[dict[str, Any]], messages: Given | Sequence[Given]) -> None:
        checked = [data for _, data in as_messages(messages)]
        _ = self.state  # raises
        to += checked

    async def __aenter__(self) -> Self:
        if self._state is not None or self.commit is not None:
            raise InvalidArgumentError("a turn is for one block", hint="call service.turn(…) again")
        self._state = await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        state, self._state = self._state, None
        assert state is not None
        try:
            if kind is None:
                self.commit = await self._end(state)
            else:
                await self._fail()
        finally:
            state.end()

    @abstractmethod
    async def _begin(self) -> TurnState:
        """Open the session at its head."""

    @abstractmethod
    async def _end(self, state: TurnState) -> Commit | None:
        """Commit the turn."""

    @abstractmethod
    async def _fail(self) -> None:
        """Drop the turn."""
