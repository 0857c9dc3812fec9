"""``Rounds``: which rounds a session has, and at which heights of its branch their commits are. Layer: services.

It lies in the state beside the user's keys, so it moves with the branch: after ``undo`` or on a fork, the rounds are those of that head.
Heights stay as they are when history is rewritten, which ids do not. Rounds in steps are one entry, however many they are::

    saved 1, 2, 3, …, 900    (1, +1, height 1, 900)
    saved 10, 20, 3          (10, +10, height 1, 2) (3, +1, height 3, 1)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from versioned_state.errors import CorruptObjectError, InvalidArgumentError, LimitExceededError
from versioned_state.repository.history.commit import Commit
from versioned_state.state.branch.hooks import Hook
from versioned_state.values.cells import ENTRY_INLINE
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.encode.inline import plain_cell
from versioned_state.values.keys import ROUNDS
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, find

LARGEST: Final = (1 << 63) - 1
"""The largest number of a round."""


class _Run(NamedTuple):
    """Rounds that were saved one after another: ``first``, ``first + step``, … at ``height``, ``height + 1``, and so on."""

    first: int
    step: int
    height: int
    length: int

    @property
    def last(self) -> int:
        return self.first + (self.length - 1) * self.step

    @property
    def greatest(self) -> int:
        return max(self.first, self.last)

    def place(self, number: int) -> int | None:
        """The place of a round in the run, or None."""
        index, rest = divmod(number - self.first, self.step)
        return index if not rest and 0 <= index < self.length else None

    def part(self, start: int, end: int) -> list[_Run]:
        """The rounds from one place to another, as a run; none if there are none."""
        return [_Run(self.first + start * self.step, self.step, self.height + start, end - start)] if start < end else []


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of a session. Never changed.

    Attributes:
        current: the round that was written last. Commits above it, made by hand, belong to it. None if there is none.
        session_id: the session, if the name of its branch does not tell.
        runs: in the order in which they were saved.
    """

    current: int | None = None
    session_id: str | None = None
    runs: tuple[_Run, ...] = ()

    @property
    def latest(self) -> int | None:
        """The highest round, or None."""
        return max((run.greatest for run in self.runs), default=None)

    def __iter__(self) -> Iterator[int]:
        """The numbers, in order."""
        return iter(sorted(run.first + place * run.step for run in self.runs for place in range(run.length)))

    def __len__(self) -> int:
        return sum(run.length for run in self.runs)

    def __contains__(self, number: object) -> bool:
        return type(number) is int and self.height(number) is not None

    def height(self, number: int) -> int | None:
        """The height of the commit that has a round's content; None if there is no such round. The current round may be higher."""
        for run in reversed(self.runs):
            index = run.place(number)
            if index is not None:
                return run.height + index
        return None

    def without(self, number: int) -> Rounds:
        """The rounds but for one."""
        runs: list[_Run] = []
        for run in self.runs:
            index = run.place(number)
            runs += [run] if index is None else run.part(0, index) + run.part(index + 1, run.length)
        return replace(self, runs=tuple(runs), current=None if self.current == number else self.current)

    def settled(self, head: int) -> Rounds:
        """The rounds before a new commit on a head of that height: the current round ends there."""
        current = self.current
        if current is None or self.height(current) == head:
            return self
        return replace(self.without(current).at(current, head), current=current)

    def at(self, number: int, height: int) -> Rounds:
        """The rounds with another one, which becomes the current round, at a height above all others."""
        runs = self.without(number).runs
        if runs:
            *others, last = runs
            follows = last.height + last.length == height
            if follows and last.length == 1:
                return replace(self, current=number, runs=(*others, _Run(last.first, number - last.first, last.height, 2)))
            if follows and last.last + last.step == number:
                return replace(self, current=number, runs=(*others, last._replace(length=last.length + 1)))
        return replace(self, current=number, runs=(*runs, _Run(number, 1, height, 1)))

    def cell(self, nodes: Nodes) -> bytes:
        """The stored form."""
        flat = [number for run in self.runs for number in run]
        value = [self.current, self.session_id, *flat]
        cell = plain_cell(value)
        return cell if cell is not None and len(cell) <= ENTRY_INLINE else Encoder(nodes).encode_at(value, ENTRY_INLINE)


NO_ROUNDS: Final = Rounds()


def rounds_of(nodes: Nodes, tree: Tree) -> Rounds:
    """The rounds that the root of a commit has. Raises ``CorruptObjectError`` if they do not read."""
    cell = find(nodes, tree, ROUNDS) if tree.count else None
    if cell is None:
        return NO_ROUNDS
    value: Any = Decoder(nodes).decode(cell)
    if type(value) is list and len(value) >= 2:
        current, session_id, *flat = value
        if len(flat) % 4 == 0 and all(type(each) is int for each in flat):
            runs = tuple(_Run(*flat[at : at + 4]) for at in range(0, len(flat), 4))
            if all(run.step and run.length > 0 for run in runs):
                return Rounds(current, session_id, runs)
    raise CorruptObjectError("(the rounds of a session)", "they do not read")


def check_number(number: int | None) -> int | None:
    """A number that a round can be saved under, or None. Raises ``InvalidArgumentError`` or ``LimitExceededError``."""
    if number is None:
        return None
    if type(number) is not int:
        raise InvalidArgumentError(f"round_id is an int, not {type(number).__name__}", remains="nothing was saved")
    if number < 0:
        raise InvalidArgumentError(f"round_id={number}: a round is 0 or more", remains="nothing was saved")
    if number > LARGEST:
        raise LimitExceededError("a round_id", limit=LARGEST)
    return number


class RoundsHook(Hook):
    """Puts the rounds of a session into the commit that a save makes.

    Attributes:
        rounds: those of the next commit; None if it is not a save.
        known: the last head whose rounds were read, and these.
    """

    def __init__(self) -> None:
        self.rounds: Rounds | None = None
        self.known: tuple[Commit, Rounds] | None = None

    def amend(self, nodes: Nodes, tree: Tree, keys: object) -> Tree:
        return tree if self.rounds is None else edit_map(nodes, tree, {ROUNDS: self.rounds.cell(nodes)})
