"""A commit that was read is a plain record, whether its tree is decoded yet or not."""

from __future__ import annotations

import copy
import pickle
import threading
from contextlib import suppress
from dataclasses import FrozenInstanceError, fields, replace
from functools import partial

import pytest

from tests.support.interrupts import Interrupt, interrupts
from versioned_state.errors import CorruptObjectError
from versioned_state.objects.address import address_of
from versioned_state.repository.history import commit as module
from versioned_state.repository.history.commit import ROOT, Commit, new_commit, read_commit
from versioned_state.storage.testing.writers import run_together
from versioned_state.values.trees.nodes import Shape
from versioned_state.values.trees.references import read_tree
from versioned_state.values.trees.tree import Tree

TREE = Tree(Shape.MAP, 3, b"t" * 24)
MADE, RAW = new_commit(TREE, (ROOT,), time=7, author="ann", message="one", meta_cell=None, jump=None, tag="first")


def undecoded() -> Commit:
    return read_commit(MADE.address, RAW)


def decoded() -> Commit:
    commit = undecoded()
    assert commit.tree == TREE
    return commit


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The trees that were decoded since."""
    found: list[object] = []

    def read(shape: Shape, stored: object) -> Tree:
        found.append(stored)
        return TREE

    monkeypatch.setattr(module, "read_tree", read)
    return found


def test_a_tree_is_decoded_when_it_is_used_and_once(decodings):
    commit = undecoded()
    assert (commit.message, commit.tag, commit.height, repr(commit)) == ("one", "first", 1, repr(MADE))
    assert commit == MADE
    assert hash(commit) == hash(MADE)
    assert decodings == []
    assert commit.tree is commit.tree
    assert decodings == [[3, b"t" * 24]]


def test_the_tree_of_a_commit_that_was_made_is_as_it_was_given(decodings):
    assert MADE.tree is TREE
    assert decodings == []


RECORDS = pytest.mark.parametrize("make", [lambda: MADE, decoded, undecoded], ids=["made", "decoded", "undecoded"])


@RECORDS
@pytest.mark.parametrize(
    "again",
    [copy.copy, copy.deepcopy, replace, *(lambda c, n=n: pickle.loads(pickle.dumps(c, n)) for n in range(2, 6))],
)
def test_a_copy_has_every_field(make, again):
    found = again(make())
    assert type(found) is Commit
    assert found == MADE
    assert {each.name: getattr(found, each.name) for each in fields(found)} == {
        each.name: getattr(MADE, each.name) for each in fields(MADE)
    }


@RECORDS
def test_no_field_can_be_set_or_deleted(make):
    commit = make()
    with pytest.raises(FrozenInstanceError):
        commit.tree = TREE
    with pytest.raises(FrozenInstanceError):
        del commit.tree
    assert commit.tree == TREE


@RECORDS
def test_an_attribute_that_no_commit_has_is_an_attribute_error(make):
    with pytest.raises(AttributeError, match="'Commit' object has no attribute 'trees'"):
        _ = make().trees
    assert not hasattr(make(), "__deepcopy__")


def test_a_damaged_tree_is_an_error_each_time():
    raw = RAW.replace(b"\x03\xc4\x18" + b"t" * 24, b"\x03\xc4\x17" + b"t" * 23)
    assert raw != RAW
    commit = read_commit(address_of(raw), raw)
    for _ in range(2):
        with pytest.raises(CorruptObjectError):
            _ = commit.tree
    assert commit.message == "one"


def test_threads_that_meet_at_the_first_use_find_one_tree(monkeypatch):
    both = threading.Barrier(2)

    def read(shape: Shape, stored: list[object]) -> Tree:
        both.wait(5)
        return read_tree(shape, stored)

    monkeypatch.setattr(module, "read_tree", read)
    commit = undecoded()
    assert run_together([lambda: commit.tree] * 2) == [TREE, TREE]
    assert commit.tree == TREE


def test_an_interrupt_at_the_first_use_leaves_a_commit_that_has_its_tree():
    for trace in interrupts(1):
        commit = undecoded()
        with suppress(Interrupt):
            trace.run(partial(getattr, commit, "tree"))
        assert commit.tree == TREE
