"""A table is shown as pandas shows it, and its changes by cell, counted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from tests.support.tables import assert_same, large, tables
from versioned_state import Disk, Memory, Versioned
from versioned_state.cli.main import vstate as group
from versioned_state.repository.views.json_form import from_json, json_value, plain_value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two tables: changed cells, then rows and a column more."""
    folder = tmp_path_factory.mktemp("tables") / "store"
    with Disk(folder) as store:
        state = Versioned(store)
        state["small"] = pd.DataFrame({"a": [1, 2], "b": ["x", "\x1b[31m"]})
        state["large"] = large(2_000)[["f", "s", "n"]]
        state.commit("first")
        state["large"].loc[[17, 18], "f"] = -1.0
        state["large"].loc[18, "s"] = "hello"
        state.commit("cells")
        state["large"] = pd.concat([state["large"], state["large"].iloc[:7]], ignore_index=True)
        state["large"]["more"] = 1
        state.commit("rows")
    return folder


def shown(folder: Path, *arguments: str) -> str:
    done = CliRunner().invoke(group, ["--store", str(folder), *arguments], catch_exceptions=False, prog_name="vstate")
    assert done.exit_code == 0, done.output
    return done.output


def test_a_table_is_printed_as_pandas_prints_it(folder: Path):
    assert [line.split() for line in shown(folder, "get", "small").splitlines()] == [
        ["a", "b"],
        ["0", "1", "x"],
        ["1", "2", r"\x1b[31m"],
    ]
    lines = shown(folder, "get", "large").splitlines()
    assert lines[0].split() == ["f", "s", "n", "more"]
    assert lines[-1] == "[2007 rows x 4 columns]"
    assert len(lines) < 20
    assert shown(folder, "show", "HEAD~1:large").splitlines()[-1] == "[2000 rows x 3 columns]"
    assert shown(folder, "get", "large.f[17]").strip() == "np.float64(-1.0)"


def test_a_table_as_json_is_read_back_and_plain_json_has_its_rows(folder: Path):
    assert json.loads(shown(folder, "get", "--plain", "small")) == [{"a": 1, "b": "x"}, {"a": 2, "b": "\x1b[31m"}]
    with Disk(folder) as store:
        small = Versioned(store)["small"]
        assert_same(from_json(json.loads(shown(folder, "get", "--json", "small"))), small)
    for name, table in tables().items():
        assert_same(from_json(json.loads(json.dumps(json_value(table)))), table)
        rows = json.loads(json.dumps(plain_value(table)))
        assert len(rows) == (len(table) if not isinstance(table, pd.DataFrame) or table.shape[1] else 0), name


def test_cells_that_changed_are_named_and_counted(folder: Path):
    cells = shown(folder, "diff", "HEAD~2", "HEAD~1")
    for line in ("2 of 2,000 elements", "+ [17] -1.0", "large.s[18] = 's18' -> 'hello'"):
        assert line in cells
    rows = shown(folder, "diff", "HEAD~1", "HEAD")
    for line in ("7 added at [2000]", "+ [2000] 0.0", "and 2 more", "large{None}.stop = 2000 -> 2007", "+ large.more"):
        assert line in rows


def test_a_table_on_one_line_is_its_size_and_labels(folder: Path):
    with Disk(folder) as store:
        state = Versioned(store)
        line = "DataFrame(2,007 rows, 4 columns: f, s, n, more)"
        assert line in state._repr_html_()
        assert line in str(state.diff("HEAD~3", "HEAD"))
        assert line in shown(folder, "get", "HEAD:")


@pytest.mark.parametrize("name", tables())
def test_every_table_has_a_line_and_is_in_a_diff(name: str):
    store, table = Memory(), tables()[name]
    state = Versioned(store)
    state["t"], state["nested"] = table, {"in": [table]}
    made = state.commit()
    text = str(state.diff(made.parents[0], made))
    if isinstance(table, pd.DataFrame):
        rows = f"{len(table):,} row{'' if len(table) == 1 else 's'}"
        assert f"+ t = DataFrame({rows}, {table.shape[1]:,} column" in text
    assert state._repr_html_()
    assert state.diff(made.parents[0], made).to_json()


ROWS: list[tuple[list[float], list[float], list[str]]] = [
    ([1, 2, 3], [1, 2, 3, 4], ["1 added at [3]", "[3] 4.0"]),
    ([1, 2, 3], [2, 3], ["1 removed at [0]", "[0] 1.0"]),
    ([1, 2, 3], [1, 9, 9, 3], ["1 removed, 2 added at [1]", "[1] 2.0", "[1] 9.0", "[2] 9.0"]),
    ([7, 7], [7, 7, 7], ["1 added at [2]", "[2] 7.0"]),
    ([1], [], ["1 removed at [0]", "[0] 1.0"]),
    ([], [1], ["1 added at [0]", "[0] 1.0"]),
]


@pytest.mark.parametrize(("old", "new", "expected"), ROWS)
@pytest.mark.parametrize("before", [0, 30_000])
def test_arrays_of_two_lengths_differ_in_a_run(old: list[float], new: list[float], expected: list[str], before: int):
    state = Versioned(Memory())
    head = np.arange(before, dtype=float) + 100
    state["a"] = np.concatenate([head, np.array(old)])
    state.commit()
    state["a"] = np.concatenate([head, np.array(new)])
    (change,) = state.status()
    lines = [line for _, line in change.lines()]
    assert len(lines) == len(expected)
    for line, wanted in zip(lines, expected, strict=True):
        start, _, rest = wanted.partition("[")
        at, _, end = rest.partition("]")
        assert line == f"{start}[{int(at) + before}]{end}"
