"""Export: the JSON says what the state is, and the file is whole or not there."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.support.command_line import Vstate, assert_error
from tests.support.examples import Trip
from versioned_state import Disk, Versioned
from versioned_state.cli.commands.read.export import _state_lines

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text().filter(lambda key: not key.startswith("$")), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_json_data_comes_back_as_it_was(content: dict[str, object]):
    state = Versioned()
    state.update(content)
    assert json.loads("\n".join(_state_lines(state.checkout(state.commit(allow_empty=True)), {}))) == content


@pytest.mark.parametrize("options", [(), ("--compact",)])
def test_the_note_of_the_commit_goes_along(options: tuple[str, ...], vstate: Vstate, tmp_path: Path):
    with Versioned(Disk(tmp_path / "store")) as state:
        state["n"] = 1
        state.commit()
        state.repository.notes[state.head] = {"score": 0.5}
        state["n"] = 2
        state.commit()
    assert json.loads(vstate("export", *options, store=tmp_path / "store").stdout) == {"n": 2}
    assert json.loads(vstate("export", "HEAD~1", *options, store=tmp_path / "store").stdout) == {
        "n": 1,
        "$note": {"score": 0.5},
    }
    assert json.loads(vstate("export", "HEAD~1:n", *options, store=tmp_path / "store").stdout) == 1


@pytest.mark.parametrize("place", ["main", "v1", "main:messages", "HEAD:["])
def test_a_file_is_what_would_be_printed(place: str, vstate: Vstate, trip: Trip, tmp_path: Path):
    printed = vstate("export", place, store=trip.path)
    result = vstate("export", place, "-o", "state.json", store=trip.path)
    assert result.code == printed.code
    assert result.stdout == ""
    if printed.code:
        assert not (tmp_path / "state.json").exists()
    else:
        assert (tmp_path / "state.json").read_text() == printed.stdout
        assert result.stderr.startswith("wrote ")
        assert result.stderr.endswith(" to state.json\n")
    assert vstate("export", place, "-o", "-", store=trip.path) == printed


def test_a_file_that_is_there_is_replaced_whole_or_left(vstate: Vstate, own_trip: Trip, tmp_path: Path):
    (tmp_path / "state.json").write_text("before")
    with Versioned(Disk(own_trip.path)) as state:
        state["zz"] = ["x" * 5000 + str(number) for number in range(50)]
        before = set(state.repository.store.keys("o/"))
        state.commit()
        for key in set(state.repository.store.keys("o/")) - before - {f"o/{state.head.id}"}:
            state.repository.store.delete(key)
    assert_error(vstate("export", "-o", "state.json", store=own_trip.path), "missing")
    assert (tmp_path / "state.json").read_text() == "before"
    assert vstate("export", "v1", "-o", "state.json", store=own_trip.path).code == 0
    assert json.loads((tmp_path / "state.json").read_text())["budget"] == {"limit": 600, "spent": 98}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["own", "state.json"]


def test_a_folder_that_is_not_there(vstate: Vstate, trip: Trip):
    assert (
        vstate("export", "-o", "none/state.json", store=trip.path).stderr
        == "error: none/state.json: No such file or directory\n"
    )


def test_a_pipe_with_a_name_is_written_to(vstate: Vstate, trip: Trip, tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    assert vstate("export", "-o", "pipe", store=trip.path).code == 0
    reader.join()
    assert json.loads(read[0])["budget"] == {"limit": 600, "spent": 98}
    assert (tmp_path / "pipe").is_fifo()
