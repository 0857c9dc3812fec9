"""The accelerator, if it is installed: a module of C that packs plain values, and recognises unchanged ones.

Layer: values.

It is a distribution of its own, ``versioned-state-fast`` (the extra ``fast``), and changes no byte that is stored: each
of its functions gives the answer of the Python code beside its call, or None where that code has to decide. ``ABI`` is
the number of what its functions mean; a module with another number is not used.

An ``Encoder`` or a ``Fingerprinter`` takes ``fast`` when it is made, and keeps it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, Protocol

ABI: Final = 1

MOST_MARKED: Final = 1 << 20
"""The bytes of a run up to which the accelerator packs it: a millisecond. It looks for Ctrl-C between values only."""


class Marks(Protocol):
    """The content of a run of values, by the identity of their leaves, which it keeps alive. Never changes."""

    def same(self, values: list[Any], start: int, /) -> bool:
        """Return whether the values from ``start`` on are certainly unchanged."""

    def begin(self, marks: Marks, /) -> bool:
        """Return whether other marks begin with these."""

    def __sizeof__(self) -> int:
        """Return the bytes of memory without the leaves."""


class Accelerator(Protocol):
    """The functions of the module. ``depth`` limits containers within each other, and ``limit`` bytes."""

    def pack(self, value: Any, depth: int, limit: int, /) -> bytes | None:
        """Return the cell of a plain value, else None."""

    def pack_all(self, values: list[Any], depth: int, limit: int, /) -> list[bytes | None]:
        """Return what ``pack`` does for each value of a list that belongs to the caller."""

    def pack_marked(
        self, values: list[Any], start: int, stop: int, depth: int, limit: int, /
    ) -> tuple[bytes, Marks] | None:
        """Return a plain run as one array, and its marks, both of one moment: no thread changes a value in between."""


def load(name: str = "versioned_state_fast") -> tuple[Accelerator | None, str]:
    """Return the accelerator, or None, and its status in words: "active", or why it is not."""
    try:
        module: Any = import_module(name)
    except ImportError as error:
        return None, "not installed" if isinstance(error, ModuleNotFoundError) else f"not used: {error}"
    if (abi := getattr(module, "ABI", None)) != ABI:
        return None, f"not used: its ABI is {abi}, and this version of versioned-state needs {ABI}"
    return module, "active"


fast: Accelerator | None
status: str
fast, status = load()
