"""``VersionedStore``: the contract of LangGraph's ``BaseStore``, from its interface and from what its own stores do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from versioned_state import Memory
from versioned_state.errors import InvalidArgumentError, PickleRefusedError
from versioned_state.integrations.langgraph import VersionedSaver, VersionedStore, store as store_module


@pytest.fixture
def store() -> Iterator[VersionedStore]:
    with VersionedStore(Memory()) as store:
        yield store


def keys(found: Any) -> list[str]:
    return [item.key for item in found]


class Clock:
    """Stands in for ``datetime`` in the store, so that no test waits."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self, _: Any) -> datetime:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(store_module, "datetime", clock)
    return clock


def test_an_item_is_kept_with_its_times(store: VersionedStore, clock: Clock):
    assert store.get(("users", "1"), "prefs") is None
    store.put(("users", "1"), "prefs", {"theme": "dark"})
    created, clock.at = clock.at, clock.at + timedelta(hours=1)
    store.put(("users", "1"), "prefs", {"theme": "light"})
    item = store.get(("users", "1"), "prefs")
    assert item is not None
    assert (item.namespace, item.key, item.value) == (("users", "1"), "prefs", {"theme": "light"})
    assert (item.created_at, item.updated_at) == (created, clock.at)
    store.delete(("users", "1"), "prefs")
    store.delete(("users", "1"), "never there")
    assert store.get(("users", "1"), "prefs") is None


def test_a_batch_is_one_commit_and_reads_what_was_there_before(store: VersionedStore):
    store.put(("a",), "x", {"n": 1})
    head = store.repository.branches[store.branch()]
    results = store.batch(
        [
            PutOp(("a",), "x", {"n": 2}),
            GetOp(("a",), "x"),
            PutOp(("a",), "y", {"n": 3}),
            PutOp(("a",), "y", {"n": 4}),
            SearchOp(("a",)),
            ListNamespacesOp(),
        ]
    )
    assert results[1].value == {"n": 1}
    assert [keys(results[4]), results[5], results[0], results[2]] == [["x"], [("a",)], None, None]
    assert store.repository.branches[store.branch()].parents == (head.id,)
    assert [item.value["n"] for item in store.search(("a",))] == [2, 4]
    assert store.batch([]) == []
    assert store.batch([GetOp(("none",), "x"), SearchOp(()), ListNamespacesOp()]) == [
        *[None, [], [("a",)]][:1],
        store.search(()),
        [("a",)],
    ]


def test_a_store_without_items_answers(store: VersionedStore):
    assert store.search(()) == []
    assert store.list_namespaces() == []
    assert store.get(("a",), "b") is None
    store.delete(("a",), "b")
    assert store.sweep_ttl() == 0


def test_every_item_has_a_history(store: VersionedStore):
    store.put(("users", "1"), "prefs", {"theme": "dark", "size": 3})
    store.put(("users", "1"), "prefs", {"theme": "light", "size": 3})
    branch = store.branch()
    changed = {str(change.path) for change in store.repository.diff(f"{branch}~1", branch)}
    assert changed == {'["users.1/prefs"].value.theme', '["users.1/prefs"].updated_at'}
    assert next(store.repository.log(branch)).message == "put users.1/prefs"


@pytest.mark.parametrize("label", ["a/b", "%", "%2F", "日本", " ", "*x"])
def test_labels_and_keys_of_any_text_are_kept_apart(store: VersionedStore, label: str):
    names = [((label,), "c"), (("a",), "b/c"), (("a", "b"), "c"), ((label, "x"), "c.d"), (("b",), label)]
    for number, (namespace, key) in enumerate(names):
        store.put(namespace, key, {"n": number})
    for number, (namespace, key) in enumerate(names):
        item = store.get(namespace, key)
        assert item is not None
        assert item.value == {"n": number}
    assert sorted((item.namespace, item.key) for item in store.search((), limit=99)) == sorted(names)
    assert set(store.list_namespaces()) == {namespace for namespace, _ in names}


@pytest.mark.parametrize("namespace", [(), ("a.b",), ("",), ("langgraph",)])
def test_a_bad_namespace_is_refused(store: VersionedStore, namespace: tuple[str, ...]):
    with pytest.raises(InvalidNamespaceError):
        store.put(namespace, "x", {})
    if namespace == ("a.b",):
        with pytest.raises(InvalidNamespaceError):
            store.batch([PutOp(namespace, "x", {})])
    assert store.search(()) == []


def test_a_prefix_of_a_label_is_not_the_label(store: VersionedStore):
    for namespace in (("a",), ("ab",), ("a", "b"), ("a-", "c"), ("a0",)):
        store.put(namespace, "x", {"at": list(namespace)})
    assert sorted(item.namespace for item in store.search(("a",))) == [("a",), ("a", "b")]


FILTERS: list[dict[str, Any] | None] = [
    None,
    {},
    {"kind": "book"},
    {"kind": None},
    {"price": {"$gt": 10}},
    {"price": {"$gte": 10, "$lt": 30}},
    {"price": {"$lte": 10.0}},
    {"kind": {"$ne": "book"}},
    {"kind": {"$eq": "book"}, "price": 10},
    {"tags": ["a", "b"]},
    {"author": {"name": "Ann"}},
    {"missing": 1},
]


@pytest.mark.every_case
@pytest.mark.parametrize("wanted", FILTERS)
def test_filters_find_what_langgraphs_own_store_finds(store: VersionedStore, wanted: dict[str, Any] | None):
    theirs = InMemoryStore()
    items = [
        {"kind": "book", "price": 10, "tags": ["a", "b"], "author": {"name": "Ann", "age": 3}},
        {"kind": "book", "price": 25.5, "tags": ["a"], "author": {"name": "Bob"}},
        {"kind": "pen", "price": 30, "tags": [], "author": {}},
    ]
    for number, item in enumerate(items):
        store.put(("shop",), str(number), item)
        theirs.put(("shop",), str(number), item)
    assert sorted(keys(store.search(("shop",), filter=wanted))) == keys(theirs.search(("shop",), filter=wanted))


def test_a_comparison_with_a_field_that_is_missing_does_not_hold(store: VersionedStore):
    store.put(("a",), "x", {"n": "text"})
    for wanted in ({"none": {"$gt": 1}}, {"n": {"$lt": 1}}):
        assert store.search(("a",), filter=wanted) == []
    assert keys(store.search(("a",), filter={"n": {"$gt": "tex"}})) == ["x"]
    with pytest.raises(InvalidArgumentError, match="gte"):
        store.search(("a",), filter={"n": {"$like": 1}})


def test_a_filter_may_be_a_path(store: VersionedStore):
    store.put(("a",), "x", {"user": {"access-level": "nested", "n": {"m": 5}}, "with.dot": 3})
    found: list[dict[str, Any]] = [{"user.access-level": "nested"}, {"user.n.m": {"$gt": 4}}, {"with.dot": 3}]
    for wanted in found:
        assert keys(store.search(("a",), filter=wanted)) == ["x"], wanted
    missing: list[dict[str, Any]] = [{"user.access-level": "other"}, {"user.n.m.o": 5}, {"none.at.all": 1}]
    for wanted in missing:
        assert keys(store.search(("a",), filter=wanted)) == [], wanted


def test_pages_are_the_newest_first(store: VersionedStore, clock: Clock):
    for number in range(7):
        clock.at += timedelta(seconds=1)
        store.put(("a", str(number % 2)), str(number), {})
    pages = [keys(store.search(("a",), limit=3, offset=offset)) for offset in (0, 3, 6, 9)]
    assert pages == [["6", "5", "4"], ["3", "2", "1"], ["0"], []]


def test_namespaces_are_listed_as_by_langgraphs_own_store(store: VersionedStore):
    theirs = InMemoryStore()
    for namespace in (
        ("a", "b", "c"),
        ("a", "b", "d", "e"),
        ("a", "b", "d", "i"),
        ("a", "b", "f"),
        ("a", "c", "f"),
        ("z",),
    ):
        store.put(namespace, "x", {})
        store.put(namespace, "y", {})
        theirs.put(namespace, "x", {})
    cases: list[dict[str, Any]] = [
        {},
        {"prefix": ("a", "b"), "max_depth": 3},
        {"prefix": ("a", "*")},
        {"suffix": ("f",)},
        {"suffix": ("*", "f"), "prefix": ("a",)},
        {"max_depth": 1},
        {"limit": 2, "offset": 1},
        {"prefix": ("a", "b", "c", "d", "e")},
    ]
    for case in cases:
        assert store.list_namespaces(**case) == theirs.list_namespaces(**case), case
    both = (MatchCondition("prefix", ("a",)), MatchCondition("prefix", ("*", "c")))
    assert store.batch([ListNamespacesOp(match_conditions=both)]) == theirs.batch(
        [ListNamespacesOp(match_conditions=both)]
    )


# Time to live


def test_an_item_expires_unless_it_is_read(clock: Clock):
    with VersionedStore(Memory(), ttl={"default_ttl": 10, "refresh_on_read": True}) as store:
        for key in ("read", "searched", "left", "looked at"):
            store.put(("a",), key, {"key": key})
        store.put(("a",), "for ever", {}, ttl=None)
        clock.at += timedelta(minutes=9)
        assert store.get(("a",), "read")
        assert keys(store.search(("a",), filter={"key": "searched"})) == ["searched"]
        assert store.get(("a",), "looked at", refresh_ttl=False)
        clock.at += timedelta(minutes=2)
        assert sorted(keys(store.search(("a",), refresh_ttl=False))) == ["for ever", "read", "searched"]
        assert store.get(("a",), "left") is None
        assert store.sweep_ttl() == 2
        assert store.sweep_ttl() == 0
        assert len(list(store.repository.snapshot(store.branch()))) == 3
        store.put(("a",), "read", {}, ttl=None)
        clock.at += timedelta(days=9)
        assert sorted(keys(store.search(("a",)))) == ["for ever", "read"]
        assert store.sweep_ttl() == 1  # "searched"
        assert not list(store.repository.records)


def test_an_item_whose_record_was_never_written_expires_too(clock: Clock):
    with VersionedStore(Memory()) as store:
        store.put(("a",), "x", {}, ttl=5)
        store.repository.records.clear()  # as if its writer had been killed
        assert store.get(("a",), "x", refresh_ttl=False)
        clock.at += timedelta(minutes=6)
        assert store.get(("a",), "x") is None


# An index


def embed(texts: Any) -> list[list[float]]:
    return [[float(text.count(letter)) for letter in "abc"] for text in texts]


async def aembed(texts: Any) -> list[list[float]]:
    await asyncio.sleep(0)
    return embed(texts)


@pytest.mark.parametrize("numpy", [True, False], ids=["numpy", "without numpy"])
def test_a_query_finds_the_nearest_first(numpy, monkeypatch: pytest.MonkeyPatch):
    import sys

    if not numpy:
        monkeypatch.setitem(sys.modules, "numpy", None)
    with VersionedStore(Memory(), index={"dims": 3, "embed": embed, "fields": ["text", "parts[*]"]}) as store:
        store.put(("m",), "a", {"text": "aaa b"})
        store.put(("m",), "b", {"text": "ccc", "parts": ["bbb", "ccc"]})
        store.put(("m",), "c", {"text": "ccc"})
        store.put(("m",), "not indexed", {"text": "bbb"}, index=False)
        store.put(("m",), "other field", {"text": "ccc", "title": "bbb"}, index=["title"])
        found = store.search(("m",), query="bb", limit=9)
        assert [item.score for item in found[:2]] == [pytest.approx(1), pytest.approx(1)]
        assert {item.key for item in found[:2]} == {"b", "other field"}
        assert keys(found[2:]) == ["a", "c", "not indexed"]
        assert found[-1].score is None
        assert keys(store.search(("m",), query="bb", limit=1, offset=2)) == ["a"]
        assert keys(store.search(("m",), query="bb", filter={"text": "ccc"}))[-1] == "c"
        store.put(("m",), "b", {"text": "aaa"})
        assert keys(store.search(("m",), query="bb"))[0] == "other field"
        store.delete(("m",), "other field")
        assert keys(store.search(("m",), query="bb"))[0] == "a"
        assert len(store.repository.snapshot(store.branch()).namespace("vectors")) == 3


def test_embeddings_may_be_coroutines():
    async def run() -> list[str]:
        with VersionedStore(Memory(), index={"dims": 3, "embed": aembed}) as store:
            await asyncio.gather(*(store.aput(("m",), text, {"text": text}) for text in ("aa", "bb", "cc")))
            return keys(await store.asearch(("m",), query="b", limit=1))

    assert asyncio.run(run()) == ["bb"]


@pytest.mark.parametrize("fields", [{"fields": ["title"]}, {"text_fields": ["title"]}, {"text_fields": "title"}])
def test_the_configuration_of_langgraphs_other_stores_works_too(fields: Any):
    with VersionedStore(Memory(), index={"dims": 3, "embed": embed, **fields}) as store:
        store.put(("m",), "x", {"title": "bbb", "text": "aaa"})
        assert store.search(("m",), query="b")[0].score == pytest.approx(1)


def test_without_an_index_a_query_is_ignored(store: VersionedStore):
    store.put(("m",), "a", {"text": "aaa"})
    assert [(item.key, item.score) for item in store.search(("m",), query="zzz")] == [("a", None)]


# Many writers


def test_two_writers_lose_nothing_and_one_item_is_never_a_mixture(tmp_path: Path):
    def write(name: str) -> None:
        with VersionedStore(tmp_path / "store") as store:
            for number in range(15):
                store.put(("own", name), str(number), {"n": number})
                store.put(("shared",), "item", {"by": name, name: number})

    with ThreadPoolExecutor(2) as writers:
        list(writers.map(write, "ab"))
    with VersionedStore(tmp_path / "store") as store:
        assert len(store.search(("own",), limit=99)) == 30
        item = store.get(("shared",), "item")
        assert item is not None
        assert item.value == {"by": item.value["by"], item.value["by"]: 14}


def test_a_value_that_is_not_data_is_refused_and_the_store_goes_on(store: VersionedStore):
    store.put(("a",), "x", {"n": 1})
    with pytest.raises(PickleRefusedError):
        store.put(("a",), "x", {"n": lambda: None})
    store.put(("a",), "y", {"n": 2})
    assert sorted((item.key, item.value["n"]) for item in store.search(("a",))) == [("x", 1), ("y", 2)]


def test_the_callers_value_stays_its_own(store: VersionedStore):
    value = {"list": [1]}
    store.put(("a",), "x", value)
    value["list"].append(2)
    store.put(("a",), "y", {})
    item = store.get(("a",), "x")
    assert item is not None
    assert item.value == {"list": [1]}
    item.value["list"].append(3)
    assert store.search(("a",), filter={"list": [1]})


def test_an_unknown_operation_is_refused(store: VersionedStore):
    with pytest.raises(InvalidArgumentError, match="operation"):
        store.batch(["get"])


def test_it_lives_beside_a_saver_in_one_repository(tmp_path: Path):
    with VersionedSaver(tmp_path / "store") as saver:
        store = VersionedStore(saver.repository)
        store.put(("a",), "x", {"n": 1})
        assert list(saver.list(None)) == []
        store.close()
        assert VersionedStore(saver.repository).get(("a",), "x")
