"""Classes that inherit from built-in types: containers, NamedTuples, strings and numbers, exceptions. Layer: values."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from operator import is_
from typing import Any, ClassVar, Final

from versioned_state.values.typed.instances import OrdinaryLayout, why_custom
from versioned_state.values.typed.layout import AssignPart, Layout, NotPlainDataError
from versioned_state.values.typed.reflection import (
    dict_getter,
    has_hidden_state,
    inherits,
    is_of_c,
    lookup,
    module_of,
    mro_of,
    namespace_of,
    slots_of,
)
from versioned_state.values.typed.tagged import Notes

_FACTORIES: Final[dict[str, Any]] = {f.__name__: f for f in (list, dict, set, tuple, int, float, str, bool, bytes)}

_BASES: Final[tuple[type, ...]] = (
    OrderedDict,
    defaultdict,
    Counter,
    dict,
    list,
    deque,
    set,
    frozenset,
    tuple,
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
)
"""The types whose subclasses are data, each before a type that it inherits from."""

_COPIES: Final[dict[type, Callable[[Any], Any]]] = {
    # By the methods of the built-in type: a subclass may override them.
    OrderedDict: lambda value: dict(OrderedDict.items(value)),
    defaultdict: lambda value: dict(dict.items(value)),
    Counter: lambda value: dict(dict.items(value)),
    dict: lambda value: dict(dict.items(value)),
    list: lambda value: list(list.__iter__(value)),
    deque: lambda value: list(deque.__iter__(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    bytearray: lambda value: bytearray(memoryview(value)),
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
}
# Descriptors of C, which a subclass cannot override.
_FACTORY: Final[Any] = vars(defaultdict)["default_factory"]
_MAXLEN: Final[Any] = vars(deque)["maxlen"]
_CAUSE: Final[Any] = vars(BaseException)["__cause__"]
_SUPPRESS_CONTEXT: Final[Any] = vars(BaseException)["__suppress_context__"]

_MUTABLE: Final = (dict, list, deque, set, bytearray)
_DATA_OF: Final[dict[type, type]] = {OrderedDict: dict, defaultdict: dict, Counter: dict, deque: list}


class BaseLayout(Layout):
    """A subclass of a built-in type: its value of that type is the data, and its own attributes are in the notes."""

    __slots__ = ("_attributes", "_data_type", "base")

    note_names: ClassVar[frozenset[str]] = frozenset({"factory", "maxlen", "fields"})

    def __init__(self, cls: type, name: str, base: type) -> None:
        super().__init__(cls, name)
        self.base: type = base
        self._data_type = _DATA_OF.get(base, base)
        self._attributes = None if cls is base else OrdinaryLayout(cls, name, None)

    def take(self, value: Any) -> tuple[Any, Notes]:
        notes: dict[str, Any] = {}
        if self.base is defaultdict:
            notes["factory"] = _name_of_factory(_FACTORY.__get__(value))
        elif self.base is deque:
            notes["maxlen"] = _MAXLEN.__get__(value)
        if self._attributes is not None and (fields := self._attributes.take(value)[0]):
            notes["fields"] = fields
        return _COPIES[self.base](value), {key: held for key, held in notes.items() if held is not None} or None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        if type(data) is not self._data_type:
            raise NotPlainDataError(f"the data of a {self.base.__name__} is a {self._data_type.__name__}")
        base: Any = self.base
        if base in _MUTABLE or base in _DATA_OF:
            value = base.__new__(self.cls)
            self._extend(value, data, notes)
        else:
            value = base.__new__(self.cls, data)
        fields = notes.get("fields")
        same = True
        if fields is not None:
            if self._attributes is None:
                raise NotPlainDataError(f"a {self.base.__name__} has no fields")
            same = self._attributes.fill(value, self._attributes.fields_of(fields))
        return value, same

    def _extend(self, value: Any, data: Any, notes: dict[str, Any]) -> None:
        base: Any = self.base
        if base is deque:
            maxlen = notes.get("maxlen")
            if maxlen is not None and (type(maxlen) is not int or not len(data) <= maxlen <= sys.maxsize):
                raise NotPlainDataError("a deque of more elements than it takes")
            deque.__init__(value, data, maxlen)
        elif base is list:
            list.extend(value, data)
        elif base is OrderedDict:
            for key, held in data.items():
                OrderedDict.__setitem__(value, key, held)
        elif base is bytearray:
            bytearray.extend(value, data)
        else:
            (set if base is set else dict).update(value, data)
        if base is defaultdict:
            factory = notes.get("factory")
            if factory is not None and (type(factory) is not str or factory not in _FACTORIES):
                raise NotPlainDataError("a default factory of a name that is not known")
            _FACTORY.__set__(value, None if factory is None else _FACTORIES[factory])

    def assign(self, live: Any, target: Any, assign_part: AssignPart) -> bool:
        base = self.base
        if not issubclass(base, _MUTABLE) or (base is deque and _MAXLEN.__get__(live) != _MAXLEN.__get__(target)):
            return False
        held, wanted = _COPIES[base](live), _COPIES[base](target)
        content = assign_part(held, wanted)
        try:
            self._refill(live, content)
        except BaseException:  # an interrupt: complete the change, or parts are lost
            self._refill(live, content)
            raise
        if base is defaultdict:
            _FACTORY.__set__(live, _FACTORY.__get__(target))
        if self._attributes is not None:
            self._attributes.assign(live, target, assign_part)
        return True

    def _refill(self, live: Any, content: Any) -> None:
        base: Any = self.base
        if base is list:
            list.__setitem__(live, slice(None), content)
        elif base is bytearray:
            bytearray.__setitem__(live, slice(None), content)
        elif base is deque:
            deque.clear(live)
            deque.extend(live, content)
        elif base is set:
            set.clear(live)
            set.update(live, content)
        else:
            self._refill_dict(live, content)

    def _refill_dict(self, live: Any, content: dict[Any, Any]) -> None:
        base: Any = OrderedDict if self.base is OrderedDict else dict
        keys = [*base.keys(live)]
        # Compare keys by identity: 1 and True are equal, and a NaN is found only by its identity.
        if len(keys) == len(content) and all(map(is_, keys, content)):
            for key, held in content.items():
                if dict.__getitem__(live, key) is not held:
                    base.__setitem__(live, key, held)
            return
        base.clear(live)
        for key, held in content.items():
            base.__setitem__(live, key, held)


class NamedTupleLayout(Layout):
    """A NamedTuple: its fields by name, in their order."""

    __slots__ = ("_attributes", "_defaults", "_names")

    note_names: ClassVar[frozenset[str]] = frozenset({"tuple", "fields"})

    def __init__(self, cls: type, name: str, names: tuple[str, ...], defaults: dict[str, Any]) -> None:
        super().__init__(cls, name)
        self._names = names
        self._defaults = defaults
        self._attributes = OrdinaryLayout(cls, name, None)

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        elements = tuple(tuple.__iter__(value))
        if len(elements) != len(self._names):
            raise NotPlainDataError("it has more or fewer elements than fields")
        notes: dict[str, Any] = {"tuple": True}
        if fields := self._attributes.take(value)[0]:
            notes["fields"] = fields
        return dict(zip(self._names, elements, strict=True)), notes

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        fields = self._attributes.fields_of(data)
        missing = [name for name in self._names if name not in fields and name not in self._defaults]
        if missing:
            raise NotPlainDataError(f"it has no {missing[0]}, which has no default")
        elements = (fields[name] if name in fields else self._defaults[name] for name in self._names)
        value: Any = tuple.__new__(self.cls, elements)
        same = tuple(fields) == self._names
        if "fields" in notes:
            same &= self._attributes.fill(value, self._attributes.fields_of(notes["fields"]))
        return value, same


class ExceptionLayout(Layout):
    """An exception: ``args``, the attributes, notes and cause. Traceback and context are left out."""

    __slots__ = ("_base", "_dict_of", "_slots")

    def __init__(self, cls: type, name: str) -> None:
        super().__init__(cls, name)
        self._base: Any = next(
            base
            for base in mro_of(cls)
            if namespace_of(base).get("__module__") is None and module_of(base) == "builtins"
        )
        self._slots = slots_of(cls)
        self._dict_of = dict_getter(cls)

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        _, args, *state = self._base.__reduce__(value)
        fields: dict[str, Any] = dict(state[0]) if state and state[0] else {}
        for name, member in self._slots.items():
            with suppress(AttributeError):
                fields[name] = member.__get__(value)
        if not all(type(name) is str for name in fields) or "args" in fields:
            raise NotPlainDataError("its attributes are not all of names that fields can have")
        cause = _CAUSE.__get__(value)
        if cause is not None:
            fields["__cause__"] = cause
        elif _SUPPRESS_CONTEXT.__get__(value):
            fields["__suppress_context__"] = True
        fields["args"] = args
        return {name: fields[name] for name in sorted(fields)}, None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        if type(data) is not dict or type(data.get("args")) is not tuple:
            raise NotPlainDataError("an exception without args")
        args = data["args"]
        try:
            value = self._base.__new__(self.cls, *args)
            # The builtin's own __init__ sets attributes that only it can set, such as UnicodeDecodeError.start.
            # Args that were changed later may not suit it.
            with suppress(TypeError, ValueError, OverflowError):
                self._base.__init__(value, *args)
        except (TypeError, ValueError, OverflowError) as error:
            raise NotPlainDataError(str(error)) from error
        same = True
        for name, held in data.items():
            if name != "args":
                same &= self._set(value, name, held)
        return value, same

    def _set(self, value: Any, name: str, held: Any) -> bool:
        member: Any = self._slots.get(name) or lookup(self._base, name)
        if name == "__cause__":
            if not inherits(type(held), BaseException):  # the class of the cause was not found
                return False
            _CAUSE.__set__(value, held)
        elif hasattr(type(member), "__set__"):
            with suppress(TypeError, AttributeError):
                member.__set__(value, held)
                return True
            return False
        elif self._dict_of is None:
            return False
        else:
            self._dict_of(value)[name] = held
        return True


def base_layout(cls: type, name: str) -> Layout | str | None:
    """Return the layout of a subclass of a built-in type, or the reason why it has none, or None for another class."""
    bases = mro_of(cls)
    if inherits(cls, BaseException):
        builtin = next(each for each in bases if module_of(each) == "builtins")
        if is_of_c(cls, builtin):
            return "it has state in C"
        return why_custom(cls, builtin) or ExceptionLayout(cls, name)
    base: type | None = next((each for each in _BASES if inherits(cls, each)), None)
    if base is None:
        return None
    if (reason := why_custom(cls, base)) is not None:
        return reason
    varies = base in (int, str, bytes, tuple)  # varies in size, so a class of C cannot add fields to it
    if is_of_c(cls, base) or (not varies and has_hidden_state(cls, base, len(slots_of(cls)))):
        return "it has state in C"
    fields = lookup(cls, "_fields")
    if base is tuple and type(fields) is tuple and lookup(cls, "_make") is not None:
        defaults = lookup(cls, "_field_defaults")
        return NamedTupleLayout(cls, name, fields, dict(defaults) if type(defaults) is dict else {})
    return BaseLayout(cls, name, base)


def _name_of_factory(factory: Any) -> str | None:
    if factory is None:
        return None
    name = getattr(factory, "__name__", "")
    if _FACTORIES.get(name) is not factory:
        raise NotPlainDataError(f"its default factory {name or factory!r} is code")
    return str(name)
