"""``MemoryService``, which keeps and searches the messages of users, and its implementation over a store.

Layer: services.
"""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final, Literal, Self, TypeVar

from versioned_state.arguments import as_ttl, count, instance_of, one_of
from versioned_state.errors import EmbedderError, InvalidArgumentError
from versioned_state.off_loop import to_the_end
from versioned_state.repository.maintenance.purge.purge import PurgeReport
from versioned_state.repository.names.branch_name import branch_name
from versioned_state.repository.repository import Repository
from versioned_state.services.base import ServiceWithLifecycleManager, as_id
from versioned_state.services.memory import searching, vectors
from versioned_state.services.memory.embedder import Embedder, embedded
from versioned_state.services.memory.indexes.choice import index_of
from versioned_state.services.memory.indexes.index import WordIndex
from versioned_state.services.memory.memories import Memories, Place, session_name
from versioned_state.services.memory.stored_memory import Addition, StoredMemory
from versioned_state.services.memory.text import text_of
from versioned_state.services.schemas.agent_schemas import Message
from versioned_state.services.session_history.messages import as_messages
from versioned_state.services.store_service import StoreService, on_redis
from versioned_state.storage import KVStore

T = TypeVar("T")
Rank = Literal["keyword", "bm25", "vector"]

_VECTOR_BYTES: Final = 64 * 1024 * 1024
_EMBEDDED_AT_ONCE: Final = 64

_log: Final = logging.getLogger("versioned_state.services.memory")


class MemoryService(ServiceWithLifecycleManager):
    """The messages of users, by user and session, and searches of them.

    Your own adapter implements the abstract calls.
    """

    @staticmethod
    def over(store: KVStore | Repository | str | os.PathLike[str], **options: Any) -> VersionedMemoryService:
        """Return the service over a store, a ``Repository`` or a URL.

        The options are those of ``VersionedMemoryService``.
        """
        return VersionedMemoryService.over(store, **options)

    @abstractmethod
    async def add_memory(self, user_id: str, messages: list[Any], session_id: str | None = None) -> None:
        """Add messages to a session of a user. A falsy ``session_id`` is ``"default"``."""

    @abstractmethod
    async def search_memory(
        self, user_id: str, messages: list[Any], filters: Mapping[str, Any] | None = None
    ) -> list[Message]:
        """Search a user's messages. The query is the last of ``messages``."""

    @abstractmethod
    async def list_memory(self, user_id: str, filters: Mapping[str, Any] | None = None) -> list[Message]:
        """List a page of a user's messages, session by session."""

    @abstractmethod
    async def delete_memory(self, user_id: str, session_id: str | None = None) -> None:
        """Delete the messages of a session, or all of a user. Does nothing if there are none."""


class VersionedMemoryService(StoreService, MemoryService):
    """Memory over a store: a user is the branch ``branch(user_id)``, an addition is a commit, and a message is a dict.

    A search reads only the messages that an index names. The index of a ``Disk`` is SQLite's FTS5, in a file for each
    user beside the store. That of a ``Postgres`` is PostgreSQL's text search. In any other store, and in an encrypted
    one, it lies in the state itself. In any case, the results are those of a search that reads everything.

    Args:
        store: a ``KVStore``, a ``Repository`` or a URL; by default a store in memory.
        embedder: turns texts into vectors, for ``{"rank": "vector"}``; see ``Embedder``.
        ttl_seconds: the memory of a user expires that long after the last addition, or never if it is None.
            ``repository.expire()`` deletes it. 0 ends that for the memory that expires by now.
        vector_bytes: bytes of memory for the vectors of the users who were searched last.
        options: as for ``StoreService``.
    """

    kind = "%memory"

    def __init__(
        self,
        store: KVStore | Repository | str | os.PathLike[str] | None = None,
        *,
        embedder: Embedder | None = None,
        ttl_seconds: float | None = None,
        vector_bytes: int = _VECTOR_BYTES,
        **options: Any,
    ) -> None:
        super().__init__(store, **options)
        instance_of("embedder", embedder, Embedder | None, hint="it has a name, a dimension and embed(texts)")
        self._embedder = embedder
        self._ttl = None if ttl_seconds is None else as_ttl(ttl_seconds)
        self._vectors = vectors.Vectors(count("vector_bytes", vector_bytes))
        self._indexed: tuple[Repository, WordIndex] | None = None

    def branch(self, user_id: str, session_id: str | None = None) -> str:
        """Return the name of a user's branch, which has all their sessions.

        Raises ``InvalidArgumentError`` if an id is not a string.
        """
        _session(session_id)
        return f"{self.kind}/{branch_name(as_id('user_id', user_id))}"

    # Calls

    async def add_memory(
        self, user_id: str, messages: Message | Mapping[str, Any] | list[Any], session_id: str | None = None
    ) -> None:
        """Add messages to a session of a user, all of them or none.

        Concurrent additions of processes and machines are all kept. A call that is cancelled before it has begun is
        dropped. One that has begun ends first, and then raises. Cost: the messages. If the embedder fails, they are
        added without vectors, which the next search by vector adds.

        Args:
            messages: ``Message``s, or dicts with their fields. An empty list does nothing.
            session_id: ``"default"`` if it is falsy.

        Raises:
            InvalidArgumentError: an id is not a string, or one of the messages is not a message. Nothing was added.
            UnserializableValueError, PickleRefusedError, LimitExceededError: a value cannot be stored; the error names
                the path.
            CommitInDoubtError: the store failed, and may have the messages.
            StorageError: the store failed, and nothing was added.
        """
        branch = self.branch(user_id, session_id)
        given = [data for _, data in as_messages(messages)]
        self._check_started()
        if not given:
            return
        made, name = await self.embedded(given)
        added = Addition(branch, user_id, session_name(session_id), given, made, name, self._ttl)
        await self._run_item(branch, added, self._add_all)

    async def search_memory(
        self, user_id: str, messages: Message | Mapping[str, Any] | list[Any], filters: Mapping[str, Any] | None = None
    ) -> list[Message]:
        """Search a user's messages of all sessions. The query is the text of the last of ``messages``.

        ``filters`` may have:

        - ``"rank"``: ``"keyword"`` (the default) finds each message with one of the query's keywords in it, whatever
          their case, in the order of time. ``"bm25"`` finds each message with one of the query's words, the best first.
          ``"vector"`` compares vectors, and the nearest comes first.
        - ``"top_k"``: the largest number of messages: the newest ones by keyword, otherwise the best ones. By vector,
          the default is 10.

        Cost: the messages that are found, and the search of the index.

        Raises:
            InvalidArgumentError: an id is not a string, the query is not a message, or a filter is invalid.
            EmbedderError: by vector, the embedder failed.
            StorageError: the store failed.
        """
        branch = self.branch(user_id)
        wanted = SearchFilters.of(filters)
        query = _query(messages)
        self._check_started()
        if wanted.rank == "vector":
            return await self._nearest(branch, query, wanted.top_k)
        if not query.strip() or wanted.top_k == 0:
            return []
        search = searching.by_keyword if wanted.rank == "keyword" else searching.by_words
        found = await self.read_in_turn(
            branch, lambda memories: _messages(search(memories, self._memory.index, query, wanted.top_k))
        )
        return found or []

    async def list_memory(self, user_id: str, filters: Mapping[str, Any] | None = None) -> list[Message]:
        """List a page of a user's messages: sessions in the order of their ids, their messages in the order of time.

        ``filters`` may have ``"page_num"`` (1) and ``"page_size"`` (10). A page that is out of range is empty. Cost:
        the page.

        Raises:
            InvalidArgumentError: the id is not a string, or a filter is invalid.
            StorageError: the store failed.
        """
        branch = self.branch(user_id)
        wanted = ListFilters.of(filters)
        start = (wanted.page_num - 1) * wanted.page_size
        found = await self.read_in_turn(branch, lambda memories: _messages(memories.page(start, wanted.page_size)))
        return found or []

    async def delete_memory(self, user_id: str, session_id: str | None = None) -> None:
        """Delete the messages of a session, or with a falsy ``session_id`` all of a user.

        Does nothing if there are none.

        No search finds them any more, and no index beside the store has their words. History keeps them, and the reflog
        keeps the branch of a user until gc, unless they are purged: see ``delete_user``. Cost: the session, and in a
        store whose index lies in the state, the index of the user.

        Raises:
            InvalidArgumentError: an id is not a string.
            StorageError: the store failed, and nothing was deleted.
        """
        branch = self.branch(user_id, session_id)
        if not session_id:
            await self.run_in_turn(branch, lambda: self._memory.delete_user(branch))
            return
        session = session_name(session_id)
        await self.run_in_turn(branch, lambda: self._memory.delete_session(branch, session))

    async def delete_user_memory(self, user_id: str) -> None:
        """Delete all memory of a user, as ``delete_memory``."""
        await self.delete_memory(user_id)

    async def clear_all_memory(self) -> None:
        """Delete the memory of every user.

        Cancelled, it ends first. After a failure, some users are left. Cost: that of these users.
        """
        await to_the_end(self._clear())

    async def _clear(self) -> None:
        prefix = f"{self.kind}/"
        while names := await self.run_in_turn(prefix, lambda: self._memory.names(prefix)):
            for name in names:
                await self.run_in_turn(name, partial(self._delete_user, name))

    async def delete_user(self, user_id: str) -> PurgeReport:
        """Erase all memory of a user, from history, the store and the indexes.

        The report lists the erased data, and places out of reach.

        Cost: that of ``repository.purge``.

        Raises:
            InvalidArgumentError: the id is not a string.
            UnsafeStoreError: gc cannot run over this store, so nothing could be erased.
            UnfinishedPurgeError: it did not finish. Its ``report`` lists the erased branches. Run it again.
            StoreBusyError, StorageError: nothing was erased.
        """
        branch = self.branch(user_id)

        return await self.run_in_turn(branch, lambda: self._memory.erase_user(branch))

    # Adding

    async def embedded(self, given: Sequence[dict[str, Any]]) -> tuple[list[bytes] | None, str]:
        """Embed the messages of an addition, except texts without words.

        Returns the vectors, or None if there is no embedder or it fails, and the name of the embedder.
        """
        if self._embedder is None:
            return None, ""
        name = _model(self._embedder)
        try:
            return await _embedded(self._embedder, [text_of(data) for data in given]), name
        except EmbedderError as error:
            # The messages matter more than their vectors, which the next search by vector adds.
            _log.warning(
                "the embedder failed: messages are added without vectors",
                extra={"error": type(error.__cause__).__name__},
            )
            return None, name

    # Searching

    async def _nearest(self, branch: str, query: str, top_k: int | None) -> list[Message]:
        embedder = self._embedder
        if embedder is None:
            raise InvalidArgumentError("a search by vector needs an embedder", hint="pass embedder= to the service")
        if not query.strip() or top_k == 0:
            return []
        name = _model(embedder)
        missing = await self.read_in_turn(branch, lambda memories: vectors.without_vector(memories, name)) or {}
        places = list(missing)
        for start in range(0, len(places), _EMBEDDED_AT_ONCE):
            batch = places[start : start + _EMBEDDED_AT_ONCE]
            made = await _embedded(embedder, [missing[place] for place in batch])
            await self.run_in_turn(
                branch, partial(self._keep_vectors, branch, name, dict(zip(batch, made, strict=True)))
            )
        (vector,) = await _embedded(embedder, [query])

        def nearest(memories: Memories) -> list[Message]:
            return _messages(
                [data for _, data in memories.read(self._memory.vectors.nearest(memories, name, vector, top_k))]
            )

        return await self.read_in_turn(branch, nearest) or []

    async def read_in_turn(self, branch: str, function: Callable[[Memories], T]) -> T | None:
        """Run a function of a user's memory off the loop. Returns None if there is no such user."""
        return await self.run_in_turn(branch, lambda: self._memory.read(branch, function))

    # These are called off the loop.

    def _add_all(self, additions: list[Addition]) -> Sequence[None]:
        return self._memory.add_all(additions)

    def _keep_vectors(self, branch: str, embedder: str, made: Mapping[Place, bytes]) -> None:
        self._memory.keep_vectors(branch, embedder, made)

    def _delete_user(self, branch: str) -> None:
        self._memory.delete_user(branch)

    @property
    def _memory(self) -> StoredMemory:
        """The memories, for a call on a thread."""
        repository, handles = self._accepted
        indexed = self._indexed
        if indexed is None or indexed[0] is not repository:
            indexed = self._indexed = repository, index_of(repository.store)
        return StoredMemory(repository, handles, indexed[1], self._vectors)


class InMemoryMemoryService(VersionedMemoryService):
    """The memory service in the memory of this process. ``start`` is optional."""

    def __init__(self, **options: Any) -> None:
        super().__init__(None, **options)


class RedisMemoryService(VersionedMemoryService):
    """The memory service on a Redis or Valkey server.

    Args:
        redis_url: ``redis://``, ``rediss://`` or ``unix://``, with ``?prefix=`` for a store of another name; by default
            the server on this machine.
        redis_client: refused, because the service needs connections of its own.
        options: as for ``VersionedMemoryService``.
    """

    def __init__(self, redis_url: str | None = None, redis_client: object = None, **options: Any) -> None:
        super().__init__(on_redis(redis_url, redis_client), **options)


def _messages(found: list[dict[str, Any]]) -> list[Message]:
    return [Message.model_validate(data) for data in found]


def _model(embedder: Embedder) -> str:
    """Return the name under which an embedder's vectors are kept. Vectors of another length cannot be compared."""
    return f"{embedder.name}/{embedder.dimension}"


async def _embedded(embedder: Embedder, texts: Sequence[str]) -> list[bytes]:
    """Embed some texts. The vector of a text without words is empty."""
    asked = [text for text in texts if text.strip()]
    made = iter(await embedded(embedder, asked) if asked else ())
    return [next(made) if text.strip() else b"" for text in texts]


def _query(messages: object) -> str:
    """Return the text of the last of some messages, or an empty one."""
    last = (messages[-1:] or []) if isinstance(messages, list | tuple) else messages
    given = as_messages([] if last is None else last)
    return text_of(given[-1][1]) if given else ""


def _session(session_id: object) -> None:
    if session_id:
        as_id("session_id", session_id)


# Filters


@dataclass(frozen=True, slots=True)
class SearchFilters:
    """The filters of a search: how messages are found and ranked, and how many."""

    rank: Rank = "keyword"
    top_k: int | None = None

    @classmethod
    def of(cls, filters: Mapping[str, Any] | None) -> Self:
        """Return the checked filters. Raises ``InvalidArgumentError``, which names the filter."""
        given = _known(filters, cls)
        return cls(one_of("rank", given.get("rank", "keyword"), Rank), _number(given, "top_k", least=0))


@dataclass(frozen=True, slots=True)
class ListFilters:
    """The filters of a listing: the number of the page, from 1, and how many messages a page has."""

    page_num: int = 1
    page_size: int = 10

    @classmethod
    def of(cls, filters: Mapping[str, Any] | None) -> Self:
        """Return the checked filters. Raises ``InvalidArgumentError``, which names the filter."""
        given = _known(filters, cls)
        number, size = _number(given, "page_num", least=1), _number(given, "page_size", least=1)
        return cls(1 if number is None else number, 10 if size is None else size)


def _known(filters: Mapping[str, Any] | None, kind: type[SearchFilters | ListFilters]) -> Mapping[str, Any]:
    if filters is None:
        return {}
    known = [field.name for field in fields(kind)]
    for name in instance_of("filters", filters, Mapping):
        one_of("the name of a filter", name, known)
    return filters


def _number(filters: Mapping[str, Any], name: str, *, least: int) -> int | None:
    number = filters.get(name)
    return None if number is None else count(name, number, least=least)
