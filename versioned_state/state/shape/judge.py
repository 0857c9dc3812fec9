"""``Judge``: the changes from one root to another, judged by the rules of a schema at the cost of the changes.

Layer: state.

::

    changed keys ── changes by path ──┬── the rule at the path: the new value
                                      ├── the rule around it: may the part be added, or be missing?
                                      └── rules on the way that judge a whole, and those that cannot judge a part alone
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.state.shape.rules import ANYTHING, Fields, Rule
from versioned_state.values.changes.diff import CellChange, diff_maps, diff_values
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.containers import container_of, sequence_of
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.encode.compose import Composer
from versioned_state.values.keys import USER, is_internal, path_of, root_key_of, user_key
from versioned_state.values.paths.lookup import find_cell
from versioned_state.values.paths.path import StatePath, Step
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, find, rank

_AFTER_USER = bytes((USER[0] + 1,))


class Judge:
    """The judgement of one change of a root. Not for two threads at once.

    Args:
        rules: the rules at the root of the state.
        nodes: reads the nodes of both roots.
        policy: whether values are unpickled.
    """

    def __init__(self, rules: list[Rule], nodes: Nodes, policy: PicklePolicy, before: Tree, after: Tree) -> None:
        self._rules = rules
        self._nodes = nodes
        self._policy = policy
        self._before = before
        self._after = after
        self._composer = Composer(nodes)
        self._decoder = Decoder(nodes, policy)
        self._wholes: dict[tuple[StatePath, int], tuple[StatePath, Rule, bool]] = {}  # the last: with all parts

    def run(self) -> None:
        """Raise ``SchemaError`` for the first part that is not valid."""
        of_user = False
        for root_key, old, new in diff_maps(self._nodes, self._before, self._after):
            if is_internal(root_key):
                continue
            of_user = of_user or root_key.startswith(USER)
            self._judge_key(path_of(root_key), old, new)
        if of_user and not self._has_user_keys(self._before):
            self._check_first()
        for path, rule, with_parts in self._wholes.values():
            self._check_whole(path, rule, with_parts=with_parts)

    def run_key(self, key: bytes, old: bytes | None, new: bytes, *, with_root: bool) -> None:
        """Raise ``SchemaError`` if the change from one cell of a root key to another is not valid.

        Args:
            with_root: whether rules that judge the whole state are applied too.
        """
        self._judge_key(path_of(key), old, new)
        for path, rule, with_parts in self._wholes.values():
            if path.steps or with_root:
                self._check_whole(path, rule, with_parts=with_parts)

    def _has_user_keys(self, tree: Tree) -> bool:
        return tree.count > 0 and rank(self._nodes, tree, _AFTER_USER) > rank(self._nodes, tree, USER)

    def _check_first(self) -> None:
        """Check the keys that a state must have from its first commit on. Cost: a path for each."""
        for rule in self._rules:
            if isinstance(rule, Fields):
                held = {
                    name: None for name in rule.fields if find(self._nodes, self._after, user_key(name)) is not None
                }
                rule.check_required(held, StatePath())

    def _judge_key(self, path: StatePath, old: bytes | None, new: bytes | None) -> None:
        steps = path.steps
        around = self._rules
        for end in range(1, len(steps)):
            around = self._descend(around, StatePath(steps[: end - 1]), steps[end - 1])
        here = self._descend(around, StatePath(steps[:-1]), steps[-1])
        if old is None or new is None:
            self._judge(CellChange(path, "removed" if new is None else "added", old, new), around, here)
        elif any(rule is not ANYTHING for rule in here):
            for change in diff_values(self._composer, old, new, path):
                parent, rules = around, here
                for end in range(len(steps), len(change.path)):
                    parent, rules = (
                        rules,
                        self._descend(rules, StatePath(change.path.steps[:end]), change.path.steps[end]),
                    )
                self._judge(change, parent, rules)

    def _descend(self, rules: Iterable[Rule], path: StatePath, step: Step) -> list[Rule]:
        """Return the rules of a part. Rules around it that judge the whole are checked once, at the end."""
        found = []
        for rule in rules:
            if rule is ANYTHING:
                continue
            parts = rule.parts(step)
            if rule.judges_whole or parts is None:
                key = path, id(rule)
                with_parts = parts is None or self._wholes.get(key, (path, rule, False))[2]
                self._wholes[key] = path, rule, with_parts
            found += parts or []
        return found

    def _judge(self, change: CellChange, around: list[Rule], here: list[Rule]) -> None:
        path = change.path
        if change.keys is not None:
            return  # the same entries in another order, or the same fields, of which others were given
        if change.new is None:
            for rule in around:
                rule.check_removed(path.steps[-1], path)
            return
        if change.kind == "added":
            for rule in around:
                rule.check_added(path.steps[-1], path)
        rules = [rule for rule in here if rule is not ANYTHING]
        if rules:
            value = self._decoder.decode(change.new)
            for rule in rules:
                rule.check(value, path)

    def _check_whole(self, path: StatePath, rule: Rule, *, with_parts: bool) -> None:
        if not path.steps:
            value: Any = Snapshot(self._nodes.reader, self._after, self._policy)
        else:
            root_key, rest = root_key_of(path)
            cell = find_cell(self._nodes, find(self._nodes, self._after, root_key), rest.steps)
            if cell is None:
                return
            if not with_parts and (length := self._length(cell)) is not None and rule.check_length(length, path):
                return
            value = self._decoder.decode(cell)
        if with_parts:
            rule.check(value, path)
        else:
            rule.check_whole(value, path)

    def _length(self, cell: bytes) -> int | None:
        """Return the number of elements of a list or tuple, or of entries of a dict. Reads no element."""
        elements = sequence_of(self._nodes, cell)
        if elements is not None:
            return elements.count
        found = container_of(self._nodes, cell)
        return None if found is None or found.head is not None else found.tree.count
