"""Records of shared commits: a ref was pointed at this commit, or merged it, after it was made. Layer: repository.

If a branch made a commit and there is no record, no other ref leads there: ``own_line`` has the argument. A record names the ref of the
latest such move, and the one by whose name the commit was found, if it was found by one; earlier names are written over, since to keep
them would cost each move a read. The names are where to look first, and no more: a ref may have moved on, or be gone.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgpack

from versioned_state.objects.address import Address
from versioned_state.objects.keys import shared_key
from versioned_state.objects.record import read_record, write_record


def write_shared(commit: Address, names: Iterable[str]) -> dict[str, bytes]:
    """The record of a commit, by its key."""
    key = shared_key(commit)
    body: bytes = msgpack.packb(list(dict.fromkeys(names)))
    return {key: write_record(key, body)}


def read_shared(key: str, stored: bytes) -> list[str]:
    """The names of branches and tags in a record; none if it is damaged, since that there is a record says enough."""
    try:
        names = msgpack.unpackb(read_record(key, stored))
    except (ValueError, msgpack.UnpackException):
        return []
    return [name for name in names if type(name) is str] if type(names) is list else []
