"""Classes that record it if anything of them runs: what a hostile store may name.

The record is ``RAN``, and a line in ``RAN_FILE``.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
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


def noted(name: str, act: Callable[..., Any] = lambda *_: None) -> Callable[..., Any]:
    """Return a method that is recorded if it runs, and then acts."""

    def method(*arguments: Any, **named: Any) -> Any:
        ran(name)
        return act(*arguments, **named)

    return method


class Init:
    __init__ = noted("__init__")
    __eq__ = noted("__eq__", lambda _self, _other: True)
    __hash__ = noted("__hash__", lambda _: 1)
    __repr__ = noted("__repr__", lambda _: "")


class Setattr:
    __setattr__ = noted("__setattr__")
    __delattr__ = noted("__delattr__")


class Getattribute:
    __getattribute__ = noted("__getattribute__", object.__getattribute__)

    def __getattr__(self, name: str) -> Any:
        ran("__getattr__")
        raise AttributeError(name)


class Property:
    field = property(noted("property", lambda _: 1), noted("property setter"))


class Descriptor:
    __get__ = noted("descriptor __get__", lambda *_: 1)
    __set__ = noted("descriptor __set__")
    __delete__ = noted("descriptor __delete__")


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
    def __getattribute__(cls, name: str) -> Any:
        if not (name.startswith("__") and name.endswith("__")) or name in (
            "__qualname__",
            "__module__",
            "__mro__",
            "__dict__",
        ):
            ran(f"metaclass __getattribute__({name})")
        return type.__getattribute__(cls, name)

    __call__ = noted("metaclass __call__")
    __instancecheck__ = noted("metaclass __instancecheck__", lambda _cls, _instance: True)
    __subclasscheck__ = noted("metaclass __subclasscheck__", lambda _cls, _subclass: True)
    __hash__ = noted("metaclass __hash__", lambda _: 1)
    __eq__ = noted("metaclass __eq__", lambda _cls, _other: True)
    __repr__ = noted("metaclass __repr__", lambda _: "")


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
    __new__ = noted("__new__", lambda cls, *_: object.__new__(cls))


class NewList(list[Any]):
    __new__ = noted("list __new__", lambda cls, *_: list.__new__(cls))
    append = noted("append")
    extend = noted("extend")
    __iter__ = noted("__iter__", list.__iter__)
    __len__ = noted("__len__", list.__len__)


class NewDict(dict[Any, Any]):
    __setitem__ = noted("__setitem__")
    update = noted("update")
    __missing__ = noted("__missing__")
    items = noted("items", dict.items)


class NewStr(str):
    __slots__ = ()
    __new__ = noted("str __new__", str.__new__)
    __str__ = noted("__str__", lambda _: "")
    __hash__ = noted("str __hash__", lambda _: 1)


class RaisedError(Exception):
    __new__ = noted("exception __new__", Exception.__new__)
    __init__ = noted("exception __init__")
    __setattr__ = noted("exception __setattr__")
    add_note = noted("add_note")


class Subclassed:
    __init_subclass__ = noted("__init_subclass__")


class Deleted:
    __del__ = noted("__del__")


class State:
    __setstate__ = noted("__setstate__")
    __getstate__ = noted("__getstate__", lambda _: {})
    __reduce_ex__ = noted("__reduce_ex__", lambda *_: (State, ()))


class Missing(enum.Enum):
    A = 1

    _missing_ = classmethod(noted("_missing_", lambda cls, _value: cls.A))


class MissingFlag(enum.IntFlag):
    A = 1

    _missing_ = classmethod(noted("flag _missing_", lambda cls, _value: cls.A))


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
