"""``typed_view``: a mapping with the fields of a class as its attributes. Layer: values."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from difflib import get_close_matches
from enum import Enum
from typing import Any, ClassVar, Final, NoReturn, TypeVar, cast, is_typeddict

from versioned_state.errors import InvalidArgumentError
from versioned_state.values.typed.instances import InstanceLayout, attrs_layout, dataclass_layout
from versioned_state.values.typed.models import model_layout
from versioned_state.values.typed.reflection import lookup, module_of, owner_of

M = TypeVar("M")

_FIXED: Final = str | bytes | int | float | complex | bool | None | Enum
"""Defaults that cannot change in place."""


def typed_view(mapping: Mapping[str, Any], model: type[M]) -> M:
    """Return a mapping as an instance of a class, to a type checker. Its fields read and write the keys. Cost: none.

    Args:
        model: a dataclass, a pydantic model, an attrs class, or a ``TypedDict``, for which the mapping itself is
            returned.

    Raises:
        InvalidArgumentError: it is another class.
    """
    if is_typeddict(model):
        return cast("M", mapping)
    layout = None
    if isinstance(model, type):
        layout = model_layout(model, "") or attrs_layout(model, "") or dataclass_layout(model, "")
    if layout is None:
        raise InvalidArgumentError(
            f"typed() takes a dataclass, a pydantic model, an attrs class or a TypedDict, not {model!r:.80}",
            remains="nothing was read",
        )
    if isinstance(layout, str):
        raise InvalidArgumentError(f"typed() cannot take {model.__name__}: {layout}", remains="nothing was read")
    return cast("M", TypedView(mapping, layout))


class TypedView:
    """The fields of a class as attributes, over the keys of a mapping.

    Methods and properties of the class work on it too.

    It holds no values, so it always shows the mapping as it is.
    """

    __slots__ = ("_TypedView__layout", "_TypedView__mapping")
    __hash__: ClassVar[None] = None  # type: ignore[assignment] # it is equal to what has equal fields

    def __init__(self, mapping: Mapping[str, Any], layout: InstanceLayout) -> None:
        object.__setattr__(self, "_TypedView__mapping", mapping)
        object.__setattr__(self, "_TypedView__layout", layout)

    def __getattr__(self, name: str) -> Any:
        mapping: Any = object.__getattribute__(self, "_TypedView__mapping")
        layout: Any = object.__getattribute__(self, "_TypedView__layout")
        if name not in layout.declared:
            return _bound(self, layout.cls, name)
        if name in mapping:
            return mapping[name]
        make = layout.declared[name]
        if make is None:
            raise AttributeError(
                f"there is no key {name!r}, and {layout.cls.__name__}.{name} has no default", name=name, obj=self
            )
        default = make(self)
        if isinstance(default, _FIXED) or not isinstance(mapping, MutableMapping):
            return default
        return mapping.setdefault(name, default)  # or a change in place would be lost

    def __setattr__(self, name: str, value: Any) -> None:
        layout = self.__layout
        setter = getattr(lookup(layout.cls, name), "fset", None)
        if setter is not None and name not in layout.declared:
            setter(self, value)
            return
        self.__check(name)
        self.__mapping[name] = value

    def __delattr__(self, name: str) -> None:
        self.__check(name)
        if name not in self.__mapping:
            raise AttributeError(f"there is no key {name!r}", name=name, obj=self)
        del self.__mapping[name]

    def __check(self, name: str) -> None:
        """Raise ``AttributeError`` unless an attribute may change."""
        layout = self.__layout
        if name not in layout.declared:
            raise _missing(self, layout, name)
        if layout.frozen:
            raise AttributeError(f"{layout.cls.__name__} is frozen: write state[{name!r}] = ...", name=name, obj=self)

    def __eq__(self, other: object) -> bool:
        layout: InstanceLayout = self.__layout
        if not isinstance(other, TypedView | layout.cls):
            return NotImplemented
        absent = object()
        return all(getattr(self, name, absent) == getattr(other, name, absent) for name in layout.declared or ())

    def __dir__(self) -> list[str]:
        return sorted({*self.__layout.declared, *(name for name in dir(self.__layout.cls) if not name.startswith("_"))})

    def __repr__(self) -> str:
        return f"<{self.__layout.cls.__name__} over {self.__mapping!r}>"

    def __reduce_ex__(self, protocol: object, /) -> NoReturn:
        # Of copy and pickle, and so of a commit of a state that has got it as a value.
        raise TypeError(f"a typed view cannot be copied or stored: make a {self.__layout.cls.__name__} of its fields")


def _bound(view: TypedView, cls: type, name: str) -> Any:
    """Return a method, a property or another attribute of a class, for a view.

    Those of pydantic itself need an instance.
    """
    owner = None if name.startswith("__") else owner_of(cls, name)
    if owner is None or module_of(owner).partition(".")[0] == "pydantic":
        raise _missing(view, object.__getattribute__(view, "_TypedView__layout"), name)
    found = lookup(cls, name)
    bind = getattr(type(found), "__get__", None)
    return found if bind is None else bind(found, view, cls)


def _missing(view: TypedView, layout: Any, name: str) -> AttributeError:
    near = get_close_matches(name, list(layout.declared), n=1)
    hint = f", did you mean {near[0]!r}?" if near else ""
    return AttributeError(f"{layout.cls.__name__} has no field {name!r}{hint}", name=name, obj=view)
