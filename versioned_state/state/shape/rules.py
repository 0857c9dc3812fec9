"""Rules: the values that are allowed at one place of a state. Layer: state.

::

    Rule ──┬── Anything  Instance  OneOf      a value that is judged as one
           ├── Items  Row  Entries  Fields    a value whose parts have rules of their own
           ├── Either                         a union: a part has the rule of the only alternative with such parts
           ├── Constrained                    a rule, and constraints on the whole value
           ├── Function                       a function of the caller
           └── Below                          a rule for the values that match a pattern of paths

A change of a part is judged by the rule of that part. The rules around it judge only the whole: its length, its
validators. Values are judged as they are: nothing is converted, filled in or changed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from versioned_state.errors import SchemaError, StateError
from versioned_state.values.paths.path import Index, Key, Namespace, StatePath, Step
from versioned_state.values.typed.registry import fields_of

REQUIRED: Final = "required"
"""The rule that an error names for a field that is missing."""

_SHOWN: Final = 60
"""Characters of a value that an error shows."""


class Rule:
    """The values that are allowed at one place.

    Attributes:
        name: the rule as its author wrote it, for errors.
        judges_whole: whether a change of a part needs ``check_whole`` too.
    """

    name: str
    judges_whole: bool = False

    @abstractmethod
    def check(self, value: Any, path: StatePath) -> None:
        """Raise ``SchemaError`` unless a value, with all its parts, is valid."""

    def part(self, step: Step) -> Rule | None:
        """Return the rule of the part at a step, or None if the part cannot be judged without the whole."""
        return ANYTHING

    def parts(self, step: Step) -> list[Rule] | None:
        """Return the rules of the part at a step, or None if the part cannot be judged without the whole."""
        part = self.part(step)
        return None if part is None else [part]

    def check_whole(self, value: Any, path: StatePath) -> None:
        """Raise ``SchemaError`` if a value is invalid as a whole. Does not check its parts by themselves."""

    def check_length(self, length: int, path: StatePath) -> bool:
        """Judge a whole by its length. Returns whether that was enough, so that its parts need not be read."""
        return False

    def check_added(self, step: Step, path: StatePath) -> None:
        """Raise ``SchemaError`` if there may be no part at this step."""

    def check_removed(self, step: Step, path: StatePath) -> None:
        """Raise ``SchemaError`` if the part at this step may not be missing."""

    def has_parts(self, step: Step) -> bool:
        """Return whether a part at such a step has a rule of its own."""
        return False

    def refuse(self, value: Any, path: StatePath) -> SchemaError:
        """Return the error for a value of the wrong type."""
        return SchemaError(str(path), self.name, f"{shown(value)} is of type {type(value).__name__}")


def shown(value: Any) -> str:
    """Return a value for an error, shortened."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


class Anything(Rule):
    """Any value."""

    name = "Any"

    def check(self, value: Any, path: StatePath) -> None:
        pass


ANYTHING: Final = Anything()


class Opaque(Anything):
    """Any value, as far as these rules can judge: another validator judges the whole."""

    def __init__(self, name: str) -> None:
        self.name = name

    def part(self, step: Step) -> Rule | None:
        return None


@dataclass
class Instance(Rule):
    """An instance of one of some classes, and of none of others."""

    name: str
    classes: tuple[type, ...]
    but_not: tuple[type, ...] = ()

    def check(self, value: Any, path: StatePath) -> None:
        if not isinstance(value, self.classes) or isinstance(value, self.but_not):
            raise self.refuse(value, path)


@dataclass
class OneOf(Rule):
    """One of some values, of exactly the same type."""

    name: str
    values: tuple[Any, ...]

    def check(self, value: Any, path: StatePath) -> None:
        if not any(type(value) is type(each) and value == each for each in self.values):
            raise SchemaError(str(path), self.name, f"{shown(value)} is none of them")


@dataclass
class Items(Rule):
    """A list, tuple, set or the like, of any number of elements."""

    name: str
    classes: tuple[type, ...]
    item: Rule
    but_not: tuple[type, ...] = (str, bytes, bytearray)

    def check(self, value: Any, path: StatePath) -> None:
        if not isinstance(value, self.classes) or isinstance(value, self.but_not):
            raise self.refuse(value, path)
        if self.item is not ANYTHING:
            elements: Any = value
            for index, element in enumerate(elements):
                self.item.check(element, path.index(index))

    def part(self, step: Step) -> Rule | None:
        return self.item if isinstance(step, Index) else ANYTHING

    def has_parts(self, step: Step) -> bool:
        return isinstance(step, Index)


@dataclass
class Row(Rule):
    """A tuple with a rule for each of its elements."""

    name: str
    items: tuple[Rule, ...]

    def check(self, value: Any, path: StatePath) -> None:
        if not isinstance(value, tuple):
            raise self.refuse(value, path)
        if len(value) != len(self.items):
            raise SchemaError(str(path), self.name, f"it has {len(value)} elements")
        for index, (rule, element) in enumerate(zip(self.items, value, strict=True)):
            rule.check(element, path.index(index))

    def part(self, step: Step) -> Rule | None:
        return None

    def has_parts(self, step: Step) -> bool:
        return isinstance(step, Index)


@dataclass
class Entries(Rule):
    """A dict, with one rule for its keys and one for its values."""

    name: str
    classes: tuple[type, ...]
    key: Rule
    value: Rule

    def check(self, value: Any, path: StatePath) -> None:
        if not isinstance(value, self.classes):
            raise self.refuse(value, path)
        entries: Any = value
        for key, each in entries.items():
            self.key.check(key, path.key(key))
            self.value.check(each, path.key(key))

    def part(self, step: Step) -> Rule | None:
        return self.value if isinstance(step, Key) else ANYTHING

    def check_added(self, step: Step, path: StatePath) -> None:
        if isinstance(step, Key) and step.cell is None:
            self.key.check(step.key, path)

    def has_parts(self, step: Step) -> bool:
        return isinstance(step, Key)


@dataclass(frozen=True)
class FieldRule:
    """The rule of a field, and whether the field must be there."""

    rule: Rule
    is_required: bool


@dataclass
class Fields(Rule):
    """A dict with these keys, or an instance of the class that declares them as fields.

    Args:
        fields_of_class: returns the fields. It is called once, when they are first needed, since a class may refer to
            itself.
        cls: None for a ``TypedDict``, which has no instances.
        forbids_others: whether there may be no other key.
        validate: raises ``SchemaError`` for fields, by name, that break a validator of the class; None if the class has
            none.
    """

    name: str
    fields_of_class: Callable[[], dict[str, FieldRule]]
    cls: type | None = None
    forbids_others: bool = False
    validate: Callable[[dict[str, Any], StatePath], None] | None = None
    _fields: dict[str, FieldRule] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.judges_whole: bool = self.validate is not None

    @property
    def fields(self) -> dict[str, FieldRule]:
        """The rules of the fields, by name."""
        if self._fields is None:
            self._fields = self.fields_of_class()
        return self._fields

    def check(self, value: Any, path: StatePath) -> None:
        held = self._held(value)
        if held is None:
            raise self.refuse(value, path)
        self.check_required(held, path)
        for key, each in held.items():
            found = self.fields.get(key)
            if found is not None:
                found.rule.check(each, path.key(key))
            elif isinstance(value, Mapping):
                self.check_added(Key(key), path.key(key))
        self.check_whole(value, path)

    def check_required(self, held: Mapping[Any, Any], path: StatePath) -> None:
        """Raise ``SchemaError`` if a field is missing that must be there."""
        for name, each in self.fields.items():
            if each.is_required and name not in held:
                self.check_removed(Key(name), path.key(name))

    def _held(self, value: Any) -> Mapping[Any, Any] | None:
        """Return the fields of a value by name, or None if it is neither a dict nor an instance."""
        if isinstance(value, Mapping):
            return value
        return fields_of(value) if self.cls is not None and isinstance(value, self.cls) else None

    def part(self, step: Step) -> Rule | None:
        found = self.fields.get(step.key) if isinstance(step, Key) and step.cell is None else None
        return ANYTHING if found is None else found.rule

    def check_whole(self, value: Any, path: StatePath) -> None:
        held = self._held(value)
        if self.validate is not None and held is not None:
            self.validate({name: held[name] for name in held if self.forbids_others or name in self.fields}, path)

    def check_added(self, step: Step, path: StatePath) -> None:
        if (
            self.forbids_others
            and isinstance(step, Key)
            and step.key not in self.fields
            and not self._is_private(step.key)
        ):
            raise SchemaError(str(path), "no other keys", f"{self.name} has no field of that name")

    def _is_private(self, name: object) -> bool:
        return name in (getattr(self.cls, "__private_attributes__", None) or ())

    def check_removed(self, step: Step, path: StatePath) -> None:
        found = self.fields.get(step.key) if isinstance(step, Key) else None
        if found is not None and found.is_required:
            raise SchemaError(str(path), REQUIRED, f"{self.name} has no default for it")

    def has_parts(self, step: Step) -> bool:
        return isinstance(step, Key)


@dataclass
class Either(Rule):
    """A value for which one of some rules holds."""

    name: str
    rules: tuple[Rule, ...]

    def check(self, value: Any, path: StatePath) -> None:
        errors = []
        for rule in self.rules:
            try:
                rule.check(value, path)
            except SchemaError as error:
                errors.append(error)
            else:
                return
        deepest = max(errors, key=lambda error: len(error.path))
        if deepest.path != str(path):  # one alternative fits except for a part
            raise deepest
        raise self.refuse(value, path)

    def part(self, step: Step) -> Rule | None:
        with_parts = [rule for rule in self.rules if rule.has_parts(step)]
        if len(with_parts) != 1 or any(isinstance(rule, Anything) for rule in self.rules):
            return None if with_parts else ANYTHING
        return None if with_parts[0].judges_whole else with_parts[0].part(step)

    def check_added(self, step: Step, path: StatePath) -> None:
        for rule in self._only(step):
            rule.check_added(step, path)

    def check_removed(self, step: Step, path: StatePath) -> None:
        for rule in self._only(step):
            rule.check_removed(step, path)

    def _only(self, step: Step) -> list[Rule]:
        with_parts = [rule for rule in self.rules if rule.has_parts(step)]
        return with_parts if len(with_parts) == 1 else []

    def has_parts(self, step: Step) -> bool:
        return any(rule.has_parts(step) for rule in self.rules)


@dataclass
class Constrained(Rule):
    """A rule, and constraints on the whole of a value.

    Args:
        rule: judges the type and the parts.
        lengths: the least and the greatest length, if there are no other constraints.
        validate: raises ``SchemaError`` for a value that breaks a constraint.
    """

    rule: Rule
    lengths: tuple[int, int | None] | None
    validate: Callable[[Any, StatePath], None] | None
    judges_whole: ClassVar[bool] = True  # type: ignore[misc] # the same for all of them

    @property
    def name(self) -> str:  # type: ignore[override] # it has no other
        return self.rule.name

    def check(self, value: Any, path: StatePath) -> None:
        self.rule.check(value, path)
        self._check_constraints(value, path)

    def check_whole(self, value: Any, path: StatePath) -> None:
        if self.rule.judges_whole:
            self.rule.check_whole(value, path)
        self._check_constraints(value, path)

    def _check_constraints(self, value: Any, path: StatePath) -> None:
        if self.lengths is not None:
            self._check_length(len(value), path)
        elif self.validate is not None:
            self.validate(value, path)

    def check_length(self, length: int, path: StatePath) -> bool:
        if self.lengths is None or self.rule.judges_whole:
            return False
        self._check_length(length, path)
        return True

    def _check_length(self, length: int, path: StatePath) -> None:
        assert self.lengths is not None
        least, most = self.lengths
        if length < least:
            raise SchemaError(str(path), f"min_length={least}", f"its length is {length}")
        if most is not None and length > most:
            raise SchemaError(str(path), f"max_length={most}", f"its length is {length}")

    def part(self, step: Step) -> Rule | None:
        return self.rule.part(step)

    def check_added(self, step: Step, path: StatePath) -> None:
        self.rule.check_added(step, path)

    def check_removed(self, step: Step, path: StatePath) -> None:
        self.rule.check_removed(step, path)

    def has_parts(self, step: Step) -> bool:
        return self.rule.has_parts(step)


@dataclass
class Function(Rule):
    """A function of the caller.

    It raises ``ValueError``, ``TypeError`` or ``AssertionError`` for an invalid value, or returns False.
    """

    name: str
    function: Callable[[Any], Any]

    def check(self, value: Any, path: StatePath) -> None:
        try:
            answer = self.function(value)
        except StateError:
            raise
        except (ValueError, TypeError, AssertionError) as error:
            raise SchemaError(str(path), self.name, str(error) or type(error).__name__) from error
        if answer is False:
            raise SchemaError(str(path), self.name, f"it returned False for {shown(value)}")

    def part(self, step: Step) -> Rule | None:
        return None


@dataclass
class Below(Rule):
    """A rule for the values that the rest of a pattern matches from here."""

    name: str
    steps: tuple[Step | Literal["*", "**"], ...]
    rule: Rule

    def check(self, value: Any, path: StatePath) -> None:
        for step, part in parts_of(value):
            for rule in self.parts(step):
                rule.check(part, StatePath((*path.steps, step)))

    def parts(self, step: Step) -> list[Rule]:
        first = self.steps[0]
        if first == "**":
            return below(self.name, self.steps, self.rule)
        return below(self.name, self.steps[1:], self.rule) if first in ("*", step) else []


def below(name: str, steps: tuple[Step | Literal["*", "**"], ...], rule: Rule) -> list[Rule]:
    """Return the rules, at one place, for the values that the steps of a pattern match from there."""
    if not steps:
        return [rule]
    here: list[Rule] = [Below(name, steps, rule)]
    return here + below(name, steps[1:], rule) if steps[0] == "**" else here


def parts_of(value: Any) -> list[tuple[Step, Any]]:
    """Return the parts of a value, each with the step that leads to it.

    Those of a state or a snapshot include its namespaces.
    """
    if isinstance(value, Mapping):
        state: Any = value
        names = state.namespaces() if hasattr(state, "namespaces") else ()
        return [
            *((Key(key), each) for key, each in value.items()),
            *((Namespace(name), state.namespace(name)) for name in names),
        ]
    if isinstance(value, list | tuple | deque):
        return [(Index(index), each) for index, each in enumerate(value)]
    return [(Key(key), each) for key, each in (fields_of(value) or {}).items()]
