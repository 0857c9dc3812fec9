"""Classes of every kind as users write them, importable, and values of them nested at random."""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import attrs
import pydantic
from hypothesis import strategies as st
from pydantic import dataclasses as pydantic_dataclasses

T = TypeVar("T")


# Dataclasses


@dataclass
class Message:
    role: str
    content: Any
    tags: list[Any] = field(default_factory=list)
    limit: ClassVar[int] = 5


@dataclass
class Reply(Message):
    score: float = 0.0
    length: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.length = len(str(self.content))


@dataclass(frozen=True)
class Point:
    x: Any
    y: Any = 0


@dataclass(frozen=True, slots=True)
class Slim(Generic[T]):
    held: T
    name: str = ""


@dataclass(slots=True)
class Step:
    number: int
    result: Any = None


@dataclass(eq=True, order=True, kw_only=True)
class Seeded:
    value: int = 0
    seed: InitVar[int] = 3
    drawn: int = field(init=False)
    cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self, seed: int) -> None:
        self.drawn = seed * 2


@dataclass
class Pair(Generic[T]):
    first: T
    second: T


# pydantic


class Part(pydantic.BaseModel):
    kind: str = "text"
    text: Any = None


class Model(pydantic.BaseModel):
    name: str
    parts: list[Any] = []
    part: Part | None = None
    made: int = pydantic.Field(default=1, alias="madeBy")
    _seen: list[Any] = pydantic.PrivateAttr(default_factory=list)
    _note: str = pydantic.PrivateAttr()


class Open(pydantic.BaseModel, extra="allow"):
    name: str = ""


class Strict(pydantic.BaseModel, frozen=True):
    n: int = 0

    @pydantic.field_validator("n")
    @classmethod
    def _check(cls, n: int) -> int:
        if n < 0:
            raise ValueError("validation is for input")
        return n


class Box(pydantic.BaseModel, Generic[T]):
    held: T


class Names(pydantic.RootModel[list[Any]]):
    pass


@pydantic_dataclasses.dataclass
class Checked:
    n: int
    more: list[Any] = field(default_factory=list)


# attrs


@attrs.define
class Visit:
    city: str
    stops: list[Any] = attrs.field(factory=list)


@attrs.frozen(slots=False)
class Fixed:
    a: Any
    b: Any = attrs.field(default=1, alias="bee")


@attrs.define(slots=False, eq=True)
class Loose(Generic[T]):
    held: T
    _hidden: int = 0


# NamedTuples, Enums


class Place(NamedTuple):
    city: str
    at: Any = 0


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"
    CRIMSON = 1  # noqa: PIE796 - an alias of RED
    MIXED = (1, 2)


class Role(str, enum.Enum):  # noqa: UP042 - the older spelling is a type of its own
    USER = "user"
    TOOL = "tool"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Mode(enum.StrEnum):
    FAST = enum.auto()
    SLOW = enum.auto()


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    ALL = 3
    RUN = 8


class Bits(enum.IntFlag):
    A = 1
    B = 2
    C = 16


# Ordinary classes


class Plain:
    limit = 5

    if TYPE_CHECKING:  # its attributes are those that it is given

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    __hash__ = object.__hash__


class Kind(Plain):
    """Another class with the attributes of ``Plain``."""


class Slots:
    __slots__ = ("_Slots__hidden", "__weakref__", "a", "b")

    def __init__(self, **attributes: Any) -> None:
        for name, held in attributes.items():
            setattr(self, name, held)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and attributes_of(other) == attributes_of(self)

    __hash__ = object.__hash__


class Both(Slots):
    """Slots of the base, and a dict."""


# Subclasses of what is built in


class History(list[Any]):
    def __init__(self, elements: Any = (), **attributes: Any) -> None:
        super().__init__(elements)
        self.__dict__.update(attributes)


class Prefs(dict[Any, Any]):
    owner: Any


class Ordered(OrderedDict[Any, Any]):
    pass


class Counts(Counter[Any]):
    pass


class Groups(defaultdict[Any, Any]):
    pass


class Recent(deque[Any]):
    pass


class Tags(set[Any]):
    pass


class Frozen(frozenset[Any]):
    pass


class Trio(tuple[Any, ...]):
    __slots__ = ()


class Text(str):
    __slots__ = ()


class Sized(str):  # noqa: SLOT000 - its instances have attributes
    size: int


class Number(int):
    pass


class Ratio(float):
    pass


class Raw(bytes):
    pass


# Exceptions


class ToolError(Exception):
    """Its ``args`` are not what its ``__init__`` takes."""

    def __init__(self, tool: str, code: int) -> None:
        super().__init__(f"{tool}: {code}")
        self.tool = tool
        self.code = code


class NotThereError(ToolError, KeyError):
    hint = "look elsewhere"


def attributes_of(value: Any) -> dict[str, Any]:
    slots = [name for cls in type(value).__mro__ for name in vars(cls).get("__slots__", ()) if name != "__weakref__"]
    return {**getattr(value, "__dict__", {}), **{name: getattr(value, name) for name in slots if hasattr(value, name)}}


# Values nested at random

words = st.sampled_from(["", "a", "user", "été", "x" * 60, "y" * 5000])
atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.sampled_from([0.5, 2**70, b"b", (1, "a"), frozenset({1, "b"})]),
    words,
)
members = st.one_of(
    *(st.sampled_from(list(cls)) for cls in (Colour, Role, Level, Mode)),
    st.sampled_from(
        [
            Colour.CRIMSON,
            Access(0),
            Access.READ,
            Access.ALL,
            Access.READ | Access.RUN,
            Bits(0),
            Bits.A | Bits.C,
            Bits(64),
            Bits(67),
        ]
    ),
)
names = st.sampled_from(["a", "b", "ab", "_c", "zz", "über"])


def _set(value: Any, attributes: dict[str, Any]) -> Any:
    for name, held in attributes.items():
        object.__setattr__(value, name, held)
    return value


def _private(model: Model, seen: list[Any], note: str | None) -> Model:
    model._seen = seen
    if note is not None:
        model._note = note
    return model


def _raised(
    error: BaseException, attributes: dict[str, Any], notes: list[str], cause: BaseException | None
) -> BaseException:
    error.__dict__.update(attributes)
    for note in notes:
        error.add_note(note)
    error.__cause__ = cause
    return error


def _made(
    make: Callable[..., Any], *given: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    """As ``builds``, which would look at annotations."""
    return st.tuples(st.tuples(*given), st.fixed_dictionaries(named)).map(lambda drawn: make(*drawn[0], **drawn[1]))


def instances(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Instances of each class, of parts drawn from a strategy."""
    lists = st.lists(parts, max_size=3)
    fields = st.dictionaries(names, parts, max_size=3)
    keys = st.one_of(
        words, st.integers(0, 5), _made(Point, st.integers(0, 3), words), st.just(Role.USER), _made(Place, words)
    )
    errors: Any = st.one_of(
        _made(ValueError, parts),
        _made(ToolError, words, st.integers()),
        _made(NotThereError, words, st.integers()),
        _made(lambda: FileNotFoundError(2, "no", "f")),
        _made(lambda: UnicodeDecodeError("utf8", b"x", 0, 1, "r")),
    )
    return st.one_of(
        _made(Message, words, parts, lists),
        _made(Reply, words, parts, lists, st.sampled_from([0.0, 1.5])),
        _made(_set, _made(Message, words, parts), fields),
        _made(Point, parts, parts),
        _made(Slim, parts, words),
        _made(Step, st.integers(0, 9), parts),
        _made(Seeded, value=st.integers(0, 9), cache=fields),
        _made(Pair, parts, parts),
        _made(lambda a: Pair[int](a, a), st.integers(0, 5)),
        _made(Part, text=parts),
        _made(Model, name=words, parts=lists),
        _made(
            _private,
            _made(lambda m, p: Model(name="m", madeBy=m, part=p), st.integers(0, 9), _made(Part)),
            lists,
            st.none() | words,
        ),
        _made(lambda extra: Open(**extra), st.dictionaries(st.sampled_from(["name", "a", "zz"]), words)),
        _made(Strict.model_construct, n=st.integers(-5, 5)),
        _made(lambda held: Box[int](held=held), st.integers(0, 9)),
        _made(lambda held: Box[Any](held=held), parts),
        _made(Names, lists),
        _made(Checked, st.integers(0, 9), lists),
        _made(Visit, words, lists),
        _made(Fixed, parts, parts),
        _made(Loose, parts),
        _made(Place, words, parts),
        _made(lambda attributes: Plain(**attributes), fields),
        _made(
            lambda attributes: Slots(**attributes),
            st.dictionaries(st.sampled_from(["a", "b", "_Slots__hidden"]), parts),
        ),
        _made(lambda attributes: Both(**attributes), st.dictionaries(st.sampled_from(["a", "b", "c"]), parts)),
        _made(
            lambda held, attributes: History(held, **attributes),
            lists,
            st.dictionaries(st.sampled_from(["a", "b"]), parts, max_size=2),
        ),
        _made(_set, _made(Prefs, st.dictionaries(keys, parts, max_size=3)), fields),
        _made(Ordered, st.dictionaries(keys, parts, max_size=3)),
        _made(OrderedDict, st.dictionaries(keys, parts, max_size=3)),
        _made(lambda held: Groups(list, held), st.dictionaries(keys, lists, max_size=3)),
        _made(lambda held: defaultdict(int, held), st.dictionaries(keys, parts, max_size=3)),
        _made(Counts, st.dictionaries(keys, st.integers(-2, 9), max_size=3)),
        _made(Recent, lists, st.none() | st.integers(3, 9)),
        _made(deque, lists),
        _made(Tags, st.sets(keys, max_size=3)),
        _made(Frozen, st.sets(keys, max_size=3)),
        _made(Trio, lists),
        _made(Text, words),
        _made(_set, _made(Sized, words), st.fixed_dictionaries({"size": parts})),
        _made(Number, st.integers()),
        _made(Ratio, st.floats(allow_nan=False)),
        _made(Raw, st.binary(max_size=20)),
        _made(_raised, errors, fields, st.lists(words, max_size=2), st.none() | _made(KeyError, words)),
    )


def nested(leaves: int = 8) -> st.SearchStrategy[Any]:
    """Typed values in typed values, in lists, dicts and tuples."""
    return st.recursive(
        atoms | members,
        lambda parts: st.one_of(
            instances(parts),
            st.lists(parts, max_size=4),
            st.dictionaries(words, parts, max_size=3),
            st.tuples(parts, parts),
        ),
        max_leaves=leaves,
    )
