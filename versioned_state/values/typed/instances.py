"""Instances with fields: of dataclasses, attrs classes and ordinary classes. Layer: values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import GetSetDescriptorType, MemberDescriptorType, NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import ReferenceType, ref

from versioned_state.records import Standard
from versioned_state.values.typed.layout import AssignPart, Layout, NotPlainDataError, names_in
from versioned_state.values.typed.reflection import (
    custom_pickling,
    dict_getter,
    has_hidden_state,
    inherits,
    is_of_c,
    lookup,
    owner_of,
    slots_of,
)
from versioned_state.values.typed.tagged import Notes

if TYPE_CHECKING:
    from dataclasses import Field

Default = Callable[[Any], Any] | None
"""Makes the default of a field for an instance, or None if the field has none."""

DERIVED: Final = frozenset({"__orig_class__", "_attrs_cached_hash"})
"""Attributes that typing and attrs leave in an instance, and that are not part of its value."""

Weak = Mapping[str, str | None]
"""The weak references among the fields, each with its referent's field, or None if it is dead or in no field."""

_NONE: Final = object()
_MUTABLE: Final = frozenset({list, dict, set, bytearray})
_only_str = frozenset({str}).issuperset


class InstanceLayout(Layout):
    """Fields in ``__dict__`` and slots.

    Attributes:
        declared: the fields that the class declares, with their defaults, or None for an ordinary class.
        frozen: instances are never changed.
    """

    __slots__ = ("_dict_of", "_orders", "_slots", "declared", "frozen")

    note_names: ClassVar[frozenset[str]] = frozenset({"more", "unset"})

    def __init__(self, cls: type, name: str, declared: Mapping[str, Default] | None, *, frozen: bool = False) -> None:
        super().__init__(cls, name)
        self.declared: Final = None if declared is None else dict(declared)
        self.frozen: Final = frozen
        self._slots: dict[str, MemberDescriptorType] = slots_of(cls)
        self._dict_of = dict_getter(cls)
        self._orders: dict[tuple[str, ...], list[str] | None] = {}

    # Taking apart

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        fields = self.attributes(value)
        weak: dict[str, str | None] = {}
        if _has_weak(fields):
            weak = _weak_in(fields)
            fields = {name: held for name, held in fields.items() if name not in weak}
        return self.in_order(fields), self.notes_of(fields, weak)

    def attributes(self, value: Any) -> dict[str, Any]:
        """Return all attributes of an instance, weak references included. Raises ``NotPlainDataError``."""
        fields: dict[str, Any] = {} if self._dict_of is None else dict(self._dict_of(value))
        for name, member in self._slots.items():
            try:
                held = member.__get__(value)
            except AttributeError:  # never set
                continue
            if name in fields:
                raise NotPlainDataError(f"it has an attribute and a slot of the name {name!r}")
            fields[name] = held
        if not DERIVED.isdisjoint(fields):
            fields = {name: held for name, held in fields.items() if name not in DERIVED}
        return fields

    def in_order(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields in their stored order: by name, since the order of attributes has no meaning."""
        names = tuple(fields)
        try:
            order = self._orders[names]
        except KeyError:
            if not _only_str(map(type, names)):
                raise NotPlainDataError("not all of its attributes have strings for names") from None
            order = sorted(names)
            if len(self._orders) < 64:  # a limit: hardly any class sets its attributes in more orders
                self._orders[names] = order if order != list(names) else None
        return fields if order is None else {name: fields[name] for name in order}

    def notes_of(self, fields: dict[str, Any], weak: Weak) -> Notes:
        """Return the notes of an instance, given its fields and, separately, its weak references."""
        declared = self.declared
        if not weak and (declared is None or fields.keys() == declared.keys()):
            return None
        notes: dict[str, Any] = {"weak": dict(weak)} if weak else {}
        if declared is None:
            return notes
        if more := (fields.keys() | weak.keys()) - declared.keys():
            notes["more"] = frozenset(more)
        if unset := declared.keys() - fields.keys() - weak.keys():
            notes["unset"] = frozenset(unset)
        return notes

    def notes_for(self, data: Any, notes: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
        return (
            self.notes_of(data, {name: holder for name, holder in _weak_noted(notes).items() if name not in data}) or {}
        )

    # Making

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        fields = self.fields_of(data)
        if weak := _weak_noted(notes):
            fields = {**fields, **_revived(weak, fields)}
        value: Any = object.__new__(self.cls)
        if self.declared is None:
            return value, self.fill(value, fields)
        fields, same, gained = self.fitted(fields, self.declared, names_in(notes, "more"), names_in(notes, "unset"))
        same &= self.fill(value, fields)
        self.add_defaults(value, gained)
        return value, same

    def fields_of(self, data: Any) -> dict[str, Any]:
        if type(data) is not dict or not _only_str(map(type, data)):
            raise NotPlainDataError("fields must be a dict by name")
        return data

    def fitted(
        self, fields: dict[str, Any], declared: Mapping[str, Default], more: frozenset[str], unset: frozenset[str]
    ) -> tuple[dict[str, Any], bool, list[str]]:
        """Return fields that the class still has, in its order, whether these are all, and those that it has gained."""
        fitting = {name: fields[name] for name in declared if name in fields}
        lost = False
        for name, held in fields.items():
            if name not in declared:
                if name in more:
                    fitting[name] = held
                else:
                    lost = True
        gained = [name for name in declared if name not in fields and name not in unset]
        return fitting, not (lost or gained), gained

    def fill(self, value: Any, fields: dict[str, Any]) -> bool:
        """Set the fields of a new instance without its ``__setattr__``.

        Returns whether the instance can hold all of them.
        """
        if self._slots:
            fields = dict(fields)
            for name, member in self._slots.items():
                held = fields.pop(name, _NONE)
                if held is not _NONE:
                    member.__set__(value, held)
        if self._dict_of is None:
            return not fields
        self._dict_of(value).update(fields)
        return True

    def add_defaults(self, value: Any, gained: list[str]) -> None:
        """Set the defaults of fields that an instance was stored without. A field without a default stays unset."""
        assert self.declared is not None
        for name in gained:
            default = self.declared[name]
            if default is not None:
                self.fill(value, {name: default(value)})

    # Changing in place

    def assign(self, live: Any, target: Any, assign_part: AssignPart) -> bool:
        if self.frozen:
            return False
        new = self.attributes(target)
        self.replace_attributes(live, self.attributes(live), new, assign_part)
        if _has_weak(new):  # they refer to parts of the target: make them refer to parts of the live value
            self.fill(live, _revived(_weak_in(new), self.attributes(live)))
        return True

    def replace_attributes(self, live: Any, old: dict[str, Any], new: dict[str, Any], assign_part: AssignPart) -> None:
        fields = {name: assign_part(old[name], held) if name in old else held for name, held in new.items()}
        self.fill(live, fields)
        for name in old.keys() - fields.keys():
            self._delete(live, name)

    def _delete(self, live: Any, name: str) -> None:
        if name in self._slots:
            self._slots[name].__delete__(live)
        elif self._dict_of is not None:
            self._dict_of(live).pop(name, None)

    # Fingerprints

    def pack(self, value: Any) -> list[Any]:
        if self._slots or self._dict_of is None:
            return [self.mark, self.attributes(value)]
        return [self.mark, self._dict_of(value)]

    def pack_run(self, run: list[Any], *, identities: bool) -> list[Any] | None:
        if self._slots or self._dict_of is None:
            return None
        return [self.mark, "run", list(map(self._dict_of, run))]

    def parts(self, value: Any) -> Iterable[Any]:
        if self._slots or self._dict_of is None:
            return self.attributes(value).values()
        fields = self._dict_of(value)
        return (
            fields.values()
            if DERIVED.isdisjoint(fields)
            else [held for name, held in fields.items() if name not in DERIVED]
        )


class OrdinaryLayout(InstanceLayout):
    """Instances of a class that leaves pickling to ``object``: each has an identity."""

    __slots__ = ()

    has_identity = True
    note_names: ClassVar[frozenset[str]] = frozenset()

    def pack(self, value: Any) -> list[Any]:
        packed = super().pack(value)
        one = _which_are_one(packed[1].values())
        return packed if one is None else [*packed, one]

    def pack_run(self, run: list[Any], *, identities: bool) -> list[Any] | None:
        packed = super().pack_run(run, identities=identities)
        if packed is None:
            return None
        return [
            *packed,
            list(map(id, run)) if identities else None,
            [_which_are_one(fields.values()) for fields in packed[-1]],
        ]


def _which_are_one(parts: Iterable[Any]) -> list[int] | None:
    """Return which attributes are the same list, dict or set, as opposed to equal ones.

    None if all are different objects.
    """
    held = [id(part) for part in parts if type(part) in _MUTABLE]
    return [held.index(each) for each in held] if len(held) > 1 and len(set(held)) < len(held) else None


def dataclass_layout(cls: type, name: str) -> InstanceLayout | str | None:
    """Return the layout of a dataclass, or the reason why it has none, or None if the class itself is not a dataclass.

    A class that only inherits from a dataclass has the fields of that one, and its further attributes as an ordinary
    class has.
    """
    fields = lookup(cls, "__dataclass_fields__")
    if type(fields) is Standard:  # of a record, which is described without loading dataclasses
        declared: dict[str, Default] = {
            name: _record_default(options) for name, options in fields.options_of(cls).items()
        }
        return why_more(cls) or InstanceLayout(cls, name, declared, frozen=fields.frozen)
    if type(fields) is not dict:
        return None
    if (reason := why_more(cls)) is not None:
        return reason
    from dataclasses import _FIELD  # type: ignore[attr-defined]

    parameters = lookup(cls, "__dataclass_params__")
    # Its fields() would ask the class, and so its metaclass.
    declared = {f.name: _dataclass_default(f) for f in fields.values() if f._field_type is _FIELD}
    return InstanceLayout(cls, name, declared, frozen=bool(getattr(parameters, "frozen", False)))


def attrs_layout(cls: type, name: str) -> InstanceLayout | str | None:
    """Return the layout of an attrs class, or the reason why it has none, or None for any other class."""
    attributes = lookup(cls, "__attrs_attrs__")
    if not inherits(type(attributes), tuple):
        return None
    if (reason := why_more(cls)) is not None:
        return reason
    setter = lookup(cls, "__setattr__")
    declared = {a.name: _attrs_default(a) for a in attributes}
    return InstanceLayout(cls, name, declared, frozen=getattr(setter, "__name__", "") == "_frozen_setattrs")


def ordinary_layout(cls: type, name: str) -> InstanceLayout | str:
    """Return the layout of any other class, or the reason why it has none."""
    if cls is object:
        return "a bare object() has nothing to store"
    return why_more(cls) or OrdinaryLayout(cls, name, None)


def why_more(cls: type) -> str | None:
    """Return the reason why an instance is more than its ``__dict__`` and slots, or None."""
    if is_of_c(cls, object) or has_hidden_state(cls, object, len(slots_of(cls))):
        return "it has state in C"
    return why_custom(cls)


def why_custom(cls: type, stop: type = object) -> str | None:
    """Return the reason why instances of a class are more than their fields, or None."""
    if owner_of(cls, "__del__") is not None:
        return "its class has a __del__: it stands for something outside"
    if type(lookup(cls, "__dict__")) not in (GetSetDescriptorType, NoneType):
        return "its class has a __dict__ of its own"
    method = custom_pickling(cls, stop)
    if method == "copyreg":
        return "its pickling is registered with copyreg"
    return None if method is None else f"its class customises pickling by {method}"


def _record_default(options: Mapping[str, Any]) -> Default:
    if "default_factory" in options:
        return lambda _: options["default_factory"]()
    return (lambda _: options["default"]) if "default" in options else None


def _dataclass_default(field: Field[Any]) -> Default:
    from dataclasses import MISSING

    if field.default_factory is not MISSING:
        factory = field.default_factory
        return lambda _: factory()
    if field.default is not MISSING:
        default = field.default
        return lambda _: default
    return None


def _attrs_default(attribute: Any) -> Default:
    default = attribute.default
    if type(default).__name__ == "Factory" and hasattr(default, "takes_self"):
        return default.factory if default.takes_self else lambda _: default.factory()
    return None if type(default).__name__ == "_Nothing" else lambda _: default


# Weak references in fields: stored as the name of the field that holds the same object, never as the object


def _has_weak(fields: Mapping[str, Any]) -> bool:
    """Return whether a field is a weak reference."""
    return ReferenceType in map(type, fields.values())


def _weak_in(fields: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the fields that are weak references, by name."""
    return {name: _holder(fields, fields[name]()) for name in sorted(fields) if type(fields[name]) is ReferenceType}


def _holder(fields: Mapping[str, Any], target: Any) -> str | None:
    return None if target is None else min((name for name, held in fields.items() if held is target), default=None)


def _weak_noted(notes: Mapping[str, Any]) -> Weak:
    """Return the weak references in the notes. Raises ``NotPlainDataError``."""
    weak = notes.get("weak", {})
    if type(weak) is not dict or not all(
        type(name) is str and (holder is None or type(holder) is str) for name, holder in weak.items()
    ):
        raise NotPlainDataError("the weak references are not fields")
    return weak


def _revived(weak: Weak, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Make the weak references again.

    One to an object that these fields do not hold is dead: the object is not part of the value.
    """
    return {name: _reference_to(None if holder is None else fields.get(holder)) for name, holder in weak.items()}


def _reference_to(target: Any) -> Any:
    try:
        return ref(_Gone() if target is None else target)
    except TypeError:  # the present class does not support weak references
        return ref(_Gone())


class _Gone:
    """An object that is freed at once, for a dead reference."""

    __slots__ = ("__weakref__",)
