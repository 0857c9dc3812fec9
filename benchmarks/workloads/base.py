"""``Workload`` and its ``Context``, and the few steps that most workloads share."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.data import Data
from benchmarks.measure import folder_bytes
from benchmarks.results import Result
from benchmarks.sides import Side


@dataclass(frozen=True)
class Context:
    """One run: its sides by name, its data, and the folders of stores and results."""

    folder: Path
    sides: Mapping[str, type[Side]]
    data: Data
    out: Path
    quick: bool = False
    full: bool = False
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def fresh(self, label: str) -> Path:
        """A new empty folder for a store."""
        # Sides may be called anything; a folder's name is kept to letters that need no care anywhere.
        name = "".join(letter if letter.isalnum() else "-" for letter in label)
        path = self.folder / f"{next(self._numbers)}-{name}"
        path.mkdir()
        return path

    def progress(self, text: str) -> None:
        """A line for a person who waits, apart from the results."""
        print(f"... {text}", file=sys.stderr, flush=True)

    def only(self, *names: str) -> dict[str, type[Side]]:
        """Those of the sides that take part."""
        return {name: self.sides[name] for name in names if name in self.sides}


@dataclass(frozen=True)
class Workload:
    """A name on the command line, and the function that it runs.

    ``run`` gets the workload itself, for its name and summary.
    """

    name: str
    summary: str
    run: Callable[[Context, Workload], Result]


@contextmanager
def opened(sides: Mapping[str, type[Side]], folders: Mapping[str, Path]) -> Iterator[dict[str, Side]]:
    """Every side's store, open; each is checked and closed at the end, and closed also when a workload fails."""
    with ExitStack() as stack:
        stores: dict[str, Side] = {}
        for name, side in sides.items():
            stores[name] = side(folders[name])
            stack.callback(stores[name].close)
        yield stores
        for store in stores.values():
            store.check()


def stored_bytes(side: type[Side], folder: Path) -> int:
    """The bytes that a store holds after a clean close.

    It is opened and closed once more before: the temporary file of ZODB's last transaction lies beside the data until
    the next opening.
    """
    side(folder).close()
    return folder_bytes(folder)


def require_equal(found: object, expected: object, what: str) -> None:
    """Stop the run if a side did not keep its values: a figure for wrong work is worth nothing.

    Raises:
        RuntimeError: the two differ.
    """
    if found != expected:
        raise RuntimeError(f"{what}: the store does not hold what was committed")
