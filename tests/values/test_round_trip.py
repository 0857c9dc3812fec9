"""Every data type comes back exactly as it was: type, content and order, at any size, nested at random."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given

from tests.support.data_samples import CONTAINERS, NAN, SCALARS
from tests.support.exact import exact, same
from tests.support.strategies import DTYPES, SHAPES, STRUCTURED, any_values, make_array, make_large, values
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import PickleRefusedError
from versioned_state.values.codec import arrays


def there_and_back(value: Any) -> list[Any]:
    """The value as every way of reading gives it back: a snapshot, a handle opened anew, and its path."""
    repository = Repository(Memory(), pickle="refuse")
    state = Versioned(repository)
    state["value"] = value
    commit = state.commit()
    assert not state.status()
    again = Repository(repository.store, pickle="refuse")
    loaded = Versioned(again)
    read = [again.snapshot(commit)["value"], loaded["value"], again.snapshot(commit).at("value")]
    assert not loaded.status(), "what was just loaded is unchanged"
    assert loaded.commit() == commit
    return read


def check(value: Any) -> None:
    before = exact(value)
    for read in there_and_back(value):
        assert exact(read) == before
    assert exact(value) == before, "the caller's own value is not touched"


@pytest.mark.parametrize("name", SCALARS)
def test_scalar(name):
    check(SCALARS[name])
    check({"in": [SCALARS[name], (SCALARS[name],)]})


@pytest.mark.parametrize("name", CONTAINERS)
def test_container(name):
    check(CONTAINERS[name])


@pytest.mark.parametrize("name", CONTAINERS)
def test_container_inside_a_large_one(name):
    filler: dict[Any, Any] = {f"filler {index}": "x" * 50 for index in range(300)}
    check([*filler.values(), CONTAINERS[name], "end"])
    check({**filler, "case": CONTAINERS[name]})
    if isinstance(CONTAINERS[name], dict):
        check(filler | CONTAINERS[name])
        check(CONTAINERS[name] | filler)


@pytest.mark.parametrize(
    "size", [0, 1, 15, 16, 31, 32, 127, 128, 255, 256, 2047, 2048, 4095, 4096, 5000, 65535, 65536, 200_000]
)
@pytest.mark.parametrize(
    "make", [lambda n: "x" * n, lambda n: "é\n" * (n // 3), bytes, bytearray, lambda n: [0] * (n // 8)]
)
def test_sizes_around_every_limit(make, size):
    check(make(size))
    check([make(size), {"k": make(size)}])


@pytest.mark.parametrize("layout", ["c", "fortran", "strided"])
@pytest.mark.parametrize("dtype", [*DTYPES, *STRUCTURED], ids=str)
def test_array(dtype, layout):
    for shape in SHAPES:
        check(make_array(dtype, shape, 1, layout))
    check({"arrays": [make_array(dtype, shape, 2, layout) for shape in SHAPES]})


def test_an_array_that_was_read_can_be_written_to():
    for shape in ((3,), (5000,)):
        for read in there_and_back(np.zeros(shape)):
            read[0] = 1


def test_an_array_from_elsewhere_in_memory():
    whole = np.arange(20_000.0).reshape(100, 200)
    check([whole.T, whole[::2, ::-1], whole[5], np.broadcast_to(whole[0], (3, 200))])
    readonly = np.arange(9)
    readonly.flags.writeable = False
    check(readonly)


@given(values)
@example([NAN, -0.0, {"a": NAN}])
def test_anything_small(value):
    check(value)


@given(any_values)
def test_anything(value):
    check(value)


@pytest.mark.parametrize("size", [30, 700, 5000])
@pytest.mark.parametrize(
    "kind", ["list", "numbers", "dict", "text", "surrogates", "bytes", "bytearray", "tuple", "set", "deque", "nested"]
)
def test_large(kind, size):
    check(make_large(kind, size, size))


def test_what_a_snapshot_returned_is_the_callers_own():
    state = Versioned()
    state["value"] = {"list": [1, {"a": bytearray(b"x" * 5000)}]}
    past = state.checkout(state.commit())
    value = past["value"]
    value["list"][1]["a"][:] = b""
    value["list"].clear()
    assert same(past["value"], {"list": [1, {"a": bytearray(b"x" * 5000)}]})


def test_exact_tells_apart_what_equality_does_not():
    """The measure of this folder, measured."""
    alike = [
        1,
        True,
        1.0,
        1 + 0j,
        np.int64(1),
        np.float64(1),
        Decimal(1),
        Decimal("1.0"),
        Fraction(1),
        (1,),
        [1],
        {1},
        frozenset({1}),
    ]
    alike += [{"a": 1, "b": 2}, {"b": 2, "a": 1}, b"a", bytearray(b"a"), "a", 0.0, -0.0, range(0), range(1, 1)]
    alike += [np.zeros(2), np.zeros((2, 1)), np.zeros(2, "f4"), np.zeros(2, ">f8")]
    assert len({repr(exact(value)) for value in alike}) == len(alike)
    assert same(NAN, float("nan"))


@pytest.mark.parametrize(
    "value", [np.bytes_(b"ab\0"), np.bytes_(b"\0"), np.str_("ab\0"), np.str_("\0"), np.str_("a\ud800\0")]
)
def test_scalars_that_end_with_nul(value):
    state = Versioned()
    state["x"], state["in"] = value, [value]
    state.commit()
    for back in (state.checkout("HEAD")["x"], state.checkout("HEAD")["in"][0]):
        assert type(back) is type(value)
        assert (back.item(), len(back), back.dtype) == (value.item(), len(value), value.dtype)


@pytest.mark.parametrize("size", [3, 3000])
def test_dtypes_that_no_description_gives_back(size):
    records = np.zeros(size, [("a", "i4"), ("b", "f8"), ("c", "i2")])
    aligned = np.zeros(size, np.dtype([("a", "i1"), ("b", [("c", "i1"), ("d", "f8")])], align=True))
    for array in (records[["c", "a"]], aligned, aligned["b"].copy()):
        state = Versioned()
        state["x"], state["in"] = array, [records.copy()]
        state.commit()
        back = state.checkout("HEAD")["x"]
        assert back.dtype == array.dtype
        assert back.dtype.isalignedstruct == array.dtype.isalignedstruct
        assert (back == array).all()
        state["in"][0] = array
        assert [str(change.path) for change in state.status()] == ["in[0]"]
        refusing = Versioned(pickle="refuse")
        refusing["x"] = array
        with pytest.raises(PickleRefusedError, match=r"x of type numpy\.ndarray"):
            refusing.commit()


def test_records_keep_the_class_of_their_dtype():
    fields = [("a", "i4"), ("b", "f8")]
    recarray = np.rec.array([(1, 2.0)], dtype=fields)
    values: list[Any] = [
        recarray[0],
        np.zeros(3, np.dtype((np.record, fields))),
        recarray,
        np.zeros(3, [("in", recarray.dtype)]),
    ]
    for value in values:
        state = Versioned()
        state["x"] = value
        state.commit()
        back = state.checkout("HEAD")["x"]
        assert (type(back), back.dtype.type, back.tobytes()) == (type(value), value.dtype.type, value.tobytes())
        if type(value) is not np.ndarray:
            assert back.a == value.a, "fields are attributes"
    state["x"] = np.zeros(1, fields)[0]
    state.commit()
    assert type(state.checkout("HEAD")["x"]) is np.void
    state["x"] = recarray[0].copy()
    assert state.status(), "another class of records"


@pytest.mark.parametrize(
    ("path", "wrap"),
    [("x", lambda record: record), ("x[0]", lambda record: [record]), ("x.in[0]", lambda record: {"in": (record,)})],
)
def test_a_record_that_was_read_can_be_changed_in_place(path, wrap):
    state = Versioned()
    state["x"] = wrap(np.zeros(1, [("a", "i4")])[0])
    state.commit()
    again = Versioned(state.repository)
    record = again.at(path)
    record["a"] = 7
    assert len(again.status()) == 1
    again.commit()
    assert not again.status()
    assert exact(again.checkout("HEAD")["x"]) == exact(again["x"]) != exact(state["x"])


@pytest.mark.parametrize(
    "record",
    [
        np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])[0],
        np.zeros(1, np.dtype([("a", "i1"), ("b", "i8")], align=True))[0],
    ],
    ids=["np.record", "aligned"],
)
def test_a_record_that_is_pickled_can_be_changed_in_place_too(record):
    state = Versioned()
    state["x"] = [record]
    state.commit()
    again = Versioned(state.repository)
    assert not again.status()
    again["x"][0]["a"] = 7
    assert len(again.status()) == 1
    again.commit()
    back = again.checkout("HEAD")["x"][0]
    assert (type(back), back.dtype, back["a"]) == (type(record), record.dtype, 7)


@pytest.mark.parametrize("value", [range(2**1100), range(-(10**5000), 10**5000, 7), Fraction(1, 10**5000)])
def test_large_ints_in_other_values(value):
    state = Versioned()
    state["x"], state["in"] = value, [value]
    state.commit()
    assert state.checkout("HEAD").copy() == {"x": value, "in": [value]}


def test_what_lies_between_the_fields_of_a_slice_is_not_stored():
    padded = np.full(1000 * 16, 0xAA, "u1").view(
        np.dtype({"names": ["a", "b"], "formats": ["u4", "u8"], "offsets": [0, 8], "itemsize": 16})
    )
    bytes_of = bytes(arrays.raw_view(padded[::2]))
    assert bytes_of == (b"\xaa" * 4 + b"\0" * 4 + b"\xaa" * 8) * 500
