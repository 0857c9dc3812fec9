"""What a Redis server or redis-py reports, in the words of ``errors``. Part of the store ``Redis``.

None of the messages holds a password: neither do the server's, nor redis-py's of the kinds that are quoted here.
"""

from __future__ import annotations

import re
from typing import Final

import versioned_state.errors as ours
from versioned_state.errors import InvalidArgumentError, StateError, StorageError, UnknownOutcomeError, UnreachableStoreError

# The first word of an error. Redis 6.2 wraps the errors of a script: "ERR Error running script (...): @user_script:3: -OOM command ...".
_CODE = re.compile(r"(?:^(?!ERR\b)|: -)([A-Z]{2,})\b")

# redis-py takes the first word off those that it has a class for. Subclasses come before what they are subclasses of.
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
"""Refusals that come to an end by themselves: the same batch may be taken a little later."""

_NOT_IN_ORDER = (UnreachableStoreError, "{place} says {code}: its cluster is not in order", "nothing was written", "try again later")
_HANDED_OVER = (ours.StoreBusyError, "{place} is handing these keys to another server", "nothing was written", "try again later")

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
    "BUSY": (ours.StoreBusyError, "{place} is held by somebody's script", "nothing was written", "SCRIPT KILL ends it"),
    "MOVED": _NOT_IN_ORDER,
    "MASTERDOWN": _NOT_IN_ORDER,
    "CLUSTERDOWN": _NOT_IN_ORDER,
    "ASK": _HANDED_OVER,
    "TRYAGAIN": _HANDED_OVER,
    "NOREPLICAS": (
        UnreachableStoreError,
        "{place} has fewer replicas than its min-replicas-to-write asks for",
        "nothing was written",
        "try again later",
    ),
    "MISCONF": (
        ours.UnsafeStoreError,
        "{place} takes no writes, because it cannot save its data to its disk",
        "nothing was written",
        "its log says why; often the disk is full",
    ),
    "NOAUTH": (
        StorageError,
        "{place} refuses the user name or the password, or wants them",
        "nothing was written",
        "give them in the URL, percent-encoded, or as username= and password=",
    ),
    "NOPERM": (
        StorageError,
        "{place} does not permit this to the user: {error}",
        "",
        "docs/operations.md lists the commands that a store needs",
    ),
    "WRONGTYPE": (ours.NotAStoreError, "the keys at {place} are not those of a store", "", "choose another prefix"),
}


def code(error: Exception) -> str:
    """The word by which Redis names an error, such as ``OOM``, or "" if there is none."""
    for kind in type(error).__mro__:
        if kind.__name__ in _CLASSES:
            return _CLASSES[kind.__name__]
    found = _CODE.search(str(error))
    return found[1] if found else ""


def refusal(error: Exception, place: str) -> StateError:
    """For an error that the server at ``place`` answered with, or for options that redis-py refuses."""
    from redis.exceptions import RedisError

    if not isinstance(error, RedisError):
        return InvalidArgumentError(f"redis-py cannot use what the URL of {place}, or the options, say: {error}")
    word = code(error)
    kind, message, remains, hint = _REFUSALS.get(word, (StorageError, "{place} failed: {error}", "", ""))
    return kind(message.format(place=place, code=word, error=error), remains=remains, hint=hint)


def no_connection(error: Exception, place: str) -> StorageError:
    """For a loss of the connection that left nothing behind."""
    from redis.exceptions import InvalidResponse, MaxConnectionsError, TimeoutError as RedisTimeoutError

    if isinstance(error, MaxConnectionsError):
        return ours.StoreBusyError(
            f"all connections to {place} that there may be are in use", remains="nothing was written", hint="raise max_connections"
        )
    if isinstance(error, InvalidResponse):
        return ours.NotAStoreError(f"what answers at {place} does not speak the protocol of Redis")
    how = "did not answer in time" if isinstance(error, RedisTimeoutError) else "cannot be reached"
    return UnreachableStoreError(f"{place} {how}: {error}", remains="nothing was written", hint="try again later")


def unknown_outcome(error: Exception, place: str) -> StorageError:
    """For a loss of the connection while a write was under way."""
    return UnknownOutcomeError(
        f"the connection to {place} was lost while a write was under way, which was done whole or not at all: {error}"
    )
