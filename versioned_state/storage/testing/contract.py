"""``KVStoreContract``, the promises of ``KVStore`` as tests that any backend can run. Layer: storage.

A backend's test subclasses it in ten lines and runs against the real server or library::

    from versioned_state.storage.testing import KVStoreContract

    class TestMyStore(KVStoreContract):
        persistent = True

        def open_store(self, place):
            return MyStore(place)

It needs pytest and hypothesis, which the library itself does not need; only tests import this module.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pytest
from hypothesis import settings

from versioned_state.errors import InvalidArgumentError, StoreClosedError
from versioned_state.storage.base import Batch, KVStore
from versioned_state.storage.testing.model import check_against_model
from versioned_state.storage.testing.writers import count_up, join_forked, run_together, start_forked

ODD_KEYS = (
    "",
    " ",
    "a",
    "ab",
    "a b",
    "b",
    "A",
    "a/b",
    "a//b",
    "a:b",
    "/",
    "//",
    ".",
    "..",
    "../x",
    "~",
    "-rf",
    "a=b&c",
    "#",
    "+",
    "a\0",
    "a\0b",
    "\0",
    "\n",
    "\r\n",
    "\t",
    "\x7f",
    "\x1b[0m",
    "\\",
    "\\0",
    "'",
    "''",
    '"',
    "`",
    ";--",
    "') OR 1=1 --",
    "?",
    ":1",
    "$1",
    "%",
    "_",
    "a%",
    "a_",
    "*",
    "a*",
    "[a]",
    "[",
    "{repo}",
    "(",
    "|",
    "^",
    "a\x7f",
    "a\x80",
    "a\xff",
    "a\ud7ff",
    "a\ue000",
    "a\uffff",
    "a\U0010ffff",
    "\ufeff",
    "\U0010ffff",
    "é",
    "e\u0301",
    "ключ",
    "日本語",
    "\U0001f600",
    "\u202e",
    "1",
    "01",
    "1.0",
    "None",
    "true",
    "k" * 1000,
    "k" * 1001,
    "é" * 700,
    *("o", "O/ab", "o:ab", "oo/ab", " o/ab", "o\0/", "p", "n/ab"),
)
"""Mutable keys that a careless backend confuses with each other, or reads as a pattern, a path or a statement."""

ODD_OBJECTS = (
    "o/",
    "o/0",
    "o/00",
    "o/000",
    "o/0000",
    "o/ab",
    "o/AB",
    "o/aB",
    "o/abc",
    "o/abcd",
    "o/ac",
    "o/ff",
    "o/fff",
    "o/ffff",
    "o/g",
    "o/zz",
    "o/ab cd",
    "o/ab ",
    "o/ ab",
    "o/ab\0",
    "o/\0",
    "o/é",
    "o/\u0660\u0661",
    "o/a/b",
    "o/o/ab",
    "o/%",
    "o/_b",
    "o/*",
    "o/'",
    "o/0x10",
    "o/1e5",
    "o//",
    *("o/" + "ab" * 24, "o/" + "ab" * 32, "o/" + "f" * 48, "o/" + "0" * 48, "o/" + "e" * 2000),
)
"""Keys of objects, some of which look like an address."""

NOT_BYTES = ("text", bytearray(b"x"), memoryview(b"x"), None, 1, type("Sub", (bytes,), {})(b"x"))
NOT_STR = (b"key", 1, None, ("a",))


class KVStoreContract:
    """The contract as tests. Subclass it as ``Test...`` and define ``open_store``, and pytest runs all of them."""

    persistent = False
    """Whether a store that is closed and opened again holds the same keys."""

    shared = False
    """Whether two stores that are open at one place see each other's writes."""

    forks = False
    """Whether parent and child can go on with one store after a fork. Such a store is ``shared`` too."""

    tells_sizes = False
    """Whether ``sizes`` returns the lengths of values, rather than None."""

    races = 10
    """Repetitions of a race between two writers. A store whose writers wait for each other may choose fewer."""

    def open_store(self, place: Path) -> KVStore:
        """Open the store at ``place``, which is empty the first time.

        ``place`` is a path in a folder of the test, and does not exist at first. A backend that keeps no files derives
        a name from it: of a namespace, a database or a bucket.
        """
        raise NotImplementedError

    def check_closed(self, place: Path) -> None:
        """Check what is left at ``place`` when every store there is closed: files, connections.

        A backend may extend it.
        """

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        return tmp_path / "store"

    @pytest.fixture
    def store(self, place: Path) -> Iterator[KVStore]:
        with self.open_store(place) as store:
            yield store

    # Types

    def test_value_other_than_bytes_is_refused_before_anything_is_written(self, store: KVStore) -> None:
        writes: list[Callable[[Any], object]] = [
            lambda value: store.set("k", value),
            lambda value: store.set("o/ab", value),
            lambda value: store.set_many({"good": b"1", "k": value}),
            lambda value: store.set_many({"o/00": b"1", "o/ab": value}),
            lambda value: store.apply({}, {"good": b"1", "k": value}, objects={"o/00": b"1"}),
            lambda value: store.apply({}, {"good": b"1"}, objects={"o/00": b"1", "o/ab": value}),
            # None is an expectation
            lambda value: store.apply({"k": value or cast("bytes", 0)}, {"good": b"1"}, objects={"o/00": b"1"}),
        ]
        for value in NOT_BYTES:
            for write in writes:
                with pytest.raises(TypeError):
                    write(value)
            assert list(store.keys()) == [], value

    def test_key_other_than_str_is_refused_before_anything_is_written(self, store: KVStore) -> None:
        calls: list[Callable[[Any], object]] = [
            store.get,
            lambda key: store.get_many(["good", key]),
            lambda key: list(store.keys(key)),
            lambda key: list(store.items(key)),
            lambda key: key in store,
            lambda key: store.set(key, b"1"),
            lambda key: store.set_many({"good": b"1", key: b"1"}),
            store.delete,
            lambda key: store.delete_many(["good", key]),
            lambda key: store.compare_and_set(key, None, b"1"),
            lambda key: store.apply({key: None}, {"good": b"1"}),
            lambda key: store.apply({}, {"good": b"1", key: b"1"}, objects={"o/00": b"1"}),
            lambda key: store.apply({}, {"good": b"1"}, [key]),
            lambda key: store.apply({}, {"good": b"1"}, objects={"o/00": b"1", key: b"1"}),
        ]
        for key in NOT_STR:
            for call in calls:
                with pytest.raises(TypeError):
                    call(key)
            assert list(store.keys()) == [], key

    def test_one_str_or_an_iterator_where_keys_are_meant_is_refused(self, store: KVStore) -> None:
        store.set("a", b"1")
        for call in (
            lambda: store.get_many("ab"),
            lambda: store.delete_many("ab"),
            lambda: store.apply({}, {}, "ab"),
            lambda: store.apply({}, {}, (key for key in "ab")),  # type: ignore[arg-type]
        ):
            with pytest.raises(TypeError):
                call()
        assert store.get("a") == b"1"

    def test_key_that_does_not_encode_is_refused(self, store: KVStore) -> None:
        calls: list[Callable[[str], object]] = [
            store.get,
            store.delete,
            lambda key: store.get_many([key]),
            lambda key: store.set(key, b"1"),
        ]
        for key in ("\ud800", "a\udfffb", "o/\ud800"):
            for call in calls:
                with pytest.raises(InvalidArgumentError):
                    call(key)
        assert list(store.keys()) == []

    # Values and keys

    def test_value_comes_back_exactly(self, store: KVStore) -> None:
        for value in (b"", b"\0", bytes(range(256)), b"\xff" * 3, b"x" * 4096, b"y" * 70_000, bytes(5_000_000)):
            for key in ("k", "o/ab"):
                store.set(key, value)
                found = store.get(key)
                assert found == value
                assert type(found) is bytes
                assert store.get_many([key]) == {key: value}
                assert dict(store.items()) == {key: value}
                assert key in store
                store.delete(key)

    def test_nothing_is_there_at_first(self, store: KVStore) -> None:
        assert store.get("a") is None
        assert store.get("o/ab") is None
        assert store.get_many(["a", "o/ab"]) == {}
        assert list(store.keys()) == []
        assert list(store.items()) == []
        assert "a" not in store

    def test_set_replaces(self, store: KVStore) -> None:
        store.set("k", b"long" * 1000)
        store.set("k", b"short")
        assert store.get("k") == b"short"
        store.set("k", b"")
        assert store.get("k") == b""
        assert list(store.keys()) == ["k"]

    def test_odd_keys_are_kept_apart(self, store: KVStore) -> None:
        everything = {key: str(number).encode() for number, key in enumerate((*ODD_KEYS, *ODD_OBJECTS))}
        for key, value in everything.items():
            store.set(key, value)
        assert {key: store.get(key) for key in everything} == everything
        assert store.get_many(everything) == everything
        assert sorted(store.keys()) == sorted(everything)
        assert dict(store.items()) == everything
        for key in (*ODD_KEYS[::3], *ODD_OBJECTS[::3]):
            store.delete(key)
            del everything[key]
            assert store.get(key) is None
        assert dict(store.items()) == everything

    def test_odd_keys_in_one_batch(self, store: KVStore) -> None:
        mutable = {key: str(number).encode() for number, key in enumerate(ODD_KEYS)}
        objects = {key: str(number).encode() for number, key in enumerate(ODD_OBJECTS)}
        assert store.apply({}, mutable, objects=objects)
        assert store.get_many([*mutable, *objects]) == {**mutable, **objects}
        store.delete_many([*mutable, *objects])
        assert list(store.keys()) == []

    def test_prefix_lists_exactly_what_starts_with_it(self, store: KVStore) -> None:
        everything = (*ODD_KEYS, *ODD_OBJECTS)
        store.set_many(dict.fromkeys(everything, b"v"))
        prefixes = {key[:length] for key in everything for length in (0, 1, 2, 3, 4, len(key))} | {
            "absent",
            "o/1",
            "o/fe",
            "a\U0010fffe",
        }
        for prefix in prefixes:
            assert sorted(store.keys(prefix)) == sorted(key for key in everything if key.startswith(prefix)), prefix
        assert {key for key, _ in store.items("a")} == {key for key in everything if key.startswith("a")}

    def test_a_page_has_the_first_keys_of_a_prefix_in_order(self, store: KVStore) -> None:
        values = {key: key.encode() for key in (*ODD_KEYS, *ODD_OBJECTS)}
        store.set_many(values)
        prefixes = sorted({key[:length] for key in ODD_KEYS for length in (0, 1, 2, len(key))} | {"absent"})
        # About as many of them as the Hypothesis profile has examples.
        for prefix in prefixes[:: 1 + len(prefixes) // settings().max_examples]:
            keys = sorted(key for key in ODD_KEYS if key.startswith(prefix) and not key.startswith("o/"))
            assert store.page(prefix, limit=1000) == keys, prefix
            assert store.page(prefix, limit=1000, reverse=True) == keys[::-1], prefix
            assert list(store.page_items(prefix, limit=1000, reverse=True).items()) == [
                (key, values[key]) for key in keys[::-1]
            ]
            for after in (*keys[:3], *keys[-3:], "", "\U0010ffff" * 3):
                beyond, before = [key for key in keys if key > after], [key for key in keys if key < after]
                assert store.page(prefix, after=after, limit=2) == beyond[:2], (prefix, after)
                assert store.page(prefix, after=after, limit=2, reverse=True) == before[::-1][:2], (prefix, after)
        assert store.page(limit=0) == []

    def test_get_many_takes_any_iterable(self, store: KVStore) -> None:
        values = {f"o/{number:06x}": b"%d" % number for number in range(1100)} | {"k": b"0"}
        store.set_many(values)
        assert store.get_many([]) == {}
        assert store.get_many(key for key in ("k", "absent", "o/ffffff")) == {"k": b"0"}
        assert store.get_many(["k", "k", "o/000001", "o/000001"]) == {"k": b"0", "o/000001": b"1"}
        for count in (1, 2, 17, 256, 257, 1101):
            some = dict(list(values.items())[-count:])
            assert store.get_many(some.keys()) == some

    def test_sizes_are_those_of_the_values_or_not_known(self, store: KVStore) -> None:
        values = {f"o/{number:06x}": b"x" * number for number in range(200)} | {"k": b"0", "empty": b""}
        store.set_many(values)
        sizes = store.sizes([*values, "absent", "o/ffffff"])
        assert sizes == {key: len(value) for key, value in values.items()} if self.tells_sizes else sizes is None
        assert store.sizes([]) == ({} if self.tells_sizes else None)

    # Listing

    def test_long_listing_has_each_key_once(self, store: KVStore) -> None:
        everything = [f"k/{number}" for number in range(1100)] + [f"o/{number:06x}" for number in range(1100)]
        store.set_many(dict.fromkeys(everything, b"v"))
        assert sorted(store.keys()) == sorted(everything)
        assert sorted(store.keys("k/")) == sorted(key for key in everything if key.startswith("k/"))
        assert sorted(store.keys("o/0000")) == sorted(key for key in everything if key.startswith("o/0000"))

    @pytest.mark.parametrize("name", ["k/{:05}", "o/{:06x}"])
    def test_writes_may_go_on_during_a_listing(self, store: KVStore, name: str) -> None:
        stays = {name.format(number) for number in range(0, 1400, 2)}
        goes = {name.format(number) for number in range(1, 1400, 2)}
        store.set_many(dict.fromkeys(stays | goes, b"v"))
        seen: list[str] = []
        for step, key in enumerate(store.keys(name[:2])):
            seen.append(key)
            if step % 100 == 0:
                store.set(name.format(5000 + step), b"new")
                store.delete_many(sorted(goes)[:: step + 1])
                store.set(key, b"again")
        assert len(seen) == len(set(seen))
        assert stays <= set(seen)

    def test_everything_can_be_deleted_while_it_is_listed(self, store: KVStore) -> None:
        everything = [f"k/{number}" for number in range(1050)] + [f"o/{number:06x}" for number in range(1050)]
        store.set_many(dict.fromkeys(everything, b"v"))
        listing = store.keys()
        while some := list(islice(listing, 50)):
            store.delete_many(some)
        assert list(store.keys()) == []

    # Conditions

    def test_compare_and_set(self, store: KVStore) -> None:
        assert store.compare_and_set("k", None, b"1") is True
        assert store.compare_and_set("k", None, b"2") is False
        assert store.compare_and_set("k", b"2", b"3") is False
        assert store.compare_and_set("k", b"1", b"") is True
        assert store.compare_and_set("k", None, b"4") is False
        assert store.compare_and_set("k", b"", b"4") is True
        assert store.get("k") == b"4"

    # Batches

    def test_apply_with_expectations_that_hold(self, store: KVStore) -> None:
        assert store.apply({"ref": None}, {"ref": b"1"}, objects={"o/aa": b"A"})
        assert store.apply({"ref": b"1"}, {"ref": b"2", "other": b"x"}, objects={"o/bb": b"B"})
        assert store.apply({"ref": b"2"}, {}, ["other"])
        assert dict(store.items()) == {"ref": b"2", "o/aa": b"A", "o/bb": b"B"}
        assert store.apply({"ref": b"2"}, {})
        assert store.apply({"absent": None}, {})
        assert store.apply({}, {})

    def test_apply_with_an_expectation_that_fails_stores_only_objects(self, store: KVStore) -> None:
        store.set_many({"ref": b"1", "gone": b"1", "o/cc": b"C"})
        failing: list[dict[str, bytes | None]] = [
            {"ref": None},
            {"ref": b"2"},
            {"ref": b""},
            {"ref": b"1\0"},
            {"absent": b""},
            {"absent": b"1"},
        ]
        for expected in failing:
            assert store.apply(expected, {"ref": b"9", "new": b"9"}, ["gone", "o/cc"], objects={"o/aa": b"A"}) is False
            assert dict(store.items()) == {"ref": b"1", "gone": b"1", "o/cc": b"C", "o/aa": b"A"}, expected
            assert not store.apply(expected, {})
            store.delete("o/aa")

    def test_one_of_several_expectations_fails(self, store: KVStore) -> None:
        if store.max_expected is not None and store.max_expected < 3:
            with pytest.raises(InvalidArgumentError):
                store.apply({"a": None, "b": None, "c": None}, {"a": b"1"})
            assert list(store.keys()) == []
            return
        store.set_many({"a": b"1", "b": b"2"})
        for failing in ({"a": b"x"}, {"b": b"x"}, {"c": b"x"}):
            assert not store.apply({"a": b"1", "b": b"2", "c": None, **failing}, {"a": b"9", "c": b"9"}, ["b"])
        assert dict(store.items()) == {"a": b"1", "b": b"2"}
        assert store.apply({"a": b"1", "b": b"2", "c": None}, {"a": b"9", "c": b"9"}, ["b"])
        assert dict(store.items()) == {"a": b"9", "c": b"9"}

    def test_key_in_the_wrong_place_is_refused(self, store: KVStore) -> None:
        store.set("k", b"1")
        calls: list[Callable[[], object]] = [
            lambda: store.apply({}, {"good": b"1", "o/ab": b"1"}),
            lambda: store.apply({"o/ab": None}, {"good": b"1"}),
            lambda: store.apply({}, {"good": b"1"}, objects={"o/00": b"1", "k": b"1"}),
            lambda: store.apply({}, {"good": b"1", "k": b"2"}, ["k"]),
            lambda: store.apply({}, {"good": b"1"}, ["o/ab"], objects={"o/ab": b"1"}),
            lambda: store.compare_and_set("o/ab", None, b"1"),
        ]
        for call in calls:
            with pytest.raises(InvalidArgumentError):
                call()
        assert dict(store.items()) == {"k": b"1"}

    def test_object_is_never_overwritten(self, store: KVStore) -> None:
        for key in ("o/ab", "o/not hex"):
            store.set(key, b"first")
            store.set(key, b"second")
            store.set_many({key: b"third", "k": b"1"})
            assert store.apply({}, {"k": b"2"}, objects={key: b"fourth"})
            assert store.get(key) == b"first"
            store.delete(key)
            assert store.get(key) is None
            store.set(key, b"fifth")
            assert store.get(key) == b"fifth"

    def test_deleting_what_is_not_there(self, store: KVStore) -> None:
        store.set("k", b"1")
        store.delete("absent")
        store.delete("o/ab")
        store.delete_many(key for key in ("absent", "o/cd", "o/not hex", "k", "k"))
        assert store.apply({"k": None}, {}, ["k"])
        store.delete_many([])
        assert list(store.keys()) == []

    def test_large_batch(self, store: KVStore) -> None:
        objects = {f"o/{number:048x}": b"%d" % number * 50 for number in range(1100)}
        mutable = {f"k/{number}": b"%d" % number for number in range(100)}
        assert store.apply({"ref": None}, {**mutable, "ref": b"1"}, objects=objects)
        assert store.get_many([*objects, *mutable]) == {**objects, **mutable}
        assert store.apply({"ref": b"1"}, {"ref": b"2"}, [*objects, *mutable])
        assert dict(store.items()) == {"ref": b"2"}

    # Several batches

    def test_each_of_several_batches_is_applied_by_itself(self, store: KVStore) -> None:
        store.set_many({"a": b"1", "b": b"1", "c": b"1"})
        batches = [
            Batch({"a": b"1"}, {"a": b"2"}, ["c"], {"o/aa": b"A"}),
            Batch({"b": b"not this"}, {"b": b"2"}, objects={"o/bb": b"B"}),
            Batch({}, {"o/cc": b"misplaced"}),
            Batch({"d": None}, {"d": b"1"}, objects={"o/dd": b"D" * 3000}),
            Batch({"e": None}, {"e": b"1"}, objects={f"o/{number:048x}": b"%d" % number for number in range(300)}),
        ]
        outcomes = store.apply_each(batches)
        assert [*outcomes[:2], *outcomes[3:]] == [True, False, True, True]
        assert isinstance(outcomes[2], InvalidArgumentError)
        expected = {
            "a": b"2",
            "b": b"1",
            "d": b"1",
            "e": b"1",
            "o/aa": b"A",
            "o/bb": b"B",
            "o/dd": b"D" * 3000,
            **batches[4].objects,
        }
        assert dict(store.items()) == expected
        assert store.apply_each([]) == []

    # Threads

    def test_counter_of_many_threads_is_exact(self, store: KVStore) -> None:
        run_together([partial(count_up, store, 12)] * 8)
        assert store.get("counter") == b"96"
        assert len(list(store.keys("o/"))) == 96

    def test_ref_is_never_seen_before_its_object(self, store: KVStore) -> None:
        missing: list[str] = []
        store.apply({}, {"ref": b"o/ffffffff"}, objects={"o/ffffffff": b"v"})

        def write() -> None:
            for number in range(60):
                name = f"o/{number:08x}"
                store.apply({}, {"ref": name.encode()}, objects={name: b"v" * number, f"{name}00": b"w"})

        def read() -> None:
            for _ in range(120):
                name = (store.get("ref") or b"").decode()
                if store.get(name) is None:
                    missing.append(name)

        run_together([write, read, read])
        assert missing == []

    def test_batches_of_many_threads_are_whole(self, store: KVStore) -> None:
        """Let each thread write its own name to all keys at once: one of them owns all keys at the end."""
        keys = [f"k/{number}" for number in range(20)]

        def write(name: bytes) -> None:
            for _ in range(8):
                store.apply({}, dict.fromkeys(keys, name))

        run_together([partial(write, bytes([number])) for number in range(6)])
        assert len(set(store.get_many(keys).values())) == 1

    def test_close_while_threads_are_at_work(self, place: Path) -> None:
        """Each call of another thread is done, or says that the store is closed."""

        def use(store: KVStore, name: str) -> None:
            with suppress(StoreClosedError):
                while True:
                    store.apply({}, {name: b"1"}, objects={f"o/{name}": b"v"})
                    assert store.get(name) == b"1"
                    assert name in list(store.keys("a"))
                    progress.add(name)

        def close(store: KVStore) -> None:
            while len(progress) < len(names):
                time.sleep(0.001)
            store.close()

        names = ("aa", "ab", "ac")
        for _ in range(3):
            progress: set[str] = set()
            store = self.open_store(place)
            run_together([*(partial(use, store, name) for name in names), partial(close, store)])
            self.check_closed(place)

    # Writers in several stores at one place, as on several machines; in one store where a place has no more than one

    @pytest.fixture
    def writers(self, place: Path) -> Iterator[list[KVStore]]:
        """Four stores at one place, opened at the same moment: each of them may be the one that makes it."""
        with ExitStack() as stack:
            if self.shared:
                yield [stack.enter_context(store) for store in run_together([partial(self.open_store, place)] * 4)]
            else:
                yield [stack.enter_context(self.open_store(place))] * 4

    def test_counter_of_several_stores_is_exact(self, writers: list[KVStore]) -> None:
        run_together([partial(count_up, store, 15) for store in writers])
        assert writers[0].get("counter") == b"60"
        assert len(list(writers[0].keys("o/"))) == 60

    @pytest.mark.parametrize("before", [None, b"0"])
    @pytest.mark.parametrize("more", [[], ["born/"]], ids=["one key", "two keys"])
    def test_of_writers_that_expect_the_same_one_wins(
        self, writers: list[KVStore], before: bytes | None, more: list[str]
    ) -> None:
        for number in range(5):
            ref = f"ref/{number}"
            if before is not None:
                writers[0].set(ref, before)
            names = [b"%d" % name for name in range(1, 5)]
            won = run_together(
                partial(store.apply, {ref: before}, {ref: name, **{each + ref: name for each in more}})
                for store, name in zip(writers, names, strict=True)
            )
            assert won.count(True) == 1
            assert {writers[0].get(each + ref) for each in ("", *more)} == {names[won.index(True)]}

    @pytest.mark.parametrize("before", [None, b"0"])
    def test_a_key_that_is_only_expected_is_held_too(self, writers: list[KVStore], before: bytes | None) -> None:
        """Each of two writers changes the key that the other expects: if both won, no order would explain it."""
        for number in range(self.races):
            a, b = f"a/{number}", f"b/{number}"
            if before is not None:
                writers[0].set_many({a: before, b: before})
            won = run_together(
                [partial(writers[0].apply, {a: before}, {b: b"1"}), partial(writers[1].apply, {b: before}, {a: b"1"})]
            )
            assert won.count(True) == 1

    def test_no_ref_lacks_an_object_beside_a_sweep(self, writers: list[KVStore]) -> None:
        """A sweep deletes objects on the condition that the ref is as it was.

        Meanwhile a commit of the same objects moves the ref.
        """
        if writers[0].max_expected == 1:
            return  # gc refuses such a store
        for number in range(self.races):
            ref, objects = f"ref/{number}", {f"o/{number:08x}{each:04x}": b"v" * 200 for each in range(10)}
            writers[0].set_many({ref: b"old", **objects})
            _, committed = run_together(
                [
                    partial(writers[0].apply, {ref: b"old"}, {}, list(objects)),
                    partial(writers[1].apply, {ref: b"old"}, {ref: b"new"}, objects=objects),
                ]
            )
            assert committed
            assert writers[2].get_many(objects) == objects

    # Processes and forks

    def test_counter_of_several_processes_is_exact(self, place: Path) -> None:
        """They are the first to open the store: each of them may be the one that makes it."""
        if not self.forks:
            return

        def work() -> None:
            with self.open_store(place) as store:
                count_up(store, 25)

        join_forked(start_forked([work] * 4))
        self._check_counter(place, 100)

    def test_parent_and_child_go_on_with_one_store(self, place: Path) -> None:
        if not self.forks:
            return
        store = self.open_store(place)
        count_up(store, 5)

        def work() -> None:
            count_up(store, 20)
            store.close()

        children = start_forked([work] * 3)
        count_up(store, 20)
        # The parent closes first, which must take nothing away from a child.
        store.close()
        join_forked(children)
        self._check_counter(place, 85)

    def test_fork_while_other_threads_write(self, place: Path) -> None:
        if not self.forks:
            return
        store = self.open_store(place)
        threads = [Thread(target=count_up, args=(store, 40), daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(4):
            join_forked(start_forked([partial(count_up, store, 2)]))
        for thread in threads:
            thread.join()
        store.close()
        self._check_counter(place, 88)

    def test_child_that_ends_without_closing_harms_nobody(self, place: Path) -> None:
        if not self.forks:
            return
        with self.open_store(place) as store:
            for _ in range(3):
                count_up(store, 3)
                join_forked(start_forked([partial(count_up, store, 3)]))
            assert store.get("counter") == b"18"
        self._check_counter(place, 18)

    def test_child_of_a_closed_store_finds_it_closed(self, place: Path) -> None:
        if not self.forks:
            return
        store = self.open_store(place)
        store.close()

        def work() -> None:
            with pytest.raises(StoreClosedError):
                store.get("k")

        join_forked(start_forked([work]))

    def test_listing_that_is_under_way_goes_on_in_parent_and_child(self, place: Path) -> None:
        if not self.forks:
            return
        with self.open_store(place) as store:
            everything = {f"k/{number}" for number in range(6000)}  # more than a page
            store.set_many(dict.fromkeys(everything, b"v"))
            listing = store.keys()
            first = next(listing)

            def work() -> None:
                assert {first, *listing} == everything

            join_forked(start_forked([work]))
            work()

    def _check_counter(self, place: Path, wanted: int) -> None:
        with self.open_store(place) as store:
            assert store.get("counter") == b"%d" % wanted
            assert len(list(store.keys("o/"))) == wanted
        self.check_closed(place)

    # Lifetime

    def test_closed_store_says_so(self, place: Path) -> None:
        store = self.open_store(place)
        store.set_many({"k": b"1", "o/ab": b"2"})
        store.get("o/ab")
        store.close()
        store.close()
        calls: list[Callable[[], object]] = [
            lambda: store.get("k"),
            lambda: store.get("o/ab"),
            lambda: store.get_many(["k", "o/ab"]),
            lambda: store.get_many([]),
            store.keys,
            lambda: store.page(limit=1),
            lambda: store.page_items("k", limit=1),
            lambda: list(store.items()),
            lambda: "k" in store,
            lambda: store.set("k", b"2"),
            lambda: store.set_many({}),
            lambda: store.delete("k"),
            lambda: store.delete_many(["k"]),
            lambda: store.compare_and_set("k", None, b"1"),
            lambda: store.apply({}, {}),
        ]
        for call in calls:
            with pytest.raises(StoreClosedError):
                call()

    def test_forgotten_store_closes_itself(self, place: Path) -> None:
        store = self.open_store(place)
        store.set("k", b"1")
        listing = store.keys()
        del store, listing
        gc.collect()
        self.check_closed(place)

    def test_with_statement_closes(self, place: Path) -> None:
        with self.open_store(place) as store:
            store.set("k", b"1")
        with pytest.raises(StoreClosedError):
            store.get("k")
        self.check_closed(place)

    def test_attributes(self, store: KVStore) -> None:
        assert type(store.private) is bool
        assert store.max_expected is None or store.max_expected >= 1

    def test_reopened_store_holds_what_was_written(self, place: Path) -> None:
        if not self.persistent:
            return
        everything = {key: str(number).encode() for number, key in enumerate((*ODD_KEYS, *ODD_OBJECTS))}
        with self.open_store(place) as store:
            store.set_many(everything)
        with self.open_store(place) as store:
            assert dict(store.items()) == everything
            store.delete_many(everything)
        with self.open_store(place) as store:
            assert list(store.keys()) == []

    def test_two_stores_at_one_place_see_each_other(self, place: Path) -> None:
        if not self.shared:
            return
        with self.open_store(place) as one, self.open_store(place) as other:
            assert one.compare_and_set("ref", None, b"1")
            assert other.get("ref") == b"1"
            assert not other.compare_and_set("ref", None, b"2")
            assert other.apply({"ref": b"1"}, {"ref": b"2"}, objects={"o/ab": b"x"})
            assert not one.compare_and_set("ref", b"1", b"3")
            assert (one.get("ref"), one.get("o/ab")) == (b"2", b"x")
            other.delete_many(["ref", "o/ab"])
            assert one.get("ref") is None

    # Everything together

    def test_any_sequence_of_calls_agrees_with_a_dict(self, tmp_path: Path) -> None:
        check_against_model(self.open_store, tmp_path, reopens=self.persistent)
