"""Classes inspected, and found by their names, without running code of theirs. Layer: values.

A store may name any class, so nothing here reads an attribute through the class: its metaclass could run code.
"""

from __future__ import annotations

import copyreg
import re
import sys
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from types import (
    BuiltinFunctionType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any, Final, cast

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

_NAMES_OF_SLOTS: Final = frozenset({tuple, list, dict, set, frozenset})

PICKLING: Final = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
"""Methods by which a class defines how its instances are pickled: its state is then more, or less, than its fields."""


def lookup(cls: type, name: str) -> Any:
    """Return the attribute in the namespace of a class or a base, or None if there is none."""
    for base in mro_of(cls):
        namespace = namespace_of(base)
        if name in namespace:
            return namespace[name]
    return None


def inherits(cls: type, base: type) -> bool:
    """Return whether a class is ``base`` or a subclass of it. ``in`` would call the ``__eq__`` of a metaclass."""
    return any(each is base for each in mro_of(cls))


def is_known_by_identity(cls: type) -> bool:
    """Return whether a class is compared and hashed by identity, so it can be a key of the tables in this package."""
    meta = type(cls)
    return lookup(meta, "__eq__") is _EQ and lookup(meta, "__hash__") is _HASH


def owner_of(cls: type, name: str) -> type | None:
    """Return the class whose namespace has an attribute."""
    return next((base for base in mro_of(cls) if name in namespace_of(base)), None)


def module_of(cls: type) -> str:
    """Return the name of the module that a class was made in, or "" if it does not say."""
    module = namespace_of(cls).get("__module__")
    if type(module) is str:
        return module
    # The full name of a class of C contains its module.
    name = cls.__module__ if type(cls) is type else ""
    return name if type(name) is str else ""


def name_of(cls: type) -> str:
    """Return the stored name of a class: ``module:qualified.name``.

    That of a parametrised model of pydantic ends with its parameters.
    """
    generic = _generic_of(cls)
    if generic is None:
        return f"{module_of(cls)}:{qualname_of(cls)}"
    origin, parameters = generic
    return f"{name_of(origin)}[{', '.join(map(_name_of_parameter, parameters))}]"


def _generic_of(cls: type) -> tuple[type, tuple[Any, ...]] | None:
    """Return the class and the parameters of a parametrised model of pydantic, or None for any other class."""
    generic = lookup(cls, "__pydantic_generic_metadata__")
    if type(generic) is not dict or "__pydantic_generic_metadata__" not in namespace_of(cls):
        return None
    origin, parameters = generic.get("origin"), generic.get("args")
    if origin is None or not inherits(type(origin), type) or type(parameters) is not tuple:
        return None
    return origin, parameters


def _name_of_parameter(parameter: Any) -> str:
    """Return a parameter in the name of a class. It is compared only, and nothing is made of it."""
    return (
        name_of(parameter)
        if inherits(type(parameter), type) and type(parameter) is not GenericAlias
        else repr(parameter)
    )


def find_class(name: str, *, importing: bool = False) -> type | None:
    """Return the class with a name, or None if there is none. With ``importing``, imports its module if necessary."""
    if name.endswith("]"):
        return _find_parametrised(name, importing=importing)
    if _NAME.fullmatch(name) is None:
        return None
    module_name, _, path = name.partition(":")
    module = sys.modules.get(module_name)
    if module is None and importing:
        try:
            module = import_module(module_name)
        except (Exception, SystemExit):  # noqa: BLE001 - the module is missing, or fails: either way, its classes are not there
            return None  # SystemExit: importing a script runs it to its end
    # Not isinstance(), here and below: it reads the __class__ of a value of another type, which may be code.
    if not inherits(type(module), ModuleType):
        return None
    namespace: Any = object.__getattribute__(module, "__dict__")
    found: type | None = None
    for part in path.split("."):
        inside = namespace.get(part)
        if not inherits(type(inside), type):
            return None
        found, namespace = inside, namespace_of(inside)
    return found


def _find_parametrised(name: str, *, importing: bool) -> type | None:
    """Return the parametrised model with a name.

    One that nothing has made yet is made only if that runs code of pydantic alone.
    """
    origin_name, _, inner = name[:-1].partition("[")
    origin = find_class(origin_name, importing=importing)
    if origin is None:
        return None
    made: list[type] = type.__subclasses__(origin)
    found = next((cls for cls in made if _generic_of(cls) is not None and name_of(cls) == name), None)
    if found is not None or not importing or not all(_is_of_pydantic(origin, hook) for hook in _MAKING):
        return found
    parameters = [find_class(each, importing=True) for each in _split(inner)]
    known = [each for each in parameters if each is not None and _is_of_pydantic(each, "__get_pydantic_core_schema__")]
    if len(known) < len(parameters) or not _is_pydantic(type(origin)):
        return None
    try:
        cls = cast("Any", origin)[tuple(known)]
    except Exception:  # noqa: BLE001 - not parameters that the class takes
        return None
    return cls if inherits(type(cls), type) and name_of(cls) == name else None


_MAKING: Final = (
    "__class_getitem__",
    "__init_subclass__",
    "__pydantic_init_subclass__",
    "__get_pydantic_core_schema__",
)
"""The methods of a model that run when it is parametrised."""


def _is_of_pydantic(cls: type, name: str) -> bool:
    """Return whether an attribute of a class is pydantic's or Python's own, or is not there."""
    owner = owner_of(cls, name)
    return owner is None or _is_pydantic(owner) or module_of(owner) in ("builtins", "typing")


def _is_pydantic(cls: type) -> bool:
    return module_of(cls).split(".")[0] == "pydantic"


def _split(names: str) -> list[str]:
    """Return the names of parameters, which are separated by commas. Those within brackets belong to one of them."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(names):
        depth += (char == "[") - (char == "]")
        if char == "," and not depth:
            parts.append(names[start:at].strip())
            start = at + 1
    return [*parts, names[start:].strip()]


def is_found(cls: type) -> bool:
    """Return whether a class's name leads back to it, or to its replacement: a notebook's cell may have run again."""
    name = name_of(cls)
    found = find_class(name)
    return found is not None and (found is cls or name_of(found) == name)


def custom_pickling(cls: type, stop: type = object) -> str | None:
    """Return the method by which a class, or a base of it before ``stop``, defines how it is pickled, or None."""
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
    """Return whether dataclasses, attrs, pydantic or namedtuple generated a pickling method, for exactly the fields."""
    module = method.__globals__.get("__name__", "") if type(method) is FunctionType else ""
    return type(module) is str and (
        module in ("dataclasses", "versioned_state.records", "attr._make", "collections")
        or module.split(".")[0] == "pydantic"
    )


def slots_of(cls: type) -> dict[str, MemberDescriptorType]:
    """Return the slots of instances by their names in the class: the most derived class's if several have one name."""
    slots: dict[str, MemberDescriptorType] = {}
    for base in mro_of(cls):
        declared = namespace_of(base).get("__slots__", ())
        for name in (
            (declared,) if type(declared) is str else tuple(declared) if type(declared) in _NAMES_OF_SLOTS else ()
        ):
            if name in ("__dict__", "__weakref__"):
                continue
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{qualname_of(base).rpartition('.')[2].lstrip('_')}{name}"  # noqa: PLW2901 - as the compiler mangles it
            member = namespace_of(base).get(name)
            if type(member) is MemberDescriptorType:
                slots.setdefault(name, member)
    return slots


def dict_getter(cls: type) -> Callable[[Any], dict[str, Any]] | None:
    """Return a function that returns an instance's ``__dict__``, or None if instances have no ordinary ``__dict__``."""
    for base in mro_of(cls):
        descriptor = namespace_of(base).get("__dict__")
        if descriptor is not None:
            usual = (
                type(descriptor) is GetSetDescriptorType and lookup(cls, "__getattribute__") is object.__getattribute__
            )
            return (
                attrgetter("__dict__")
                if usual
                else descriptor.__get__
                if type(descriptor) is GetSetDescriptorType
                else None
            )
    return None


def is_of_c(cls: type, base: type) -> bool:
    """Return whether ``base.__new__`` cannot make instances: the class, or a base before ``base``, is written in C."""
    for each in mro_of(cls):
        if each is base or each is object:
            return False
        if not _flags_of(each) & _HEAP_TYPE or type(namespace_of(each).get("__new__")) is BuiltinFunctionType:
            return True
    return False


def has_hidden_state(cls: type, base: type, slots: int) -> bool:
    """Return whether instances hold more C state than ``base``, apart from a dict, weak references and slots."""
    return _itemsize_of(cls) != _itemsize_of(base) or _basicsize_of(cls) > _basicsize_of(base) + _POINTER * (2 + slots)
