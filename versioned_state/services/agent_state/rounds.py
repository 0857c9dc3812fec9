"""``Rounds``: which rounds a session has, and at which heights of its branch their commits are. Layer: services.

They lie in the state beside the user's keys, so they move with the branch: after ``undo`` or on a fork, the rounds are
those of that head. Unlike ids, heights do not change when history is rewritten. Rounds in equal steps are one run,
however many there are::

    saved 1, 2, 3, …, 900    (1, +1, height 1, 900)
    saved 10, 20, 3          (10, +10, height 1, 2) (3, +1, height 3, 1)

A few runs are a list in the root, which every save writes. Beyond that they go into a tree (``older_rounds``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from versioned_state.arguments import count
from versioned_state.errors import CorruptObjectError, LimitExceededError
from versioned_state.services.agent_state.older_rounds import NO_OLDER, OlderRounds, Run, older_rounds
from versioned_state.state.branch.hooks import Hook
from versioned_state.values.cells import ENTRY_INLINE, pack
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.encode.inline import plain_cell
from versioned_state.values.keys import OLDER_ROUNDS, ROUNDS
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, find, same

LARGEST: Final = (1 << 63) - 1
"""The largest number of a round."""

_LIST_BYTES: Final = 96
"""Packed bytes of the runs that stay in the list: with the other fields, about the size that a root holds inline.

These are some six runs of numbers as large as time stamps, for all of which the tree is written once.
"""


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of a session. Never changed.

    Attributes:
        current: the round that was written last. Commits above it, made by hand, belong to it. None if there is none.
        session_id: the id of the session, if the name of its branch does not give it.
        runs: in the order in which they were saved. The last one has the current round.
        older: the rounds that are not in a run.
    """

    current: int | None = None
    session_id: str | None = None
    runs: tuple[Run, ...] = ()
    older: OlderRounds = NO_OLDER

    @property
    def latest(self) -> int | None:
        """The highest round, or None."""
        latest = max((run.greatest for run in self.runs), default=-1)
        return None if (highest := max(latest, self.older.latest)) < 0 else highest

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers, in order."""
        return iter(sorted((*self.older, *(number for run in self.runs for number in run.numbers()))))

    def __len__(self) -> int:
        return sum(run.length for run in self.runs) + len(self.older)

    def __bool__(self) -> bool:
        return bool(self.runs or self.older)

    def __contains__(self, number: object) -> bool:
        return type(number) is int and self.height(number) is not None

    def height(self, number: int) -> int | None:
        """Return the height of the commit with a round's content, or None if there is no such round.

        The current round may be higher.
        """
        for run in reversed(self.runs):
            index = run.place(number)
            if index is not None:
                return run.height + index
        return self.older.height(number)

    def without(self, *numbers: int) -> Rounds:
        """Return the rounds without some, which need not exist."""
        runs = tuple(part for run in self.runs for part in run.without(numbers))
        return replace(
            self,
            runs=runs,
            older=self.older.without(numbers),
            current=None if self.current in numbers else self.current,
        )

    def settled(self, head: int) -> Rounds:
        """Return the rounds before a new commit on a head of that height, where the current round ends."""
        current = self.current
        if current is None or self.height(current) == head:
            return self
        return replace(self.without(current).at(current, head), current=current)

    def at(self, number: int, height: int) -> Rounds:
        """Return the rounds with another one, which becomes the current round, at a height above all others."""
        latest = self.latest
        rest = self if latest is None or number > latest else self.without(number)  # a copy less, as for most
        runs = rest.runs
        if runs:
            *others, last = runs
            follows = last.height + last.length == height
            if follows and last.length == 1:
                runs = *others, Run(last.first, number - last.first, last.height, 2)
                return Rounds(number, self.session_id, runs, rest.older)
            if follows and last.last + last.step == number:
                runs = *others, Run(last.first, last.step, last.height, last.length + 1)
                return Rounds(number, self.session_id, runs, rest.older)
        return Rounds(number, self.session_id, (*runs, Run(number, 1, height, 1)), rest.older)

    def stored(self, nodes: Nodes) -> tuple[Rounds, dict[bytes, bytes | None]]:
        """Return the rounds as a commit has them, and the cells of its root for them. Stages new nodes in ``nodes``."""
        runs, older = self.runs, self.older
        beyond: set[Run] = set()
        if len(runs) > _FEW and len(pack(_flat(runs))) > _LIST_BYTES:
            *others, last = runs
            kept = max(others, key=lambda run: run.entries)
            beyond = {*others} - {kept}
            runs = (kept, last)
        cells: dict[bytes, bytes | None] = {}
        if beyond or older.gone:
            older = older.stored(nodes, beyond)
            cells[OLDER_ROUNDS] = older.cell
        value = [self.current, self.session_id, *_flat(runs), *((older.count, older.greatest) if older.count else ())]
        cell = plain_cell(value)
        cells[ROUNDS] = (
            cell if cell is not None and len(cell) <= ENTRY_INLINE else Encoder(nodes).encode_at(value, ENTRY_INLINE)
        )
        return self if runs is self.runs and older is self.older else replace(self, runs=runs, older=older), cells


_FEW: Final = 2
"""Runs that always stay in the list: the one that grows, and the one that would take most entries of the tree."""

NO_ROUNDS: Final = Rounds()


def _flat(runs: tuple[Run, ...]) -> list[int]:
    return [number for run in runs for number in run]


def rounds_of(nodes: Nodes, tree: Tree) -> Rounds:
    """Read the rounds in the root of a commit, the older ones later by ``nodes``.

    Raises ``CorruptObjectError`` if they are malformed.
    """
    cell = find(nodes, tree, ROUNDS) if tree.count else None
    if cell is None:
        return NO_ROUNDS
    value: Any = Decoder(nodes).decode(cell)
    if type(value) is list and len(value) >= 2:
        current, session_id, *flat = value
        if all(type(each) is int for each in flat) and len(flat) % 4 in (0, 2):
            older = NO_OLDER
            if len(flat) % 4:
                *flat, count, greatest = flat
                older = older_rounds(nodes, find(nodes, tree, OLDER_ROUNDS), count, greatest)
            runs = tuple(Run(*flat[at : at + 4]) for at in range(0, len(flat), 4))
            if all(run.step and run.length > 0 for run in runs):
                return Rounds(current, session_id, runs, older)
    raise CorruptObjectError("(the rounds of a session)", "they do not read")


def check_number(number: int | None) -> int | None:
    """Return a valid number of a round, or None. Raises ``InvalidArgumentError`` or ``LimitExceededError``."""
    if number is None:
        return None
    count("round_id", number, remains="nothing was saved")
    if number > LARGEST:
        raise LimitExceededError("a round_id", limit=LARGEST)
    return number


class RoundsHook(Hook):
    """A hook that puts the rounds of a session into the commit of a save.

    Attributes:
        rounds: those of the next commit, or None if it is not a save.
        unless: a root, of the head, that makes no round if nothing else has changed; or None.
    """

    def __init__(self) -> None:
        self.rounds: Rounds | None = None
        self.unless: Tree | None = None

    def amend(self, nodes: Nodes, tree: Tree, keys: object) -> Tree:
        if self.rounds is None or (self.unless is not None and same(self.unless, tree)):
            return tree
        return edit_map(nodes, tree, self.rounds.stored(nodes)[1])
