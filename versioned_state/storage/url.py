"""`open_store`, which turns what a user types into a store."""

from __future__ import annotations

import os
import re

from versioned_state.errors import InvalidArgumentError
from versioned_state.storage.base import KVStore
from versioned_state.storage.disk import Disk
from versioned_state.storage.memory import Memory
from versioned_state.storage.readonly import ReadOnly

# Two letters at least, so that `C:\state` is a path; no dot or slash, so that `./a:b` is one too.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+-]+):(.*)", re.DOTALL)

_NOT_YET = ("redis", "rediss", "postgresql", "postgres", "diskcache", "s3")


def open_store(url: str | os.PathLike[str], *, read_only: bool = False, create: bool = True) -> KVStore:
    """The store that `url` names: `memory:`, `disk:PATH`, or a bare path.

    What stands before a first colon is a scheme; a path like that is written `disk:a:b` or `./a:b`.
    Nothing in it is decoded: `%20` is three characters of a name. `read_only` and `create` are those
    of `Disk`. Raises `InvalidArgumentError` for a URL that cannot be meant.
    """
    if not isinstance(url, str):
        return Disk(url, read_only=read_only, create=create)
    match = _SCHEME.fullmatch(url)
    if match is None:
        return Disk(url, read_only=read_only, create=create)
    scheme, rest = match[1].lower(), match[2]
    if scheme == "memory":
        if rest:
            raise InvalidArgumentError(f"{url!r}: memory: takes nothing after the colon")
        return ReadOnly(Memory()) if read_only else Memory()
    if scheme == "disk":
        if rest.startswith("//"):
            raise InvalidArgumentError(f"{url!r}: write disk:PATH, without //", hint="for example: disk:./state or disk:/var/lib/state")
        return Disk(rest, read_only=read_only, create=create)
    if scheme in _NOT_YET:
        raise InvalidArgumentError(f"{url!r}: this release has no backend for {scheme}: yet", hint="it has memory: and disk:PATH")
    raise InvalidArgumentError(
        f"{url!r}: unknown scheme {scheme!r}; there are memory: and disk:PATH",
        hint=f"if that is a path, write disk:{url}",
    )
