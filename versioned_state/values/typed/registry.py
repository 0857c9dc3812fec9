"""The layouts of classes and of stored names, and ``register``. Layer: values.

A class need not be registered to be data. ``register`` gives it a name that survives refactoring, a conversion of its
own, or an upgrade from older fields. A registration applies to the whole process.
"""

from __future__ import annotations

import builtins
import threading
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Final, Literal, TypeVar

from versioned_state.arguments import count
from versioned_state.errors import InvalidArgumentError
from versioned_state.values.codec.files import File, FileTree, Folder, Symlink
from versioned_state.values.codec.scalars import WRITERS
from versioned_state.values.codec.trust import TrustedClasses
from versioned_state.values.typed.bases import BaseLayout, base_layout
from versioned_state.values.typed.enums import enum_layout
from versioned_state.values.typed.instances import attrs_layout, dataclass_layout, ordinary_layout
from versioned_state.values.typed.layout import Layout, NotPlainDataError
from versioned_state.values.typed.models import model_layout
from versioned_state.values.typed.reflection import (
    find_class,
    inherits,
    is_found,
    is_known_by_identity,
    module_of,
    name_of,
    qualname_of,
)
from versioned_state.values.typed.tagged import Notes, Tagged, check_name

T = TypeVar("T")

_DATA: Final = frozenset({*WRITERS, float, bool, type(None), list, dict, tuple, set, frozenset, Tagged})
_DATA_IDS: Final = frozenset(map(id, _DATA))  # by id, because the hash of a class may be code of its metaclass


class FunctionLayout(Layout):
    """A class that is registered with functions of its own."""

    __slots__ = ("from_data", "to_data")

    def __init__(self, cls: type, name: str, to_data: Any, from_data: Any) -> None:
        super().__init__(cls, name)
        self.to_data: Final = to_data
        self.from_data: Final = from_data

    def take(self, value: Any) -> tuple[Any, Notes]:
        return self.to_data(value), None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        return self.from_data(data), True


# By the id of the class, as the hash of a class may be code of its metaclass. The layout keeps the class.
_by_class: dict[int, Layout] = {}
_registered: dict[int, Layout] = {}
_objects: dict[int, tuple[weakref.ref[type], str]] = {}
"""The classes whose values are objects, and why."""
_by_name: dict[str, Layout] = {}
_upgrades: dict[str, Callable[[Any, int], Any]] = {}
_lock = threading.Lock()


def register(
    type: type[T],
    name: str | None = None,
    to_data: Callable[[T], Any] | None = None,
    from_data: Callable[[Any], T] | None = None,
    *,
    version: int | None = None,
    upgrade: Callable[[Any, int], Any] | None = None,
    also: Iterable[str] = (),
) -> builtins.type[T]:
    """Store values of exactly this type under a name of their own. Returns the type, so it also serves as a decorator.

    ``name`` is part of every stored value and must stay as it is; without one it is the type's module and qualified
    name. Values of a registered type come back as instances in every store, trusted or not. Subclasses are types of
    their own.

    Args:
        to_data: converts a value to data; by default its fields are the data.
        from_data: converts the data back. It gets exactly the data that ``to_data`` returned.
        version: the version of the fields, from 1 up, stored with each value if it is above 1.
        upgrade: converts fields of an older version: ``upgrade(fields, version)`` returns fields of this version. It
            may change its argument, and the dicts and lists in it, and return it.
        also: earlier names of the type in stored values, such as ``old.module:Name``.

    Raises:
        InvalidArgumentError: the name is not a string, or belongs to another type; one function is missing, or the type
            needs both; ``upgrade`` is given without a version; or the type is a built-in data type.
    """
    _check_type(type)
    names = [each for each in (name, *([also] if isinstance(also, str) else also)) if each is not None]
    for each in names:
        check_name(each)
    if (to_data is None) != (from_data is None):
        raise InvalidArgumentError("register() takes both to_data and from_data, or neither")
    _check_version(version, upgrade)
    stored = name_of(type) if name is None else name
    has_functions = to_data is not None and from_data is not None
    layout = FunctionLayout(type, stored, to_data, from_data) if has_functions else _build(type, stored)
    if isinstance(layout, str):
        raise InvalidArgumentError(
            f"{type.__qualname__} is not stored by its fields: {layout}; give to_data and from_data"
        )
    layout.version = version
    names = [*dict.fromkeys([stored, *names])]
    with _lock:
        for each in names:
            known = _by_name.get(each)
            # Importing a module again (in a notebook, or by a reload) creates the type again.
            if known is not None and known.cls is not type and name_of(known.cls) != name_of(type):
                raise InvalidArgumentError(
                    f"the name {each!r} is registered for {name_of(known.cls)}",
                    hint="give each class a name of its own; one that has moved here is registered with also=, "
                    "and no longer there",
                )
        _registered[id(type)] = layout
        if upgrade is not None:
            _upgrades[stored] = upgrade
        for each in names:
            _by_name[each] = layout
    return type


def register_module(module: ModuleType) -> tuple[builtins.type, ...]:
    """Register the classes of a module, each under its module and qualified name, and return them.

    These are the classes that the module has under a public name and that were made in it, or, for a package, in a
    module below it. A class that is registered already stays as it is, and one whose values are not data is left out:
    ``explain`` says why.

    Raises:
        InvalidArgumentError: it is not a module, or none of its classes can be registered. Nothing was changed.
    """
    if not isinstance(module, ModuleType):
        raise InvalidArgumentError(
            f"register_module() takes a module, not {module!r:.80}", hint="import it, and give the module itself"
        )
    found = {}
    for name, cls in vars(module).items():
        if name.startswith("_") or not inherits(type(cls), type) or id(cls) in _DATA_IDS:
            continue
        home = module_of(cls)
        if home == module.__name__ or home.startswith(module.__name__ + "."):
            found[id(cls)] = cls
    taken = tuple(cls for cls in found.values() if id(cls) in _registered or why_no_data(cls) is None)
    if not taken:
        raise InvalidArgumentError(
            f"module {module.__name__} has no class whose values are data", hint="register() takes functions too"
        )
    for cls in taken:
        if id(cls) not in _registered:
            register(cls)
    return taken


def _check_type(type: Any) -> None:
    if not isinstance(type, builtins.type):
        hint = f"call register(YourClass, {type!r}) below the class" if isinstance(type, str) else ""
        raise InvalidArgumentError(f"register() takes a type, not {type!r}", hint=hint)
    if type in _DATA:
        raise InvalidArgumentError(
            f"{type.__qualname__} is data as it is, and cannot be registered",
            hint="make a subclass, or a dataclass that holds one",
        )


def _check_version(version: Any, upgrade: Any) -> None:
    if version is not None:
        count("version", version, least=1)
    if upgrade is not None and version is None:
        raise InvalidArgumentError("register() takes upgrade= only with version=")


def layout_of(cls: type) -> Layout | None:
    """Return the layout of a class, or None if its values are built in, or objects. Cost: a lookup."""
    found = _registered.get(id(cls)) or _by_class.get(id(cls))
    if found is not None and found.cls is cls:
        return found
    layout = _find_layout(cls)
    return None if isinstance(layout, str) else layout


def why_no_data(cls: type) -> str | None:
    """Return the reason why values of a class are stored as objects, or None if they are data."""
    if id(cls) in _DATA_IDS:
        return None
    layout = layout_of(cls) or _find_layout(cls)
    return layout if isinstance(layout, str) else None


def _find_layout(cls: type) -> Layout | str:
    known = _objects.get(id(cls))
    if known is not None and known[0]() is cls:
        return known[1]
    if id(cls) in _DATA_IDS:
        return "it is built in"
    if module_of(cls).partition(".")[0] == "pandas":
        table: Layout | None = _tables().layout_of_class(cls)
        if table is not None:
            _by_class[id(cls)] = table
            return table
    if not is_known_by_identity(cls):
        return "its metaclass compares classes in its own way"
    if "<locals>" in qualname_of(cls):
        return "its class was made inside a function, so its name does not lead to it"
    name = name_of(cls)
    if not is_found(cls):
        return f"its class is not found by its name, {name}"
    layout = _build(cls, name)
    if isinstance(layout, Layout):
        _by_class[id(cls)] = layout
    else:
        _objects[id(cls)] = weakref.ref(cls), layout
    return layout


def _build(cls: type, name: str) -> Layout | str:
    """Return the layout of a class, or the reason why it has none."""
    return (
        enum_layout(cls, name)
        or model_layout(cls, name)
        or base_layout(cls, name)
        or dataclass_layout(cls, name)
        or attrs_layout(cls, name)
        or ordinary_layout(cls, name)
    )


Classes = Literal["registered", "loaded", "imported"] | TrustedClasses
"""The classes that a stored name may mean.

``"registered"`` allows the registered ones, ``"loaded"`` also those that this process has loaded, and ``"imported"``
any, whose module is imported. ``TrustedClasses`` allows those of trusted modules, which are imported too.
"""


def find_layout(name: str, classes: Classes) -> Layout | None:
    """Return the layout for a stored name, or None."""
    layout = _by_name.get(name)
    if layout is not None:
        return layout
    if name.startswith("pandas.") and _tables().has_name(name):
        named: Layout | None = _tables().layout_named(name)
        return named
    if name.startswith("builtins:"):
        cls = find_class(name)
        return layout_of(cls) if cls is not None and inherits(cls, BaseException) else None
    if classes == "registered" or (isinstance(classes, TrustedClasses) and not classes.covers(name)):
        return None
    cls = find_class(name, importing=classes != "loaded")
    # an alias of a class, or another class: no instance is stored under this name
    if cls is None or name_of(cls) != name:
        return None
    if id(cls) in _DATA_IDS or not is_known_by_identity(cls):
        return None
    # If the class defines how it is pickled, its values are objects: comparing one with what is stored would run that
    # code.
    return layout_of(cls)


def take_apart(value: Any) -> tuple[str, Any, Notes] | None:
    """Return the stored name, the data and the notes of a typed value, or None for any other.

    Raises ``NotPlainDataError`` for a value that is stored as an object, and the errors of ``to_data``.
    """
    cls = type(value)
    if cls is Tagged:
        return value.name, value.fields, value.notes
    layout = layout_of(cls)
    if layout is None:
        return None
    data, notes = layout.take(value)
    if layout.version is not None and layout.version > 1:
        notes = {**(notes or {}), "version": layout.version}
    return layout.name, data, notes


def _tables() -> Any:
    """Return the layouts of pandas' values, which few programs need."""
    from versioned_state.values.tables import layouts

    return layouts


def quick_fingerprint(value: Any) -> Any:
    """Return the fingerprint of ``Layout.quick``, or None."""
    layout = layout_of(type(value))
    return None if layout is None else layout.quick(value)


def fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of a typed value by name, in a new dict, or None for any other value.

    Raises the errors of ``to_data``.
    """
    try:
        record = take_apart(value)
    except NotPlainDataError:
        return None
    return record[1] if record is not None and type(record[1]) is dict else None


def make(layout: Layout, name: str, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
    """Return the value, and whether it would be stored in the same form again: with this name, version and fields."""
    same = name == layout.name
    version = notes.get("version", 1)
    if version != (layout.version or 1):
        same = False
        upgrade = _upgrades.get(layout.name)
        if upgrade is not None and type(version) is int and version < (layout.version or 1):
            data = upgrade(_own(data), version)
            if data is None:
                raise TypeError("upgrade() returned None, not the fields")
    if notes and not notes.keys() - {"version"} <= layout.note_names:
        same = False  # the class was of another kind: for example, a model has become a dataclass
    value, complete = layout.make(data, notes)
    return value, same and complete


def _own(data: Any) -> Any:
    """Return a copy of data that may be changed.

    The stored data must not change, or the value would be written again without need.
    """
    if type(data) is dict:
        return {key: _own(part) for key, part in data.items()}
    return [_own(part) for part in data] if type(data) is list else data


def edited(value: Any, edit: Callable[[Any], object], *, given: frozenset[str] | None = None) -> Any:
    """Edit the data of a typed value. Returns the value itself, changed in place, or the value that replaces it.

    Args:
        edit: changes the data, which is a dict or a list of its own. If it raises, the value stays as it was.
        given: the fields that a pydantic model then counts as given, by default those before, and those that were
            assigned.

    Raises:
        NotPlainDataError: the data of this type cannot be edited.
    """
    if type(value) is Tagged:
        before = dict(value.fields) if type(value.fields) is dict else {}
        edit(value.fields)
        notes = _with_given(value.notes_for(before), value.fields, given)
        return value if notes == value.notes else Tagged(value.name, value.fields, notes)
    layout = layout_of(type(value))
    if layout is None:
        raise NotPlainDataError("it is not data that has parts")
    data, notes = layout.take(value)
    before = dict(data) if type(data) is dict else {}
    edit(data)
    target, _ = layout.make(data, _with_given(layout.notes_for(data, notes or {}, before), data, given) or {})
    return value if layout.assign(value, target, lambda _held, part: part) else target


def _with_given(notes: Notes, data: Any, given: frozenset[str] | None) -> Notes:
    """Return the notes with these names as the fields given."""
    if given is None:
        return notes
    if type(data) is not dict:
        raise NotPlainDataError("it has no fields that could be given")
    notes = notes or {}
    extra, more = notes.get("extra", ()), notes.get("more", ())
    noted = {**notes, "set": given.intersection(data)}
    if noted["set"] == {name for name in data if (name in extra or name[:1] != "_") and name not in more}:
        del noted["set"]  # a set of all fields is not noted
    return noted or None


for _type in (OrderedDict, Counter, defaultdict, deque):
    _layout = BaseLayout(_type, _type.__name__, _type)
    _registered[id(_type)] = _by_name[_type.__name__] = _layout

for _file_type in (File, Symlink, Folder, FileTree):
    # known in every store, without importing the module that makes them
    register(_file_type, f"versioned_state.{_file_type.__name__}")
