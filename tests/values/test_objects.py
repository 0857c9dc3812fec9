"""Exceptions come back, what stands for something outside is refused, and a value may contain itself."""

from __future__ import annotations

import io
import socket
import sys
import tempfile
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.processes import run
from versioned_state import Memory, Versioned
from versioned_state.errors import PickleRefusedError, UnserializableValueError
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.values.encode.walks import footprint


class TwoArgumentsError(Exception):
    """Its ``args`` are not what its ``__init__`` takes."""

    made = 0

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason
        type(self).made += 1


class DecodingError(UnicodeDecodeError):
    def __init__(self, data: bytes) -> None:
        super().__init__("utf-8", data, 0, 1, "bad")


class MissingFileError(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "not there", path)
        self.hint = "look elsewhere"


def noted() -> Exception:
    error = ValueError("bad")
    error.add_note("in row 7")
    return error


def caused() -> Exception:
    error = TwoArgumentsError(7, "outer")
    error.__cause__ = KeyError("inner")
    return error


def caught() -> Exception:
    try:
        raise LookupError("raised")
    except LookupError as error:
        return error


def facts(error: Any) -> list[Any]:
    """What is to come back of an exception."""
    special = [getattr(error, name, None) for name in ("errno", "filename", "start", "value", "name", "msg")]
    cause = None if error.__cause__ is None else facts(error.__cause__)
    return [type(error), error.args, dict(error.__dict__), str(error), special, cause]


EXCEPTIONS = [
    ValueError("x"),
    OSError(2, "no", "f"),
    UnicodeDecodeError("utf8", b"x", 0, 1, "r"),
    StopIteration(3),
    ImportError("no", name="module", path="p"),
    ExceptionGroup("two", [ValueError("a"), TwoArgumentsError(1, "b")]),
    TwoArgumentsError(404, "not found"),
    DecodingError(b"\xff"),
    MissingFileError("f"),
    noted(),
    caused(),
    caught(),
]


@pytest.mark.parametrize("error", EXCEPTIONS, ids=lambda error: type(error).__name__)
def test_an_exception_comes_back_and_is_no_change(error: Exception):
    store = Memory()
    state = Versioned(store)
    state["last"] = [error]
    state.commit()
    made = TwoArgumentsError.made
    again = Versioned(store)
    if isinstance(error, ExceptionGroup):
        assert list(map(facts, again["last"][0].exceptions)) == list(map(facts, error.exceptions))
    else:
        assert facts(again["last"][0]) == facts(error)
    assert not again.status()
    assert TwoArgumentsError.made == made  # no __init__ of a user's class ran
    again["last"][0].seen = True
    assert [str(change.path) for change in again.status()] == ["last[0].seen"]


def test_an_exception_with_a_way_of_its_own_keeps_it():
    state = Versioned()
    state["last"] = OwnWayError("kept")
    state.commit()
    assert state.checkout("HEAD")["last"].args == ("made by __reduce__",)


class OwnWayError(Exception):
    def __reduce__(self) -> Any:
        return OwnWayError, ("made by __reduce__",)


OUTSIDE: dict[str, Callable[[], Any]] = {
    "text": lambda: io.TextIOWrapper(io.FileIO(__file__)),
    "bytes": lambda: io.FileIO(__file__),
    "stdout": lambda: sys.__stdout__,
    "temporary": tempfile.TemporaryFile,
    "named": tempfile.NamedTemporaryFile,
    "spooled": tempfile.SpooledTemporaryFile,
    "socket": socket.socket,
    "generator": lambda: (part for part in "ab"),
}


@pytest.mark.parametrize("kind", OUTSIDE)
def test_what_stands_for_something_outside_is_refused(kind: str):
    state = Versioned()
    state["kept"] = 1
    state.commit()
    value = OUTSIDE[kind]()
    state["agent"] = {"file": value}
    with pytest.raises(UnserializableValueError) as caught:
        state.commit()
    assert caught.value.path.startswith("agent.file")
    del state["agent"]
    assert not state.status()
    if kind not in ("stdout", "generator"):
        value.close()


def test_files_in_memory_are_stored():
    state = Versioned()
    state["buffers"] = [io.StringIO("text"), io.BytesIO(b"bytes")]
    state.commit()
    text, data = state.checkout("HEAD")["buffers"]
    assert (text.getvalue(), data.getvalue()) == ("text", b"bytes")


def containing_itself(make: Callable[[], Any]) -> Any:
    value = make()
    if isinstance(value, deque):
        value.append(value)
    else:
        value["me"] = value
    return value


@pytest.mark.parametrize(
    "make", [dict, lambda: defaultdict(list), OrderedDict, deque], ids=["dict", "defaultdict", "OrderedDict", "deque"]
)
def test_a_value_that_contains_itself_is_stored_as_an_object(make: Callable[[], Any]):
    store = Memory()
    state = Versioned(store)
    state["plain"], state["looped"] = [1], {"in": [containing_itself(make)]}
    state.commit()
    back = Versioned(store)["looped"]["in"][0]
    assert type(back) is type(make())
    assert (back[0] if isinstance(back, deque) else back["me"]) is back


def test_a_cycle_through_several_values_is_stored_as_an_object():
    state = Versioned()
    first: defaultdict[str, Any] = defaultdict(list)
    first["list"].append({"back": first})
    state["looped"] = first
    state.commit()
    back = state.checkout("HEAD")["looped"]
    assert back["list"][0]["back"] is back


def test_the_memory_of_values_that_contain_themselves_is_counted_once():
    row: list[Any] = ["x" * 1000]
    row.append({"row": row})
    state = Versioned()
    state["rows"] = [row] + [[number] for number in range(2000)]
    state["rows"].append(row)
    commit = state.commit()
    database = state.repository.database
    counts: list[int] = []
    read = Snapshot(database.objects, commit.tree, database.policy, commit=commit, spend=counts.append)["rows"]
    assert read[0][1]["row"] is read[0]
    assert 100_000 < sum(counts) < 200_000
    assert footprint(read) < 200_000


def test_a_refused_element_does_not_spoil_its_tuple():
    store = Memory()
    state = Versioned(store)
    state["small"], state["large"] = (OwnWayError("x"), 1), (OwnWayError("x"), "y" * 5000, 1)
    state.commit()
    snapshot = Versioned(store, pickle="refuse").checkout("HEAD")
    assert snapshot.at("small[1]") == snapshot.at("small[-1]") == snapshot.at("large[2]") == 1
    with pytest.raises(PickleRefusedError):
        snapshot.at("small[0]")


def test_cloudpickle_is_loaded_by_the_first_object():
    code = """
        import sys, versioned_state
        state = versioned_state.Versioned()
        state["data"] = [1, ("a", {2})]
        state.commit()
        state["data"].append(3)
        state.commit()
        assert "cloudpickle" not in sys.modules
        state["object"] = lambda: 7
        state.commit()
        assert state.checkout("HEAD")["object"]() == 7
    """
    run(code)
