"""``StoreModel``, a Hypothesis machine that makes the same calls on a store and on two dicts. Layer: storage.

It is a part of ``KVStoreContract``, and for tests only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from versioned_state.storage.base import KVStore

# Few keys, so that calls often meet the same key, and a few arbitrary ones.
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
_mutable = st.sampled_from(("", "a", "a/b", "a/c", "ab", "b", "o", "p", "é")) | _text.map(lambda text: "x" + text)
_objects = st.sampled_from(("o/", "o/00", "o/ab", "o/abcd", "o/abc", "o/AB", "o/x y")) | _text.map(
    lambda text: "o/" + text
)
_keys = _mutable | _objects
_values = st.binary(max_size=6) | st.sampled_from((b"", b"v" * 5000))


class StoreModel(RuleBasedStateMachine):
    """After every call the store must have answered as the dicts do, and must hold the same keys and values."""

    def __init__(self, open_store: Callable[[Path], KVStore], place: Path, *, reopens: bool) -> None:
        super().__init__()
        self.open: Final = partial(open_store, place)
        self.reopens = reopens
        self.store: KVStore = self.open()
        self.mutable: dict[str, bytes] = {}
        self.objects: dict[str, bytes] = {}

    @property
    def everything(self) -> dict[str, bytes]:
        return {**self.mutable, **self.objects}

    @rule(key=_keys)
    def get(self, key: str) -> None:
        assert self.store.get(key) == self.everything.get(key)
        assert (key in self.store) == (key in self.everything)

    @rule(keys=st.lists(_keys, max_size=6))
    def get_many(self, keys: list[str]) -> None:
        assert self.store.get_many(keys) == {key: self.everything[key] for key in keys if key in self.everything}

    @rule(prefix=_keys | _text)
    def list_prefix(self, prefix: str) -> None:
        assert sorted(self.store.keys(prefix)) == sorted(key for key in self.everything if key.startswith(prefix))

    @rule(key=_mutable, value=_values)
    def set_mutable(self, key: str, value: bytes) -> None:
        self.store.set(key, value)
        self.mutable[key] = value

    @rule(key=_objects)
    def set_object(self, key: str) -> None:
        self.store.set(key, _object(key))
        self.objects[key] = _object(key)

    @rule(mutable=st.dictionaries(_mutable, _values, max_size=4), objects=st.lists(_objects, max_size=4))
    def set_many(self, mutable: dict[str, bytes], objects: list[str]) -> None:
        added = {key: _object(key) for key in objects}
        self.store.set_many({**mutable, **added})
        self.mutable |= mutable
        self.objects |= added

    @rule(keys=st.lists(_keys, max_size=4))
    def delete_many(self, keys: list[str]) -> None:
        self.store.delete_many(keys)
        self._forget(keys)

    @rule(
        data=st.data(),
        expected=st.lists(_mutable, max_size=3, unique=True),
        puts=st.dictionaries(_mutable, _values, max_size=3),
        deletes=st.lists(_keys, max_size=3),
        objects=st.lists(_objects, max_size=3, unique=True),
    )
    def apply(
        self, data: st.DataObject, expected: list[str], puts: dict[str, bytes], deletes: list[str], objects: list[str]
    ) -> None:
        wanted: dict[str, bytes | None] = {
            # Mostly the current value, so that about half of the batches succeed.
            key: data.draw(st.sampled_from([self.mutable.get(key)] * 3 + [None, b"", b"other"]))
            for key in expected[: self.store.max_expected]
        }
        deletes = [key for key in deletes if key not in puts and key not in objects]
        added = {key: _object(key) for key in objects}
        holds = all(self.mutable.get(key) == value for key, value in wanted.items())
        assert self.store.apply(wanted, puts, deletes, objects=added) is holds
        self.objects |= added
        if holds:
            self.mutable |= puts
            self._forget(deletes)

    @precondition(lambda self: self.reopens)
    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.open()

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert dict(self.store.items()) == self.everything

    def teardown(self) -> None:
        self.store.close()

    def _forget(self, keys: list[str]) -> None:
        for key in keys:
            self.mutable.pop(key, None)
            self.objects.pop(key, None)


def check_against_model(open_store: Callable[[Path], KVStore], folder: Path, *, reopens: bool) -> None:
    """Run the machine. Each example opens a store of its own in ``folder``."""
    places = count()

    class Model(StoreModel):
        def __init__(self) -> None:
            super().__init__(open_store, folder / f"model-{next(places)}", reopens=reopens)

    # A fifth of the profile's examples: each makes a store of its own and up to 50 calls, and many stores share their
    # base.
    examples = max(5, settings().max_examples // 5)
    checks = settings(
        max_examples=examples, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(Model, settings=checks)


def _object(key: str) -> bytes:
    # The value of an object is a function of its key.
    return b"object " + key.encode()
