"""Names of a package that load their modules when they are first used. Beneath all layers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package whose public names live in its modules.

    Args:
        package: the package's ``__name__``.
        homes: the module of each name, relative to the package; a module that is itself a public name is its own.
    """
    namespace = vars(sys.modules[package])

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{homes[name]}")
        value = module if homes[name] == name else getattr(module, name)
        namespace[name] = value  # found without this function from now on
        return value

    def names() -> list[str]:
        own = {name for name, value in namespace.items() if name.startswith("_") or isinstance(value, ModuleType)}
        return sorted(own.union(homes, namespace.get("__all__", ())))  # without what the package itself imports

    return get, names
