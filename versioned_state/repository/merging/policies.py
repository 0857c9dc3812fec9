"""Merge policies: what becomes of a value that both sides changed, by the pattern of its path. Layer: repository."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgpack

from versioned_state.arguments import one_of, string
from versioned_state.errors import CorruptObjectError, InvalidArgumentError
from versioned_state.objects.keys import MERGE_POLICIES
from versioned_state.objects.record import read_record, write_record
from versioned_state.storage import KVStore
from versioned_state.values.paths.path import StatePath
from versioned_state.values.paths.pattern import Pattern

if TYPE_CHECKING:
    from versioned_state.values.changes.merge import Side

PolicyName = Literal["ours", "theirs", "union", "append", "sum", "max", "min", "text"]
"""The policies that a repository can keep.

=========  ==================================================================================================
policy     what becomes of a value at such a path that both sides changed
=========  ==================================================================================================
ours       at each conflict, there or below, our side stands; changes that do not conflict are merged
theirs     at each conflict, there or below, their side stands; changes that do not conflict are merged
union      of the elements that both put into a list, each stands once in the whole list; of the lines that both put
           into one gap of a text, ours, then those of theirs that are not among them; if one side removed the value,
           the other stands
append     all elements or lines that both put into one gap stand, first those that were committed first
sum        both changes of a number are added
max, min   the greater number stands, or the lesser
text       a text is merged by lines: the default, and a way to lift the policy of a broader pattern
=========  ==================================================================================================
"""

Policy = PolicyName | Callable[[Any, Any, Any], Any]
"""A name, or a function of base, ours and theirs that returns the merged value; ``MISSING`` stands for no value.

A function is given the whole value at its path if both sides changed it. The arguments are its own: it may change one
of them and return it. If it raises, the call fails and nothing was changed.
"""

NAMES: Final[tuple[str, ...]] = get_args(PolicyName)

NUMBERS: Final = frozenset({int, float, Decimal, Fraction})

_COUNTING: Final = frozenset({"sum", "append"})


class Policies:
    """Policies by pattern. Of the patterns that match a path, the last one given decides.

    Raises:
        InvalidArgumentError: a pattern does not parse, or a value is not a policy.
    """

    def __init__(self, *layers: Mapping[str, Policy]) -> None:
        merged: dict[str, Policy] = {}
        for layer in layers:
            if not isinstance(layer, Mapping) or any(type(pattern) is not str for pattern in layer):  # type: ignore[redundant-expr]
                raise InvalidArgumentError(
                    f"merge policies must be a dict from patterns of paths to policies, not {layer!r:.80}",
                    hint='for example: {"messages": "append"}',
                )
            for pattern, policy in layer.items():
                merged.pop(pattern, None)  # a pattern that is given again counts as the last one given
                merged[pattern] = policy
        for pattern, policy in merged.items():
            if not callable(policy) and policy not in NAMES:
                raise InvalidArgumentError(
                    f"{policy!r} for {pattern!r} is not a merge policy",
                    hint=f"the policies are {', '.join(NAMES)}, and functions of base, ours, theirs",
                )
        self._policies = [(Pattern.parse(pattern), policy) for pattern, policy in merged.items()]

    def find(self, path: StatePath) -> Policy | None:
        """Return the policy of a path, or None."""
        return next((policy for pattern, policy in reversed(self._policies) if pattern.matches(path)), None)

    def side(self, path: StatePath) -> Side | None:
        """Return the side that stands at a conflict, as the policy of its path says.

        A path without a policy has that of the nearest path above it. Returns None if there is none, or if it names
        neither side.
        """
        for length in range(len(path.steps), -1, -1):
            policy = self.find(StatePath(path.steps[:length]))
            if policy is not None:
                return "ours" if policy == "ours" else "theirs" if policy == "theirs" else None
        return None

    def counts_below(self, path: StatePath) -> bool:
        """Return whether a policy counts the same change on both sides, at a path or below it, as two."""
        return any(
            policy in _COUNTING and pattern.may_match_below(path)
            for pattern, policy in self._policies
            if not callable(policy)
        )


def read_policies(store: KVStore) -> dict[str, PolicyName]:
    """Return the policies that a repository keeps. Raises ``CorruptObjectError``."""
    stored = store.get(MERGE_POLICIES)
    if stored is None:
        return {}
    try:
        kept = msgpack.unpackb(read_record(MERGE_POLICIES, stored))
        Policies(kept)
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise CorruptObjectError(MERGE_POLICIES, f"the record of merge policies does not decode: {error}") from error
    return dict(kept)


def write_policy(store: KVStore, pattern: str, policy: PolicyName | None) -> dict[str, PolicyName]:
    """Keep a policy in a repository (None: remove it), and return all the policies that it then keeps."""
    if policy is not None:
        one_of("a policy that a repository keeps", policy, NAMES)
    string("the pattern of a merge policy", pattern)
    while True:
        stored = store.get(MERGE_POLICIES)
        kept = read_policies(store) if stored is not None else {}
        kept.pop(pattern, None)
        if policy is not None:
            kept[pattern] = policy
        Policies(kept)
        if store.compare_and_set(MERGE_POLICIES, stored, write_record(MERGE_POLICIES, msgpack.packb(kept))):
            return kept
