"""``StoredMemory``: the memories of users on branches of a repository: additions, deletions, reads.

Synchronous. Layer: services.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from versioned_state.errors import BranchMovedError, UnknownRevisionError
from versioned_state.repository.maintenance.expire import expire_branch
from versioned_state.repository.maintenance.purge.purge import PurgeReport
from versioned_state.repository.repository import Repository
from versioned_state.services.calls.handles import Handles
from versioned_state.services.calls.heads import at_head, is_over, unless_erased
from versioned_state.services.memory import vectors
from versioned_state.services.memory.indexes.in_state import WORDS
from versioned_state.services.memory.indexes.index import WordIndex
from versioned_state.services.memory.memories import Memories, Place, new_ids, session_of
from versioned_state.services.memory.text import text_of
from versioned_state.state.branch import port
from versioned_state.state.versioned import Versioned

T = TypeVar("T")

_LISTED_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True)
class Addition:
    """Messages to add to a session: their stored forms, and their vectors if an embedder has made them.

    ``ttl`` is the time to live of the branch from then on, in microseconds, or None to leave it as it is.
    """

    branch: str
    user_id: str
    session: str
    messages: Sequence[dict[str, Any]]
    vectors: Sequence[bytes] | None
    embedder: str
    ttl: int | None = None


@dataclass(frozen=True, slots=True)
class StagedMemory:
    """Messages that were added to a handle: their places, the keys of the index's new segments, and the vectors."""

    places: list[Place]
    segments: Sequence[str]
    vectors: Mapping[Place, bytes]

    def release(self, state: Versioned) -> None:
        """Release what was staged, once it is committed: nobody changes it any more."""
        for place in self.places:
            session_of(state, place.session).release(place.id)
        _release(state, self.segments, self.vectors)


class StoredMemory:
    """The memories of a repository.

    The caller makes the calls on one user one by one. Other processes may work on it too.
    """

    def __init__(
        self, repository: Repository, handles: Handles[Versioned], index: WordIndex, known_vectors: vectors.Vectors
    ) -> None:
        self._repository = repository
        self._handles = handles
        self.index = index
        self.vectors = known_vectors

    # Reading

    def read(self, branch: str, function: Callable[[Memories], T]) -> T | None:
        """Return the result of a function of a user's memory, or None if there is no such user."""
        return at_head(
            self._repository.database, branch, lambda head: function(Memories(self._repository, branch, head)), None
        )

    def names(self, prefix: str) -> list[str]:
        """List the first of the branches with a prefix."""
        return [info.name for info in self._repository.branches.iter_info(prefix=prefix, limit=_LISTED_AT_ONCE)]

    # Writing

    def add_all(self, additions: list[Addition]) -> Sequence[None]:
        """Add messages to one branch, in one commit. Returns a result for each addition, for ``Lanes``."""
        self._on_branch(additions[0].branch, partial(self._add, additions))
        return [None] * len(additions)

    def _add(self, additions: Sequence[Addition], state: Versioned) -> None:
        staged = self.stage(state, additions)
        many = len(staged.places)
        port.handle(state).ttl = next((each.ttl for each in reversed(additions) if each.ttl is not None), None)
        _commit(state, f"{many} message{'s' * (many > 1)}", additions[0].user_id)
        port.handle(state).ttl = None  # what other processes set later stays
        staged.release(state)

    def stage(self, state: Versioned, additions: Sequence[Addition]) -> StagedMemory:
        """Stage additions on a handle, for a commit of the caller, who then releases them."""
        texts: dict[Place, str] = {}
        made: dict[Place, bytes] = {}
        for addition in additions:
            session = session_of(state, addition.session)
            ids = new_ids(len(addition.messages), next(session.iter_keys(reverse=True, limit=1), None))
            session.update(zip(ids, addition.messages, strict=True))
            places = [Place(id, addition.session) for id in ids]
            texts |= zip(places, map(text_of, addition.messages), strict=True)
            made |= zip(places, addition.vectors or (), strict=False)
        segments = self.index.added(state, texts)
        if made:
            vectors.store(state, additions[0].embedder, made)
        return StagedMemory(list(texts), segments, made)

    def keep_vectors(self, branch: str, embedder: str, made: Mapping[Place, bytes]) -> None:
        """Store the vectors of messages that had none."""

        def keep(state: Versioned) -> None:
            state.refresh()
            kept = {place: vector for place, vector in made.items() if place.id in session_of(state, place.session)}
            vectors.store(state, embedder, kept)
            _commit(state, f"{len(kept)} vector{'s' * (len(kept) > 1)}")
            _release(state, (), kept)

        self._on_branch(branch, keep)

    # Deleting

    def delete_session(self, branch: str, session: str) -> None:
        """Delete the messages of a session."""

        def delete(state: Versioned) -> None:
            state.refresh()
            messages = session_of(state, session)
            if not messages:
                return
            self.index.erase(branch)  # first: if the process dies here, no index has more than the state
            messages.clear()
            segments = self.index.removing(state, session)
            vectors.remove(state, session)
            _commit(state, "delete a session")
            _release(state, segments, {})
            self.index.erase(branch)  # a search may have made it again meanwhile

        self._on_branch(branch, delete)
        self.vectors.forget(branch)

    def delete_user(self, branch: str) -> None:
        """Delete the branch of a user."""
        self.forget(branch)
        with suppress(UnknownRevisionError):
            self._repository.branches.delete(branch, force=True)
        self.index.erase(branch)

    def forget(self, branch: str) -> None:
        """Drop what this process and the index hold of a branch that is deleted, or was moved back."""
        self._handles.forget(branch)
        self.vectors.forget(branch)
        self.index.erase(branch)

    def erase_user(self, branch: str) -> PurgeReport:
        """Purge the branch of a user."""
        self.forget(branch)
        report = self._repository.purge(branches=branch)
        self.index.erase(branch)
        return report

    def _on_branch(self, branch: str, function: Callable[[Versioned], None]) -> None:
        """Run a function of a user's handle, and again with another one if the user was deleted or purged meanwhile."""

        def attempt() -> None:
            with self._handles.handle(branch) as state:
                handle = port.handle(state)
                if handle.ref.head is not None and is_over(handle.repository.database, handle.ref, state.head):
                    expire_branch(self._repository.branches, branch, handle.repository.database.now())
                    raise BranchMovedError(branch, expected=state.head.id, actual=None)  # again, with another handle
                function(state)

        unless_erased(attempt)


def _commit(state: Versioned, message: str, user_id: str | None = None) -> None:
    # If two writers have embedded the same message, either vector will do.
    state.commit(
        message, meta=None if user_id is None else {"user_id": user_id}, policies={f"@{vectors.VECTORS}.**": "ours"}
    )


def _release(state: Versioned, segments: Sequence[str], made: Mapping[Place, bytes]) -> None:
    """Release the committed values, which nobody changes any more."""
    for segment in segments:
        state.namespace(WORDS).release(segment)
    vectors.release(state, made)
