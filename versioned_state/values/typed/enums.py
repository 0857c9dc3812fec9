"""Members of Enums: stored by name. Layer: values."""

from __future__ import annotations

from enum import Enum, Flag
from typing import Any

from versioned_state.values.typed.layout import Layout, NotPlainDataError
from versioned_state.values.typed.reflection import inherits, lookup
from versioned_state.values.typed.tagged import Notes


class EnumLayout(Layout):
    """A member by its name.

    A combination of flags without a name: by the names of its members, or by value if these do not cover it.
    """

    __slots__ = ("_members",)

    def __init__(self, cls: type, name: str) -> None:
        super().__init__(cls, name)
        members = lookup(cls, "_member_map_")
        self._members: dict[str, Any] = members if type(members) is dict else {}

    def take(self, value: Any) -> tuple[Any, Notes]:
        name = value._name_
        if name in self._members and self._members[name] is value:
            return name, None
        if not inherits(self.cls, Flag):
            raise NotPlainDataError("it is not a member of its Enum")
        bits = int(value._value_)
        names = [name for name, member in self._members.items() if _is_bit(member) and member._value_ & bits]
        covered = sum(self._members[name]._value_ for name in names)
        return (tuple(sorted(names)) if covered == bits and bits else bits), None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        if type(data) is str:
            if data not in self._members:
                raise NotPlainDataError(f"the Enum has no member {data}")
            member = self._members[data]
            return member, member._name_ == data
        if not inherits(self.cls, Flag):
            raise NotPlainDataError("a member is stored by its name")
        if type(data) is tuple:
            if not all(type(name) is str and name in self._members for name in data):
                raise NotPlainDataError("the Flag has no such members")
            value = 0
            for name in data:
                value |= self._members[name]._value_
            return self._of_bits(value), True
        if type(data) is not int:
            raise NotPlainDataError("the value of a Flag must be an int")
        return self._of_bits(data), True

    def _of_bits(self, bits: int) -> Any:
        known = lookup(self.cls, "_value2member_map_")
        member = known.get(bits) if type(known) is dict else None
        if member is not None:
            return member
        # The method of Flag itself: the class may override it with code.
        try:
            return Flag._missing_.__func__(self.cls, bits)  # type: ignore[attr-defined]
        except ValueError as error:
            raise NotPlainDataError(str(error)) from error

    def pack(self, value: Any) -> list[Any]:
        name = value._name_
        return [self.mark, name if name in self._members else value._value_]


def enum_layout(cls: type, name: str) -> EnumLayout | None:
    """Return the layout of an Enum, or None for any other class."""
    return EnumLayout(cls, name) if inherits(cls, Enum) else None


def _is_bit(member: Any) -> bool:
    value = member._value_
    return type(value) is int and value > 0 and value & (value - 1) == 0
