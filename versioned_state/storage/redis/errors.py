"""The translation of errors from a Redis server and from redis-py into the project's errors. Layer: storage.

No message contains a password: the messages quoted here, of the server and of redis-py, never do.
"""

from __future__ import annotations

import re
from typing import Final

import versioned_state.errors as ours
from versioned_state.errors import (
    InvalidArgumentError,
    StateError,
    StorageError,
    UnknownOutcomeError,
    UnreachableStoreError,
)

# The first word of an error. Redis 6.2 wraps the errors of a script: "ERR Error running script (...): @user_script:3:
# -OOM command ...".
_CODE = re.compile(r"(?:^(?!ERR\b)|: -)([A-Z]{2,})\b")

# redis-py removes the first word from the errors that it has a class for. ``code`` looks up the most derived class
# first.
_CLASSES: Final = {
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "BusyLoadingError": "LOADING",
    "MovedError": "MOVED",
    "AskError": "ASK",
    "TryAgainError": "TRYAGAIN",
    "MasterDownError": "MASTERDOWN",
    "ClusterDownError": "CLUSTERDOWN",
    "AuthenticationError": "NOAUTH",
    "NoPermissionError": "NOPERM",
}

PASSING: Final = frozenset(("READONLY", "LOADING", "BUSY", "MOVED", "ASK", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN"))
"""Refusals that pass by themselves: the server may accept the same batch a little later."""

_NOT_IN_ORDER = (
    UnreachableStoreError,
    "{place} answered {code}: its cluster is not healthy",
    "nothing was written",
    "try again later",
)
_HANDED_OVER = (
    ours.StoreBusyError,
    "{place} is handing these keys to another server",
    "nothing was written",
    "try again later",
)

_REFUSALS: Final[dict[str, tuple[type[StorageError], str, str, str]]] = {
    "OOM": (
        ours.StorageFullError,
        "{place} has reached its maxmemory",
        "nothing was written",
        "collect garbage, or raise maxmemory",
    ),
    "READONLY": (
        UnreachableStoreError,
        "{place} has become a replica, which takes no writes",
        "nothing was written",
        "connect to the primary",
    ),
    "LOADING": (UnreachableStoreError, "{place} is still loading its data", "nothing was written", "try again later"),
    "BUSY": (
        ours.StoreBusyError,
        "{place} is busy with another client's script",
        "nothing was written",
        "SCRIPT KILL stops it",
    ),
    "MOVED": _NOT_IN_ORDER,
    "MASTERDOWN": _NOT_IN_ORDER,
    "CLUSTERDOWN": _NOT_IN_ORDER,
    "ASK": _HANDED_OVER,
    "TRYAGAIN": _HANDED_OVER,
    "NOREPLICAS": (
        UnreachableStoreError,
        "{place} has fewer replicas than its min-replicas-to-write requires",
        "nothing was written",
        "try again later",
    ),
    "MISCONF": (
        ours.UnsafeStoreError,
        "{place} refuses writes, because it cannot save its data to disk",
        "nothing was written",
        "read the server's log; often the disk is full",
    ),
    "NOAUTH": (
        StorageError,
        "{place} requires a user name and password, or refuses the ones given",
        "nothing was written",
        "give them in the URL, percent-encoded, or as username= and password=",
    ),
    "NOPERM": (
        StorageError,
        "{place} does not permit the user to do this: {error}",
        "",
        "docs/operations.md lists the commands that a store needs",
    ),
    "WRONGTYPE": (ours.NotAStoreError, "the keys at {place} do not belong to a store", "", "choose another prefix"),
}


def code(error: Exception) -> str:
    """Return the word with which Redis names an error, such as ``OOM``, or "" if it has none."""
    for kind in type(error).__mro__:
        if kind.__name__ in _CLASSES:
            return _CLASSES[kind.__name__]
    found = _CODE.search(str(error))
    return found[1] if found else ""


def refusal(error: Exception, place: str) -> StateError:
    """Return the exception for an error reply of the server at ``place``, or for options that redis-py refuses."""
    from redis.exceptions import RedisError

    if not isinstance(error, RedisError):
        return InvalidArgumentError(f"redis-py cannot use the options given for {place}: {error}")
    word = code(error)
    kind, message, remains, hint = _REFUSALS.get(word, (StorageError, "{place} failed: {error}", "", ""))
    return kind(message.format(place=place, code=word, error=error), remains=remains, hint=hint)


def no_connection(error: Exception, place: str) -> StorageError:
    """Return the exception for a lost connection, if the batch had no effect."""
    from redis.exceptions import InvalidResponse, MaxConnectionsError, TimeoutError as RedisTimeoutError

    if isinstance(error, MaxConnectionsError):
        return ours.StoreBusyError(
            f"all connections to {place} are in use", remains="nothing was written", hint="raise max_connections"
        )
    if isinstance(error, InvalidResponse):
        return ours.NotAStoreError(f"the server at {place} does not speak the Redis protocol")
    how = "did not answer in time" if isinstance(error, RedisTimeoutError) else "cannot be reached"
    return UnreachableStoreError(f"{place} {how}: {error}", remains="nothing was written", hint="try again later")


def unknown_outcome(error: Exception, place: str) -> StorageError:
    """Return the exception for a connection that was lost during a write."""
    return UnknownOutcomeError(
        f"the connection to {place} was lost during a write, which was done as a whole or not at all: {error}"
    )
