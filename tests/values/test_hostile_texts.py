"""Texts that are not UTF-8 at the bottom of nested values: each reader says so, in time linear in the bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import pytest

from tests.support.counted_calls import calls_of
from tests.support.crafted_stores import craft, one, tree
from versioned_state import Repository, Versioned
from versioned_state.errors import CorruptObjectError, InvalidArgumentError, StateError
from versioned_state.services.remote import bodies
from versioned_state.values.cells import Code, array, extension, pack_text, typed_cell

BAD = b"\xa4\xff\xff\xff\xff"
WRAPS: dict[str, Callable[[bytes], bytes]] = {
    "tuple": lambda cell: extension(Code.TUPLE, array([cell])),
    "list": lambda cell: array([cell]),
    "frozenset": lambda cell: extension(Code.FROZENSET, array([cell])),
    "typed": lambda cell: typed_cell(pack_text("app:Gone"), None, b"\x81\xa1a" + cell),
    "notes": lambda cell: typed_cell(pack_text("app:Gone"), b"\x81\xa6fields" + b"\x81\xa1a" + cell, b"\x90"),
    "tuple with a lone surrogate": lambda cell: extension(Code.TUPLE, array([cell, pack_text("\udcff")])),
}


def wrapped(kind: str, depth: int, cell: bytes = BAD) -> bytes:
    for _ in range(depth):
        cell = WRAPS[kind](cell)
    return cell


@pytest.mark.parametrize("kind", WRAPS)
def test_a_body_is_refused_in_linear_time(kind: str):
    def refuse(body: bytes) -> None:
        with pytest.raises(InvalidArgumentError, match="UnicodeDecodeError"):
            bodies.decode(body)

    work = [calls_of(partial(refuse, wrapped(kind, depth)), most=1_000_000) for depth in (40, 80)]
    assert work[1] <= 2.3 * work[0]


@pytest.mark.parametrize("kind", WRAPS)
def test_every_reader_of_a_store_ends_and_says_what_is_wrong(kind: str):
    store = craft(lambda _put: one(wrapped(kind, 40)))
    readers: list[Callable[[], object]] = [
        lambda: Versioned(Repository(store))["a"],
        lambda: Repository(store).snapshot("main")["a"],
        lambda: str(Repository(store).diff("main~1", "main")),
        lambda: Repository(store).diff("main~1", "main").to_patch(),
        lambda: list(Repository(store).blame("a")),
        lambda: list(Repository(store).grep("x", "main")),
        lambda: list(Repository(store).log("main", changed="x")),
    ]

    def ask(read: Callable[[], object]) -> None:
        with contextlib.suppress(StateError):
            read()

    for read in readers:
        assert calls_of(partial(ask, read), most=1_000_000)
    report = Repository(store).fsck()
    assert not report.ok
    with pytest.raises(CorruptObjectError):
        readers[0]()


def test_grep_says_which_text_is_not_utf_8():
    repository = Repository(craft(lambda _put: one(b"\xa1\xff")))
    with pytest.raises(CorruptObjectError, match="not UTF-8"):
        list(repository.grep("x", "main"))


def test_keys_that_are_not_utf_8_are_corrupt_to_every_reader():
    repository = Repository(craft(lambda _put: one(b"\x82\xa1\xff\x01\xa1a\x02")))
    for read in (lambda: list(repository.grep("x", "main")), lambda: repository.snapshot("main")["a"]):
        with pytest.raises(CorruptObjectError):
            read()


def test_a_packed_value_within_a_packed_one_is_corrupt():
    def make(put: Callable[[bytes], bytes]) -> tuple[int, object]:
        inner = b"\x93\x01\x02\x03"
        for _ in range(5):
            inner = tree(Code.PACKED, len(inner), put(b"\x14" + inner))
        return one(inner)

    with pytest.raises(CorruptObjectError):
        Repository(craft(make)).snapshot("main")["a"]
