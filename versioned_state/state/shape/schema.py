"""``Schema``: the rules for a state or parts of it, and the hook that checks the commits of a handle. Layer: state."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_origin

from versioned_state.arguments import check_function, instance_of
from versioned_state.errors import STAGED, InvalidArgumentError, SchemaError
from versioned_state.repository.views.sequence import SnapshotSequence
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.state.branch.hooks import Hook
from versioned_state.state.shape.annotations import Rules, annotations_of
from versioned_state.state.shape.bounded import Bound, Bounded
from versioned_state.state.shape.judge import Judge
from versioned_state.state.shape.rules import Fields, Function, Rule, below
from versioned_state.values.keys import USER, path_of
from versioned_state.values.paths.path import Index, Key, StatePath, as_path
from versioned_state.values.paths.pattern import Pattern
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, same

if TYPE_CHECKING:
    from versioned_state.values.codec.pickles import PicklePolicy

_FUNCTIONS: Final = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, partial)


class Schema:
    """Rules for a state: ``Schema(Model)`` for all of it, or ``Schema({"messages.*": Message, "age": int})`` by path.

    ``Versioned(schema=…)`` takes a ``Schema``, or its argument.

    Args:
        shape: a pydantic model, a dataclass or a ``TypedDict``, whose fields are the keys of the state; a function of
            the whole state; or a dict from path patterns to a model, a dataclass, any type of ``typing``, a function of
            the value, or ``Bounded``. A function refuses by ``ValueError``, ``TypeError`` or ``AssertionError``, or by
            returning False.

    Raises:
        InvalidArgumentError: it is none of these, a function is asynchronous, or a name in an annotation is not known.
        MissingDependencyError: a constraint needs pydantic.
    """

    def __init__(self, shape: Any) -> None:
        self._shape = shape
        self.rules: list[Rule] = []  # those at the root of the state
        self.bounds: list[Bound] = []
        rules = Rules()
        if isinstance(shape, Mapping):
            for text, each in shape.items():
                pattern = _pattern(text)
                self._add_bounds(pattern, each)
                if not isinstance(each, Bounded):
                    rule = _function(each) if _is_function(each) else rules.of(each)
                    self.rules += below(text, pattern.steps, rule)
        elif _is_function(shape):
            self.rules.append(_function(shape))
        else:
            fields = rules.of(shape) if isinstance(shape, type) else None
            if not isinstance(fields, Fields):
                raise InvalidArgumentError(
                    f"a schema must be a model, a dataclass, a function or a dict by path, not {shape!r:.80}"
                )
            _ = fields.fields  # an unknown name is refused here
            self.rules.append(fields)
            for name, annotation in annotations_of(typing.cast("type", shape)).items():
                self._add_bounds(Pattern(name, (Key(name),)), annotation)

    def _add_bounds(self, pattern: Pattern, shape: Any) -> None:
        metadata = getattr(shape, "__metadata__", ()) if get_origin(shape) is typing.Annotated else (shape,)
        self.bounds += [Bound(pattern, each) for each in metadata if isinstance(each, Bounded)]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._shape,)  # pickled by its argument, and made again when it is unpickled

    def __repr__(self) -> str:
        return f"Schema({self._shape!r})"

    def check(self, state: Mapping[str, Any]) -> None:
        """Check the whole of a state, snapshot or dict. Cost: reading all of it.

        Raises:
            SchemaError: the first part that is not valid.
        """
        for rule in self.rules:
            rule.check(state, StatePath())
        for bound in self.bounds:
            bound.check(state)

    def rules_at(self, path: StatePath) -> list[Rule]:
        """Return the rules of the value at a path, as far as it can be judged alone."""
        rules = self.rules
        for step in path.steps:
            rules = [part for rule in rules for part in rule.parts(step) or ()]
        return rules

    def check_elements(self, path: StatePath, indices: range, values: list[Any]) -> None:
        """Check elements of the list at a path. Raises ``SchemaError``."""
        for rule in self.rules_at(path):
            for index, value in zip(indices, values, strict=True):
                for part in rule.parts(Index(index)) or ():
                    part.check(value, path.index(index))


def as_schema(shape: Any) -> Schema:
    """Return the schema for an argument that is a ``Schema``, or the argument of one."""
    return shape if isinstance(shape, Schema) else Schema(shape)


def _is_function(shape: Any) -> bool:
    return isinstance(shape, _FUNCTIONS) or (
        callable(shape)
        and not isinstance(shape, type)
        and type(shape).__module__.partition(".")[0] not in ("typing", "types")
    )


def _function(shape: Callable[..., Any]) -> Function:
    inner = shape
    while isinstance(inner, partial):
        inner = inner.func
    name = getattr(inner, "__qualname__", type(inner).__qualname__).replace("<locals>.", "")
    check_function(f"the schema function {name}", shape)
    return Function(name, shape)


def _pattern(text: Any) -> Pattern:
    return Pattern.parse(instance_of("a path pattern", text, str))


class SchemaCheck(Hook):
    """The hook that checks the commits of a handle against a schema."""

    def __init__(self, schema: Schema, policy: PicklePolicy) -> None:
        self._schema = schema
        self._policy = policy
        self._judged: tuple[Tree, Tree] | None = None

    def settle(self, nodes: Nodes, before: Tree, after: Tree) -> tuple[Tree, ...]:
        # Before lists are trimmed: then paths are those of the live values, and the commit of a list in full is checked
        # too.
        self._judge(nodes, before, after)
        self._judged = before, after
        return (after,)

    def check(self, nodes: Nodes, before: Tree, after: Tree) -> None:
        judged, self._judged = self._judged, None
        if judged is not None and same(judged[0], before):
            before = judged[1]
        self._judge(nodes, before, after)

    def _judge(self, nodes: Nodes, before: Tree, after: Tree) -> None:
        try:
            Judge(self._schema.rules, nodes, self._policy, before, after).run()
        except SchemaError as error:
            error.remains = STAGED
            raise


class ReadCheck:
    """The check of the committed values that a handle reads. Cost: the changes since a value was last found valid."""

    def __init__(self, schema: Schema, policy: PicklePolicy) -> None:
        self._schema = schema
        self._policy = policy
        self._valid: dict[bytes, bytes] = {}  # by root key, the last valid cell
        self._whole: Tree | None = None  # the last root that was valid as a whole

    def check(self, nodes: Nodes, head: Tree, key: bytes, cell: bytes | None) -> None:
        """Raise ``SchemaError`` if the value of a root key is not valid. ``cell`` is that of the head."""
        old = self._valid.get(key)
        if cell is None or old == cell:
            return
        Judge(self._schema.rules, nodes, self._policy, head, head).run_key(
            key, old, cell, with_root=self._whole is not head
        )
        self._valid[key] = cell
        self._whole = head

    def check_elements(self, key: bytes, indices: range, values: list[Any]) -> None:
        """Raise ``SchemaError`` if elements of a list that is not loaded are not valid."""
        self._schema.check_elements(path_of(key), indices, values)


class CheckedSnapshot(Snapshot):
    """A snapshot whose values are checked when they are read."""

    def __init__(self, schema: Schema, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._schema = schema

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        self._check(value, self._space.key(key))
        return value

    def at(self, path: str | StatePath) -> Any:
        value = super().at(path)
        self._check(value, self._space / as_path(path))
        return value

    def sequence(self, key: str) -> SnapshotSequence:
        found, path = super().sequence(key), self._space.key(key)

        def read(picked: range) -> list[Any]:
            values = found[picked.start : picked.stop : picked.step]
            self._schema.check_elements(path, picked, values)
            return values

        return SnapshotSequence(read, len(found))

    @property
    def _space(self) -> StatePath:
        """The namespace that this is a view of, as a path."""
        return StatePath(path_of(self._prefix + USER).steps[:-1])

    def _check(self, value: Any, path: StatePath) -> None:
        for rule in self._schema.rules_at(path):
            rule.check(value, path)
