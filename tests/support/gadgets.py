"""Classes that record it if anything of them runs: what a hostile store may name.

The record is ``RAN``, and a line in ``RAN_FILE``.
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RAN: list[str] = []


def ran(name: str) -> None:
    RAN.append(name)
    if path := os.environ.get("RAN_FILE"):
        with Path(path).open("a") as file:
            file.write(name + "\n")


def __getattr__(name: str) -> Any:
    if name not in ("__path__", "__file__", "__spec__") and not name.startswith("__"):
        ran(f"module.__getattr__({name})")
    raise AttributeError(name)


class Init:
    def __init__(self) -> None:
        ran("__init__")

    def __eq__(self, other: object) -> bool:
        ran("__eq__")
        return True

    def __hash__(self) -> int:
        ran("__hash__")
        return 1

    def __repr__(self) -> str:
        ran("__repr__")
        return ""


class Setattr:
    def __setattr__(self, name: str, value: Any) -> None:
        ran("__setattr__")

    def __delattr__(self, name: str) -> None:
        ran("__delattr__")


class Getattribute:
    def __getattribute__(self, name: str) -> Any:
        ran("__getattribute__")
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        ran("__getattr__")
        raise AttributeError(name)


class Property:
    @property
    def field(self) -> Any:
        ran("property")
        return 1

    @field.setter
    def field(self, value: Any) -> None:
        ran("property setter")


class Descriptor:
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        ran("descriptor __get__")
        return 1

    def __set__(self, instance: Any, value: Any) -> None:
        ran("descriptor __set__")

    def __delete__(self, instance: Any) -> None:
        ran("descriptor __delete__")


class Described:
    field = Descriptor()


@dataclass
class DescribedDataclass:
    field: Any = 1


DescribedDataclass.field = Descriptor()


class Slotted:
    __slots__ = ("other",)
    field = Descriptor()


class Meta(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        ran("metaclass __call__")

    def __getattribute__(cls, name: str) -> Any:
        if not (name.startswith("__") and name.endswith("__")) or name in (
            "__qualname__",
            "__module__",
            "__mro__",
            "__dict__",
        ):
            _note_metaclass(name)
        return type.__getattribute__(cls, name)

    def __instancecheck__(cls, instance: Any) -> bool:
        ran("metaclass __instancecheck__")
        return True

    def __subclasscheck__(cls, subclass: Any) -> bool:
        ran("metaclass __subclasscheck__")
        return True

    def __hash__(cls) -> int:
        ran("metaclass __hash__")
        return 1

    def __eq__(cls, other: object) -> bool:
        ran("metaclass __eq__")
        return True

    def __setattr__(cls, name: str, value: Any) -> None:
        type.__setattr__(cls, name, value)

    def __repr__(cls) -> str:
        ran("metaclass __repr__")
        return ""


def _note_metaclass(name: str) -> None:
    ran(f"metaclass __getattribute__({name})")


class WithMeta(metaclass=Meta):
    pass


class Outer(metaclass=Meta):
    class Inner:
        pass


class MetaError(Exception, metaclass=Meta):
    pass


class Comparing(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__qualname__", "__module__", "__mro__", "__dict__", "__dataclass_fields__"):
            ran(f"metaclass __getattribute__({name})")
        return type.__getattribute__(cls, name)


class ByIdentity(metaclass=Comparing):
    pass


class IdentityError(Exception, metaclass=Comparing):
    pass


class New:
    def __new__(cls, *args: Any) -> Any:
        ran("__new__")
        return object.__new__(cls)


class NewList(list[Any]):
    def __new__(cls, *args: Any) -> Any:
        ran("list __new__")
        return list.__new__(cls)

    def append(self, *args: Any) -> None:
        ran("append")

    def extend(self, *args: Any) -> None:
        ran("extend")

    def __iter__(self) -> Any:
        ran("__iter__")
        return list.__iter__(self)

    def __len__(self) -> int:
        ran("__len__")
        return list.__len__(self)


class NewDict(dict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        ran("__setitem__")

    def update(self, *args: Any, **kwargs: Any) -> None:
        ran("update")

    def __missing__(self, key: Any) -> Any:
        ran("__missing__")

    def items(self) -> Any:
        ran("items")
        return dict.items(self)


class NewStr(str):
    __slots__ = ()

    def __new__(cls, *args: Any) -> Any:
        ran("str __new__")
        return str.__new__(cls, *args)

    def __str__(self) -> str:
        ran("__str__")
        return ""

    def __hash__(self) -> int:
        ran("str __hash__")
        return 1


class RaisedError(Exception):
    def __new__(cls, *args: Any) -> Any:
        ran("exception __new__")
        return Exception.__new__(cls, *args)

    def __init__(self, *args: Any) -> None:
        ran("exception __init__")

    def __setattr__(self, name: str, value: Any) -> None:
        ran("exception __setattr__")

    def add_note(self, note: str) -> None:
        ran("add_note")


class Subclassed:
    def __init_subclass__(cls, **kwargs: Any) -> None:
        ran("__init_subclass__")


class Deleted:
    def __del__(self) -> None:
        ran("__del__")


class State:
    def __setstate__(self, state: Any) -> None:
        ran("__setstate__")

    def __getstate__(self) -> Any:
        ran("__getstate__")
        return {}

    def __reduce_ex__(self, protocol: Any) -> Any:
        ran("__reduce_ex__")
        return State, ()


class Missing(enum.Enum):
    A = 1

    @classmethod
    def _missing_(cls, value: Any) -> Any:
        ran("_missing_")
        return cls.A


class MissingFlag(enum.IntFlag):
    A = 1

    @classmethod
    def _missing_(cls, value: Any) -> Any:
        ran("flag _missing_")
        return cls.A


@dataclass
class PostInit:
    a: Any = 1

    def __post_init__(self) -> None:
        ran("__post_init__")


GADGETS = (
    Init,
    Setattr,
    Getattribute,
    Property,
    Described,
    DescribedDataclass,
    Slotted,
    WithMeta,
    MetaError,
    ByIdentity,
    IdentityError,
    New,
    NewList,
    NewDict,
    NewStr,
    RaisedError,
    Subclassed,
    Deleted,
    State,
    Missing,
    MissingFlag,
    PostInit,
)
