"""A disk that is full: a commit that finds no room says so and changes nothing, and is made once there is room."""

from __future__ import annotations

import pytest

from tests.support.full_stores import check, fill
from tests.support.numbered_rounds import KINDS
from tests.support.processes import run_in_memory
from versioned_state import Versioned
from versioned_state.errors import StorageFullError


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_full_file_keeps_what_was_acknowledged(tmp_path, kind):
    place = tmp_path / "store"
    with Versioned(kind.open(place)) as state:
        (connection,) = state.repository.store._pool._connections  # type: ignore[attr-defined]
        connection.execute("PRAGMA max_page_count = 120")
        count = fill(state)
        assert count > 10
        for _ in range(3):
            with pytest.raises(StorageFullError):
                state.commit()
            check(kind, place, state, count)
        connection.execute("PRAGMA max_page_count = 100000")
        assert state.commit("room again", meta={"n": count + 1}).meta["n"] == count + 1
        check(kind, place, state, count + 1)
    with Versioned(kind.open(place)) as state:
        check(kind, place, state, count + 1)


FULL_DISK = """
import sys
from pathlib import Path
from tests.support.numbered_rounds import KINDS
from tests.support.full_stores import check, fill
from versioned_state import Versioned
from versioned_state.errors import StorageFullError
mount, kind = Path(sys.argv[1]), KINDS[int(sys.argv[2])]
ballast, place = mount / "ballast", mount / "store"
ballast.write_bytes(bytes(500_000))
state = Versioned(kind.open(place))
count = fill(state)
assert count > 20, count
for _ in range(3):
    try:
        state.commit("again", meta={"n": count + 1})
    except StorageFullError:
        pass
    else:
        count = fill(state)  # a checkpoint had made room for one more
    check(kind, place, state, count)
ballast.unlink()
assert state.commit("room again", meta={"n": count + 1}).meta["n"] == count + 1
check(kind, place, state, count + 1)
assert state["log"][-1]["n"] == count + 1
state["more"] = 1
assert len(state.status()) == 1
state.close()
with Versioned(kind.open(place)) as state:
    check(kind, place, state, count + 1)
print("commits", count)
"""


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_really_full_disk_keeps_what_was_acknowledged(tmp_path, kind):
    """On a file system of 2 MB in memory."""
    assert run_in_memory(FULL_DISK, tmp_path, KINDS.index(kind), size="2m").startswith("commits")
