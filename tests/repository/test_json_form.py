"""Values of every type become JSON and come back exactly.

JSON that is not a valid form is refused. Also: JSON without types.
"""

from __future__ import annotations

import datetime as dt
import enum
import json
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given

from tests.support import strategies, typed_classes
from tests.support.handles import committed
from versioned_state import StateError, Tagged
from versioned_state.cli.render.output import to_json
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.views.json_form import from_json, json_value, literal, plain_value
from versioned_state.values.encode.inline import InlineEncoder

FOLD = dt.datetime(2026, 11, 1, 1, 30, fold=1, tzinfo=ZoneInfo("America/New_York"))


def cell(value: Any) -> bytes:
    """Return the stored form of a value, which says all of it: its types, its order, its signs."""
    return InlineEncoder().encode_inline(value)


@given(strategies.values | typed_classes.nested())
def test_every_value_comes_back_exactly(value: Any):
    text = to_json(json_value(value))
    assert cell(from_json(json.loads(text))) == cell(value)
    to_json(plain_value(value))
    shown = json.loads(text)
    assert json.dumps(from_json(literal(shown))) == json.dumps(shown)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (Decimal("2.50"), {"$Decimal": "2.50"}),
        (dt.date(2026, 11, 1), {"$date": "2026-11-01"}),
        (dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC), {"$datetime": "2026-01-02T03:00:00+00:00"}),
        (
            dt.datetime(2026, 1, 2, tzinfo=ZoneInfo("Europe/Berlin")),
            {"$datetime": "2026-01-02T00:00:00+01:00[Europe/Berlin]"},
        ),
        (dt.timedelta(days=-1, seconds=5), {"$timedelta": "-1 day, 0:00:05"}),
        (dt.timezone(dt.timedelta(hours=1)), {"$timezone": "UTC+01:00"}),
        (UUID(int=5), {"$UUID": "00000000-0000-0000-0000-000000000005"}),
        (PurePosixPath("a/b"), {"$PurePosixPath": "a/b"}),
        ((1, {2}), {"$tuple": [1, {"$set": [2]}]}),
        ({1: "a"}, {"$dict": [[1, "a"]]}),
        ({"$Decimal": "2"}, {"$dict": [["$Decimal", "2"]]}),
        (b"\x00", {"$bytes": "AA=="}),
        (float("-inf"), {"$float": "-inf"}),
        (np.float32(0.5), {"$float32": "0.5"}),
        (np.array([[1, 2]], "<i4"), {"$ndarray": {"dtype": "int32", "shape": [1, 2], "data": [[1, 2]]}}),
        (deque([1], 2), {"$typed": {"name": "deque", "fields": [1], "notes": {"maxlen": 2}}}),
        (
            Tagged("app:Rows", [1], {"fields": {"n": 2}}),
            {"$typed": {"name": "app:Rows", "fields": [1], "attributes": {"n": 2}}},
        ),
    ],
)
def test_the_forms(value: Any, form: Any):
    assert json_value(value) == form
    assert cell(from_json(form)) == cell(value)


def test_a_text_that_does_not_say_all_has_the_stored_form_beside_it():
    for value in (FOLD, np.datetime64("2026-01-02", "ns"), dt.timezone(dt.timedelta(hours=1), "CET"), "\ud83d\ude00"):
        form = json_value(value)
        assert len(form) == 2
        assert cell(from_json(json.loads(json.dumps(form)))) == cell(value)
    changed = json_value(FOLD) | {"$datetime": "2026-11-01T02:30:00-05:00[America/New_York]"}
    with pytest.raises(InvalidArgumentError, match="differs from its"):
        from_json(changed)


@pytest.mark.parametrize(
    "form",
    [
        {"$Decimals": "2.5"},
        {"$ref": "#/definitions/a"},
        {"$Decimal": 2.5},
        {"$Decimal": "two"},
        {"$Decimal": "2", "unit": "EUR"},
        {"$set": [[1]]},
        {"$set": {"a": 1}},
        {"$dict": [1]},
        {"$range": "5"},
        {"$timedelta": "soon"},
        {"$timezone": "CET"},
        {"$ZoneInfo": "../../etc/passwd"},
        {"$datetime": "2026-01-02[Nowhere/City]"},
        {"$bytes": "?"},
        {"$cell": "?"},
        {"$cell": 5},
        {"$cell": "AAAA", "$a": 1, "b": 2},
        {"$int32": "many"},
        {"$bool": "true"},
        {"$ndarray": {"dtype": "int32", "shape": [3], "data": [1]}},
        {"$ndarray": {"dtype": "object", "shape": [1], "data": [1]}},
        {"$ndarray": []},
        {"$typed": {"name": "a"}},
        {"$typed": {"name": "", "fields": {}}},
        {"$typed": {"name": "a", "fields": {}, "more": 1}},
        {"$typed": "a"},
        {"$object": {"type": "a", "bytes": 5, "imports": []}},
        [1, {"a": {"$Nothing": 1}}],
    ],
)
def test_what_is_no_form_is_refused_and_can_be_taken_as_it_stands(form: Any):
    with pytest.raises(InvalidArgumentError, match="is not the form of a value"):
        from_json(form)
    assert from_json(literal(form)) == form


def test_the_reason_is_said_in_words():
    for form, reason in (
        ({"$Decimal": "two"}, "'two' is not a decimal number"),
        ({"$set": [[1]]}, "unhashable"),
        ({"$Decimal": 5}, "not a text"),
    ):
        with pytest.raises(InvalidArgumentError, match=reason):
            from_json(form)


def test_a_dict_with_other_keys_beside_is_a_dict():
    schema = {"$schema": "https://json-schema.org", "$defs": {}, "type": "object"}
    assert from_json(schema) == schema


def test_a_set_of_many_elements_of_one_hash_is_refused():
    with pytest.raises(StateError, match="have one hash"):
        from_json({"$set": [{"$int": hex(1 << 61 * index)} for index in range(500)]})


class Status(enum.Enum):
    OPEN = 1


@dataclass
class Job:
    status: Status
    price: Decimal


def test_plain():
    value = {
        "job": Job(Status.OPEN, Decimal("2.50")),
        "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        "pos": (1, 2.5),
        "tags": {"b", "a"},
        "nan": float("nan"),
        "raw": b"\x00",
        "half": Fraction(1, 2),
        "row": np.array([1.0, np.nan]),
        "one": np.int32(1),
        "when": np.array(["2026-01-02", "NaT"], "M8[D]"),
        "stamps": [Tagged("pandas.Timestamp", [1767225600000000, "us", zone]) for zone in (None, dt.UTC)],
        "keys": {1: "a", (2, 3): "b", None: "c"},
        "same": {1: "a", "1": "b"},
        "count": Counter("aab"),
        "order": OrderedDict(z=1, a=2),
        "made": defaultdict(list, a=[1]),
        "rows": Tagged("app:Rows", [1], {"fields": {"source": "db"}}),
    }
    assert plain_value(value) == {
        "job": {"status": "OPEN", "price": "2.50"},
        "at": "2026-01-02T00:00:00+00:00",
        "pos": [1, 2.5],
        "tags": ["a", "b"],
        "nan": None,
        "raw": "AA==",
        "half": "1/2",
        "row": [1.0, None],
        "one": 1,
        "when": ["2026-01-02", "NaT"],
        "stamps": ["2026-01-01T00:00:00.000000", "2026-01-01T00:00:00.000000Z"],
        "keys": {"1": "a", "[2, 3]": "b", "null": "c"},
        "same": [[1, "a"], ["1", "b"]],
        "count": {"a": 2, "b": 1},
        "order": {"z": 1, "a": 2},
        "made": {"a": [1]},
        "rows": {"value": [1], "source": "db"},
    }


def test_fields_that_no_time_has_are_shown_as_they_are():
    assert plain_value(Tagged("pandas.Timestamp", ["soon"])) == ["soon"]
    assert plain_value(Tagged("pandas.Timestamp", None)) is None


def test_a_patch_takes_forms_too():
    state = committed(job=Job(Status.OPEN, Decimal("2.5")))
    form = json_value(Decimal("2.5"))
    state.apply([{"path": "job.price", "kind": "changed", "old": form, "new": {"$Decimal": "3"}}])
    assert state["job"] == Job(Status.OPEN, Decimal(3))
    with pytest.raises(InvalidArgumentError, match="entry 0 of the patch"):
        state.apply([{"path": "job.price", "kind": "changed", "old": form, "new": {"$Money": "3"}}])
