"""Values as text and as JSON: what Python itself cannot write out, and what its own repr refuses."""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict
from fractions import Fraction

import numpy as np
import pytest

from versioned_state import Tagged, Versioned, register
from versioned_state.repository.views.json_form import json_value
from versioned_state.repository.views.render import one_line

BIG = 10**5000


@register
@dataclasses.dataclass
class Offer:
    hotel: object


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ((1,), "(1,)"),
        (np.eye(2, dtype="i4"), "array([[1, 0], [0, 1]], dtype=int32)"),
        (["a\n   b"], r"['a\n   b']"),
        ((), "()"),
        ((BIG,), f"({hex(BIG)},)"),
        (Fraction(1, 3), "Fraction(1, 3)"),
        (Fraction(-1, BIG), f"Fraction(-1, {hex(BIG)})"),
        (range(5), "range(0, 5)"),
        (range(1, 5, 2), "range(1, 5, 2)"),
        (range(BIG), f"range(0, {hex(BIG)})"),
        ({"a": [{BIG}]}, f"{{'a': [{{{hex(BIG)}}}]}}"),
        (Tagged("x", (BIG,)), f"x(({hex(BIG)},))"),
        (Tagged("app:Offer", {"hotel": BIG}), f"Offer(hotel={hex(BIG)})"),
        (Tagged("app:Level", "HIGH"), "Level.HIGH"),
        (Tagged("app:Prefs", {"a b": (1,)}), "Prefs({'a b': (1,)})"),
        (Tagged("app:Rows", [1, 2], {"fields": {"source": "db"}}), "Rows([1, 2], source='db')"),
        (Tagged("app:At", {"x": 1}, {"tuple": True, "fields": {"of": "map"}}), "At(x=1, of='map')"),
        (Tagged("app:Name", "ann", {"fields": {"n": 1}}), "Name('ann', n=1)"),
        (Offer(BIG), f"Offer(hotel={hex(BIG)})"),
        (OrderedDict(a=BIG), f"OrderedDict(a={hex(BIG)})"),
    ],
)
def test_as_text(value, shown):
    assert one_line(value, width=10**6) == shown
    state = Versioned()
    state["x"] = value
    assert str(state.status())
    assert json.dumps(json_value(value))
    assert json.dumps(state.status().to_json())


class Rows(list[int]):
    source = ""


@pytest.mark.parametrize("size", [2, 20_000])
def test_the_attributes_of_a_list_of_a_class_of_its_own_are_shown_and_so_is_a_change_of_them(size: int):
    state = Versioned()
    state["rows"] = rows = Rows(range(size))
    rows.source = "db"
    state.commit()
    rows.source = "web"
    (change,) = state.status()
    old, new = str(change).split(" -> ")
    assert old.endswith(", source='db')")
    assert new.endswith(", source='web')")
    state.commit()
    assert state.checkout("HEAD").preview("rows").endswith(", source='web')")
    assert json_value(rows)["$typed"]["attributes"] == {"source": "web"}


def test_as_json():
    assert json_value(Fraction(1, BIG)) == {"$Fraction": f"1/{hex(BIG)}"}
    assert [json_value(Fraction(n, 3)) for n in (1, 3)] == [{"$Fraction": str(Fraction(n, 3))} for n in (1, 3)]
    assert json_value(range(1, 5, 2)) == {"$range": "range(1, 5, 2)"}
    assert json_value(range(BIG)) == {"$range": f"range(0, {hex(BIG)})"}


def test_a_repr_that_raises():
    offer = Offer("x")
    del offer.hotel
    assert one_line([offer]) == "[Offer()]"

    class Strange:
        def __repr__(self):
            raise RuntimeError

    assert one_line(Strange(), width=200).endswith("Strange, whose repr raises RuntimeError>")
    assert list(json_value(Strange())) == ["$Strange"]
