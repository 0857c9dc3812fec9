"""Names, modules and attributes that are loaded or made when they are first used. Beneath all layers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


def lazy_names(
    package: str, modules: Mapping[str, str], *, unlisted: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose public names live in its modules.

    Type checkers do not run this: for them the package imports the same names, each as itself, under ``if
    TYPE_CHECKING``.

    Args:
        package: the package's ``__name__``.
        modules: the names by their modules, which are relative to the package; a module that is itself a public name is
            its own.
        unlisted: those of the names that a star import leaves alone.
    """
    namespace = vars(sys.modules[package])
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{homes[name]}")
        value = module if homes[name] == name else getattr(module, name)
        namespace[name] = value  # found without this function from now on
        return value

    def names() -> list[str]:
        own = {name for name, value in namespace.items() if name.startswith("_") or isinstance(value, ModuleType)}
        return sorted(own.union(homes))  # without what the package itself imports

    listed = sorted(
        homes.keys() - set(unlisted.split()), key=lambda name: (not name.isupper(), name[0].islower(), name)
    )
    return get, names, listed


class LazyModule:
    """A module that is loaded when it is first used.

    For type checkers, the module is imported under ``if TYPE_CHECKING``.

    It then takes its own place in the module that uses it, so that only the first use passes through here.

    Args:
        namespace: ``globals()`` of the module that uses it.
        name: the name there.
        module: the full name of the module.
    """

    def __init__(self, namespace: dict[str, Any], name: str, module: str) -> None:
        self._namespace = namespace
        self._name = name
        self._module = module

    def __getattr__(self, attribute: str) -> Any:
        module = self._namespace[self._name] = import_module(self._module)
        return getattr(module, attribute)


class made_once(Generic[T]):  # noqa: N801 - a decorator, as property is
    """An attribute that is made when it is first used.

    Threads that meet there get one object, which ``functools.cached_property`` promises no longer since Python 3.12.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object, owner: type) -> Self | T:
        if instance is None:
            return self
        made: T = instance.__dict__.setdefault(self._name, self._make(instance))
        return made
