"""Records are dataclasses in all but the cost of their definition."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any, ClassVar

import pytest

from versioned_state import records


def _define(module: Any) -> dict[str, Any]:
    """The same classes, made by ``dataclasses`` or by ``records``."""
    dataclass: Callable[..., Any] = module.dataclass
    field: Callable[..., Any] = module.field

    @dataclass(frozen=True, slots=True)
    class Point:
        """A place."""

        x: int
        y: int = 2
        names: list[str] = field(default_factory=list, compare=False, repr=False)
        kind: ClassVar[str] = "point"

    @dataclass(frozen=True, slots=True)
    class Named(Point):
        """A place with a name."""

        name: str = ""

    @dataclass(frozen=True, slots=True)
    class Single:
        """One field."""

        value: Any

    @dataclass(frozen=True, slots=True)
    class Empty:
        """No field."""

    @dataclass(slots=True)
    class Open:
        """A class that can be changed."""

        values: list[Any] = field(default_factory=list)
        inner: Any = None

        def __post_init__(self) -> None:
            self.values.append("made")

    @dataclass(slots=True, eq=False)
    class Same:
        """Compared by identity."""

        value: int = 0

    @dataclass(slots=True, unsafe_hash=True)
    class Hashed:
        """Hashed, though it can be changed."""

        value: int = 0

    return {cls.__name__: cls for cls in (Point, Named, Single, Empty, Open, Same, Hashed)}


STANDARD = _define(dataclasses)
OURS = _define(records)
for _cls in OURS.values():
    _cls.__qualname__ = _cls.__name__
    globals()[_cls.__name__] = _cls  # for pickle
for _cls in STANDARD.values():
    _cls.__qualname__ = _cls.__name__

CALLS: list[Callable[[dict[str, Any]], Any]] = [
    lambda of: repr(of["Point"](1)),
    lambda of: repr(of["Named"](1, name="n")),
    lambda of: (
        of["Point"](1) == of["Point"](1, 2, ["other"]),
        of["Point"](1) == of["Named"](1),
        of["Point"](1) != of["Point"](2),
    ),
    lambda of: (hash(of["Point"](1)), hash(of["Single"]("a")), hash(of["Empty"]()), hash(of["Hashed"](3))),
    lambda of: (of["Single"](float("nan")) == of["Single"](float("nan")), of["Empty"]() == of["Empty"]()),
    lambda of: of["Same"]() == of["Same"](),
    lambda of: of["Open"].__hash__,
    lambda of: repr(of["Open"]()),
    lambda of: of["Open"]([1], 2) == of["Open"]([1], 2),
    lambda of: of["Point"].__match_args__ + of["Named"].__match_args__ + of["Named"].__slots__,
    lambda of: (of["Point"].kind, of["Point"].__doc__),
    lambda of: [each.name for each in dataclasses.fields(of["Named"])],
    lambda of: [
        (each.default, each.compare, each.repr) for each in dataclasses.fields(of["Point"]) if each.name != "names"
    ],
    lambda of: dataclasses.asdict(of["Named"](1, 2, ["n"])),
    lambda of: (
        dataclasses.is_dataclass(of["Empty"]),
        of["Point"].__dataclass_params__.frozen,
        of["Open"].__dataclass_params__.frozen,
    ),
    lambda of: repr(dataclasses.replace(of["Named"](1), y=5, name="n")),
    lambda of: repr(copy.deepcopy(of["Named"](1, name="n"))),
    lambda of: str(inspect.signature(of["Named"])).replace("<factory>", "").split(", names")[0],
    lambda of: hasattr(of["Point"](1), "__dict__"),
]


@pytest.mark.parametrize("call", CALLS)
def test_records_behave_as_dataclasses_do(call: Callable[[dict[str, Any]], Any]) -> None:
    assert call(OURS) == call(STANDARD)


@pytest.mark.parametrize("of", [STANDARD, OURS])
def test_what_a_dataclass_refuses_is_refused(of: dict[str, Any]) -> None:
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        of["Point"](1).x = 3
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del of["Named"](1).x
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        of["Point"]()
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        of["Point"](1, z=1)
    with pytest.raises(AttributeError):
        of["Open"]().other = 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(of["Open"]())


def test_a_record_is_replaced_copied_and_pickled() -> None:
    named = OURS["Named"](1, names=["n"], name="here")
    moved = records.replace(named, y=7)
    assert (moved.x, moved.y, moved.names, moved.name) == (1, 7, ["n"], "here")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(named, protocol)) == named


def test_a_record_that_contains_itself_is_shown() -> None:
    looped = OURS["Open"]()
    looped.inner = looped
    assert repr(looped) == "Open(values=['made'], inner=...)"


def test_a_dataclass_may_extend_a_record() -> None:
    point: Any = OURS["Point"]

    @dataclasses.dataclass(frozen=True, slots=True)
    class More(point):  # type: ignore[misc]
        more: int = 0

    assert [each.name for each in dataclasses.fields(More)] == ["x", "y", "names", "more"]
    assert More(1, more=2) == More(1, 2, more=2)


def test_an_initializer_is_compiled_when_it_is_first_used():
    for way in ("made", "derived", "asked"):
        cls = _define(records)["Open"]
        assert not inspect.isfunction(vars(cls)["__init__"])
        if way == "made":
            assert cls([], inner=1).inner == 1
        elif way == "derived":
            assert type("Derived", (cls,), {})(inner=1).inner == 1
        else:
            assert list(inspect.signature(cls).parameters) == ["values", "inner"]
        assert inspect.isfunction(vars(cls)["__init__"])
        with pytest.raises(TypeError, match="unexpected keyword argument 'outer'"):
            cls(outer=1)
