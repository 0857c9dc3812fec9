"""Each byte of a store's file is changed: every read raises an error of ours, or gives what it gave before.

None is silently wrong.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.exact import exact
from tests.support.numbered_rounds import DISK, KINDS, Kind, change
from versioned_state import Repository, StateError, Versioned
from versioned_state.storage import Disk, KVStore


def make(kind: Kind, place: Path) -> bytes:
    """Make a store of about 50 KB with several commits, a branch and a tag. Return its file."""
    dice = random.Random(1)
    with kind.open(place) as store, Versioned(store) as state:
        state["text"] = dice.randbytes(6000).hex()
        state["bytes"] = dice.randbytes(14_000)
        for n in range(1, 4):
            change(state, n)
            state.commit(f"round {n}", meta={"n": n})
        state.repository.tags.create("v1", "HEAD~1")
        state.repository.branches.create("side", "HEAD~1")
    whole = (place / kind.file).read_bytes()
    assert 40_000 < len(whole) < 80_000
    return whole


def answers(store: KVStore) -> dict[str, Any]:
    """What each read gives, or the error of ours that it raises. Every other error goes on."""
    repository = Repository(store)
    reads: dict[str, Callable[[], Any]] = {
        "log": lambda: [(c.id, c.message, dict(c.meta), c.time, c.root, c.parents) for c in repository.log("main")],
        "main": lambda: exact(repository.snapshot("main").copy()),
        "v1": lambda: exact(repository.snapshot("v1").copy()),
        "branches": lambda: {name: commit.id for name, commit in repository.branches.items()},
        "tags": lambda: {name: commit.id for name, commit in repository.tags.items()},
        "side": lambda: "side" in repository.branches,
    }
    found: dict[str, Any] = {}
    for name, read in reads.items():
        try:
            found[name] = read()
        except StateError as error:
            found[name] = error
    return found


def look(kind: Kind, place: Path) -> dict[str, Any]:
    try:
        # Read-only where there is that, since it is much the faster way to open a file that nobody writes.
        with Disk(place, read_only=True) if kind is DISK else kind.open(place, create=False) as store:
            return answers(store)
    except StateError as error:
        return {"opening": error}


def overwrite(file: Path, content: bytes) -> None:
    """Give the file this content without truncating it first, which takes longer than all of the reads."""
    descriptor = os.open(file, os.O_WRONLY)
    try:
        os.write(descriptor, content)
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)


# In parts, so that workers share them.
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_flipped_bit_gives_a_wrong_answer(tmp_path, kind, part, long_run):
    place = tmp_path / "store"
    whole = make(kind, place)
    right = look(kind, place)
    assert not any(isinstance(answer, StateError) for answer in right.values())
    dice = random.Random(part)
    raised = 0
    positions = range(part, len(whole), PARTS)
    if not long_run:
        # One byte in 97; of the other kind, whose pages are read by the same SQLite, fewer.
        positions = positions[::97] if kind is DISK else positions[:: 41 * 4]
    for at in positions:
        for bit in range(8) if long_run else (dice.randrange(8),):
            overwrite(place / kind.file, whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            found = look(kind, place)
            if "opening" in found:
                raised += 1
                continue
            raised += any(isinstance(answer, StateError) for answer in found.values())
            for name, answer in found.items():
                assert isinstance(answer, StateError) or answer == right[name], (at, bit, name)
    # Much of a file is room that is not used, or what nothing that was asked for needs.
    assert raised > len(positions) // 10


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_truncated_file_gives_a_wrong_answer(tmp_path, kind):
    place = tmp_path / "store"
    whole = make(kind, place)
    right = look(kind, place)
    for length in range(len(whole)):
        (place / kind.file).write_bytes(whole[:length])
        for name, answer in look(kind, place).items():
            assert isinstance(answer, StateError) or answer == right[name], (length, name)
