"""``AddressSet``: a set of addresses with bounded memory, for walks over a whole store. Layer: repository."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Self

from versioned_state.errors import StorageError
from versioned_state.objects.address import Role

if TYPE_CHECKING:
    import sqlite3

_BITS: Final = {role: 1 << index for index, role in enumerate(Role)}
FREE_BIT: Final = len(Role)
"""The number of the first bit of a value that stands for no role."""


class AddressSet:
    """A set of addresses, each with some roles. Beyond ``in_memory`` addresses it moves to a temporary file.

    An address takes about 150 bytes in memory, and 40 in the file, which SQLite removes by itself. Not for two threads
    at once.
    """

    def __init__(self, *, in_memory: int = 1_000_000) -> None:
        self._in_memory = in_memory
        self._here: dict[bytes, int] = {}
        self._file: sqlite3.Connection | None = None
        self._count = 0

    def add(self, address: bytes, role: Role | None = None) -> bool:
        """Add an address in a role. Returns whether it is new in that role."""
        bit = 1 if role is None else _BITS[role]
        return not self.note(address, bit) & bit

    def note(self, address: bytes, bits: int) -> int:
        """Add an address with these bits in its value.

        Returns the bits that it had. Bits from ``FREE_BIT`` on are the caller's own.
        """
        here = self._here
        known = here.get(address)
        if known is None:
            known = self._stored(address) if self._file is not None else 0
            self._count += not known
        if known | bits != known:
            here[address] = known | bits
            if len(here) > self._in_memory:
                self._spill()
        return known

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Yield all addresses with their values.

        An address may occur twice. Nothing may be added meanwhile.
        """
        if self._file is not None:
            yield from self._file.execute("SELECT address, roles FROM seen")
        yield from self._here.items()

    def in_order(self) -> Iterator[tuple[bytes, int]]:
        """Yield all addresses with their values, each once, in order. Nothing may be added meanwhile."""
        if self._file is None:
            yield from sorted(self._here.items())
            return
        self._spill()
        yield from self._file.execute("SELECT address, roles FROM seen ORDER BY address")

    @staticmethod
    def bit(role: Role) -> int:
        """Return the bit of a role in a value."""
        return _BITS[role]

    def value(self, address: bytes) -> int:
        """Return the value of an address, or 0 if the set does not have it."""
        known = self._here.get(address)
        return known if known is not None else self._stored(address) if self._file is not None else 0

    def put(self, address: bytes, value: int) -> None:
        """Replace the value of an address that ``_count`` includes already."""
        self._here[address] = value
        if len(self._here) > self._in_memory:
            self._spill()

    def __contains__(self, address: bytes) -> bool:
        return address in self._here or (self._file is not None and bool(self._stored(address)))

    def __len__(self) -> int:
        return self._count

    def _stored(self, address: bytes) -> int:
        assert self._file is not None
        row = self._file.execute("SELECT roles FROM seen WHERE address = ?", (address,)).fetchone()
        return 0 if row is None else int(row[0])

    def _spill(self) -> None:
        import sqlite3

        try:
            if self._file is None:
                # SQLite makes a file without a name in the system's temporary folder, and removes it.
                self._file = sqlite3.connect("", isolation_level=None, check_same_thread=False)
                self._file.execute("PRAGMA journal_mode = OFF")
                self._file.execute("CREATE TABLE seen(address BLOB PRIMARY KEY, roles INTEGER) WITHOUT ROWID")
            self._file.execute("BEGIN")
            # Sorted, so that each page of the file is written once.
            self._file.executemany("INSERT OR REPLACE INTO seen VALUES(?, ?)", sorted(self._here.items()))
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            raise StorageError(
                f"the temporary file of a walk over all objects failed: {error}", remains="nothing was changed"
            ) from error
        self._here.clear()

    def close(self) -> None:
        """Free the memory and remove the file."""
        self._here.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
