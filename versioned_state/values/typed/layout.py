"""``Layout``: how the values of one class are converted to data and back. Layer: values."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, ClassVar, Final

from versioned_state.values.typed.tagged import Notes

_SECRET: Final = os.urandom(8)
_serials = count()


class NotPlainDataError(ValueError):
    """A value that its layout cannot express as data, or data that is not that of a value of the class."""


class Layout(ABC):
    """The stored form of the values of one class: the name of the class, data, and sometimes notes.

    The data of an instance is the dict of its fields, the data of a container its elements, and the data of an Enum's
    member its name.

    Attributes:
        cls: the class.
        name: the name that its values are stored by.
        version: the version of its fields, if it is registered with one.
        note_names: the notes that its values may have. Other notes mean that the class was of another kind.
        has_identity: whether it matters if two places hold the same instance or equal instances.
        mark: identifies the class in fingerprints; no value and no other class has the same mark.
    """

    __slots__ = ("cls", "mark", "name", "version")

    has_identity: ClassVar[bool] = False
    note_names: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, cls: type, name: str) -> None:
        self.cls: Final = cls
        self.name: Final = name
        self.version: int | None = None
        self.mark: Final = _SECRET + next(_serials).to_bytes(4, "big")

    @abstractmethod
    def take(self, value: Any) -> tuple[Any, Notes]:
        """Return the data of a value, and its notes. Raises ``NotPlainDataError``."""

    @abstractmethod
    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        """Make a value without its ``__init__``. Returns it, and whether ``take`` would return the same data again.

        Raises ``NotPlainDataError`` for data that is not that of a value of the class, for example if the class was an
        Enum before.
        """

    def assign(self, live: Any, target: Any, assign_part: AssignPart) -> bool:
        """Give a live value the fields of another one in place. Returns False if values of the class cannot be changed.

        Args:
            assign_part: gives a live part the content of another part, and returns the part to keep.
        """
        return False

    def notes_for(self, data: Any, notes: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
        """Return a value's notes after an edit of its data, given earlier notes and data (``before``, if a dict)."""
        return notes

    def pack(self, value: Any) -> list[Any]:
        """Return the value for a fingerprint: a list of values that MessagePack can write, or has a hook for."""
        return [self.mark, *self.take(value)]

    def quick(self, value: Any) -> Any:
        """Return a fingerprint that costs less than taking the value apart, or None if there is none.

        No two contents have one. The fingerprint of an unchanged value may differ: then the value is taken apart.
        """
        return None

    def pack_run(self, run: list[Any], *, identities: bool) -> list[Any] | None:
        """Do ``pack`` for many values of exactly this class at once, or return None if that would save nothing.

        No result equals one of ``pack``.

        ``identities``: whether instances that have an identity count by their identity.
        """
        return None

    def parts(self, value: Any) -> Iterable[Any]:
        """Return the values that a value refers to."""
        data, notes = self.take(value)
        if type(data) is dict:
            parts = [*(key for key in data if type(key) is not str), *data.values()]
        else:
            parts = [*data] if type(data) in (list, tuple, set, frozenset) else [data]
        return [*parts, *notes["fields"].values()] if notes is not None and "fields" in notes else parts


AssignPart = Callable[[Any, Any], Any]


def names_in(notes: dict[str, Any], key: str) -> frozenset[str]:
    """Return the names under a key of the notes. Raises ``NotPlainDataError`` if the note is not a set of names."""
    names = notes.get(key, frozenset())
    if type(names) is not frozenset:
        raise NotPlainDataError(f"the {key} names are not names")
    return names
