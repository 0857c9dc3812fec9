"""A format that changes by accident fails here: the hashes of every kind of value, and an earlier release's store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.golden.cases import HASHES, INDEXED, STORE, VALUES, fill, fill_indexed, table
from tests.support.codec import new_nodes
from tests.support.exact import exact
from tests.support.segments import own_bytes
from versioned_state import Disk, Memory, ObjectInfo, Repository, Versioned
from versioned_state.errors import PickleRefusedError
from versioned_state.objects.address import ADDRESS_SIZE, address_of
from versioned_state.objects.envelope import MAX_HEAD, MAX_OBJECT, MAX_SEGMENT, MAX_SEGMENTS, seal, unseal
from versioned_state.repository.format import FORMAT_VERSION
from versioned_state.repository.history.commit import MAX_TEXT
from versioned_state.values.cells import ELEMENT_INLINE, ENTRY_INLINE, MAX_DEPTH, MAX_KEY, Code, pack
from versioned_state.values.series import GROUP, series_of
from versioned_state.values.trees.blob import CHUNK_BYTES, TEXT_GREATEST, TEXT_LEAST, TEXT_SCALE
from versioned_state.values.trees.chunker import (
    LEAF_GREATEST,
    LEAF_LEAST,
    LEAF_SCALE,
    NODE_GREATEST,
    NODE_LEAST,
    NODE_SCALE,
)
from versioned_state.values.trees.edit import INLINE_TOP
from versioned_state.values.trees.segments import LEAF_IN_SEGMENTS, NODE_IN_SEGMENTS, RUN, RUN_MOST, SEGMENT_LEAST

pytestmark = pytest.mark.every_case


def test_hashes_are_what_they_were():
    assert table().splitlines() == HASHES.read_text().splitlines()


@pytest.fixture
def store(tmp_path: Path) -> Disk:
    return copied(STORE, tmp_path / "store")


def copied(store: Path, folder: Path) -> Disk:
    """A copy of a store, since opening one writes to its folder."""
    shutil.copytree(store, folder)
    folder.chmod(0o700)
    (folder / "store.sqlite3").chmod(0o600)
    return Disk(folder)


@pytest.mark.parametrize("name", VALUES)
def test_every_value_is_read_back(store, name):
    with store:
        assert exact(Repository(store).snapshot("v1")[name]) == exact(VALUES[name])


def test_the_store_has_no_fault(store):
    with store:
        assert Repository(store).fsck().findings == ()


def test_all_else_is_read_back(store):
    with store:
        repository = Repository(store)
        assert list(repository.snapshot("v1")) == sorted(VALUES)
        assert list(repository.branches) == ["main", "objects", "side/branch"]
        assert list(repository.tags) == ["v1"]
        log = list(repository.log("main"))
        assert [(commit.message, commit.author) for commit in log] == [("none", "golden"), ("all of them", "golden")]
        assert dict(log[1].meta) == {"kinds": len(VALUES), "tuple": (1, None)}
        assert log[1].time == 1_700_000_000_000_000
        assert [position.action for position in repository.reflog("main")][:4] == [
            "commit",
            "reset",
            "commit",
            "commit",
        ]
        side = repository.snapshot("side/branch")
        assert side["list"] == [*VALUES["list"], "more"]
        assert side.namespace("space").namespace("inner")["k"] == {"deep": [1]}
        assert [str(change.path) for change in repository.diff("v1", "side/branch")] == ["list[3]", "@space.@inner.k"]


def test_an_object_is_read_back_where_that_is_allowed(store):
    with store:
        (info,) = Repository(store).snapshot("objects", describe=True)["object"]
        assert isinstance(info, ObjectInfo)
        assert info.type_name == "builtins.slice"
        assert Repository(store).snapshot("objects")["object"] == [slice(1, 2, 3)]
        with pytest.raises(PickleRefusedError):
            Repository(store, pickle="refuse").snapshot("objects")["object"]


def test_work_goes_on_where_an_earlier_release_left_it(store):
    with store:
        state = Versioned(store)
        state["long list"].append("new")
        state["long dict in an order of its own"]["k00007"].append("new")
        state.commit("goes on")
        fresh = Versioned(Memory())
        fresh.update(state.copy())
        assert fresh.commit().root == state.head.root, "what was read and changed has the form that is written today"


def test_the_store_holds_just_what_is_written_today(store):
    """The objects are equal byte for byte, apart from the envelope and from the branch with a pickle.

    The bytes of a pickle depend on Python.
    """
    written = Memory()
    fill(written)
    with store:
        for key, value in written.items():
            found = store.get(key) or b""
            assert (own_bytes(found) == own_bytes(value)) if key.startswith("o/") else (found == value), key
        extra = set(store.keys()) - set(written.keys())
        (place,) = store.keys("recent/01c594462f4b1b26/")
        assert {key for key in extra if not key.startswith("o/")} == {
            "ref/branch/objects",
            "born/branch/objects",
            place,
        }
        assert len(extra) <= 6


def test_a_store_with_an_index_of_meta_is_what_is_written_today(tmp_path):
    written = Memory()
    fill_indexed(written)
    with copied(INDEXED, tmp_path / "store") as store:
        assert {key: own_bytes(value) if key.startswith("o/") else value for key, value in store.items()} == {
            key: own_bytes(value) if key.startswith("o/") else value for key, value in written.items()
        }
        repository = Repository(store)
        found = [
            [tag.name for tag in repository.tags.iter_info(where={"run": run})]
            for run in ("r0", "r1", 7, True, None, 2**70, 1.5)
        ]
        assert found == [["t/0"], [], ["t/2"], ["t/3"], ["t/4"], ["t/5"], ["t/6"]]
        assert len(list(store.keys("meta/"))) == 5, "of tags, since no index has 1.5, which main's head has too"
        assert repository.fsck().findings == ()


def test_stored_forms_of_an_object_that_will_always_be_read():
    """The envelope is not part of the address, so a writer may choose another one, and earlier ones stay readable."""
    raw = b"\x14" + b"some bytes, " * 40
    assert unseal(b"\0" + raw) == raw
    assert unseal(bytes.fromhex(SEALED)) == raw
    assert unseal(seal(raw)) == raw


def test_a_series_has_the_bytes_that_it_had():
    entries = {f"{number:06}": pack("x" * (number % 200)) for number in range(300)}
    nodes = new_nodes()
    series = series_of(nodes, None).extended(nodes, entries)
    assert address_of(series.cell).hex() == SERIES


def test_numbers_of_the_format_are_what_they_were():
    """A change of one of them need not show in any of the hashes."""
    assert (MAX_OBJECT, ADDRESS_SIZE, CHUNK_BYTES, INLINE_TOP) == (1 << 20, 24, 1 << 16, 512)
    assert (LEAF_LEAST, LEAF_SCALE, LEAF_GREATEST) == (12_288, 8192, 36_864)
    assert (TEXT_LEAST, TEXT_SCALE, TEXT_GREATEST) == (3072, 2048, 16_384)
    assert (NODE_LEAST, NODE_SCALE, NODE_GREATEST) == (6, 6, 44)
    assert (ELEMENT_INLINE, ENTRY_INLINE, MAX_DEPTH, MAX_KEY, MAX_TEXT) == (4096, 128, 128, 4096, 1 << 16)
    assert GROUP == 1024
    assert (SEGMENT_LEAST, RUN, RUN_MOST, LEAF_IN_SEGMENTS, NODE_IN_SEGMENTS) == (384, 4, 2560, 768, 256)
    assert (MAX_SEGMENTS, MAX_HEAD, MAX_SEGMENT) == (255, 255, 8192)
    assert FORMAT_VERSION == 1
    assert {code.name: code.value for code in Code} == dict(
        zip(CODES.split(), [*range(1, 23), *range(32, 42)], strict=True)
    )


CODES = """
    BYTES BYTEARRAY BIGINT COMPLEX TUPLE SET FROZENSET RANGE
    DATE DATETIME TIME TIMEDELTA TIMEZONE ZONEINFO DECIMAL FRACTION UUID PATH
    NUMPY_SCALAR NUMPY_ARRAY TYPED OBJECT
    LIST_TREE TUPLE_TREE SET_TREE FROZENSET_TREE DICT_TREE
    TEXT BYTES_BLOB BYTEARRAY_BLOB ARRAY_BLOB PACKED
"""
"""The names of the extension codes, in the order of their numbers."""

SERIES = "fddff2eb29558aa63548fd8b7fe50f829921466c169c062d"
SEALED = "0128b52ffd60e100a500006814736f6d652062797465732c200100d157cb17"
