"""``Packing``: the values that a store would not give back as they are, as bytes of LangGraph's serializer. Layer: integrations.

An adapter's repository never pickles, and makes instances of trusted classes only. So a value of another class is packed, as
LangGraph's own savers pack every value.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Any, Final

from versioned_state import is_data, register
from versioned_state.values.codec.trust import TrustedClasses
from versioned_state.values.typed.registry import find_layout, layout_of

_LEAVES: Final = frozenset({str, int, float, bool, bytes, type(None)})
_TEXT: Final = frozenset({str})
_EMPTY: Final = frozenset({dict, list, tuple})
_SEVERAL: Final = (list, tuple, set, frozenset, deque)


@dataclass(frozen=True, slots=True)
class Packed:
    """A value as its serializer wrote it.

    Attributes:
        format: the serializer's name of the format.
        content: its bytes.
    """

    format: str
    content: bytes


register(Packed, "langgraph.Packed")

Dump = Callable[[Any], tuple[str, bytes]]
Load = Callable[[tuple[str, bytes]], Any]


class Packing:
    """Turns values into data that the store gives back as they are, and these into values.

    Args:
        dump, load: the serializer's ``dumps_typed`` and ``loads_typed``.
        classes: the classes that the repository trusts.
        whole: pack every value.
    """

    def __init__(self, dump: Dump, load: Load, classes: TrustedClasses | None, *, whole: bool) -> None:
        self._dump = dump
        self._load = load
        self._classes = classes
        self._whole = whole
        self._read_back: dict[type, bool] = {Packed: True}

    def dump(self, value: Any) -> Any:
        """Return a value, or another one in which the parts of classes that are not trusted are packed."""
        if self._whole:
            return self._packed(value)
        if self._is_read_back(value):
            return value
        # Part by part, so that an element of a list keeps its path, and its bytes if the others change.
        if type(value) is list:
            return [self.dump(each) for each in value]
        if type(value) is dict:
            return {key: self.dump(each) for key, each in value.items()} if all(map(self._is_read_back, value)) else self._packed(value)
        return self._packed(value)

    def dump_data(self, value: Any) -> Any:
        """Return a value like ``dump``, or packed as a whole if any of it is not data. Cost: as for storing it."""
        dumped = self.dump(value)
        return dumped if is_data(dumped) else self._packed(value)

    def load(self, value: Any) -> Any:
        """Return the value of what ``dump`` returned."""
        cls = type(value)
        if cls is Packed:
            return self._load((value.format, value.content))
        if cls is list:
            return [self.load(each) for each in value] if _has_packed(value) else value
        if cls is dict:
            return {key: self.load(each) for key, each in value.items()} if _has_packed(value.values()) else value
        return value

    def _packed(self, value: Any) -> Packed:
        return Packed(*self._dump(value))

    def _is_read_back(self, value: Any) -> bool:
        """Return whether all of a value would be read as what it is."""
        cls = type(value)
        if cls in _LEAVES:
            return True
        known = self._read_back.get(cls)
        if known is None:
            known = self._read_back[cls] = self._is_trusted(cls)
        if not known:
            return False
        # Most fields are leaves or empty, and only the others are looked into.
        parts: list[Any] = [each for each in _fields(value) if type(each) not in _LEAVES and (each or type(each) not in _EMPTY)]
        return all(map(self._is_read_back, parts))

    def _is_trusted(self, cls: type) -> bool:
        layout = layout_of(cls)
        # A class without a layout is built in, or its values are objects, which a commit refuses.
        return layout is None or find_layout(layout.name, self._classes or "registered") is layout


def _fields(value: Any) -> Iterable[Any]:
    """Return the parts of a value: keys and elements, and the fields of an instance."""
    if isinstance(value, dict):
        return value.values() if _TEXT.issuperset(map(type, value)) else chain(value, value.values())
    if isinstance(value, _SEVERAL):
        return value
    if isinstance(value, Enum):
        return ()
    slots = getattr(value, "__slots__", ())
    fields = getattr(value, "__dict__", {})
    return fields.values() if not slots else [*fields.values(), *(getattr(value, name, None) for name in slots if type(name) is str)]


def _has_packed(values: Any) -> bool:
    """Return whether any of some values, or a part of their lists and dicts, is packed."""
    for value in values:
        cls = type(value)
        if cls is Packed or (cls is list and _has_packed(value)) or (cls is dict and _has_packed(value.values())):
            return True
    return False
