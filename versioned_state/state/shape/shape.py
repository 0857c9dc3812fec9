"""``Shape``: the shape of the state of one handle: a schema, bounds and migrations. Layer: state."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from versioned_state.arguments import instance_of
from versioned_state.errors import InvalidArgumentError
from versioned_state.objects.store import Staging
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.state.shape.bounded import Bounds
from versioned_state.state.shape.migrations import Migrations, Migrator
from versioned_state.state.shape.schema import CheckedSnapshot, ReadCheck, Schema, SchemaCheck, as_schema

if TYPE_CHECKING:
    from versioned_state.repository.history.commit import Commit
    from versioned_state.state.branch.branch_handle import BranchHandle
    from versioned_state.values.trees.nodes import NodeCache


class Shape:
    """The shape of the state of one handle.

    Args:
        schema: a ``Schema``, or the argument of one; None for any state.
        check_reads: whether values are also checked when they are read.
        migrations: None to read every state as it is.

    Raises:
        InvalidArgumentError: an argument is of the wrong kind.
    """

    def __init__(self, schema: Any, *, check_reads: bool, migrations: Migrations | None) -> None:
        instance_of("migrations", migrations, Migrations | None)
        if check_reads and schema is None:
            raise InvalidArgumentError("check_reads=True needs a schema")
        self._schema: Schema | None = None if schema is None else as_schema(schema)
        self._check_reads = bool(check_reads)
        self._migrations = migrations

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of a state of the same shape."""
        return {"schema": self._schema, "check_reads": self._check_reads, "migrations": self._migrations}

    def attach(self, handle: BranchHandle) -> None:
        """Apply the shape to a new handle. Raises ``NewerVersionError`` or ``MigrationError``."""
        policy = handle.repository.database.policy
        if self._migrations is not None:
            database = handle.repository.database
            handle.migrator = Migrator(self._migrations, database, handle.objects, weakref.ref(handle))
            handle.worktree.tree = handle.root_of(handle.head)
        if self._schema is not None:
            if self._schema.rules:
                handle.hooks.add(SchemaCheck(self._schema, policy), handle.head)
            if self._schema.bounds:
                handle.hooks.add(Bounds(self._schema.bounds, policy, handle.worktree), handle.head)
            if self._check_reads:
                handle.worktree.read_check = ReadCheck(self._schema, policy)

    def snapshot(self, handle: BranchHandle, commit: Commit, *, migrated: bool) -> Snapshot:
        """Return the view of a commit, as it is or at the newest version.

        Its values are checked if those of the handle are.
        """
        database = handle.repository.database
        reader: Any = database.objects
        tree = commit.tree
        cache: NodeCache | None = database.nodes
        if migrated:
            if handle.migrator is None:
                raise InvalidArgumentError("checkout(migrated=True) needs a state with migrations=")
            found = handle.migrator.migrated(commit)
            if found.objects:
                reader = Staging(database.objects)
                for address, raw in found.objects.items():
                    reader.add(raw, address)
                cache = None
            tree = found.root
        if self._check_reads and self._schema is not None:
            return CheckedSnapshot(self._schema, reader, tree, database.policy, commit=commit, cache=cache)
        return Snapshot(reader, tree, database.policy, commit=commit, cache=cache)
