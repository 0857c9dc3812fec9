"""``VersionedSession``: the states of modules on a branch for each session. Every save is a commit. Layer: agents.

::

    load ── head ──┬── save: nobody else saved the module since, so its state becomes the head's
                   └── save: others did. Our state is committed on a fork of the commit that we had, and merged by path
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from os import urandom
from threading import Lock
from typing import Any, Final

from versioned_state.agents.modules.containers import captured_whole
from versioned_state.agents.modules.loading import load_states
from versioned_state.agents.modules.module import StateModule
from versioned_state.agents.modules.session import SessionBase, check_ids, check_modules
from versioned_state.agents.modules.states import state_by_kind
from versioned_state.agents.modules.turns import Turns
from versioned_state.errors import (
    BranchMovedError,
    CommitInDoubtError,
    InvalidArgumentError,
    MergeConflictError,
    StateError,
    UnknownPathError,
    UnknownRevisionError,
)
from versioned_state.off_loop import off_loop
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.names.branch_name import branch_name
from versioned_state.repository.repository import Repository
from versioned_state.state.branch import port
from versioned_state.state.branch.publisher import again_if_moved
from versioned_state.state.versioned import Versioned
from versioned_state.storage import Cache, KVStore, Memory
from versioned_state.values.paths.path import Key, StatePath

_SAVING_S: Final = 3600
"""How long the branches of a merging save stay if its process is killed, until ``repository.expire()`` deletes them."""

_KEPT: Final = 4
"""Commits for a module and a place.

More than one, for a commit whose reply was lost, and for one branch name in several stores.
"""

_HANDLES: Final = 8
"""The most handles that stay open between saves, each with the states of its session."""

Place = tuple[str, str]
"""A branch and the key of a module in it."""


class _Seen:
    """The commits that modules were loaded from or saved in, by place: so a save finds later changes of others.

    Keeps no module alive.
    """

    def __init__(self) -> None:
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)  # another thread may hold the lock at a fork
        self._modules: dict[int, tuple[weakref.ref[Any], dict[Place, tuple[str, ...]]]] = {}

    def _begin(self) -> None:
        self._lock = Lock()

    def add(self, module: Any, place: Place, commit: str) -> None:
        """Remember that a module has the content of a commit."""
        number = id(module)
        with self._lock:
            found = self._modules.get(number)
            if found is None or found[0]() is not module:

                def forget(_: object, modules: dict[int, Any] = self._modules) -> None:
                    if (kept := modules.get(number)) is not None and kept[0]() is None:
                        modules.pop(number, None)

                try:
                    found = weakref.ref(module, forget), {}
                except TypeError:  # the class has __slots__ without __weakref__
                    return
                self._modules[number] = found
            places = found[1]
            places[place] = (commit, *(each for each in places.get(place, ()) if each != commit))[:_KEPT]

    def commits(self, module: Any, place: Place) -> tuple[str, ...]:
        """Return the ids of those commits, the last one first."""
        found = self._modules.get(id(module))
        return () if found is None or found[0]() is not module else found[1].get(place, ())


_turns: Final = Turns()

_seen: Final = _Seen()


@dataclass(slots=True)
class _Saved:
    """A module to be saved.

    Attributes:
        base: the commit whose content the module has, or None until the first attempt.
    """

    name: str
    module: Any
    state: Any
    base: Commit | None = None


class VersionedSession(SessionBase):
    """Sessions as branches of a store.

    The key of a module is its name, and its fields lie below: ``agent.memory.content[17]``.

    A save stores the changes, and makes no commit if there are none. Modules that a save does not name keep their saved
    states. If another process saved a module after it was loaded or saved here, both states are merged by path. A
    module that was neither loaded nor saved before replaces the saved state, which stays in history.

    Args:
        store: a ``KVStore``, or a ``Repository`` to share. By default a ``Memory`` of its own. The session does not
            close it.
    """

    repository: Repository

    def __init__(self, store: KVStore | Repository | None = None) -> None:
        super().__init__()
        # The handles of the last saves by branch, with the names of the modules. A save takes its own out. Each of
        # these calls on the dict is one step, so there is no lock that a fork could find held.
        self._handles: dict[str, tuple[Versioned, set[str]]] = {}
        if isinstance(store, Repository):
            self.repository = store
        elif isinstance(store, KVStore) and not isinstance(store, Cache | Memory):
            # A save compares with the stored state: without a cache it would read all of it again.
            self.repository = Repository(Cache(store))
        else:
            self.repository = Repository(store)

    def branch(self, session_id: str, user_id: str = "") -> str:
        """Return the branch of a session: ``branch_name(user_id, session_id)``."""
        session, user = check_ids(session_id, user_id)
        return branch_name(user, session)

    def state(self, session_id: str, user_id: str = "") -> Versioned:
        """Return the session as a state, with log, diff, checkout and merge.

        Close it after use. Cost: reads of the branch and its head.
        """
        return Versioned(self.repository, branch=self.branch(session_id, user_id))

    async def save_session_state(
        self, session_id: str | None = None, user_id: str = "", **state_modules_mapping: StateModule
    ) -> Commit:
        """Commit the states of modules, as they are when this is called, and return the head of the session then.

        All or nothing. A save that is cancelled before it has begun is dropped. One that has begun ends first, and then
        raises.

        Args:
            session_id, user_id: the session. The meta of the commit has both.
            state_modules_mapping: the modules by name.

        Raises:
            MergeConflictError: others saved another value of a field that changed here too. Nothing was saved.
            UnserializableValueError: a state has a value that cannot be stored. Nothing was saved.
            CommitInDoubtError: the store failed, and it is not known whether it has the commit. The next save of the
                module finds out.
            StorageError: the store failed, and nothing was saved.
        """
        session, user = check_ids(session_id, user_id)
        check_modules(state_modules_mapping)
        branch = self.branch(session, user)
        saved = [
            _Saved(name, module, captured_whole(state_by_kind(module)))
            for name, module in state_modules_mapping.items()
        ]
        async with _turns.turn((id(self.repository), branch)):
            return await off_loop(partial(self._save, branch, saved, {"session_id": session, "user_id": user}))

    async def load_session_state(
        self,
        session_id: str | None = None,
        user_id: str = "",
        allow_not_exist: bool = True,  # noqa: FBT001, FBT002 - agentscope's signature
        *,
        revision: str | Commit = "HEAD",
        **state_modules_mapping: StateModule,
    ) -> None:
        """Load the states of modules: all of them, or none if it raises.

        A module whose name was not saved stays as it is.

        Args:
            session_id, user_id: the session.
            allow_not_exist: change nothing if the session was never saved.
            revision: a commit of the session: ``"HEAD~2"``, ``"HEAD@{1 hour ago}"``, an id. It may name any commit of
                the store, so do not take it from users. A save afterwards makes that state the head's.
            state_modules_mapping: the modules by name.

        Raises:
            ValueError: the session was never saved, or the state of a module is not a dict.
            KeyError: the state of a module lacks a key, or there is no such revision.
            StorageError: the store failed.
        """
        session, user = check_ids(session_id, user_id)
        check_modules(state_modules_mapping)
        branch = self.branch(session, user)
        async with _turns.turn((id(self.repository), branch)):
            head, states = await off_loop(partial(self._read, branch, revision, list(state_modules_mapping)))
        if head == ROOT_ID and not allow_not_exist:
            raise InvalidArgumentError(
                f"session {session!r} was never saved",
                hint="allow_not_exist=True leaves the modules as they are",
            )
        load_states(((state_modules_mapping[name], state, name) for name, state in states.items()), owned=True)
        for name, module in state_modules_mapping.items():
            _seen.add(module, (branch, name), head)

    def _read(self, branch: str, revision: str | Commit, names: list[str]) -> tuple[str, dict[str, Any]]:
        """Return the head of a session, and the states at a revision by name."""
        with Versioned(self.repository, branch=branch) as state:
            if state.head.id == ROOT_ID:
                return ROOT_ID, {}
            snapshot = state.checkout(revision)
            return state.head.id, {name: snapshot[name] for name in names if name in snapshot}

    # Saving, on a background thread

    def _save(self, branch: str, saved: list[_Saved], meta: Mapping[str, Any]) -> Commit:
        def attempt(_: None) -> Commit:
            with self._handle(branch, {each.name for each in saved}) as state:
                return self._save_to(state, saved, meta)

        with suppress(BranchMovedError):
            return again_if_moved(attempt, None, lambda _: None)
        with Versioned(self.repository, branch=branch) as state:
            raise BranchMovedError(
                branch, expected=None, actual=state.head.id, remains="nothing was saved", hint="save again"
            )

    @contextmanager
    def _handle(self, branch: str, names: set[str]) -> Iterator[Versioned]:
        """Run a block with a handle at the head of a session, in which the block assigns these keys.

        It is that of the last save, if nobody else has moved the branch since. Then the saved states are in memory, in
        the copies that were made of them. It must have had the same keys: a part of a copy that could not be copied
        may have changed since, and a save of other modules would commit that.
        """
        state, known = self._handles.pop(branch, (None, names))
        try:
            if state is None or known != names or not _is_at_head(state):
                if state is not None:
                    port.close(state, warning=False)
                state = Versioned(self.repository, branch=branch)
            yield state
        except BaseException:
            if state is not None:
                port.close(state, warning=False)
            raise
        dropped = [self._handles.pop(branch, None)]  # of another thread, which has saved the session meanwhile
        self._handles[branch] = state, names
        dropped += [self._handles.pop(old, None) for old in list(self._handles)[:-_HANDLES]]
        for each in dropped:
            if each is not None:
                port.close(each[0], warning=False)

    def _save_to(self, state: Versioned, saved: list[_Saved], meta: Mapping[str, Any]) -> Commit:
        for each in saved:
            if each.base is None:
                each.base = self._base_of(each, state)
        late = [each for each in saved if self._is_late(each, state.head)]
        try:
            if late:
                self._merge(state, saved, late, meta)
            else:
                self._commit(state, saved, meta)
        except CommitInDoubtError as error:
            for each in saved:
                _seen.add(each.module, (state.branch, each.name), error.commit)
            raise
        return state.head

    def _commit(self, state: Versioned, saved: list[_Saved], meta: Mapping[str, Any], place: str = "") -> Commit:
        """Commit states on the head of a handle, and remember that the modules have its content."""
        for each in saved:
            state.get(each.name)  # load the saved state for comparison, so that only the difference is stored
            state[each.name] = each.state
        commit = state.commit(meta=meta, on_moved="refuse")
        for each in saved:
            _seen.add(each.module, (place or state.branch, each.name), commit.id)
        return commit

    def _base_of(self, saved: _Saved, state: Versioned) -> Commit:
        """Return the last commit of the session whose content the module has had, or the head if there is none."""
        found = []
        for id in _seen.commits(saved.module, (state.branch, saved.name)):
            with suppress(UnknownRevisionError):
                found.append(self.repository.commit(id))
        read = self.repository.database.commits.read
        return next(
            (commit for commit in found if graph.is_ancestor(commit, state.head, read)),
            found[0] if found else state.head,
        )

    def _is_late(self, saved: _Saved, head: Commit) -> bool:
        """Return whether others changed the saved state of a module after the module was loaded or saved."""
        assert saved.base is not None
        if saved.base == head:
            return False
        return self._cell(saved.base, saved.name) != self._cell(head, saved.name)

    def _cell(self, commit: Commit, name: str) -> bytes | None:
        try:
            return self.repository.snapshot(commit).cell_at(StatePath((Key(name),)))
        except UnknownPathError:
            return None

    def _merge(self, state: Versioned, saved: list[_Saved], late: list[_Saved], meta: Mapping[str, Any]) -> None:
        """Commit late states on forks of their modules' commits, and merge these into the session in one move."""
        prefix = f"saving/{urandom(6).hex()}"
        message = f"{', '.join(each.name for each in late)}: merged with the saves of others"
        forks: list[Versioned] = []
        try:
            landing = self._fork(state, f"{prefix}/merged", state.head, forks)
            self._commit(landing, [each for each in saved if each not in late], meta, state.branch)
            for base in {each.base.id: each.base for each in late if each.base is not None}.values():
                fork = self._fork(state, f"{prefix}/{len(forks)}", base, forks)
                commit = self._commit(fork, [each for each in late if each.base == base], meta, state.branch)
                landing.merge(commit, message=message, meta=meta)
            state.merge(landing.head, message=message, meta=meta)
        except MergeConflictError as error:
            conflict = MergeConflictError(state.branch, error.conflicts, remains="nothing was saved")
            conflict.hint = (
                "load_session_state() and do the work again, or set repository.merge_policies for a path, "
                f"such as {str(error.conflicts[0].path)!r}"
            )
            raise conflict from None
        finally:
            for fork in forks:
                fork.close()
                with suppress(StateError):  # a remaining branch does no harm, and expires
                    self.repository.branches.delete(fork.branch, force=True)

    def _fork(self, state: Versioned, branch: str, at: Commit, forks: list[Versioned]) -> Versioned:
        if at.id == ROOT_ID:
            fork = Versioned(self.repository, branch=branch, ttl_seconds=_SAVING_S)
        else:
            fork = state.fork(branch, at=at, ttl_seconds=_SAVING_S)
        forks.append(fork)
        return fork


def _is_at_head(state: Versioned) -> bool:
    handle = port.handle(state)
    return handle.read_ref().stored == handle.ref.stored
