"""``Importer``: a source of threads, each of which becomes a branch, in steps. Layer: integrations.

An importer needs no record of how far it came: what the store has of a thread says so. A step is written as a whole or
not at all.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isnan
from typing import Any, ClassVar, Final, Self

from versioned_state.errors import StateError
from versioned_state.repository.repository import Repository
from versioned_state.storage import KVStore

_REMAINS: Final = "what was imported before stays, and another import continues there"

KEEP_GOING: Final = "--keep-going imports the other threads"
"""The hint of a damaged row."""


class ImportSourceError(StateError, remains=_REMAINS):
    """The base of the errors of an import.

    Attributes:
        source: the file or URL that is imported.
    """

    def __init__(self, source: str, what: str, *, remains: str | None = None, hint: str = "") -> None:
        super().__init__(f"{source}: {what}", remains=remains, hint=hint)
        self.source = source


class SourceFormatError(ImportSourceError, remains="nothing was imported"):
    """The file is not one of that framework, or comes from an unknown version of it."""


class DamagedRowError(ImportSourceError):
    """A row that does not hold what its table says. ``where`` names it."""

    def __init__(self, source: str, where: str, reason: str, *, hint: str = "") -> None:
        super().__init__(source, f"{where} is damaged: {reason}", hint=hint or KEEP_GOING)
        self.where = where


class PickledRowError(ImportSourceError):
    """A row is pickled, and so would run what it holds when it is read. ``where`` names it."""

    def __init__(self, source: str, where: str) -> None:
        super().__init__(
            source,
            f"{where} is pickled",
            hint="--allow-pickle reads it; a pickle can run any program, so trust its source",
        )
        self.where = where


class ThreadExistsError(ImportSourceError):
    """The store has something under the name of a thread that is not the beginning of it. ``branch`` is its branch."""

    def __init__(self, source: str, thread: str, branch: str, reason: str) -> None:
        super().__init__(
            source,
            f"branch {branch!r} is not the beginning of {thread}: {reason}",
            remains="the branch was not changed",
            hint="import into another store, or delete or rename the branch",
        )
        self.branch = branch


class ImportMismatchError(ImportSourceError):
    """After the import, the content of the store differs from that of the source.

    ``branch`` is the branch of the thread.
    """

    def __init__(self, source: str, thread: str, branch: str, reason: str) -> None:
        super().__init__(
            source, f"{thread} does not read back as it was: {reason}", hint="the source may have changed: import again"
        )
        self.branch = branch


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of the source.

    Attributes:
        name: what people call it.
        branch: the branch that it becomes.
        steps: how many steps it has.
        ids: the ids of the source.
    """

    name: str
    branch: str
    steps: int
    ids: tuple[str, ...] = field(default=(), repr=False)


class Importer(ABC):
    """A source of one framework, and the store that it goes to.

    Args:
        source: the file, folder or URL. It is only read.
        allow_pickle: unpickle what is pickled.
    """

    framework: ClassVar[str]

    def __init__(self, source: str, *, allow_pickle: bool = False) -> None:
        self.source = source
        self.allow_pickle = allow_pickle

    @abstractmethod
    def close(self) -> None:
        """Close the source."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def into(self, store: KVStore) -> Repository:
        """Write to a store from now on. Returns its repository. Without a call of this, every step is missing."""

    @abstractmethod
    def threads(self) -> list[Thread]:
        """Return the threads of the source. Raises ``SourceFormatError`` if it is not one of this framework."""

    @abstractmethod
    def missing(self, thread: Thread) -> Iterator[Any]:
        """Yield the steps of a thread that the store does not have, in their order.

        Raises:
            ThreadExistsError: the store has something else there.
            DamagedRowError, PickledRowError: a row cannot be read.
        """

    @abstractmethod
    def write(self, thread: Thread, step: Any) -> None:
        """Write a step, in one commit."""

    @abstractmethod
    def check(self, thread: Thread) -> None:
        """Raise ``ImportMismatchError`` unless the store has just what the source has of a thread."""


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values and their types are the same: 1, 1.0 and True differ, and not-a-number is itself."""
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return one.keys() == other.keys() and all(is_same(each, other[key]) for key, each in one.items())
    if type(one) in (list, tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if type(one) is float:
        return one == other or (isnan(one) and isnan(other))
    if hasattr(one, "tobytes") and hasattr(one, "dtype"):  # an array compares by element
        return bool((one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()))
    if one == other:
        return True
    return bool(getattr(one, "__dict__", None)) and is_same(vars(one), vars(other))


def json_of(source: str, where: str, text: object) -> Any:
    """Return the value of a column of JSON. Raises ``DamagedRowError``."""
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise DamagedRowError(source, where, f"it is not text: {error}") from error
    if not isinstance(text, str):
        raise DamagedRowError(source, where, f"it holds {_kind(text)} instead of JSON")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedRowError(source, where, f"it is not JSON: {error}") from error


def object_of(source: str, where: str, text: object) -> dict[str, Any]:
    """Return the object of a column of JSON. Raises ``DamagedRowError``."""
    value = json_of(source, where, text)
    if type(value) is not dict:
        raise DamagedRowError(source, where, f"it holds {_kind(value)} instead of an object")
    return value


def _kind(value: object) -> str:
    return "null" if value is None else f"a value of type {type(value).__name__}"
