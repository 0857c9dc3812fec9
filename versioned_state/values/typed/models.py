"""pydantic models: fields, extra fields, private attributes, and which fields were given. Layer: values.

This module does not import pydantic: a value can only be a model if its owner has imported pydantic.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from types import MemberDescriptorType
from typing import Any, ClassVar, Final

from versioned_state.values.typed.instances import Default, InstanceLayout, why_custom
from versioned_state.values.typed.layout import AssignPart, NotPlainDataError, names_in
from versioned_state.values.typed.reflection import lookup
from versioned_state.values.typed.tagged import Notes

_UNSET: Final = object()
_GIVEN: Final = attrgetter("__pydantic_fields_set__")
_EXTRA: Final = attrgetter("__pydantic_extra__")
_PRIVATE: Final = attrgetter("__pydantic_private__")


class _Slot:
    """A slot of a model. A slot that the class has removed, as ``RootModel`` does, always holds None."""

    __slots__ = ("_member",)

    def __init__(self, cls: type, name: str) -> None:
        member = lookup(cls, name)
        self._member: Any = member if type(member) is MemberDescriptorType else None

    def get(self, value: Any) -> dict[str, Any] | None:
        found: dict[str, Any] | None = None if self._member is None else self._member.__get__(value)
        return found

    def set(self, value: Any, held: dict[str, Any] | None) -> None:
        if self._member is not None:
            self._member.__set__(value, held)


class ModelLayout(InstanceLayout):
    """A pydantic model. One record holds fields, extra fields and private attributes, each under its name.

    Notes name the extra ones, and the set of fields given if that is not all of them. A name that begins with ``_`` and
    is not extra is private.
    """

    __slots__ = ("_all", "_extra", "_given", "_is_usual", "_private", "allows_extra", "private")

    note_names: ClassVar[frozenset[str]] = frozenset({"more", "unset", "extra", "set"})

    def __init__(
        self, cls: type, name: str, declared: dict[str, Default], private: dict[str, Default], config: dict[str, Any]
    ) -> None:
        super().__init__(cls, name, declared, frozen=bool(config.get("frozen")))
        self._slots = {}
        self._given = lookup(cls, "__pydantic_fields_set__")
        self._extra = _Slot(cls, "__pydantic_extra__")
        self._private = _Slot(cls, "__pydantic_private__")
        self._all = frozenset(declared)
        # then the slots can be read directly
        self._is_usual = lookup(cls, "__getattribute__") is object.__getattribute__
        self.private: Final = private
        self.allows_extra: Final = config.get("extra") == "allow"

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        fields, extra, private, given = self._parts(value)
        assert self.declared is not None
        notes: dict[str, Any] = {}
        if fields.keys() != self.declared.keys():
            notes = self.notes_of(fields, {}) or {}
        expected = fields.keys() & self.declared.keys() if notes else set(fields)
        if extra:
            notes["extra"] = frozenset(extra)
            expected |= extra.keys()
        if given != expected:
            notes["set"] = frozenset(given)
        if extra or private:
            merged = {**fields, **(extra or {}), **(private or {})}
            if len(merged) < len(fields) + len(extra or ()) + len(private or ()):
                raise NotPlainDataError("two of its attributes, fields, extra and private, have one name")
            fields = merged
        return self.in_order(fields), notes or None

    def _parts(self, value: Any) -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any] | None, set[str]]:
        assert self._dict_of is not None
        try:
            return (
                dict(self._dict_of(value)),
                self._extra.get(value),
                self._private.get(value),
                self._given.__get__(value),
            )
        except AttributeError:
            raise NotPlainDataError("it was never initialised") from None

    def notes_for(self, data: Any, notes: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
        assert self.declared is not None
        new = {name for name in data if name not in self.declared and name not in self.private}
        extra, more = names_in(notes, "extra") & new, names_in(notes, "more") & new
        # A field that is assigned counts as given.
        assigned = {
            name for name, held in data.items() if held is not before.get(name, _UNSET) and name not in self.private
        }
        kept = {
            "extra": (new - more) if self.allows_extra else extra,
            "more": more if self.allows_extra else new - extra,
            "unset": frozenset(self.declared.keys() - data.keys()),
        }
        if "set" in notes:
            kept["set"] = (names_in(notes, "set") & data.keys()) | assigned
        return {key: frozenset(names) for key, names in kept.items() if names or key == "set"}

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        assert self.declared is not None
        record = self.fields_of(data)
        extra_names, more = names_in(notes, "extra"), names_in(notes, "more")
        fields, extra, private = {}, {}, {}
        for name, held in record.items():
            if name in extra_names:
                extra[name] = held
            elif name[:1] == "_" and name not in more:
                private[name] = held
            else:
                fields[name] = held
        fields, same, gained = self.fitted(fields, self.declared, more, names_in(notes, "unset"))
        # The set of given fields, as far as they still exist; fields that the class has gained since were not given.
        given = names_in(notes, "set") if "set" in notes else frozenset(fields.keys() - more) | extra.keys()
        if not same:
            given = given & (fields.keys() | extra.keys())
        kept = {name: held for name, held in private.items() if name in self.private}
        same &= len(kept) == len(private)
        value: Any = object.__new__(self.cls)
        self.fill(value, fields)
        self._given.__set__(value, set(given))
        self._extra.set(value, extra if extra or self.allows_extra else None)
        self._private.set(value, kept if kept or self.private else None)
        self.add_defaults(value, gained)
        return value, same

    def assign(self, live: Any, target: Any, assign_part: AssignPart) -> bool:
        if self.frozen:
            return False
        old, new = self._parts(live), self._parts(target)
        self.replace_attributes(live, old[0], new[0], assign_part)
        for member, held, wanted in ((self._extra, old[1], new[1]), (self._private, old[2], new[2])):
            both = held is not None and wanted is not None
            member.set(live, assign_part(held, wanted) if both else wanted)
        self._given.__set__(live, new[3])
        return True

    def pack(self, value: Any) -> list[Any]:
        assert self._dict_of is not None
        extra, private = self._extra.get(value), self._private.get(value)
        # The hash of the names, because the order of a set is not part of its content.
        given = hash(frozenset(self._given.__get__(value)))
        if extra is None and private is None:
            return [self.mark, self._dict_of(value), given]
        return [self.mark, self._dict_of(value), given, extra, private]

    def pack_run(self, run: list[Any], *, identities: bool) -> list[Any] | None:
        packed = super().pack_run(run, identities=identities)
        if packed is None or not self._is_usual:
            return None
        given = list(map(_GIVEN, run))
        # Validation may add extra fields even if the class has none.
        has_extra = self.allows_extra or any(map(_EXTRA, run))
        # pydantic puts only names of fields there: without extra fields, a set of this size is the set of all fields.
        all_given = not has_extra and list(map(len, given)).count(len(self._all)) == len(run)
        packed.append(None if all_given else list(map(hash, map(frozenset, given))))
        packed.append(list(map(_EXTRA, run)) if has_extra else None)
        packed.append(list(map(_PRIVATE, run)) if self.private else None)
        return packed

    def parts(self, value: Any) -> Iterable[Any]:
        fields, extra, private, _ = self._parts(value)
        return [*fields.values(), *(extra or {}).values(), *(private or {}).values()]


def model_layout(cls: type, name: str) -> ModelLayout | str | None:
    """Return the layout of a pydantic model, or the reason why it has none, or None for any other class."""
    fields, private = lookup(cls, "__pydantic_fields__"), lookup(cls, "__private_attributes__")
    if type(fields) is not dict or lookup(cls, "__pydantic_fields_set__") is None:
        return None
    if (reason := why_custom(cls)) is not None:
        return reason
    config = lookup(cls, "model_config")
    return ModelLayout(
        cls,
        name,
        {name: _field_default(field) for name, field in fields.items()},
        {name: _private_default(attribute) for name, attribute in (private or {}).items()},
        dict(config) if isinstance(config, dict) else {},
    )


def _field_default(field: Any) -> Default:
    if field.is_required():
        return None
    if getattr(field, "default_factory_takes_validated_data", False):
        return lambda value: field.get_default(call_default_factory=True, validated_data=dict(value.__dict__))
    return lambda _: field.get_default(call_default_factory=True)


def _private_default(attribute: Any) -> Default:
    return lambda _: attribute.get_default()
