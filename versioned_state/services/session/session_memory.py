"""``SessionMemoryService``: the memory of a ``SessionService``, on the branches of its sessions, searched as one.

Layer: services.

A search asks the index of each session of the user, and of what a separate ``MemoryService`` has added by itself. A
message that a fork of a session has too is found once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

from versioned_state.errors import InvalidArgumentError, MissingObjectError, UnknownRevisionError
from versioned_state.repository.maintenance.purge.purge import PurgeReport
from versioned_state.repository.names.branch_name import branch_name
from versioned_state.repository.repository import Repository
from versioned_state.services.base import as_id
from versioned_state.services.calls.handles import Handles
from versioned_state.services.calls.heads import ERASURES, head_of, iter_sessions
from versioned_state.services.memory import vectors
from versioned_state.services.memory.indexes.index import Counts, WordIndex, scan
from versioned_state.services.memory.memories import DEFAULT_SESSION, MESSAGES, Memories, Place, session_name
from versioned_state.services.memory.memory_service import VersionedMemoryService
from versioned_state.services.memory.stored_memory import StoredMemory
from versioned_state.state.versioned import Versioned

T = TypeVar("T")

_READ_AT_ONCE: Final = 128


class AllMemories(Memories):
    """The memories of several branches as one."""

    def __init__(self, branch: str, parts: Sequence[Memories]) -> None:
        self.branch = branch
        self._parts = parts
        self.where: dict[Place, Memories] = {}

    @property
    def parts(self) -> Sequence[Memories]:
        return self._parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def found(self, part: Memories, places: Iterable[Place]) -> Iterator[Place]:
        """Iterate over places of a part that no earlier part has, and remember where they are."""
        return (place for place in places if self.where.setdefault(place, part) is part)

    def read(self, places: Iterable[Place]) -> Iterator[tuple[Place, dict[str, Any]]]:
        wanted = list(places)
        for start in range(0, len(wanted), _READ_AT_ONCE):
            batch, found = wanted[start : start + _READ_AT_ONCE], dict[Place, dict[str, Any]]()
            for part in self._parts:
                found |= part.read(
                    [place for place in batch if place not in found and self.where.get(place, part) is part]
                )
            yield from ((place, found[place]) for place in batch if place in found)

    def page(self, start: int, count: int) -> list[dict[str, Any]]:
        page: list[dict[str, Any]] = []
        for part in sorted(self._parts, key=_first_session):
            page += part.page(start, count - len(page)) if start < len(part) else ()
            start = max(0, start - len(part))
        return page

    def all(self) -> Iterator[tuple[Place, dict[str, Any]]]:
        for part in self._parts:
            yield from ((place, data) for place, data in part.all() if self.where.setdefault(place, part) is part)

    def places(self) -> list[Place]:
        return [place for part in self._parts for place in self.found(part, part.places())]

    def count(self, namespace: Sequence[str]) -> int:
        return sum(part.count(namespace) for part in self._parts)

    def entries(self, namespace: Sequence[str], since: Any = None) -> Iterator[tuple[str, bytes | None]]:
        return chain.from_iterable(part.entries(namespace, since) for part in self._parts)


def _first_session(part: Memories) -> str:
    first = part.first()
    return "" if first is None else first.session


class _AllIndexes(WordIndex):
    """The indexes of several branches as one."""

    def __init__(self, index: WordIndex) -> None:
        self._index = index

    def holding(self, memories: Memories, groups: Sequence[Sequence[str]]) -> set[Place] | None:
        assert isinstance(memories, AllMemories)
        held: set[Place] = set()
        for part in memories.parts:
            places = self._index.holding(part, groups)
            held.update(memories.found(part, part.places() if places is None else places))
        return held

    def counts(self, memories: Memories, words: Collection[str]) -> Counts:
        assert isinstance(memories, AllMemories)
        lengths: dict[Place, int] = {}
        places: dict[str, dict[Place, int]] = {}
        total = 0
        for part in memories.parts:
            counts = self._index.counts(part, words) or scan(part, words)
            total += counts.length
            for place in memories.found(part, counts.lengths):
                lengths[place] = counts.lengths[place]
            for word, having in counts.places.items():
                places.setdefault(word, {}).update(having)
        return Counts(len(memories), total, lengths, places)

    def added(self, state: Versioned, texts: Mapping[Place, str]) -> list[str]:
        return self._index.added(state, texts)

    def removing(self, state: Versioned, session: str) -> list[str]:
        return self._index.removing(state, session)

    def erase(self, branch: str) -> None:
        self._index.erase(branch)


class SessionMemory(StoredMemory):
    """The memories of sessions, each on the branch of its session."""

    def __init__(
        self, repository: Repository, handles: Handles[Versioned], index: WordIndex, known_vectors: vectors.Vectors
    ) -> None:
        super().__init__(repository, handles, _AllIndexes(index), known_vectors)

    def read(self, branch: str, function: Callable[[Memories], T]) -> T | None:
        """Return the result of a function of a user's memory. ``branch`` is that of a separate memory service."""
        for attempt in range(ERASURES):
            try:
                return function(AllMemories(branch, self._parts(branch)))
            except MissingObjectError:  # a session was erased meanwhile
                if attempt == ERASURES - 1:
                    raise
        return None

    def _parts(self, branch: str) -> list[Memories]:
        database = self._repository.database
        own = head_of(database, branch)
        heads = [] if own is None else [(branch, own)]
        heads += [(info.name, info.head) for info in iter_sessions(self._repository, self.prefix(branch))]
        parts = [Memories(self._repository, name, head) for name, head in heads]
        return [part for part in parts if len(part)]

    @staticmethod
    def prefix(branch: str) -> str:
        """Return the prefix of the branches of a user's sessions."""
        return branch.removeprefix(f"{VersionedMemoryService.kind}/") + "/"

    def keep_vectors(self, branch: str, embedder: str, made: Mapping[Place, bytes]) -> None:
        for part in self._parts(branch):
            kept = {place: vector for place, vector in made.items() if any(True for _ in part.read((place,)))}
            if kept:
                super().keep_vectors(part.branch, embedder, kept)

    def clear(self, branch: str) -> None:
        """Delete the memory of one session from its branch, if there is any."""

        def clear(state: Versioned) -> None:
            state.refresh()
            sessions = state.namespace(MESSAGES).namespaces()
            if not sessions:
                return
            self.index.erase(branch)  # first: if the process dies here, no index has more than the state
            for session in sessions:
                state.namespace(MESSAGES).namespace(session).clear()
                self.index.removing(state, session)
                vectors.remove(state, session)
            state.commit("delete memory")
            self.index.erase(branch)  # a search may have made it again meanwhile

        with suppress(UnknownRevisionError):
            self._on_branch(branch, clear)
        self.vectors.forget(branch)

    def delete_user(self, branch: str) -> None:
        for info in iter_sessions(self._repository, self.prefix(branch)):
            self.clear(info.name)
        super().delete_user(branch)


class SessionMemoryService(VersionedMemoryService):
    """See the module. The calls are those of ``MemoryService``, and their costs too, for each session of the user."""

    def branch(self, user_id: str, session_id: str | None = None) -> str:
        """Return the branch of a session, or without one that of the user's memory which belongs to no session."""
        if not session_id:
            return super().branch(user_id)
        super().branch(user_id, session_id)
        return branch_name(as_id("user_id", user_id), session_id)

    async def add_memory(self, user_id: str, messages: Any, session_id: str | None = None) -> None:
        await super().add_memory(user_id, messages, session_id or DEFAULT_SESSION)

    async def delete_memory(self, user_id: str, session_id: str | None = None) -> None:
        if session_id:
            await self.run_in_turn(branch := self.branch(user_id, session_id), lambda: self.stored.clear(branch))
            own = super().branch(user_id)
            await self.run_in_turn(own, lambda: self.stored.delete_session(own, session_name(session_id)))
            return
        await super().delete_memory(user_id)

    async def delete_user(self, user_id: str) -> PurgeReport:
        """Raise ``InvalidArgumentError``: the memory is a part of the sessions' history, so it is erased with that."""
        raise InvalidArgumentError(
            "the memory of a user is a part of their sessions, and is not erased without them",
            remains="nothing was erased",
            hint="SessionService.delete_user erases all of a user's data, and delete_memory() only keeps it in history",
        )

    async def _clear(self) -> None:
        def names() -> list[str]:
            return [info.name for info in self.repository.branches.iter_info() if not info.name.startswith("%")]

        for name in await self.run_in_turn(f"{self.kind}/", names):
            await self.run_in_turn(name, partial(self._clear_session, name))
        await super()._clear()

    def _clear_session(self, branch: str) -> None:
        self.stored.clear(branch)

    @property
    def stored(self) -> SessionMemory:
        """The memories, for a call on a thread."""
        found = super()._memory
        return SessionMemory(*self._accepted, found.index, self._vectors)

    @property
    def _memory(self) -> StoredMemory:
        return self.stored
