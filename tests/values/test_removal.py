"""A tree without what was at a path is the very tree of a state that never held it, at the cost of a path."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from versioned_state import Commit, Memory, Repository, Versioned
from versioned_state.errors import InvalidPathError
from versioned_state.objects.store import Staging
from versioned_state.repository.database import Publication
from versioned_state.storage import Counting
from versioned_state.values.changes.removal import Remover, target_of, target_of_prefix
from versioned_state.values.paths.path import Index, Key, StatePath
from versioned_state.values.trees.nodes import Nodes


def root_of(content: dict[str, Any], repository: Repository | None = None) -> tuple[Repository, Commit]:
    """The commit that holds this content, and its repository."""
    state = Versioned(repository or Repository(Memory()))
    state.update(content)
    return state.repository, state.commit(allow_empty=True)


def without(content: dict[str, Any], *paths: str | StatePath, prefixes: tuple[str, ...] = ()) -> str:
    """The root after the removal of these from a state of that content."""
    repository, commit = root_of(content)
    staging = Staging(repository.database.objects)
    targets = [*map(target_of, paths), *map(target_of_prefix, prefixes)]
    remover = Remover(Nodes(staging, staging=staging), targets)
    tree = remover.without(commit.tree)
    assert (tree is commit.tree) == (not list(remover.paths_in(commit.tree)))
    new = repository.database.write_commit(tree, (commit,), staging=staging, message="")
    assert list(Remover(Nodes(staging, staging=staging), targets).paths_in(tree)) == [] or any(
        "[" in str(path) for path in paths
    )
    return new.root


def big(n: int) -> dict[str, Any]:
    return {f"name {i * 7919 % n}": {"id": i, "text": "some words " * (i % 30)} for i in range(n)}


PEOPLE = {"alice": {"age": 30, "notes": ["a", "b"]}, "bob": {"age": 31}}

CASES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "a key": ({"a": 1, "b": 2}, "a", {"b": 2}),
    "the only key": ({"a": 1}, "a", {}),
    "what is not there": ({"a": 1}, "b", {"a": 1}),
    "inside what is no dict": ({"a": 1}, "a.b", {"a": 1}),
    "of a small dict": ({"users": PEOPLE}, "users.alice", {"users": {"bob": {"age": 31}}}),
    "deeper": ({"users": PEOPLE}, "users.alice.notes", {"users": {"alice": {"age": 30}, "bob": {"age": 31}}}),
    "an element": (
        {"users": PEOPLE},
        "users.alice.notes[0]",
        {"users": {"alice": {"age": 30, "notes": ["b"]}, "bob": {"age": 31}}},
    ),
    "the last of a dict": ({"users": {"alice": 1}}, "users.alice", {"users": {}}),
    "a key that is no string": ({"d": {1: "x", (2, 3): "y"}}, "d{(2, 3)}", {"d": {1: "x"}}),
    "of a tuple": ({"t": (1, {"a": 1, "b": 2})}, "t[1].a", {"t": (1, {"b": 2})}),
    "an element of a tuple": ({"t": (1, 2, 3)}, "t[-1]", {"t": (1, 2)}),
    "beyond the end": ({"t": [1]}, "t[1]", {"t": [1]}),
    "not in a set": ({"s": {1, 2}}, "s[0]", {"s": {1, 2}}),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_as_if_it_had_never_been(name: str):
    content, path, left = CASES[name]
    assert without(content, path) == root_of(left)[1].root


@pytest.mark.parametrize("size", [3, 40, 41, 42, 200, 2000])
def test_of_a_large_dict_and_a_large_list(size: int):
    everybody = big(size)
    name = f"name {size // 2}"
    left = {key: value for key, value in everybody.items() if key != name}
    assert (
        without({"users": everybody, "other": 1}, StatePath().key("users").key(name))
        == root_of({"users": left, "other": 1})[1].root
    )
    less = copy.deepcopy(everybody)
    del less[name]["text"]
    assert (
        without({"users": everybody}, StatePath().key("users").key(name).key("text"))
        == root_of({"users": less})[1].root
    )
    for wrap in (list, tuple):
        row = wrap(everybody.values())
        rest = wrap(value for index, value in enumerate(row) if index != size // 2)
        assert without({"row": row}, f"row[{size // 2}]") == root_of({"row": rest})[1].root
        less_row = wrap([*row[: size // 2], {"id": row[size // 2]["id"]}, *row[size // 2 + 1 :]])
        assert without({"row": row}, f"row[{size // 2}].text") == root_of({"row": less_row})[1].root


def test_a_dict_that_is_in_order_once_the_key_is_gone():
    shuffled = {"z": "x" * 200, **{f"k{n:04}": "y" * 200 for n in range(100)}}
    left = {key: value for key, value in shuffled.items() if key != "z"}
    assert without({"d": shuffled}, "d.z") == root_of({"d": left})[1].root


def test_a_value_that_becomes_small_is_inline_again():
    content = {
        "users": {"alice": "x" * 100_000, "bob": 1},
        "row": ["y" * 100_000, 1, 2],
        "mid": {"a": "z" * 3000, "b": "w" * 300},
    }
    left = {"users": {"bob": 1}, "row": [1, 2], "mid": {"b": "w" * 300}}
    assert without(content, "users.alice", "row[0]", "mid.a") == root_of(left)[1].root


def test_namespaces_and_prefixes():
    repository = Repository(Memory())
    state = Versioned(repository)
    for name in ("alice", "alic", "alicea"):
        state.namespace(name)["k"] = name
        state.namespace(name).namespace("deep")["k"] = name
    state.update({"user/alice/a": 1, "user/alice/b": 2, "user/alicia": 3, "user/bob": 4})
    commit = state.commit()
    staging = Staging(repository.database.objects)
    remover = Remover(Nodes(staging, staging=staging), [target_of("@alice"), target_of_prefix("user/alice/")])
    tree = remover.without(commit.tree)
    assert sorted(remover.paths_in(commit.tree)) == [
        "@alice.@deep.k",
        "@alice.k",
        '["user/alice/a"]',
        '["user/alice/b"]',
    ]
    new = repository.database.write_commit(tree, (commit,), staging=staging, message="")
    assert repository.database.publish([Publication(repository.database.ref("branch", "main"), new, staging)])
    snapshot = repository.snapshot()
    assert list(snapshot) == ["user/alicia", "user/bob"]
    assert snapshot.namespaces() == ["alic", "alicea"]
    assert snapshot.namespace("alicea").namespace("deep").copy() == {"k": "alicea"}


@pytest.mark.parametrize("path", ["", "users[", "@", "@a.@b", "[3]"])
def test_what_is_no_path(path: str):
    if path == "@a.@b":
        assert target_of(path).word == "b"
    else:
        with pytest.raises((InvalidPathError, ValueError)):
            target_of(path)


def test_it_reads_a_path_and_no_more():
    store = Counting(Memory())
    repository = Repository(store)
    _, commit = root_of({f"key {n}": big(3) for n in range(2000)} | {"users": big(5000)}, repository)
    total = sum(1 for _ in store.keys("o/"))
    store.reset()
    staging = Staging(repository.database.objects)
    Remover(Nodes(staging, staging=staging), [target_of('users["name 77"]'), target_of("missing")]).without(commit.tree)
    assert store.counts.objects_read < total / 20


class Opaque:
    """A value that is pickled if that is allowed, and that must not be unpickled here."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __reduce__(self) -> Any:
        return _opaque, (self.text,)


def _opaque(text: str) -> Opaque:
    raise AssertionError("unpickled")


def test_objects_beside_it_are_not_unpickled():
    content: dict[str, Any] = {"d": {"a": 1, "b": Opaque("x"), "c": [Opaque("y" * 9000), "z" * 5000]}}
    left = {"d": {"b": content["d"]["b"], "c": content["d"]["c"]}}
    assert without(content, "d.a") == root_of(left)[1].root
    assert (
        without(content, "d.c[1]")
        == root_of({"d": {"a": 1, "b": content["d"]["b"], "c": [content["d"]["c"][0]]}})[1].root
    )


values = st.recursive(
    st.one_of(
        st.none(), st.integers(), st.text(max_size=60), st.sampled_from(["long " * 700, "mid " * 40, b"bytes" * 30])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(st.text(max_size=3) | st.integers(0, 3), inner, max_size=6),
        st.tuples(inner, inner),
    ),
    max_leaves=25,
)


@given(content=st.dictionaries(st.sampled_from("abc"), values, min_size=1), seed=st.integers(0, 2**32))
def test_any_part_of_any_value(content: dict[str, Any], seed: int):
    rng = random.Random(seed)
    key = rng.choice(sorted(content))
    path, here, left = StatePath().key(key), content[key], copy.deepcopy(content)
    steps: list[Any] = []
    while isinstance(here, dict | list | tuple) and here and rng.random() < 0.8:
        step = rng.choice(list(here)) if isinstance(here, dict) else rng.randrange(len(here))
        steps.append(step)
        path = StatePath((*path.steps, Key(step) if isinstance(here, dict) else Index(step)))
        here = here[step]
    if steps:
        left[key] = _less(left[key], steps)
    else:
        del left[key]
    assert without(content, path) == root_of(left)[1].root


def _less(value: Any, steps: list[Any]) -> Any:
    step, *rest = steps
    items = value.items() if isinstance(value, dict) else enumerate(value)
    parts = [(k, _less(v, rest) if k == step and type(k) is type(step) else v) for k, v in items if rest or k != step]
    return dict(parts) if isinstance(value, dict) else type(value)(v for _, v in parts)
