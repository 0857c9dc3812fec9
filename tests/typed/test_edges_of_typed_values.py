"""Typed values at the edges: class code that raises, equal keys of two types, stored forms that no writer writes."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import pytest

from versioned_state import Tagged, Versioned, register
from versioned_state.errors import CorruptObjectError, UnserializableValueError
from versioned_state.values.cells import Code, array, extension, pack_text, typed_cell
from versioned_state.values.decode.decoder import decode_inline
from versioned_state.values.encode.inline import InlineEncoder


class Ordinary:
    pass


class Raising:
    pass


class Names(set[Any]):
    pass


class Table(dict[Any, Any]):
    pass


class OwnDict:
    def __init__(self) -> None:
        self.kept: dict[str, int] = {}

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return {"made": "up"}


def test_a_conversion_that_raises_beside_an_ordinary_instance_names_its_path():
    def to_data(_: Raising) -> Any:
        raise RuntimeError("no way")

    register(Raising, "raising", to_data, lambda _: Raising())
    state = Versioned()
    state["x"] = [Ordinary(), {"deep": Raising()}]
    with pytest.raises(UnserializableValueError, match=r"x\[1\]\.deep"):
        state.commit()
    del state["x"][1]
    state.commit()


def test_a_class_with_a_dict_of_its_own_is_an_object():
    state = Versioned()
    state["x"] = OwnDict.__new__(OwnDict)
    (found,) = state.status(explain=True).objects
    assert found.reason == "its class has a __dict__ of its own"


@pytest.mark.parametrize("cls", [Names, Table, Counter, OrderedDict, defaultdict])
def test_a_container_keeps_its_identity_when_a_key_becomes_an_equal_one_of_another_type(cls: type):
    def of(key: Any) -> Any:
        made: Any = cls()
        made |= {key} if cls is Names else {key: 7}
        return made

    state = Versioned()
    state["x"] = of(1)
    first = state.commit()
    state["x"] = of(True)
    state.commit()
    held = state["x"]
    state.reset(first)
    assert state["x"] is held
    assert list(map(type, held)) == [int]
    assert not state.status()


HEAD = extension(Code.TYPED, array([pack_text("OrderedDict")]))
DATA = InlineEncoder().encode_inline({"a": 1})


@pytest.mark.parametrize(
    "cell",
    [
        b"\x91" + HEAD,
        b"\x81" + HEAD + b"\x01",  # a key
        extension(Code.TUPLE, array([HEAD])),
        # An array of two elements, of which the first is a head, is a value where one stands, and malformed where many
        # do.
        extension(Code.TUPLE, array([HEAD, DATA])),
        extension(Code.SET, array([HEAD, DATA])),
        b"\x81" + extension(Code.FROZENSET, array([HEAD, DATA])) + b"\x01",
        extension(Code.RANGE, array([HEAD, DATA])),
        extension(Code.TUPLE, pack_text("text")),
        b"\x92" + extension(Code.TYPED, array([pack_text("a:B"), HEAD])) + DATA,
    ],
)
def test_a_head_in_the_wrong_place_is_corrupt(cell: bytes):
    with pytest.raises(CorruptObjectError):
        decode_inline(cell)


@pytest.mark.parametrize(
    ("name", "data", "notes"),
    [
        ("deque", [1], {"maxlen": 1 << 70}),
        ("deque", 5, None),
        ("deque", [], {"maxlen": -1}),
        ("defaultdict", {}, {"factory": [1]}),
        ("defaultdict", {}, {"factory": ""}),
        ("defaultdict", {}, {"factory": "eval"}),
        ("Counter", [1], None),
        ("builtins:int", 1, None),
    ],
)
def test_data_that_no_value_of_the_type_has_reads_as_tagged_and_is_stored_again_as_it_was(
    name: str, data: Any, notes: Any
):
    inline = InlineEncoder().encode_inline
    cell = typed_cell(pack_text(name), None if notes is None else inline(notes), inline(data))
    value = decode_inline(cell)
    assert value == Tagged(name, data, notes)
    assert inline(value) == cell


def test_a_module_that_ends_the_process_when_it_is_imported_leaves_its_values_tagged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "a_script_that_exits.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    state = Versioned()
    state["x"] = Tagged("a_script_that_exits:Job", {"n": 1})
    state.commit()
    assert type(state.checkout("HEAD")["x"]) is Tagged
