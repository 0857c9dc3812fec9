"""Three-way merges of states: policies, conflicts, and their resolution by a person. Layer: repository.

::

    base ──┬── ours ────┬── merged
           └── theirs ──┘

``values.changes.merge`` merges; this module decides about paths that both sides changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from versioned_state.errors import (
    InvalidArgumentError,
    LimitExceededError,
    PickleRefusedError,
    StateError,
    UnserializableValueError,
)
from versioned_state.objects.store import Staging
from versioned_state.repository.history.graph import best_common, merge_bases
from versioned_state.repository.merging.policies import NUMBERS, Policies, Policy
from versioned_state.repository.views.render import escape, one_line
from versioned_state.values.cells import Code, code_of, is_array
from versioned_state.values.changes.diff import diff_maps
from versioned_state.values.changes.merge import Decision, Merger, Side, Sides
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.encode.compose import LIMITS, Composer
from versioned_state.values.encode.inline import InlineEncoder
from versioned_state.values.keys import path_of
from versioned_state.values.paths.path import StatePath, as_path
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.tree import Tree

if TYPE_CHECKING:
    from versioned_state.repository.database import Database
    from versioned_state.repository.history.commit import Commit


class Missing:
    """The value of a side that has nothing at the path."""

    def __repr__(self) -> str:
        return "<missing>"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


class Conflict:
    """A path that both sides changed.

    ``base``, ``ours`` and ``theirs`` are its values, or ``MISSING`` where a side has none.

    A value is read on access. Objects are shown as ``ObjectInfo``: nothing is unpickled. A path into a list has the
    indexes of the base, so no two conflicts have the same path, whatever either side inserted or removed.

    Attributes:
        path: the path.
        sides: the stored forms of the three values.
        both_appended: whether both sides put elements into a list, which the policy ``append`` would merge.
    """

    __slots__ = ("_decode", "both_appended", "path", "sides")

    def __init__(self, path: StatePath, sides: Sides, decode: Callable[[bytes], Any], *, both_appended: bool) -> None:
        self.path: StatePath = path
        self.sides: Sides = sides
        self.both_appended: bool = both_appended
        self._decode = decode

    def __reduce__(self) -> tuple[object, ...]:
        # The store cannot be pickled, so the values are. A value that cannot be read is replaced by its error.
        values: dict[bytes, Any] = {}
        for cell in (self.sides.base, self.sides.ours, self.sides.theirs):
            if cell is not None:
                try:
                    values[cell] = self._decode(cell)
                except StateError as error:
                    values[cell] = _Unreadable(error)
        return _restore_conflict, (self.path, self.sides, values, self.both_appended)

    @property
    def base(self) -> Any:
        """The value in the merge base."""
        return self._read(self.sides.base)

    @property
    def ours(self) -> Any:
        """Our value."""
        return self._read(self.sides.ours)

    @property
    def theirs(self) -> Any:
        """Their value."""
        return self._read(self.sides.theirs)

    def _read(self, cell: bytes | None) -> Any:
        return MISSING if cell is None else self._decode(cell)

    def __repr__(self) -> str:
        return f"<Conflict at {self.path}>"

    def __str__(self) -> str:
        """The path and the three values, shortened."""
        base, ours, theirs = map(one_line, (self.base, self.ours, self.theirs))
        return f"{escape(str(self.path))}: base {base}, ours {ours}, theirs {theirs}"


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """The stand-in for a value that could not be read when its conflict was pickled."""

    error: StateError


def _of_other_process(values: Mapping[bytes, Any], cell: bytes) -> Any:
    """Return a value of a conflict that came from another process."""
    value = values[cell]
    if isinstance(value, _Unreadable):
        raise value.error
    return value


def _restore_conflict(path: StatePath, sides: Sides, values: dict[bytes, Any], both_appended: bool) -> Conflict:  # noqa: FBT001
    return Conflict(path, sides, partial(_of_other_process, values), both_appended=both_appended)


@dataclass(frozen=True, slots=True)
class Resolution:
    """The value that a person decided on for a path with these three sides (None: whatever they are)."""

    path: StatePath
    sides: Sides | None
    value: Any


Resolutions = Sequence[Resolution]


class Merge:
    """A merge that stopped at conflicts and changed nothing: resolve them, then ``commit``.

    Attributes:
        conflicts: the conflicts that are left.
    """

    def __init__(
        self, conflicts: tuple[Conflict, ...], resolutions: Resolutions, again: Callable[[Resolutions], Commit]
    ) -> None:
        self.conflicts: tuple[Conflict, ...] = conflicts
        self._resolutions = tuple(resolutions)
        self._again = again

    def resolve(self, path: str | StatePath, value: Any) -> None:
        """Decide on the value at the path of a conflict, or on none with ``MISSING``.

        The decision holds for these three sides and no others.

        Raises:
            InvalidArgumentError: there is no conflict at that path.

        A value that cannot be stored is refused by ``commit()``, which names it.
        """
        path = as_path(path)
        conflict = next((conflict for conflict in self.conflicts if conflict.path == path), None)
        if conflict is None:
            left = ", ".join(str(conflict.path) for conflict in self.conflicts) or "none"
            raise InvalidArgumentError(f"there is no conflict at {path}", hint=f"conflicts: {left}")
        self._resolutions = (*self._resolutions, Resolution(path, conflict.sides, value))
        self.conflicts = tuple(each for each in self.conflicts if each is not conflict)

    def commit(self) -> Commit:
        """Repeat the call that stopped, with the resolutions, and return its commit, which includes changes made since.

        Raises:
            MergeConflictError: there are conflicts left, or new ones, because others committed since.
            TransactionError, InvalidArgumentError: within a transaction, or on another branch by now.
        """
        return self._again(self._resolutions)

    def __repr__(self) -> str:
        count = len(self.conflicts)
        return f"<Merge with {count} conflict{'' if count == 1 else 's'}>"


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge.

    Attributes:
        tree: the root, whose new objects are staged; at the conflicts it holds ours.
        conflicts: the undecided conflicts.
        replaced: the root keys at which a value that cannot be stored was replaced.
    """

    tree: Tree
    conflicts: tuple[Conflict, ...]
    replaced: frozenset[bytes] = frozenset()


def preview_merge(
    database: Database, ours: Commit, theirs: Commit, *, policies: Policies, resolutions: Resolutions = ()
) -> tuple[Merged, Staging]:
    """Return the merge of two commits from their merge base, and its staged objects: nothing is written.

    Raises:
        UnknownRevisionError: history was pruned, and they have no merge base any more.
    """
    bases = list(merge_bases(ours, theirs, database.commits.read))
    staging = Staging(database.objects)
    nodes = Nodes(staging, staging=staging)
    base = root_of_bases(database, nodes, bases, policies=policies, root_of=attrgetter("tree"))
    merged = merge_trees(
        nodes,
        (base, ours.tree, theirs.tree),
        pickles=database.policy,
        policies=policies,
        resolutions=resolutions,
        theirs_first=(theirs.time, theirs.id) < (ours.time, ours.id),
        virtual=len(bases) > 1,
    )
    return merged, staging


def merge_trees(  # noqa: PLR0913 - each says how to decide
    nodes: Nodes,
    sides: tuple[Tree, Tree, Tree],
    *,
    pickles: PicklePolicy,
    policies: Policies,
    resolutions: Resolutions,
    theirs_first: bool,
    counting: bool = True,
    virtual: bool = False,
    on_top: bool = False,
    unstorable: Collection[bytes] = (),
) -> Merged:
    """Merge base, ours and theirs.

    Args:
        pickles: whether a function that is a policy gets objects, and may return them.
        theirs_first: whether theirs was made before ours, for the order of what both appended.
        counting: whether a policy may count the same change on both sides twice. Not if one side repeats a change of
            the other.
        virtual: whether the base is a merge of several. The order of what these appended is a guess then.
        on_top: whether ours are changes on top of theirs, the new head of their branch; otherwise the result follows
            ours.
        unstorable: root keys whose value on our side cannot be stored, so that ``sides`` does not have it. If theirs
            changed one of them, a resolution or the policy ``theirs`` decides about the whole value; otherwise it is a
            conflict without our value.
    """
    base, ours, theirs = sides
    composer = Composer(nodes, pickles)
    decider = _Decider(
        composer, pickles, policies, resolutions, theirs_first=theirs_first, counting=counting, virtual=virtual
    )
    tree = Merger(composer, decider).roots(base, ours, theirs, path_of, on_top=on_top)
    replaced: dict[bytes, bytes | None] = {}
    if unstorable:
        for key, old, new in diff_maps(nodes, base, theirs):
            if key in unstorable:
                path, shown = path_of(key), Sides(old, None, new)
                decision = decider.replace(path, shown, LIMITS[Shape.MAP])
                if decision is None:
                    decider.record(path, shown)
                else:
                    replaced[key] = decision.cell
    tree = edit_map(nodes, tree, replaced) if replaced else tree
    return Merged(tree, tuple(decider.conflicts), frozenset(replaced))


class _Decider:
    """Decisions by resolutions first, then by policies, and the conflicts that are left."""

    def __init__(
        self,
        composer: Composer,
        pickles: PicklePolicy,
        policies: Policies,
        resolutions: Resolutions,
        *,
        theirs_first: bool,
        counting: bool,
        virtual: bool,
    ) -> None:
        self._encoder = InlineEncoder(pickles)
        self._composer = composer
        self._reader = Decoder(composer.nodes, pickles)
        self._policies = policies
        self._resolutions = resolutions
        self._theirs_first = theirs_first
        self._counting = counting
        self._virtual = virtual
        self.conflicts: list[Conflict] = []

    def decide(self, path: StatePath, sides: Sides, limit: int) -> Decision | None:
        by_hand = self._by_hand(path, sides, limit)
        if by_hand is not None:
            return by_hand
        policy = self._policies.find(path)
        if policy == "union" and (sides.ours is None) != (sides.theirs is None):
            return Decision(sides.ours or sides.theirs)
        if callable(policy):
            return self._ask(policy, path, sides, limit)
        if policy in ("sum", "max", "min"):
            return self._calculate(policy, path, sides, limit)
        return None

    def _ask(self, policy: Callable[[Any, Any, Any], Any], path: StatePath, sides: Sides, limit: int) -> Decision:
        cells = (sides.base, sides.ours, sides.theirs)
        values = [self._read(cell) for cell in cells]  # the policy may change them
        value = policy(*values)
        if value is None and any(map(self._is_changed, values, cells)):
            raise InvalidArgumentError(
                f"the merge policy of {path} changed one of its arguments and returned None",
                hint="return the merged value",
            )
        return self._decision(path, value, limit)

    def _is_changed(self, value: Any, cell: bytes | None) -> bool:
        if type(value) not in (list, dict, set, bytearray):
            return False
        try:
            return self._encoder.encode_inline(value, "a value") != self._encoder.encode_inline(
                self._read(cell), "a value"
            )
        except (UnserializableValueError, PickleRefusedError, LimitExceededError):
            return True

    def replace(self, path: StatePath, sides: Sides, limit: int) -> Decision | None:
        """Return the value that replaces our value, which cannot be stored, or None if that is a conflict."""
        if self._policies.find(path) == "theirs":
            return self._by_hand(path, sides, limit) or Decision(sides.theirs)
        return self._by_hand(path, sides, limit)

    def _by_hand(self, path: StatePath, sides: Sides, limit: int) -> Decision | None:
        for resolution in self._resolutions:
            if resolution.path == path and resolution.sides in (None, sides):
                return self._decision(path, resolution.value, limit)
        return None

    def _calculate(self, policy: Policy, path: StatePath, sides: Sides, limit: int) -> Decision | None:
        ours, theirs = self._read(sides.ours), self._read(sides.theirs)
        base = 0 if sides.base is None else self._read(sides.base)
        if not NUMBERS.issuperset(map(type, (base, ours, theirs))):
            return None
        try:
            if policy == "sum":
                return self._decision(path, ours + theirs - base, limit)
            return self._decision(path, max(ours, theirs) if policy == "max" else min(ours, theirs), limit)
        except (TypeError, ArithmeticError):  # a Decimal and a float, for example
            return None

    def _decision(self, path: StatePath, value: Any, limit: int) -> Decision:
        return Decision(None if value is MISSING else self._composer.encode(value, limit, str(path)))

    def _read(self, cell: bytes | None) -> Any:
        return MISSING if cell is None else self._reader.decode(cell)

    def insert(self, path: StatePath, ours: list[Any], theirs: list[Any]) -> list[Any] | None:
        policy = self._policies.find(path)
        if policy == "append":
            return theirs + ours if self._theirs_first else ours + theirs
        if policy == "union":
            own = set(ours)
            return ours + [part for part in theirs if part not in own]
        return None

    def once(self, path: StatePath) -> bool:
        return self._policies.find(path) == "union"

    def counted(self, path: StatePath) -> bool:
        return self._virtual and self._policies.find(path) == "append"

    def recount(self, path: StatePath) -> bool:
        return self._counting and self._policies.counts_below(path)

    def side(self, path: StatePath) -> Side | None:
        return self._policies.side(path)

    def conflict(self, path: StatePath, sides: Sides) -> bytes | None:
        self._drop_below(path)
        match self.side(path):
            case "ours":
                return sides.ours
            case "theirs":
                return sides.theirs
            case None:
                self.record(path, sides)
                return sides.ours

    def record(self, path: StatePath, sides: Sides) -> None:
        """Record a conflict that no policy resolves."""
        lists = [cell is not None and self._is_list(cell) for cell in (sides.ours, sides.theirs)]
        both_appended = all(lists) and (sides.base is None or self._is_list(sides.base))
        self.conflicts.append(Conflict(path, sides, self._composer.decoder.decode, both_appended=both_appended))

    def _drop_below(self, path: StatePath) -> None:
        """Forget the conflicts of the parts of a value that is resolved as a whole."""
        while self.conflicts and self.conflicts[-1].path.steps[: len(path)] == path.steps:
            self.conflicts.pop()

    def _is_list(self, cell: bytes) -> bool:
        if code_of(cell) == Code.PACKED:
            cell = self._composer.inline(cell) or cell
        return is_array(cell) or code_of(cell) == Code.LIST_TREE


def root_of_bases(
    database: Database,
    nodes: Nodes,
    bases: Sequence[Commit],
    *,
    policies: Policies,
    root_of: Callable[[Commit], Tree],
) -> Tree:
    """Return the base for a merge: the best common ancestor, or several of them merged, as git's recursive merge does.

    Among lines that keep merging each other, each pair of bases has several bases itself, down to where the lines
    began. A stack of our own follows them, so the depth has no limit, and each set of bases is merged once: three lines
    would ask for 2**depth otherwise.

    Args:
        nodes: stage the new objects.
        bases: the best common ancestors of the sides.
        root_of: returns the root that the merge uses for a commit.
    """
    if len(bases) == 1:
        return root_of(bases[0])
    merging = partial(_merging, database, nodes, policies=policies, root_of=root_of)
    merged: dict[frozenset[bytes], Tree] = {}
    stack = [(_addresses(bases), merging(bases))]
    base: Tree | None = None
    while stack:
        key, step = stack[-1]
        try:
            wanted = step.send(base)
        except StopIteration as done:
            stack.pop()
            base = merged[key] = done.value
        else:
            key = _addresses(wanted)
            base = root_of(wanted[0]) if len(wanted) == 1 else merged.get(key)
            if base is None:
                stack.append((key, merging(wanted)))
    return merged[_addresses(bases)]


def _addresses(commits: Sequence[Commit]) -> frozenset[bytes]:
    return frozenset(commit.address for commit in commits)


def _merging(
    database: Database, nodes: Nodes, bases: Sequence[Commit], *, policies: Policies, root_of: Callable[[Commit], Tree]
) -> Generator[Sequence[Commit], Tree | None, Tree]:
    """Return the merge of some commits, the oldest first.

    Yields the common ancestors whose merge it needs, and receives its tree.
    """
    first, *rest = sorted(bases, key=lambda each: (each.time, each.id))
    merged, tree = [first], root_of(first)
    for other in rest:
        common = list(best_common(merged, [other], database.commits.read))
        if common:  # otherwise history was pruned in between
            base = yield common
            assert base is not None
            virtual = len(common) > 1
            tree = merged_base(
                nodes, base, tree, root_of(other), pickles=database.policy, policies=policies, virtual=virtual
            )
            merged.append(other)
    return tree


def merged_base(
    nodes: Nodes, base: Tree, first: Tree, second: Tree, *, pickles: PicklePolicy, policies: Policies, virtual: bool
) -> Tree:
    """Merge, to one base, two bases of two lines of history that were merged into each other.

    This is a step of git's recursive merge. The policies decide as they did when the lines were merged: both lines
    already have what each base appended or added, and it must not count once more. If the bases conflict at a path that
    no policy decides, the value of ``base`` stands there, so that the sides conflict too.

    Args:
        base: the base of the two.
        first: the one that was committed first.
        virtual: whether the base of the two is a merge itself.
    """
    composer = Composer(nodes, pickles)
    decider = _BaseDecider(composer, pickles, policies, (), theirs_first=False, counting=True, virtual=virtual)
    return Merger(composer, decider).roots(base, first, second, path_of)


class _BaseDecider(_Decider):
    """The decisions between two bases.

    Neither is ours or theirs, so that only policies that need not know which is which decide.
    """

    def decide(self, path: StatePath, sides: Sides, limit: int) -> Decision | None:
        return None if callable(self._policies.find(path)) else super().decide(path, sides, limit)

    def side(self, path: StatePath) -> Side | None:
        return None

    def conflict(self, path: StatePath, sides: Sides) -> bytes | None:
        return sides.base
