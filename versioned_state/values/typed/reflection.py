"""Inspects classes, and finds a class by its name, without running code of the class. Layer: values.

A store may name any class, so nothing here reads an attribute through the class: its metaclass could run code.
"""

from __future__ import annotations

import copyreg
import re
import sys
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from types import BuiltinFunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, Final

_GET: Any = type.__dict__
mro_of: Final[Callable[[type], tuple[type, ...]]] = _GET["__mro__"].__get__
namespace_of: Final[Callable[[type], Any]] = _GET["__dict__"].__get__
qualname_of: Final[Callable[[type], str]] = _GET["__qualname__"].__get__
_basicsize_of: Final[Callable[[type], int]] = _GET["__basicsize__"].__get__
_itemsize_of: Final[Callable[[type], int]] = _GET["__itemsize__"].__get__

_flags_of: Final[Callable[[type], int]] = _GET["__flags__"].__get__
_HEAP_TYPE: Final = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: set for every class that Python code makes."""

_EQ: Final[Any] = object.__dict__["__eq__"]
_HASH: Final[Any] = object.__dict__["__hash__"]

_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_POINTER: Final = object.__basicsize__ // 2

PICKLING: Final = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
"""The methods by which a class says how its instances are pickled: its state is then more, or less, than its fields."""


def lookup(cls: type, name: str) -> Any:
    """The attribute in the namespace of a class or a base; None if there is none."""
    for base in mro_of(cls):
        namespace = namespace_of(base)
        if name in namespace:
            return namespace[name]
    return None


def inherits(cls: type, base: type) -> bool:
    """Whether a class is ``base`` or a subclass of it. ``in`` would call the ``__eq__`` of a metaclass."""
    return any(each is base for each in mro_of(cls))


def is_known_by_identity(cls: type) -> bool:
    """Whether a class is compared and hashed by identity, so that it can be a key of the tables in this package."""
    meta = type(cls)
    return lookup(meta, "__eq__") is _EQ and lookup(meta, "__hash__") is _HASH


def owner_of(cls: type, name: str) -> type | None:
    """The class whose namespace has an attribute."""
    return next((base for base in mro_of(cls) if name in namespace_of(base)), None)


def module_of(cls: type) -> str:
    """The name of the module that a class was made in; empty if it does not say."""
    module = namespace_of(cls).get("__module__")
    if type(module) is str:
        return module
    # The full name of a class of C contains its module.
    name = cls.__module__ if type(cls) is type else ""
    return name if type(name) is str else ""


def name_of(cls: type) -> str:
    """The stored name of a class: ``module:qualified.name``. A parametrised generic has the name of its class."""
    generic = lookup(cls, "__pydantic_generic_metadata__")
    if type(generic) is dict and isinstance(generic.get("origin"), type):
        cls = generic["origin"]
    return f"{module_of(cls)}:{qualname_of(cls)}"


def find_class(name: str, *, importing: bool = False) -> type | None:
    """The class with a name, or None if there is none. With ``importing``, imports its module if necessary."""
    if _NAME.fullmatch(name) is None:
        return None
    module_name, _, path = name.partition(":")
    module = sys.modules.get(module_name)
    if module is None and importing:
        try:
            module = import_module(module_name)
        except (Exception, SystemExit):  # noqa: BLE001 - the module is missing, or fails: either way, its classes are not there
            return None  # SystemExit: importing a script runs it to its end
    if not isinstance(module, ModuleType):
        return None
    namespace: Any = object.__getattribute__(module, "__dict__")
    found: type | None = None
    for part in path.split("."):
        inside = namespace.get(part)
        if not isinstance(inside, type):
            return None
        found, namespace = inside, namespace_of(inside)
    return found


def is_found(cls: type) -> bool:
    """Whether the name of a class leads back to it, or to its replacement: a cell of a notebook may have run again."""
    name = name_of(cls)
    found = find_class(name)
    return found is not None and (found is cls or name_of(found) == name)


def custom_pickling(cls: type, stop: type = object) -> str | None:
    """The method by which a class, or a base of it before ``stop``, says how it is pickled, or None."""
    if any(each is cls for each in copyreg.dispatch_table):
        return "copyreg"
    for base in mro_of(cls):
        if base is stop or base is object:
            return None
        namespace = namespace_of(base)
        for name in PICKLING:
            if name in namespace and not _is_generated(namespace[name]):
                return name
    return None


def _is_generated(method: Any) -> bool:
    """Whether dataclasses, attrs, pydantic or namedtuple generated a pickling method for exactly the fields of the class."""
    code = getattr(method, "__globals__", None)
    module = code.get("__name__", "") if type(code) is dict else ""
    return type(module) is str and (module in ("dataclasses", "attr._make", "collections") or module.split(".")[0] == "pydantic")


def slots_of(cls: type) -> dict[str, MemberDescriptorType]:
    """The slots of instances, by name as it is stored in the class: that of the most derived class if several have one name."""
    slots: dict[str, MemberDescriptorType] = {}
    for base in mro_of(cls):
        declared = namespace_of(base).get("__slots__", ())
        for name in (declared,) if isinstance(declared, str) else tuple(declared):
            if name in ("__dict__", "__weakref__"):
                continue
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{qualname_of(base).rpartition('.')[2].lstrip('_')}{name}"  # noqa: PLW2901 - as the compiler mangles it
            member = namespace_of(base).get(name)
            if type(member) is MemberDescriptorType:
                slots.setdefault(name, member)
    return slots


def dict_getter(cls: type) -> Callable[[Any], dict[str, Any]] | None:
    """A function that returns the ``__dict__`` of an instance; None if instances have no ordinary ``__dict__``."""
    for base in mro_of(cls):
        descriptor = namespace_of(base).get("__dict__")
        if descriptor is not None:
            usual = type(descriptor) is GetSetDescriptorType and lookup(cls, "__getattribute__") is object.__getattribute__
            return attrgetter("__dict__") if usual else descriptor.__get__ if type(descriptor) is GetSetDescriptorType else None
    return None


def is_of_c(cls: type, base: type) -> bool:
    """Whether a class, or a base of it before ``base``, is implemented in C: then ``base.__new__`` cannot make its instances."""
    for each in mro_of(cls):
        if each is base or each is object:
            return False
        if not _flags_of(each) & _HEAP_TYPE or type(namespace_of(each).get("__new__")) is BuiltinFunctionType:
            return True
    return False


def has_hidden_state(cls: type, base: type, slots: int) -> bool:
    """Whether instances hold more C state than ``base``, apart from a dict, weak references and slots."""
    return _itemsize_of(cls) != _itemsize_of(base) or _basicsize_of(cls) > _basicsize_of(base) + _POINTER * (2 + slots)
