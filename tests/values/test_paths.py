"""Paths are strings that people can read and programs can parse back."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.support.strategies import keys, text
from versioned_state import StatePath, Versioned, register
from versioned_state.errors import InvalidPathError, UnknownPathError
from versioned_state.values.paths.path import Index, Key, Namespace

SHOWN = [
    ("messages", StatePath().key("messages")),
    ("messages[17].content", StatePath().key("messages").index(17).key("content")),
    ('prefs["a.b"]', StatePath().key("prefs").key("a.b")),
    ('["two words"].x', StatePath().key("two words").key("x")),
    ('[""]', StatePath().key("")),
    ("d{#a3eda080}", StatePath().key("d").key("\ud800")),
    ('d["]\\"}"]', StatePath().key("d").key(']"}')),
    ("d{1}", StatePath().key("d").key(1)),
    ("d{-1.5}", StatePath().key("d").key(-1.5)),
    ("d{True}", StatePath().key("d").key(True)),
    ("d{None}", StatePath().key("d").key(None)),
    ("d{b'}'}", StatePath().key("d").key(b"}")),
    ("d{(1, ('a', None))}.x", StatePath().key("d").key((1, ("a", None))).key("x")),
    ("@worker.step", StatePath().namespace("worker").key("step")),
    ("名前.größe.नमस्ते", StatePath().key("名前").key("größe").key("नमस्ते")),
    ("@работник.ключ", StatePath().namespace("работник").key("ключ")),
    ('d["👩\u200d💻"]', StatePath().key("d").key("👩\u200d💻")),
    ('d["\\u202egnp\\u0000"]', StatePath().key("d").key("\u202egnp\0")),
    ('d["\\u2028é²"]', StatePath().key("d").key("\u2028é²")),
    ('@worker.@"in ner"["a b"]', StatePath().namespace("worker").namespace("in ner").key("a b")),
]


@pytest.mark.parametrize(("string", "path"), SHOWN)
def test_shown_and_parsed(string, path):
    assert str(path) == string
    assert StatePath.parse(string) == path


steps = st.one_of(
    text.map(Key),
    (
        st.integers()
        | st.booleans()
        | st.none()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.binary(max_size=9)
    ).map(Key),
    st.tuples(text, st.integers()).map(Key),
    st.integers(0, 10**6).map(Index),
)


@given(st.lists(text.filter(bool).map(Namespace), max_size=2), text, st.lists(steps, max_size=5))
def test_any_path_parses_back(spaces, key, rest):
    path = StatePath((*spaces, Key(key), *rest))
    assert StatePath.parse(str(path)) == path


def test_what_a_path_shows_prints():
    for number in range(0x11000):
        if not 0xD800 <= number < 0xE000:
            path = StatePath().key("d").key(f"a{chr(number)}")
            assert all(char.isprintable() or char in "\u200c\u200d" for char in str(path))
            assert StatePath.parse(str(path)) == path


def test_a_key_that_is_not_ascii_is_found_as_it_is_written():
    state = Versioned()
    state["名前"] = {"größe": [1, {"👩\u200d💻": 2}]}
    state.commit()
    snapshot = state.checkout("HEAD")
    assert snapshot.at("名前.größe[0]") == 1
    assert snapshot.at('名前.größe[1]["👩\u200d💻"]') == 2
    state["名前"]["größe"].append(3)
    assert [str(change) for change in state.status()] == ["+ 名前.größe[2] = 3"]


def test_namespaces_with_odd_names_parse_back():
    for name in ("a b", 'a"b', "\ud800", "é", "@", "."):
        path = StatePath().namespace(name).key("x")
        assert StatePath.parse(str(path)) == path


@given(st.dictionaries(keys, st.integers(), min_size=1, max_size=4), st.booleans())
def test_a_key_of_any_type_is_found_by_the_path_that_a_diff_shows(entries: dict[Any, int], large):
    state = Versioned()
    state["d"] = {}
    state.commit()
    state["d"].update(entries)
    if large:
        state["d"].update((f"filler {index}", "x" * 60) for index in range(120))
    after = state.commit()
    snapshot = state.checkout(after)
    for change in state.diff("HEAD~1", after):
        assert StatePath.parse(str(change.path)) == change.path
        assert str(StatePath.parse(str(change.path))) == str(change.path)
        assert snapshot.at(change.path) == change.new
        assert snapshot.at(str(change.path)) == change.new


def test_huge_ints_as_keys():
    state = Versioned()
    state["d"] = {10**6000: 1, (-(10**6000), 2): 2}
    for change in state.status():
        assert StatePath.parse(str(change.path)) == change.path
    commit = state.commit()
    state["d"][10**6000] = 3
    (change,) = state.status()
    assert state.checkout(commit).at(str(change.path)) == 1


def test_keys_that_are_equal_and_not_the_same_have_paths_of_their_own():
    alike = [StatePath().key("d").key(key) for key in (1, True, 1.0, 1 + 0j)]
    assert len(set(map(str, alike))) == 4


@pytest.mark.parametrize(
    ("string", "position"),
    [
        *[("", 0), (".", 1), (".a", 1), ("a.", 2), ("a..b", 2), ("a b", 1)],
        *[("a[", 2), ("a[x]", 2), ("a[1", 3), ('a["x', 2), ("a[1]b", 4)],
        *[("a{", 1), ("a{1", 1), ("a{x}", 1), ("a{#zz}", 3), ("a{__import__('os')}", 1)],
        *[("@", 1), ("@a", 2), ("@1.x", 1)],
    ],
)
def test_a_bad_path_says_where(string, position):
    with pytest.raises(InvalidPathError) as caught:
        StatePath.parse(string)
    assert caught.value.position == position
    assert caught.value.text == string


@given(st.text('ab.[]{}"@#1(),\\', max_size=20) | st.text(max_size=20))
def test_any_string_parses_or_says_why_not(string):
    try:
        path = StatePath.parse(string)
    except InvalidPathError as error:
        position = error.position
    else:
        position = 0
        assert StatePath.parse(str(path)) == path
    assert 0 <= position <= len(string)


VALUE: dict[str, Any] = {
    "list": [{"a": 1}, [2, 3], (4, [5])],
    "big": [{"n": n, "pad": "x" * 60} for n in range(500)],
    "dict": {f"k{n}": {"v": [n]} for n in range(300)},
    "tuple": tuple({"n": n, "pad": "x" * 60} for n in range(500)),
}
FOUND = [
    ("v.list[0].a", 1),
    ("v.list[-1]", (4, [5])),
    ("v.list[2][1][0]", 5),
    ("v.big[499].n", 499),
    ("v.big[-500].n", 0),
    ("v.dict.k17.v[0]", 17),
    ("v.tuple[250].n", 250),
]


@pytest.mark.parametrize(("path", "value"), FOUND)
def test_at(path, value):
    state = Versioned()
    state["v"] = VALUE
    assert state.checkout(state.commit()).at(path) == value


@pytest.mark.parametrize(
    "path",
    "w v.x v[0] v.list[3] v.list[-4] v.list.a v.list[0][0] v.list[2][2] v.list[0].a.b v.big[500] v.dict.k300 v.dict{1}"
    " v.tuple[500] v.tuple.x @space.v".split(),
)
def test_nothing_at_a_path(path):
    state = Versioned()
    state["v"] = VALUE
    snapshot = state.checkout(state.commit())
    with pytest.raises(UnknownPathError):
        snapshot.at(path)


def test_paths_go_no_further_than_lists_tuples_and_dicts():
    register(OrderedDict, "OrderedDict", dict, OrderedDict)
    state = Versioned()
    state["v"] = [OrderedDict(a=1), {1}, b"ab", "ab"]
    snapshot = state.checkout(state.commit())
    for path in ("v[1][0]", "v[2][0]", "v[3][0]"):
        with pytest.raises(UnknownPathError):
            snapshot.at(path)


@pytest.mark.parametrize("size", [3, 60, 900, 3000])
def test_a_path_leads_into_a_tuple_of_any_size(size):
    state = Versioned()
    state["dict"] = {"tuple": tuple({"n": n} for n in range(size))}
    snapshot = state.checkout(state.commit())
    assert snapshot.at(f"dict.tuple[{size - 1}].n") == size - 1
    assert snapshot.at("dict.tuple[-1]") == {"n": size - 1}
    with pytest.raises(UnknownPathError):
        snapshot.at(f"dict.tuple[{size}]")


@pytest.mark.parametrize("name", ["\ud83d\ude00", "a\udc00", "{#a161}"])
def test_namespaces_with_surrogates_parse_back(name):
    state = Versioned()
    state.namespace(name).namespace("inner")["x"] = 1
    (change,) = state.status()
    assert change.path == StatePath((Namespace(name), Namespace("inner"), Key("x")))
    assert StatePath.parse(str(change.path)) == change.path


@pytest.mark.parametrize(
    "text", ["d{[1]}", "d{{1: 2}}", "d{{1}}", "d{([1],)}", "d{...}", "d{{[]}}", "@{#a161", "@{#01}.x", "@{1}.x"]
)
def test_what_can_be_no_key_or_name_is_no_path(text):
    with pytest.raises(InvalidPathError):
        StatePath.parse(text)
