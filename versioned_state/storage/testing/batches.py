"""The part of ``KVStoreContract`` on batches: ``apply`` and ``apply_each``. Layer: storage."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from versioned_state.errors import InvalidArgumentError
from versioned_state.storage import KVStore
from versioned_state.storage.base import Batch


class BatchesContract:
    """Tests of batches; ``store`` is the fixture of ``KVStoreContract``."""

    def test_apply_with_expectations_that_hold(self, store: KVStore) -> None:
        assert store.apply({"ref": None}, {"ref": b"1"}, objects={"o/aa": b"A"})
        assert store.apply({"ref": b"1"}, {"ref": b"2", "other": b"x"}, objects={"o/bb": b"B"})
        assert store.apply({"ref": b"2"}, {}, ["other"])
        assert dict(store.items()) == {"ref": b"2", "o/aa": b"A", "o/bb": b"B"}
        assert store.apply({"ref": b"2"}, {})
        assert store.apply({"absent": None}, {})
        assert store.apply({}, {})

    @pytest.mark.parametrize("expected", [{"ref": None}, {"ref": b"2"}, {"ref": b""}, {"ref": b"1\0"}, {"absent": b""}, {"absent": b"1"}])
    def test_apply_with_an_expectation_that_fails_stores_only_objects(self, store: KVStore, expected: dict[str, bytes | None]) -> None:
        store.set_many({"ref": b"1", "gone": b"1", "o/cc": b"C"})
        assert store.apply(expected, {"ref": b"9", "new": b"9"}, ["gone", "o/cc"], objects={"o/aa": b"A"}) is False
        assert dict(store.items()) == {"ref": b"1", "gone": b"1", "o/cc": b"C", "o/aa": b"A"}
        assert not store.apply(expected, {})

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
        objects = {f"o/{number:048x}": b"%d" % number * 50 for number in range(2100)}
        mutable = {f"k/{number}": b"%d" % number for number in range(300)}
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
        expected = {"a": b"2", "b": b"1", "d": b"1", "e": b"1", "o/aa": b"A", "o/bb": b"B", "o/dd": b"D" * 3000, **batches[4].objects}
        assert dict(store.items()) == expected
        assert store.apply_each([]) == []
