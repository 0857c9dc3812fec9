"""Many keys of one hash cost a dict or set quadratic time: writes refuse them, and so do reads of hostile stores."""

from __future__ import annotations

import sys
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from tests.support.counted_calls import calls_of
from tests.support.crafted_stores import craft, one
from versioned_state import Memory, Repository, Tagged, Versioned
from versioned_state.errors import LimitExceededError
from versioned_state.services.remote import bodies
from versioned_state.values.cells import MAX_COLLISIONS, Code, array, extension, map_header
from versioned_state.values.encode.inline import encode_key

PRIME = sys.hash_info.modulus
KINDS: dict[str, Any] = {
    "int": lambda n: PRIME * (n + 100),
    "negative int": lambda n: -PRIME * (n + 100),
    "Fraction": lambda n: Fraction(PRIME * (n + 1), 7),
    "Decimal": lambda n: Decimal(PRIME * (n + 100)),
    "UUID": lambda n: UUID(int=PRIME * (n + 100)),
    "tuple of ints": lambda n: (1, PRIME * (n + 100)),
    "frozenset of ints": lambda n: frozenset({PRIME * (n + 100)}),
    "range": lambda n: range(PRIME * (n + 100), PRIME * (n + 100) + 1),
    "complex": lambda n: complex(-1000003.0 * (n + 1), n + 1),
}
COUNTED = ("int", "Fraction", "Decimal", "UUID", "tuple of ints", "frozenset of ints")


def keys_of(kind: str, count: int) -> list[Any]:
    keys = [KINDS[kind](n) for n in range(count)]
    assert len({hash(key) for key in keys}) == 1
    return keys


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "range"])
@pytest.mark.parametrize("place", ["dict", "set", "in a list", "large dict"])
def test_more_keys_of_one_hash_than_the_limit_are_refused_and_the_error_names_the_place(kind: str, place: str):
    def value(count: int) -> Any:
        keys = keys_of(kind, count)
        if place == "set":
            return set(keys)
        entries = dict.fromkeys(keys, "x" * 50 if place == "large dict" else 0)
        return [entries] if place == "in a list" else entries

    state = Versioned()
    state["value"] = value(MAX_COLLISIONS + 1)
    with pytest.raises(LimitExceededError, match="keys have one hash at value") as caught:
        state.commit()
    assert "str(key)" in caught.value.hint
    state["value"] = value(MAX_COLLISIONS)
    state.commit()
    assert Versioned(state.repository)["value"] == state["value"]
    assert state.repository.fsck().ok


def test_a_large_dict_is_refused_when_it_gains_too_many():
    state = Versioned()
    state["value"] = dict.fromkeys(keys_of("int", MAX_COLLISIONS), "x" * 50)
    state.commit()
    state["value"][PRIME] = 1
    with pytest.raises(LimitExceededError, match="one hash"):
        state.commit()


@pytest.mark.parametrize("kind", COUNTED)
def test_a_body_of_many_is_refused_in_linear_time(kind: str):
    def body(count: int, *, is_set: bool) -> bytes:
        cells = [encode_key(key) for key in keys_of(kind, count)]
        return (
            extension(Code.SET, array(cells))
            if is_set
            else map_header(count) + b"".join(cell + b"\xc0" for cell in cells)
        )

    for is_set in (False, True):
        _refused(body(8_000, is_set=is_set))  # would take minutes
        work = [calls_of(partial(_refused, body(count, is_set=is_set))) for count in (1000, 2000)]
        assert work[1] <= 2.3 * work[0]


def _refused(body: bytes) -> None:
    with pytest.raises(LimitExceededError):
        bodies.decode(body)


def test_a_hostile_store_of_many_is_refused_by_every_reader():
    cells = [encode_key(key) for key in keys_of("int", 5000)]
    store = craft(lambda _put: one(map_header(5000) + b"".join(cell + b"\xc0" for cell in cells)))
    repository = Repository(store)
    with pytest.raises(LimitExceededError, match="one hash"):
        repository.snapshot("main")["a"]
    assert not repository.fsck().ok
    list(repository.grep("x", "main"))


@pytest.mark.parametrize("count", [1000, 3000])
def test_honest_keys_are_taken_whatever_their_type(count: int):
    state = Versioned()
    state["ints"] = dict.fromkeys(range(count), 0)
    state["pairs"] = {(n, -n): n for n in range(count)}
    state["powers"] = {1 << n for n in range(count)}
    state["numbers"] = [PRIME * n for n in range(count)]
    state["text"] = {str(n): n for n in range(count)}
    state["fractions"] = {Fraction(n, 7) for n in range(count)}
    state.commit()
    assert dict(Versioned(state.repository)) == dict(state)
    assert bodies.decode(bodies.encode(state["pairs"])) == state["pairs"]
    assert bodies.decode(bodies.encode(state["numbers"])) == state["numbers"]


def test_tagged_keys_of_one_name_have_hashes_of_their_own():
    keys = [Tagged("app:Point", {"x": n, "y": [n], "z": ({"a": n},)}) for n in range(2000)]
    assert len({hash(key) for key in keys}) > 1990
    assert hash(Tagged("a:B", {"x": 1, "y": 2})) == hash(Tagged("a:B", {"y": 2, "x": 1}))
    store = Memory()
    state = Versioned(Repository(store, pickle="refuse"))
    state["points"] = dict.fromkeys(keys, 0)
    state.commit()
    assert len(Versioned(Repository(store, pickle="refuse"))["points"]) == 2000
