"""Records of shared commits: a ref was pointed at this commit, or merged it, after it was made. Layer: repository.

If a branch made a commit and there is no record, no other ref leads there: ``own_line`` has the argument. A record names the refs of the
latest such move, and where the commit was found. The names are where to look first, and no more: a ref may have moved on, or be gone.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgpack

from versioned_state.objects.address import Address
from versioned_state.objects.keys import shared_key
from versioned_state.objects.record import read_record, write_record


def write_shared(commits: Iterable[Address], names: Iterable[str]) -> dict[str, bytes]:
    """The records for some commits, by key."""
    body: bytes = msgpack.packb(list(dict.fromkeys(names)))
    return {key: write_record(key, body) for key in map(shared_key, commits)}


def read_shared(key: str, stored: bytes) -> list[str]:
    """The names of branches and tags in a record; none if it is damaged, since that there is a record says enough."""
    try:
        names = msgpack.unpackb(read_record(key, stored))
    except (ValueError, msgpack.UnpackException):
        return []
    return [name for name in names if type(name) is str] if type(names) is list else []
