"""``Migrations``: numbered functions that bring a state from an older shape to the newest. Layer: state.

::

    commit at version 1 ── 2 ── 3 ── the root that the handle reads, compares and merges
                                     │
                                     └── the first commit writes it, as a commit of its own before its own changes

The state has its version under a key of the engine. A state without it is at version 1; a state without any key is at
the newest version.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar
from weakref import ReferenceType

from versioned_state.arguments import check_function, count
from versioned_state.errors import (
    CorruptObjectError,
    InvalidArgumentError,
    MigrationError,
    NewerVersionError,
    StateError,
    StorageError,
)
from versioned_state.objects.store import Staging
from versioned_state.state.aio.caller import HandleLock
from versioned_state.state.keyspace import KeySpace
from versioned_state.state.worktree.worktree import Worktree
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.encode.inline import InlineEncoder
from versioned_state.values.keys import ENGINE, is_internal, namespace_prefix
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, find, iter_items

if TYPE_CHECKING:
    from versioned_state.objects.address import Address
    from versioned_state.repository.database import Database
    from versioned_state.repository.history.commit import Commit
    from versioned_state.state.aio.held_objects import HeldObjects
    from versioned_state.state.state import State

    Migration = Callable[[State], object]

F = TypeVar("F", bound="Migration")

VERSION: Final = ENGINE + b"version"
FIRST: Final = 1

_ROOTS_KEPT: Final = 8
"""The migrated roots that a handle keeps: of its head, and of the sides and bases of a merge."""


class Migrations:
    """The migrations of a state, in their order.

    ``Versioned(store, migrations=…)`` reads every state as the newest version.

    >>> migrations = Migrations()
    >>> @migrations.to(2)
    ... def one_name(state):
    ...     state["name"] = f"{state.pop('first')} {state.pop('last')}"

    A state begins at version 1, and its first migration leads to 2. A function changes the state that it is given,
    which has the methods of a dict, ``at`` and ``namespace``, and no others; it gives the same result for the same
    state, since several processes may run it.
    """

    def __init__(self) -> None:
        self._functions: list[Migration] = []

    @property
    def version(self) -> int:
        """The newest version."""
        return FIRST + len(self._functions)

    def to(self, version: int) -> Callable[[F], F]:
        """Return a decorator for the function that leads to a version from the one before.

        Raises:
            InvalidArgumentError: the version is not the next one, or the function is asynchronous or a generator.
        """
        number = count("version", version)

        def declare(function: F) -> F:
            if number != self.version + 1:
                raise InvalidArgumentError(
                    f"the next migration must be to version {self.version + 1}, not {number}",
                    hint="declare them in order, each once; a state without a version is at 1",
                )
            check_function("a migration", function)
            self._functions.append(function)
            return function

        return declare

    def apply(self, state: State, version: int) -> None:
        """Migrate a state in place from a version to the newest.

        Raises:
            MigrationError: a function raised.
        """
        for number in range(version + 1, self.version + 1):
            self.apply_one(state, number)

    def apply_one(self, state: State, version: int) -> None:
        """Run the migration that leads to a version. Raises ``MigrationError``."""
        try:
            self._functions[version - FIRST - 1](state)
        except StorageError:
            raise
        except Exception as error:
            reason = error.what if isinstance(error, StateError) else str(error)
            raise MigrationError(version, f"{type(error).__name__}: {reason}") from error

    def __repr__(self) -> str:
        return f"<Migrations to version {self.version}>"


def version_of(nodes: Nodes, tree: Tree) -> int:
    """Return the version of the state with this root. Raises ``CorruptObjectError``."""
    cell = find(nodes, tree, VERSION) if tree.count else None
    if cell is None:
        return FIRST
    version = Decoder(nodes).decode(cell)
    if type(version) is not int:
        raise CorruptObjectError("(a root)", "its version is not a number")
    return version


def is_fresh(nodes: Nodes, tree: Tree) -> bool:
    """Return whether a root has no key of the user's.

    Cost: the engine's keys, which are few, until one of the user's is found.
    """
    return all(is_internal(key) for key, _ in iter_items(nodes, tree))


class Migrated:
    """A root at the newest version, with its objects that are not in the store.

    Attributes:
        is_written: whether the changes of the migrations are committed before the next commit, as a commit of this
            root.
    """

    __slots__ = ("is_written", "objects", "root")

    def __init__(self, root: Tree, objects: dict[Address, bytes], *, is_written: bool) -> None:
        self.root: Final = root
        self.objects: Final = objects
        self.is_written: Final = is_written


class Headed(Protocol):
    """The handle of a migrator, which needs its head."""

    @property
    def head(self) -> Commit: ...


class Migrator:
    """The migrations of one handle. Not for two threads at once.

    Args:
        objects: the reader of the handle; it gets the objects of migrated roots.
        handle: the handle; the migrated root of its head is always kept.
    """

    def __init__(
        self, migrations: Migrations, database: Database, objects: HeldObjects, handle: ReferenceType[Headed]
    ) -> None:
        self.migrations = migrations
        self._database = database
        self._objects = objects
        self._handle = handle
        self._migrated: OrderedDict[str, Migrated] = OrderedDict()

    def migrated(self, commit: Commit) -> Migrated:
        """Return the state of a commit at the newest version. Cost: the reads of the functions, the first time.

        Raises:
            NewerVersionError: the state is at a newer version. Nothing was changed.
            MigrationError: a function raised. Nothing was changed.
        """
        known = self._migrated.get(commit.id)
        if known is not None:
            self._migrated.move_to_end(commit.id)
            return known
        found = self._migrate(commit.tree)
        self._migrated[commit.id] = found
        if found.objects:
            self._objects.beside |= found.objects
        if len(self._migrated) > _ROOTS_KEPT:
            self._forget()
        return found

    def written(self, commit: Commit, staging: Staging, author: str | None) -> Commit:
        """Return the commit if its state has the newest version, or else a staged child with the migrated state."""
        found = self.migrated(commit)
        for address, raw in found.objects.items():
            staging.add(raw, address)
        if found.is_written:
            return commit
        version = self.migrations.version
        message, meta = f"migrate to version {version}", {"version": version}
        return self._database.write_commit(
            found.root, (commit,), staging=staging, message=message, author=author, meta=meta
        )

    def _forget(self) -> None:
        """Forget the least recently used root, but not that of the head, which live values are relative to."""
        handle = self._handle()
        oldest = next(id for id in self._migrated if handle is None or id != handle.head.id)
        if self._migrated.pop(oldest).objects:
            self._objects.beside = {
                address: raw for each in self._migrated.values() for address, raw in each.objects.items()
            }

    def _migrate(self, tree: Tree) -> Migrated:
        newest = self.migrations.version
        reading = Staging(self._objects)
        nodes = Nodes(reading, staging=reading, shared=self._database.nodes)
        version = version_of(nodes, tree)
        if version == newest:
            return Migrated(tree, {}, is_written=True)
        if version > newest:
            raise NewerVersionError(version, newest)
        fresh = is_fresh(nodes, tree)
        staging = Staging(self._objects)
        root = tree
        if not fresh:
            state = MigratingState(self._objects, self._database, tree)
            for number in range(version + 1, newest + 1):
                self.migrations.apply_one(state, number)
                root, staging = state.staged(number)
        nodes = Nodes(staging, staging=staging)
        root = edit_map(nodes, root, {VERSION: InlineEncoder().encode_inline(newest, "version")})
        return Migrated(root, staging.staged(), is_written=fresh)


class MigratingState(KeySpace):
    """The state that migrations change: a dict over a root, whose changes are not committed."""

    def __init__(self, objects: HeldObjects, database: Database, tree: Tree) -> None:
        super().__init__(b"", HandleLock())
        self._own_worktree = Worktree(objects, database.policy, tree, _no_merge)

    @property
    def _worktree(self) -> Worktree:
        return self._own_worktree

    def staged(self, version: int) -> tuple[Tree, Staging]:
        """Return the root with all changes so far, and its new objects.

        Raises ``MigrationError`` if one cannot be stored.
        """
        from versioned_state.state.worktree.entries import UNSTORABLE

        try:
            staged = self._own_worktree.stage()
        except UNSTORABLE as error:
            raise MigrationError(version, error.what) from error
        return staged.tree, staged.staging

    def namespace(self, name: str) -> _Space:
        return _Space(self, namespace_prefix(name))

    def __repr__(self) -> str:
        return "<a state in migration>"


class _Space(KeySpace):
    """A namespace of a state in migration."""

    def __init__(self, state: MigratingState, prefix: bytes) -> None:
        super().__init__(prefix, state._lock)
        self._state = state

    @property
    def _worktree(self) -> Worktree:
        return self._state._worktree

    def namespace(self, name: str) -> _Space:
        return _Space(self._state, self._prefix + namespace_prefix(name))


def _no_merge(*_: Any) -> NoReturn:
    raise AssertionError("the head of a state in migration does not move")
