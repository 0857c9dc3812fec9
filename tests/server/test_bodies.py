"""Bodies and errors as they cross, without a server."""

from __future__ import annotations

import json
import math
import pickle
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.support.exact import same
from tests.support.strategies import values
from versioned_state import errors
from versioned_state.errors import (
    InvalidArgumentError,
    PickleRefusedError,
    StateError,
    StorageError,
    UnserializableValueError,
)
from versioned_state.services.remote import bodies
from versioned_state.services.remote.errors import error_document, error_of, without_details

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_every_value_comes_back(value: Any):
    assert same(bodies.decode(bodies.encode(value)), value)


@given(values)
def test_json_is_exact_or_refused(value: Any):
    try:
        body = bodies.encode_json(value)
    except UnserializableValueError:
        return
    assert same(bodies.decode_json(body), value)


@given(JSON)
def test_what_json_holds_is_not_refused(value: Any):
    assert same(bodies.decode_json(bodies.encode_json(value)), value)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_a_typed_error(body: bytes):
    for decode in (bodies.decode, bodies.decode_json):
        with suppress(InvalidArgumentError, PickleRefusedError, errors.LimitExceededError):
            decode(body)


def test_no_pickle_is_read_or_written():
    with pytest.raises(PickleRefusedError, match="key of type"):
        bodies.encode({"key": lambda: 1})
    data = pickle.dumps(print)
    cell = b"\xc7" + bytes([len(data) + 10, 22]) + b"\x95\xa1x\xc0\xc2\xc7" + bytes([len(data), 1]) + data + b"\x90"
    for body in (cell, b"\x91" + cell):
        with pytest.raises((PickleRefusedError, InvalidArgumentError)):
            bodies.decode(body)


@pytest.mark.parametrize(
    ("value", "path"),
    [(math.nan, "the body"), ({"a": [1, {"b": (1,)}]}, "a[1].b"), ({"a": {1: 2}}, "a"), ([10**5000], "[0]")],
)
def test_the_refusal_names_the_path(value: Any, path: str):
    with pytest.raises(UnserializableValueError) as caught:
        bodies.encode_json(value)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("header", "kinds"),
    [
        ("", [bodies.JSON, bodies.NATIVE]),
        ("*/*", [bodies.JSON, bodies.NATIVE]),
        (bodies.NATIVE, [bodies.NATIVE]),
        (f"{bodies.JSON};q=0.5, {bodies.NATIVE}", [bodies.NATIVE, bodies.JSON]),
        (f"{bodies.JSON};q=0, */*", [bodies.NATIVE]),
        ("text/html", []),
        (" , ", []),
    ],
)
def test_accepted_forms(header: str, kinds: list[str]):
    assert bodies.acceptable(header) == kinds


CLASSES = sorted(
    (cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, StateError)),
    key=lambda cls: cls.__name__,
)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_crosses_as_its_class(cls: type[StateError]):
    error = errors.base.restore(cls, ("it failed",))
    error.__dict__.update(what="it failed", remains="nothing was changed", _hint="")
    error.hint = "try again"
    error.__dict__["place"] = "a.b"
    found = error_of(json.loads(json.dumps(error_document(error))))
    assert type(found) is cls
    assert (found.what, found.remains, found.hint, str(found)) == (error.what, error.remains, error.hint, str(error))
    assert vars(found)["place"] == "a.b"


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"error": 1},
        {"error": {"type": "StateError"}},
        {"error": {"type": 1, "what": "", "remains": "", "hint": ""}},
    ],
)
def test_what_is_not_an_error(document: Any):
    assert error_of(document) is None


def test_a_name_is_never_imported_and_facts_replace_nothing():
    parts = {
        "what": "x",
        "remains": "",
        "hint": "",
        "facts": {"__class__": "y", "what": "y", "args": "y", "_hint": "y", "ok": 1, "a b": 1},
    }
    found = error_of({"error": {"type": "os.system", **parts}})
    assert type(found) is StateError
    assert (found.what, found.args, vars(found)["ok"]) == ("x", ("x",), 1)
    assert "a b" not in vars(found)


def test_a_storage_error_tells_clients_nothing_of_the_store():
    error = errors.UnreachableStoreError(
        "postgresql://user:password@10.0.0.7 refused", remains="nothing was changed", hint="ask root at 10.0.0.7"
    )
    public = without_details(error)
    assert type(public) is errors.UnreachableStoreError
    assert isinstance(public, StorageError)
    assert "10.0.0.7" not in json.dumps(error_document(public))
    assert public.remains == "nothing was changed"
