"""Expiry: the deletion of branches that have not changed for their time to live. Layer: repository.

The record of a branch has its time to live. The branch ends that long after its last change, so a commit renews it at
no cost. An index has the branches by their end. A place in the index may be too early, because commits do not move it,
but never too late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from versioned_state.errors import UnknownRevisionError
from versioned_state.objects.keys import DUE, read_index_key
from versioned_state.objects.store import Staging
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.branches import Branches
from versioned_state.repository.refs.ref import YEAR_ONE, Ref, batch_of, iter_refs, rewritten
from versioned_state.repository.refs.reflog import EXPIRE

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

_PAGE: Final = 256


class _RenewedError(Exception):
    """The branch has changed, so it does not end yet."""


def expire(database: Database, branches: Branches, *, dry_run: bool = False) -> list[str]:
    """Delete the branches whose time to live is over. See ``Repository.expire``."""
    now = database.now()
    deleted: dict[str, None] = {}
    for name in _due(database, now):
        ref = database.ref("branch", name)
        if ref.head is None or not ref.ttl:
            continue
        end = ref.changed(database.commits.read(ref.head)) + ref.ttl
        if end > now:
            if not dry_run:
                _put_off(database, ref, end)
        elif dry_run or expire_branch(branches, name, now):
            deleted[name] = None
    return list(deleted)


def _due(database: Database, now: int) -> Iterator[str]:
    """Yield the branches that may have expired or, on a store without an index, all branches with a time to live."""
    if not database.fence.enabled:
        yield from (ref.name for ref in iter_refs(database.store, "branch") if ref.ttl)
        return
    after = None
    while keys := database.store.page(DUE, after=after, limit=_PAGE):
        for key in keys:
            time, name = read_index_key(key)
            if time > now + YEAR_ONE:
                return
            yield name
        if len(keys) < _PAGE:
            return
        after = keys[-1]


def _put_off(database: Database, ref: Ref, end: int) -> None:
    """Move a branch to its end in the index, unless another writer moves the branch at this moment."""
    if not ref.due:
        return
    after = rewritten(replace(ref, due=end + YEAR_ONE), ref.head, ref.log)
    batch = batch_of(ref, after)
    database.fence.apply(
        batch.expected, batch.puts, batch.deletes, staging=Staging(database.objects), keep=(), since=ref.sweeps
    )


def expire_branch(branches: Branches, name: str, now: int) -> bool:
    """Delete a branch whose time to live is over. Returns False if the branch has been renewed, or is gone."""

    def check(ref: Ref, head: Commit) -> None:
        if not ref.ttl or ref.changed(head) + ref.ttl > now:
            raise _RenewedError

    try:
        branches.remove(name, check, action=EXPIRE)
    except (_RenewedError, UnknownRevisionError):
        return False
    return True
