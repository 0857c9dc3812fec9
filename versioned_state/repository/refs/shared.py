"""Records of shared commits: a ref was pointed at this commit, or merged it, after it was made. Layer: repository.

If a branch made a commit and there is no record, no other ref leads there: ``own_line`` has the reasons. A record names
the ref of the latest such move, and the ref by whose name the commit was found, if there was one. Earlier names are
overwritten, since keeping them would cost each move a read. The names are only hints: a ref may have moved on, or be
gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import msgpack

from versioned_state.objects.address import Address
from versioned_state.objects.keys import SHARED, commit_in, shared_key
from versioned_state.objects.record import read_record, write_record
from versioned_state.storage import KVStore


def write_shared(commit: Address, names: Iterable[str]) -> dict[str, bytes]:
    """Return the record of a commit, by its key."""
    key = shared_key(commit)
    body: bytes = msgpack.packb(list(dict.fromkeys(names)))
    return {key: write_record(key, body)}


def read_shared(key: str, stored: bytes) -> list[str]:
    """Return the names of branches and tags in a record, or none if it is damaged: that it exists is enough."""
    try:
        names = msgpack.unpackb(read_record(key, stored))
    except (ValueError, msgpack.UnpackException):
        return []
    return [name for name in names if type(name) is str] if type(names) is list else []


def carry_shared(
    store: KVStore, now: Callable[[Address], Address], *, left: Collection[str], untagged: Iterable[Address]
) -> None:
    """Copy the records of old commits to their rewritten commits, without the names of refs that are gone.

    Args:
        now: the address that a commit has now.
        left: the names of the existing refs, including deleted refs with a reflog.
        untagged: commits that no longer name their tag. They get a record, since the tag may lead to them.
    """
    for key, stored in list(store.items(SHARED)):
        names = [name for name in read_shared(key, stored) if name in left]
        for new_key, record in write_shared(now(commit_in(key)), names).items():
            if (new_key, record) != (key, stored):
                store.set(new_key, record)
    for address in untagged:
        for new_key, record in write_shared(address, ()).items():
            if store.get(new_key) is None:
                store.set(new_key, record)
