"""Rules for annotations: for models, dataclasses and types of ``typing``. Layer: state.

Types are judged here, without pydantic. Constraints and validators are judged by pydantic, which must be installed only
for these.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Literal, NotRequired, Required, TypeVar, Union, get_args, get_origin

from versioned_state.errors import InvalidArgumentError, MissingDependencyError, SchemaError
from versioned_state.state.shape.rules import (
    ANYTHING,
    Constrained,
    Either,
    Entries,
    FieldRule,
    Fields,
    Instance,
    Items,
    OneOf,
    Opaque,
    Row,
    Rule,
    shown,
)
from versioned_state.values.paths.path import Index, Key, StatePath

_NUMBERS: Final[dict[type, tuple[type, ...]]] = {int: (int,), float: (float, int), complex: (complex, float, int)}
"""The types of values for an annotation of a number. A bool does not count."""

_ITEMS: Final[dict[Any, tuple[type, ...]]] = {
    list: (list,),
    set: (set,),
    frozenset: (frozenset,),
    collections.deque: (collections.deque,),
    abc.Sequence: (abc.Sequence, collections.deque),
    abc.MutableSequence: (abc.MutableSequence,),
    abc.Set: (abc.Set,),
    abc.MutableSet: (abc.MutableSet,),
    abc.Collection: (abc.Collection,),
    abc.Iterable: (abc.Iterable,),
}

_ENTRIES: Final[dict[Any, tuple[type, ...]]] = {
    dict: (dict,),
    abc.Mapping: (abc.Mapping,),
    abc.MutableMapping: (abc.MutableMapping,),
    collections.OrderedDict: (collections.OrderedDict,),
    collections.defaultdict: (collections.defaultdict,),
    collections.Counter: (collections.Counter,),
}

_QUALIFIERS: Final = {Required, NotRequired, typing.Final, typing.ClassVar, getattr(typing, "ReadOnly", Required)}


class Rules:
    """The rules for annotations. Each class has one rule, so that classes may refer to themselves and to each other."""

    def __init__(self) -> None:
        self._of_classes: dict[type, Rule] = {}

    def of(self, annotation: Any) -> Rule:
        """Return the rule for an annotation.

        Raises:
            InvalidArgumentError: it is not an annotation, or a name in it is not known.
            MissingDependencyError: only pydantic can judge it.
        """
        origin = get_origin(annotation)
        if annotation is Any or annotation is object:
            return ANYTHING
        if annotation is None or annotation is type(None):
            return Instance("None", (type(None),))
        if isinstance(annotation, str | typing.ForwardRef):
            raise InvalidArgumentError(f"the annotation {annotation!r} names something that is not known")
        if origin is typing.Annotated:
            inner, *metadata = get_args(annotation)
            return self._constrained(self.of(inner), annotation, metadata)
        if origin in (Union, types.UnionType):
            return Either(_name(annotation), tuple(map(self.of, get_args(annotation))))
        if origin is Literal:
            return OneOf(_name(annotation), get_args(annotation))
        if origin in _QUALIFIERS:
            return self.of(get_args(annotation)[0])
        if isinstance(annotation, TypeVar):
            return ANYTHING if annotation.__bound__ is None else self.of(annotation.__bound__)
        if (alias := getattr(annotation, "__value__", getattr(annotation, "__supertype__", None))) is not None:
            return self.of(alias)  # ``type X = …`` and NewType
        if isinstance(annotation, type) and origin is None:
            return self._of_class(annotation)
        return self._of_generic(annotation, origin)

    def _of_generic(self, annotation: Any, origin: Any) -> Rule:
        arguments = get_args(annotation)
        name = _name(annotation)
        if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
            return Row(name, tuple(map(self.of, arguments)))
        if origin is tuple:
            return Items(name, (tuple,), self.of(arguments[0]))
        if origin in _ITEMS:
            return Items(name, _ITEMS[origin], self.of(arguments[0]))
        if origin is collections.Counter:
            return Entries(name, _ENTRIES[origin], self.of(arguments[0]), self.of(int))
        if origin in _ENTRIES:
            return Entries(name, _ENTRIES[origin], *map(self.of, arguments))
        if origin is type:
            return Instance(name, (type,))
        if isinstance(origin, type):
            return self._of_class(origin)  # a generic class of the caller: its parameters are ignored
        return self._by_pydantic(ANYTHING, annotation)

    def _of_class(self, cls: type) -> Rule:
        if cls in _NUMBERS:
            return Instance(cls.__name__, _NUMBERS[cls], (bool,))
        if cls is tuple or cls in _ITEMS:
            return Items(cls.__name__, _ITEMS.get(cls, (cls,)), ANYTHING)
        if cls in _ENTRIES:
            return Entries(cls.__name__, _ENTRIES[cls], ANYTHING, ANYTHING)
        if cls is dt.date:
            return Instance("date", (dt.date,), (dt.datetime,))
        if cls not in self._of_classes:
            self._of_classes[cls] = self._make(cls)
        return self._of_classes[cls]

    def _make(self, cls: type) -> Rule:
        name = cls.__name__
        if getattr(cls, "__pydantic_root_model__", False):
            return self._by_pydantic(ANYTHING, cls)
        if hasattr(cls, "__pydantic_fields__"):
            config: Any = getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None) or {}
            validate = partial(_validate_fields, cls) if _has_validators(cls) else None
            return Fields(name, partial(self._model_fields, cls), cls, config.get("extra") == "forbid", validate)
        if dataclasses.is_dataclass(cls):
            return Fields(name, partial(self._dataclass_fields, cls), cls)
        if typing.is_typeddict(cls):
            return Fields(name, partial(self._keys, cls))
        if hasattr(cls, "__get_pydantic_core_schema__"):
            return self._by_pydantic(ANYTHING, cls)
        if getattr(cls, "_is_protocol", False) and not getattr(cls, "_is_runtime_protocol", False):
            raise InvalidArgumentError(
                f"{name} is a Protocol, which no value can be compared with", hint="@runtime_checkable"
            )
        return Instance(name, (cls,))

    # Fields

    def _model_fields(self, cls: Any) -> dict[str, FieldRule]:
        hints = annotations_of(cls)
        return {
            name: FieldRule(self.of(hints[name]), each.is_required()) for name, each in cls.__pydantic_fields__.items()
        }

    def _dataclass_fields(self, cls: Any) -> dict[str, FieldRule]:
        hints = annotations_of(cls)
        missing = dataclasses.MISSING
        return {
            each.name: FieldRule(
                self.of(hints[each.name]), each.init and each.default is missing and each.default_factory is missing
            )
            for each in dataclasses.fields(cls)
        }

    def _keys(self, cls: Any) -> dict[str, FieldRule]:
        # ``__required_keys__`` ignores a qualifier in an annotation that is a string.
        hints = annotations_of(cls)
        return {
            name: FieldRule(self.of(hint), get_origin(hint) is not NotRequired and name in cls.__required_keys__)
            for name, hint in hints.items()
        }

    # Constraints

    def _constrained(self, rule: Rule, annotation: Any, metadata: Iterable[Any]) -> Rule:
        constraints = [part for each in metadata if _is_constraint(each) for part in _parts(each)]
        if not constraints:
            return rule
        lengths = [_lengths_of(each) for each in constraints]
        if None not in lengths:
            known = [each for each in lengths if each is not None]
            mosts = [most for _, most in known if most is not None]
            return Constrained(rule, (max(least for least, _ in known), min(mosts, default=None)), None)
        return self._by_pydantic(rule, annotation)

    def _by_pydantic(self, rule: Rule, annotation: Any) -> Rule:
        """Return a rule with the judgement of pydantic on the whole value.

        A type that has no other rule is judged without conversions.
        """
        try:
            from pydantic import TypeAdapter
            from pydantic.errors import PydanticUserError
        except ImportError as error:
            raise MissingDependencyError(f"a schema with {_name(annotation)}", extra="pydantic") from error
        try:
            adapter: Any = TypeAdapter(annotation)
        except PydanticUserError as error:
            raise InvalidArgumentError(f"{_name(annotation)} is not an annotation: {error}") from error
        is_strict = True if rule is ANYTHING else None

        def validate(value: Any, path: StatePath) -> None:
            _validated(partial(adapter.validate_python, value, strict=is_strict), path)

        return Constrained(Opaque(_name(annotation)) if is_strict else rule, None, validate)


def _name(annotation: Any) -> str:
    """Return an annotation as its author wrote it."""
    is_class = isinstance(annotation, type) and get_origin(annotation) is None
    return annotation.__name__ if is_class else str(annotation).replace("typing.", "")


def annotations_of(cls: Any) -> dict[str, Any]:
    """Return the annotations of the fields of a class, with their metadata.

    Raises ``InvalidArgumentError`` for an unknown name in one.
    """
    fields = getattr(cls, "__pydantic_fields__", None)
    if fields is not None:
        if not getattr(cls, "__pydantic_complete__", True) and hasattr(cls, "model_rebuild"):
            cls.model_rebuild(raise_errors=False)
            fields = cls.__pydantic_fields__
        return {
            name: typing.Annotated[(each.annotation, *each.metadata)] if each.metadata else each.annotation
            for name, each in fields.items()
        }
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise InvalidArgumentError(f"an annotation of {cls.__name__} is not known: {error}") from error


def _is_constraint(metadata: Any) -> bool:
    """Return whether metadata of ``Annotated`` is a constraint for pydantic.

    Other metadata, such as documentation, is ignored.
    """
    return type(metadata).__module__.partition(".")[0] in ("annotated_types", "pydantic", "pydantic_core") or hasattr(
        metadata, "__get_pydantic_core_schema__"
    )


def _parts(metadata: Any) -> list[Any]:
    """Return the constraints in metadata: those of a ``Field``, or the metadata itself."""
    return list(metadata.metadata) if type(metadata).__name__ == "FieldInfo" else [metadata]


def _lengths_of(metadata: Any) -> tuple[int, int | None] | None:
    """Return the least and greatest length that a constraint of annotated_types allows, or None for any other."""
    if type(metadata).__module__ != "annotated_types":
        return None
    if type(metadata).__name__ not in ("MinLen", "MaxLen", "Len"):
        return None
    return getattr(metadata, "min_length", 0), getattr(metadata, "max_length", None)


def _has_validators(cls: Any) -> bool:
    decorators = cls.__pydantic_decorators__
    named = ("validators", "field_validators", "root_validators", "model_validators")
    return any(getattr(decorators, name, None) for name in named)


def _validate_fields(cls: Any, fields: dict[str, Any], path: StatePath) -> None:
    """Run the validators of a pydantic model or dataclass over its fields."""
    from pydantic import TypeAdapter

    infos = cls.__pydantic_fields__
    by_alias = {_alias(infos[name], name) if name in infos else name: value for name, value in fields.items()}
    names = {_alias(info, name): name for name, info in infos.items()}
    _validated(partial(TypeAdapter(cls).validate_python, by_alias), path, names)


def _alias(info: Any, name: str) -> str:
    alias = info.validation_alias or info.alias
    return alias if isinstance(alias, str) else name


def _validated(validate: Callable[[], object], path: StatePath, names: dict[str, str] | None = None) -> None:
    """Run a validator of pydantic, and raise its first error as a ``SchemaError``."""
    from pydantic import ValidationError

    try:
        validate()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        for step in first["loc"]:
            path = StatePath(
                (*path.steps, Index(step) if isinstance(step, int) else Key((names or {}).get(step, step)))
            )
            names = None
        rule = ", ".join(
            [first["type"], *(f"{key}={value}" for key, value in first.get("ctx", {}).items() if key != "error")]
        )
        raise SchemaError(str(path), rule, f"{first['msg']}, not {shown(first['input'])}") from error
