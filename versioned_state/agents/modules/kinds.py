"""The marks of a module, and the methods that its class overrides. Layer: agents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from versioned_state.agents.modules.containers import ATOMS
from versioned_state.errors import InvalidArgumentError

F = TypeVar("F", bound=Callable[..., Any])

Function = Callable[[Any], Any]

_NEVER: Final = ATOMS | {list, dict, tuple, set}


@dataclass(frozen=True, slots=True)
class Registered:
    """The functions that convert a registered attribute to JSON and back. None converts nothing."""

    to_json: Function | None = None
    load_json: Function | None = None


_own: Final[dict[int, object]] = {}
"""The methods of ``StateModule``, by id. Not a mark on them: ``functools.wraps`` would put it on an override too."""


def own(method: F) -> F:
    """Mark a method as one of ``StateModule``. A class with another method of that name overrides it."""
    _own[id(method)] = method
    return method


def overrides(cls: type, method: str) -> bool:
    """Return whether a class of modules has another method of that name than ``StateModule``."""
    return id(getattr(cls, method)) not in _own


def is_module(value: object) -> bool:
    """Return whether a value is a module: ours, or one of agentscope's, which has the same methods."""
    cls = type(value)
    return cls not in _NEVER and is_class_of_modules(cls)


def is_class_of_modules(cls: type) -> bool:
    """Return whether the instances of a class are modules."""
    return hasattr(cls, "register_state") and hasattr(cls, "state_dict") and hasattr(cls, "load_state_dict")


class Overrides(dict[type, bool | None]):
    """A cache of ``overrides`` by class for one method and one call.

    None for a class whose instances are not modules.
    """

    def __init__(self, method: str) -> None:
        super().__init__()
        self._method = method

    def __missing__(self, cls: type) -> bool | None:
        found = overrides(cls, self._method) if is_class_of_modules(cls) else None
        self[cls] = found
        return found


def registered_in(module: Any) -> tuple[dict[str, Registered], dict[str, Any]]:
    """Return a module's registered attributes and the modules in it, by name.

    Raises ``AttributeError`` before ``StateModule.__init__``.
    """
    try:
        fields = module.__dict__
        return fields["_attribute_dict"], fields["_module_dict"]
    except KeyError:
        raise before_init(module, "using its state") from None


def nested_in(module: Any) -> list[tuple[str, Any]]:
    """Return the modules among the attributes of a module, by name."""
    keys = tuple(vars(module).get("_module_dict", ()))  # a copy: another thread may add one
    return [(key, value) for key in keys if is_module(value := getattr(module, key, None))]


LEVELS: Final = 100
"""Levels of modules that are walked by recursion.

Those below are walked from a list, so that no chain of modules is too long.
"""


def contains_itself(module: Any) -> InvalidArgumentError:
    """Return the error for a module that contains itself."""
    return InvalidArgumentError(
        f"a module of type {type(module).__name__} contains itself, so its state has no end",
        hint="keep the reference back in an attribute that is not a module, such as weakref.ref(parent)",
    )


def before_init(module: Any, what: str) -> AttributeError:
    """Return the error for a module whose class did not call the constructor of ``StateModule``."""
    return AttributeError(f"call super().__init__() in {type(module).__name__}.__init__ before {what}", obj=module)
