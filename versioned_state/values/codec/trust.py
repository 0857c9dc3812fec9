"""``TrustedClasses``: the modules whose classes a store may name, so that its values come back as their instances.

Layer: values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from types import ModuleType
from typing import Any, Final

from versioned_state.errors import InvalidArgumentError

TrustedModules = str | ModuleType | Iterable[str | ModuleType]
"""How callers give them."""

_MODULE: Final = re.compile(r"([^\s\[\],:]+):")
"""A module in a class's stored name: ``module:Name``, or with parameters ``module:Name[other:Name, builtins:int]``."""


class TrustedClasses:
    """Modules by name or pattern. A module includes those below it. A pattern has ``*``, ``?`` or ``[…]``.

    Raises ``InvalidArgumentError`` for anything else.
    """

    __slots__ = ("_fits", "modules")

    def __init__(self, modules: TrustedModules) -> None:
        given: Any = [modules] if isinstance(modules, str | ModuleType) else modules
        if not isinstance(given, Iterable):
            raise InvalidArgumentError(
                f"classes must be modules, or names or patterns of modules, not {type(given).__name__}"
            )
        self.modules: Final = tuple(map(_name, given))
        self._fits = (
            re.compile("|".join(f"(?:{each})" for name in self.modules for each in _patterns(name))).match
            if self.modules
            else None
        )

    def covers(self, name: str) -> bool:
        """Return whether all modules in the stored name of a class are trusted."""
        fits = self._fits
        modules = _MODULE.findall(name)
        return (
            fits is not None
            and bool(modules)
            and all(module == "builtins" or fits(module) is not None for module in modules)
        )


def _name(module: Any) -> str:
    name = module.__name__ if isinstance(module, ModuleType) else module
    if type(name) is not str or not name or ":" in name:
        hint = "such as langchain_core, or langchain_core.messages.*"
        raise InvalidArgumentError(
            f"classes takes modules, or names or patterns of modules, not {module!r:.80}", hint=hint
        )
    return name


def _patterns(name: str) -> list[str]:
    """Return regular expressions for a module and those below it, or for a pattern.

    ``package.*`` matches the package too.
    """
    if not any(char in name for char in "*?["):
        return [re.escape(name) + r"(?:\..*)?\Z"]
    return [
        translate(name),
        *([re.escape(name[:-2]) + r"\Z"] if name.endswith(".*") and not re.search(r"[*?\[]", name[:-2]) else []),
    ]
