"""Keys of a state's root: the user's, namespaces', and the engine's own, which never meet. Layer: values.

============================  ==================================================
root key                      whose
============================  ==================================================
``k`` + key                   the user's
``n`` + name + NUL + a key    a key, of any of the three kinds, in a namespace
``e`` + key                   the engine's own: events, notes
============================  ==================================================

The keys of one kind and namespace are a range, in the order of their characters.
"""

from __future__ import annotations

from versioned_state.arguments import string
from versioned_state.errors import InvalidArgumentError, LimitExceededError
from versioned_state.values.cells import MAX_KEY, decoded_text
from versioned_state.values.paths.path import Key, Namespace, StatePath

USER = b"k"
NAMESPACE = b"n"
ENGINE = b"e"

ROUNDS = ENGINE + b"rounds"
OLDER_ROUNDS = ENGINE + b"rounds/older"
"""The rounds of a session: which it has, and where."""

OF_A_LINE = frozenset({ROUNDS, OLDER_ROUNDS})
"""Keys that name places on the line of commits of one branch, so a merge keeps those of the line that goes on."""


def user_key(key: str) -> bytes:
    """Return the root key of a user's key.

    Raises ``TypeError`` if it is not a string, ``LimitExceededError`` beyond 4,095 bytes.
    """
    if type(key) is not str:
        raise TypeError(f"the keys of a state must be strings, not {type(key).__name__}: {key!r}")
    root_key = b"k" + key.encode("utf-8", "surrogatepass")
    if len(root_key) > MAX_KEY:
        raise LimitExceededError(
            f"a key of {len(root_key) - 1} bytes", limit=MAX_KEY - 1, remains="nothing was changed"
        )
    return root_key


def key_range(prefix: str, start: str | None, end: str | None) -> tuple[bytes, bytes]:
    """Return the user keys that begin with ``prefix`` and lie in [start, end), as a range of root keys.

    Raises as ``user_key``.
    """
    first = user_key(prefix)
    low = first if start is None else max(first, user_key(start))
    high = first + b"\xff"  # no UTF-8 has this byte
    return low, high if end is None else min(high, user_key(end))


def namespace_prefix(name: str) -> bytes:
    """Return the prefix of the root keys of a namespace. Raises ``InvalidArgumentError``."""
    string("the name of a namespace", name, empty=False, without="\0")
    return NAMESPACE + name.encode("utf-8", "surrogatepass") + b"\0"


def path_of(root_key: bytes) -> StatePath:
    """Return the path that a root key shows as. The engine's own keys show as in a namespace of that name."""
    path = StatePath()
    while root_key[:1] == NAMESPACE:
        name, _, root_key = root_key[1:].partition(b"\0")
        path = path.namespace(decoded_text(name))
    if root_key[:1] == ENGINE:
        path = path.namespace("engine")
    return path.key(decoded_text(root_key[1:]))


def is_internal(root_key: bytes) -> bool:
    """Return whether a root key is one of the engine's own, in any namespace."""
    while root_key[:1] == NAMESPACE:
        root_key = root_key.partition(b"\0")[2]
    return root_key[:1] == ENGINE


def name_in(root_key: bytes) -> bytes:
    """Return the key itself in a root key, without its kind and namespaces."""
    while root_key[:1] == NAMESPACE:
        root_key = root_key.partition(b"\0")[2]
    return root_key[1:]


def root_key_of(path: StatePath) -> tuple[bytes, StatePath]:
    """Return the root key that a path begins with, and the rest of it.

    Raises ``InvalidArgumentError`` if it begins with an index.
    """
    prefix = b""
    for index, step in enumerate(path.steps):
        if isinstance(step, Namespace):
            prefix += namespace_prefix(step.name)
        elif isinstance(step, Key) and type(step.key) is str:
            return prefix + user_key(step.key), StatePath(path.steps[index + 1 :])
        else:
            break
    raise InvalidArgumentError(f"the path {path} does not begin with a key of the state")
