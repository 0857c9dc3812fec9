"""``Bounded``: a list that does not outgrow a number of items or tokens, and the hook that trims it at a commit.

Layer: state.

::

    staged root ── a bounded list is too long ──┬── the elements that leave are in the parent: the trimmed root
                                                └── some are not: a commit of the list in full, then the trimmed root
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from versioned_state.arguments import check_function, count
from versioned_state.errors import STAGED, InvalidArgumentError, SchemaError
from versioned_state.state.aio.caller import current_caller
from versioned_state.state.branch.hooks import Hook
from versioned_state.state.shape.rules import parts_of, shown
from versioned_state.values.cells import ELEMENT_INLINE
from versioned_state.values.changes.diff import diff_maps, diff_sequences
from versioned_state.values.changes.replacement import replace_in_root
from versioned_state.values.containers import container_of, is_large
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.encode.compose import Composer
from versioned_state.values.keys import is_internal, path_of
from versioned_state.values.paths.lookup import find_part
from versioned_state.values.paths.path import StatePath, Step
from versioned_state.values.trees.edit import Edit, splice
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.tree import Tree, empty, iter_cells
from versioned_state.values.typed.registry import fields_of

if TYPE_CHECKING:
    from versioned_state.state.worktree.worktree import Worktree
    from versioned_state.values.codec.pickles import PicklePolicy
    from versioned_state.values.paths.pattern import Pattern

    Steps = tuple[Step | Literal["*", "**"], ...]

OnOverflow = Literal["drop"] | Callable[[list[Any]], list[Any]]

_SUMS_KEPT: Final = 4
"""Lists of one path whose tokens are remembered: that of the head, and those of commits that failed or were retried."""

_SUMMARIES: Final = 4
"""Calls of ``on_overflow`` for one overflow.

Each is given more elements than the one before, since its summary was too long.
"""


def estimate_tokens(value: Any) -> int:
    """Estimate the tokens of a value: 4, and one for every four characters of its texts, keys and numbers.

    Reads no file.
    """
    return 4 + -(-_characters(value) // 4)


def _characters(value: Any) -> int:
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_characters(key) + _characters(each) for key, each in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return sum(map(_characters, value))
    fields = fields_of(value)
    return len(str(value)) if fields is None else _characters(fields)


@dataclass(frozen=True)
class Bounded:
    """A bound for a list, by path: ``Versioned(store, schema={"messages": Bounded(max_items=50)})``.

    A commit that changes the list trims it from the front, and the live list with it, in place. Removed elements stay
    in history: if some of them are in no commit yet, the list is first committed in full, with the same message. In a
    merge, the merged list is trimmed.

    Args:
        max_items: the greatest length.
        max_tokens: the greatest sum of ``count_tokens`` over the elements; give this or ``max_items``.
        on_overflow: "drop", or a function that is given the removed elements and returns a list to put in their place,
            such as a summary, which counts too. It is called again, with more elements, as long as its result does not
            fit, up to four times. It runs within the commit, which fails if the function changes the state.
        keep: the length, or the tokens, to trim to; by default the bound itself. Less of it means that it overflows
            less often.
        count_tokens: the tokens of one element; by default an estimate of four characters a token.

    Raises:
        InvalidArgumentError: a number is out of range, both bounds are given or none, or a function is asynchronous.
    """

    max_items: int | None = None
    max_tokens: int | None = None
    on_overflow: OnOverflow = "drop"
    keep: int | None = None
    count_tokens: Callable[[Any], int] = estimate_tokens

    def __post_init__(self) -> None:
        if (self.max_items is None) == (self.max_tokens is None):
            raise InvalidArgumentError("Bounded must have max_items or max_tokens, and not both")
        count(self.option, self.most, least=1)
        if self.keep is not None and count("keep", self.keep, least=1) > self.most:
            raise InvalidArgumentError(f"keep={self.keep} is more than {self.rule}")
        if self.on_overflow != "drop":
            check_function("on_overflow, unless it is 'drop',", self.on_overflow)
        check_function("count_tokens", self.count_tokens)

    @property
    def option(self) -> str:
        """The name of the bound that was given."""
        return "max_tokens" if self.max_items is None else "max_items"

    @property
    def most(self) -> int:
        """The bound."""
        most = self.max_tokens if self.max_items is None else self.max_items
        assert most is not None
        return most

    @property
    def rule(self) -> str:
        """The bound, for errors."""
        return f"{self.option}={self.most}"

    def size(self, value: Any) -> int:
        """Return the size of one element: 1, or its tokens."""
        return 1 if self.max_tokens is None else self.count_tokens(value)


@dataclass(frozen=True)
class Bound:
    """A bound, and the pattern of the paths that it is for."""

    pattern: Pattern
    bounded: Bounded

    def check(self, state: Mapping[str, Any]) -> None:
        """Raise ``SchemaError`` for a value that is not a list, or is too long."""
        self._check(state, self.pattern.steps, StatePath())

    def _check(self, value: Any, steps: Steps, path: StatePath) -> None:
        if not steps:
            if type(value) is not list:
                raise not_a_list(path, self.bounded, value)
            size = sum(map(self.bounded.size, value))
            if size > self.bounded.most:
                raise SchemaError(str(path), self.bounded.rule, f"it has {size}")
            return
        for step, part in parts_of(value):
            for rest in advanced(steps, step):
                self._check(part, rest, StatePath((*path.steps, step)))


def not_a_list(path: StatePath, bounded: Bounded, value: Any) -> SchemaError:
    """Return the error for a bounded value of another type."""
    return SchemaError(str(path), bounded.rule, f"{shown(value)} is of type {type(value).__name__}, not a list")


def advanced(steps: Steps, step: Step) -> list[Steps]:
    """Return the possible rests of a pattern after a step, or none if the pattern does not match the step."""
    if not steps:
        return []
    if steps[0] == "**":
        return list(dict.fromkeys([steps, *([()] if len(steps) == 1 else []), *advanced(steps[1:], step)]))
    return [steps[1:]] if steps[0] in ("*", step) else []


class Bounds(Hook):
    """The hook that trims the bounded lists that commits change. Cost: the changed and the removed elements."""

    def __init__(self, bounds: list[Bound], policy: PicklePolicy, worktree: Worktree) -> None:
        self._bounds = bounds
        self._policy = policy
        self._worktree = worktree
        self._is_calling = False
        self._sums: dict[StatePath, dict[bytes, int]] = {}
        self._summary: tuple[list[bytes], list[Any]] | None = None

    def settle(self, nodes: Nodes, before: Tree, after: Tree) -> tuple[Tree, ...]:
        trimmed, is_lost = after, False
        for bound in self._bounds:
            for path, old, new in _changed(nodes, bound.pattern.steps, before, after):
                trim = _Trim(nodes, self._policy, path, bound.bounded, old, new)
                try:
                    cell = self._trimmed(trim)
                except SchemaError as error:
                    error.remains = STAGED
                    raise
                if cell is not None:
                    trimmed = replace_in_root(trim.composer, trimmed, path, cell)
                    is_lost = is_lost or trim.is_lost()
        return (after, trimmed) if is_lost else (trimmed,)

    def _trimmed(self, trim: _Trim) -> bytes | None:
        """Return the cell of the trimmed list, or None if the list fits."""
        bounded = trim.bounded
        total = trim.tree.count if bounded.max_tokens is None else self._tokens(trim)
        if total <= bounded.most:
            return None
        room = 0
        for _ in range(_SUMMARIES):
            left = trim.remove(total, room)
            if bounded.on_overflow == "drop":
                break
            trim.put = self._summarized(trim, bounded.on_overflow)
            room = sum(map(bounded.size, trim.put))
            if left + room <= bounded.most:
                break
        else:
            raise SchemaError(str(trim.path), bounded.rule, f"the result of on_overflow has {room}, and does not fit")
        cell = trim.cell()
        if bounded.max_tokens is not None:
            self._remember(trim.path, cell, left + room)
        return cell

    def _summarized(self, trim: _Trim, function: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Return the result of ``on_overflow``.

        It is not called again for the same elements, such as when a commit is tried again.
        """
        cells = list(islice(iter_cells(trim.nodes, trim.tree), trim.removed))
        if self._summary is not None and self._summary[0] == cells:
            return self._summary[1]
        found: Any = self._called(trim, function, [trim.decode(cell) for cell in cells])
        if type(found) is not list:
            raise SchemaError(str(trim.path), "on_overflow", f"it returned {shown(found)}, not a list")
        self._summary = cells, found
        return found

    def _called(self, trim: _Trim, function: Callable[[list[Any]], list[Any]], removed: list[Any]) -> Any:
        """Call ``on_overflow``.

        Raises if it changes the state, because the commit assumes that the live values are as they were staged.
        """
        if self._is_calling:
            raise SchemaError(str(trim.path), "on_overflow", "it commits the state")
        # During a background call, the event loop may change values, and the commit allows for that.
        staged = self._worktree.stage(lenient=True) if current_caller() is None else None
        self._is_calling = True
        try:
            found = function(removed)
        finally:
            self._is_calling = False
        if staged is not None and not self._worktree.holds(staged):
            raise SchemaError(str(trim.path), "on_overflow", "it changed the state")
        return found

    def _tokens(self, trim: _Trim) -> int:
        """Return the tokens of the list. Cost: the elements that changed, or all of them the first time."""
        known = self._sums.get(trim.path, {}).get(trim.old) if trim.old is not None else None
        old = None if trim.old is None else container_of(trim.nodes, trim.old)
        if known is None or old is None or old.tree.shape is not Shape.SEQUENCE:
            total = sum(map(trim.tokens, iter_cells(trim.nodes, trim.tree)))
        else:
            total = known
            for part in diff_sequences(trim.nodes, old.tree, trim.tree):
                total -= sum(map(trim.tokens, iter_cells(trim.nodes, old.tree, part.old_start, part.old_end)))
                total += sum(map(trim.tokens, iter_cells(trim.nodes, trim.tree, part.new_start, part.new_end)))
        self._remember(trim.path, trim.new, total)
        return total

    def _remember(self, path: StatePath, cell: bytes, total: int) -> None:
        sums = self._sums.setdefault(path, {})
        sums.pop(cell, None)
        sums[cell] = total
        while len(sums) > _SUMS_KEPT:
            del sums[next(iter(sums))]


class _Trim:
    """A list changed by a commit: its cells before and after, the count of removed elements, and their replacements."""

    def __init__(
        self, nodes: Nodes, policy: PicklePolicy, path: StatePath, bounded: Bounded, old: bytes | None, new: bytes
    ) -> None:
        self.nodes = nodes
        self.composer = Composer(nodes, policy)
        self.path = path
        self.bounded = bounded
        self.old = old
        self.new = new
        self._decoder = Decoder(nodes, policy)
        found = container_of(nodes, new)
        if found is None or found.head is not None or found.tree.shape is not Shape.SEQUENCE:
            raise not_a_list(path, bounded, self.decode(new))
        self.tree = found.tree
        self.removed = 0
        self.put: list[Any] = []

    def decode(self, cell: bytes) -> Any:
        return self._decoder.decode(cell)

    def tokens(self, cell: bytes) -> int:
        """Return the tokens of one element."""
        tokens = self.bounded.count_tokens(self.decode(cell))
        if type(tokens) is not int or tokens < 0:
            raise SchemaError(str(self.path), "count_tokens", f"it returned {shown(tokens)}, not an int of 0 or more")
        return tokens

    def remove(self, total: int, room: int) -> int:
        """Remove elements from the front until the rest fits, beside ``room`` for other elements.

        Returns the size of the rest.

        Raises:
            SchemaError: the last element does not fit by itself.
        """
        bounded = self.bounded
        target = (bounded.most if bounded.keep is None else bounded.keep) - room
        if bounded.max_tokens is None:
            if bounded.on_overflow != "drop" and room == 0:
                target -= 1  # most summaries are one element
            self.removed = min(self.tree.count - max(target, 0), self.tree.count)
            return self.tree.count - self.removed
        self.removed, left = 0, total
        last = self.tree.count - 1
        for cell in iter_cells(self.nodes, self.tree):
            if left <= target or (self.removed == last and left <= bounded.most - room):
                break
            if self.removed == last and room == 0:
                raise SchemaError(str(self.path.index(last)), bounded.rule, f"this element alone has {left}")
            left -= self.tokens(cell)
            self.removed += 1
        return left

    def is_lost(self) -> bool:
        """Return whether some removed elements are not at the old list's start, so that no commit has them there."""
        found = None if self.old is None else container_of(self.nodes, self.old)
        if found is None or found.tree.shape is not Shape.SEQUENCE or found.tree.count < self.removed:
            return True
        pairs = zip(
            iter_cells(self.nodes, found.tree, 0, self.removed),
            iter_cells(self.nodes, self.tree, 0, self.removed),
            strict=True,
        )
        return any(not self.composer.same(old, new) for old, new in pairs)

    def cell(self) -> bytes:
        """Return the cell of the trimmed list, in the form of a large one."""
        put = [
            self.composer.encode(value, ELEMENT_INLINE, str(self.path.index(index)))
            for index, value in enumerate(self.put)
        ]
        tree = splice(self.nodes, self.tree, [Edit(0, self.removed, put)])
        if is_large(self.nodes, self.new):
            return self.composer.list_cell(tree, ELEMENT_INLINE)
        return self.composer.list_of(list(iter_cells(self.nodes, tree)), ELEMENT_INLINE)


def _changed(nodes: Nodes, steps: Steps, before: Tree, after: Tree) -> Iterator[tuple[StatePath, bytes | None, bytes]]:
    """Iterate over the changed values that match a pattern: path, cell before, cell after. Cost: the changes."""
    for root_key, old, new in diff_maps(nodes, before, after):
        if is_internal(root_key):
            continue
        path = path_of(root_key)
        left = [steps]
        for step in path.steps:
            left = [rest for each in left for rest in advanced(each, step)]
        found = {}
        for rest in left:
            for at, was, now in _changed_below(nodes, rest, path, old, new):
                found[at] = was, now
        for at, (was, now) in found.items():
            yield at, was, now


def _changed_below(
    nodes: Nodes, steps: Steps, path: StatePath, old: bytes | None, new: bytes | None
) -> Iterator[tuple[StatePath, bytes | None, bytes]]:
    if new is None or old == new:
        return
    if not steps:
        yield path, old, new
        return
    step = steps[0]
    if step != "*" and step != "**":  # noqa: PLR1714 - so a type checker follows
        was = None if old is None else find_part(nodes, old, step)
        yield from _changed_below(nodes, steps[1:], StatePath((*path.steps, step)), was, find_part(nodes, new, step))
        return
    for at, was, now in _changed_parts(nodes, path, old, new):
        for rest in advanced(steps, at.steps[-1]):
            yield from _changed_below(nodes, rest, at, was, now)


def _changed_parts(
    nodes: Nodes, path: StatePath, old: bytes | None, new: bytes
) -> Iterator[tuple[StatePath, bytes | None, bytes]]:
    """Iterate over the parts of a list or dict that changed or were added."""
    b = container_of(nodes, new)
    if b is None:
        return
    a = None if old is None else container_of(nodes, old)
    before = empty(b.tree.shape) if a is None or a.tree.shape is not b.tree.shape else a.tree
    if b.tree.shape is Shape.MAP:
        decoder = Decoder(nodes)
        for key, was, now in diff_maps(nodes, before, b.tree):
            if now is not None:
                yield decoder.entry_path(path, key), was, now
        return
    for part in diff_sequences(nodes, before, b.tree):
        olds = list(iter_cells(nodes, before, part.old_start, part.old_end))
        for index, now in enumerate(iter_cells(nodes, b.tree, part.new_start, part.new_end)):
            yield path.index(part.new_start + index), olds[index] if index < len(olds) else None, now
