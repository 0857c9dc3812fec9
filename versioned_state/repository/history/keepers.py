"""Keepers: for each marked object, the only ref that leads to it, or the smallest group that has all such refs.

Layer: repository.

A ref is identified by its kind and name, ``branch/alice/1``. The refs whose names begin alike form a group,
``branch/alice/``: all sessions of one user, for example. All refs of a store form the largest group, whose name is
empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from versioned_state.repository.history.address_set import AddressSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from versioned_state.objects.address import Role

EVERYONE: Final = 0
"""The number of the group of all refs."""

_SHIFT: Final = 8
"""The roles of an object are below this bit of its value in the set, the number of its keeper above."""

_GROUPS: Final = (3, 2)
"""How many parts of a name, its kind included, the refs of a group have in common.

Each level may cost a further look at shared objects.
"""


def groups_of(name: str) -> list[str]:
    """Return the groups of a ref, the smallest first, without the group of all refs."""
    parts = name.split("/")
    return ["/".join(parts[:count]) + "/" for count in _GROUPS if len(parts) > count]


class Keepers:
    """Refs and groups by number."""

    def __init__(self, names: Iterable[str] = ("",)) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._above: list[int] = []
        self._depth: list[int] = []
        for name in names:
            self._add(name)

    def number(self, name: str) -> int:
        """Return the number of a ref."""
        found = self._numbers.get(name)
        if found is not None:
            return found
        for group in reversed(groups_of(name)):
            if group not in self._numbers:
                self._add(group)
        return self._add(name)

    def _add(self, name: str) -> int:
        number = self._numbers[name] = len(self.names)
        above = next((self._numbers[group] for group in groups_of(name) if group != name), EVERYONE)
        self.names.append(name)
        self._above.append(above)
        self._depth.append(self._depth[above] + 1 if name else 0)
        return number

    def joined(self, first: int, second: int) -> int:
        """Return the smallest group that contains both."""
        while first != second:
            if self._depth[first] >= self._depth[second]:
                first = self._above[first]
            else:
                second = self._above[second]
        return first


class KeeperSet(AddressSet):
    """A set of addresses with the keeper of each."""

    def __init__(self, *, in_memory: int = 1_000_000) -> None:
        super().__init__(in_memory=in_memory)
        self.keepers: Keepers = Keepers()

    def reach(self, address: bytes, role: Role, keeper: int) -> int | None:
        """Record that a keeper leads to an object in a role.

        Returns the keeper for which the references of the object must be followed, or None if they were, or will be,
        for that keeper or a group that contains it. So an object is followed again whenever its keeper becomes a larger
        group. In the end every ref that leads to an object is its keeper or in its keeper: this holds at the start of a
        walk, and passes from each object to its references.
        """
        bit = self.bit(role)
        known = self.value(address)
        self._count += not known
        if known:
            before = known >> _SHIFT
            keeper = self.keepers.joined(before, keeper)
            if keeper == before and known & bit:
                return None
            bit |= known & ((1 << _SHIFT) - 1) if keeper == before else 0
        self.put(address, keeper << _SHIFT | bit)
        return keeper

    def load(self, address: bytes, roles: int) -> None:
        """Load a value from ``items``. The last value of an address counts."""
        self._count += not self.value(address)
        self.put(address, roles)

    def iter_keepers(self) -> Iterator[tuple[bytes, int]]:
        """Yield all addresses in order, each with the number of its keeper. Nothing may be added meanwhile."""
        return ((address, value >> _SHIFT) for address, value in self.in_order())
