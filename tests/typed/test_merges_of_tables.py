"""Changes of different cells, rows or columns of a table are merged.

A cell that both sides changed is a conflict at its path.
"""

# ruff: noqa: PD002 - changes in place are the subject

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support.tables import assert_same, large
from versioned_state import Memory, Versioned
from versioned_state.errors import MergeConflictError

pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")

Edit = Callable[[pd.DataFrame], Any]


def merged(table: Any, ours: Edit, theirs: Edit) -> Any:
    """The table that two sides changed, each in its own way, after a merge.

    An edit returns another table, or changes this one.
    """
    found = []
    for first, second in ((ours, theirs), (theirs, ours)):
        store = Memory()
        state = Versioned(store, pickle="refuse")
        state["t"] = table.copy(deep=True)
        state.commit("base")
        state.repository.branches.create("other", "main")
        other = Versioned(store, branch="other", pickle="refuse")
        for handle, edit in ((state, first), (other, second)):
            edited = edit(handle["t"])
            if isinstance(edited, type(table)):
                handle["t"] = edited
            handle.commit("edited")
        live = state["t"]
        state.merge("other")
        assert state["t"] is live, "the table that the caller holds was merged in place"
        again = Versioned(Memory(), pickle="refuse")
        again["t"] = live
        again.commit()
        assert again.head.root == state.head.root, "the merged table is stored as any equal one"
        found.append(live)
    assert_same(*found)
    return found[0]


def cell(row: Any, column: str, held: Any) -> Edit:
    return lambda t: t.loc.__setitem__((row, column), held)


@pytest.mark.parametrize("rows", [10, 1_200])
def test_different_cells_of_every_kind_of_column_merge(rows: int):
    held: dict[str, Any] = {
        "f": -1.5,
        "i": -3,
        "s": "ours",
        "py": "ours",
        "o": "ours",
        "c": 3,
        "n": pd.NA,
        "a": 9,
        "t": pd.Timestamp("2031", tz="Europe/Berlin"),
        "d": pd.Timestamp("2031"),
    }
    theirs: dict[str, Any] = {
        **held,
        "s": "theirs, longer",
        "py": "t",
        "o": [1],
        "c": 1,
        "n": 77,
        "a": 1,
        "f": 2.5,
        "i": 0,
    }
    base = large(rows)

    def edit(row: int, values: dict[str, Any]) -> Edit:
        def change(table: pd.DataFrame) -> None:
            for column, value in values.items():
                table.iat[row, table.columns.get_loc(column)] = value  # noqa: PD009 - a list as one value

        return change

    expected = base.copy(deep=True)
    edit(2, held)(expected)
    edit(7, theirs)(expected)
    assert_same(merged(base, edit(2, held), edit(7, theirs)), expected)


def frame() -> pd.DataFrame:
    return pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "z"], "n": [1, 2, 3]}, index=["r1", "r2", "r3"])


def test_columns_and_cells_merge():
    found = merged(frame(), lambda t: t.insert(1, "new", [7, 8, 9]), cell("r2", "a", 5.0))
    expected = frame()
    expected.insert(1, "new", [7, 8, 9])
    expected.loc["r2", "a"] = 5.0
    assert_same(found, expected)
    found = merged(frame(), lambda t: t.__delitem__("n"), cell("r2", "a", 5.0))
    assert_same(found, expected[["a", "b"]])
    found = merged(frame(), lambda t: t.__setitem__("p", 1), lambda t: t.__setitem__("q", 2))
    assert sorted(found.columns) == ["a", "b", "n", "p", "q"]


def test_rows_merge_by_their_labels():
    def add(label: str) -> Edit:
        return lambda t: t.loc.__setitem__(label, [9.0, label, 9])

    found = merged(frame(), add("r4"), add("r5"))
    expected = frame()
    add("r4")(expected)
    add("r5")(expected)
    assert_same(found, expected)
    found = merged(frame(), add("r4"), cell("r1", "b", "changed"))
    assert list(found.index) == ["r1", "r2", "r3", "r4"]
    assert list(found["b"]) == ["changed", "y", "z", "r4"]
    found = merged(frame(), lambda t: t.drop(index="r2"), cell("r1", "b", "changed"))
    assert_same(found, pd.DataFrame({"a": [1.0, 3.0], "b": ["changed", "z"], "n": [1, 3]}, index=["r1", "r3"]))
    found = merged(frame(), lambda t: t.drop(index="r2"), add("r4"))
    assert list(found.index) == ["r1", "r3", "r4"]
    found = merged(frame(), lambda t: t.sort_index(ascending=False), cell("r1", "a", 0.5))
    assert_same(
        found, pd.DataFrame({"a": [3.0, 2.0, 0.5], "b": ["z", "y", "x"], "n": [3, 2, 1]}, index=["r3", "r2", "r1"])
    )


def test_rows_that_both_sides_append_are_all_kept():
    base = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    found = merged(base, lambda t: t.loc.__setitem__(2, [3.0, "ours"]), lambda t: t.loc.__setitem__(2, [4.0, "theirs"]))
    assert sorted(found["b"]) == ["ours", "theirs", "x", "y"]
    assert list(found.index) == [0, 1, 2, 3]
    found = merged(base, lambda t: t.loc.__setitem__(2, [3.0, "same"]), lambda t: t.loc.__setitem__(2, [3.0, "same"]))
    assert list(found["b"]) == ["x", "y", "same"]
    found = merged(base, lambda t: t.loc.__setitem__(2, [3.0, "ours"]), cell(0, "a", 9.0))
    assert list(found["a"]) == [9.0, 2.0, 3.0]


def test_a_new_column_has_missing_values_in_the_rows_of_the_other_side():
    columns: dict[str, Any] = {
        "f": 1.0,
        "i": 1,
        "bool": True,
        "s": "x",
        "t": pd.Timestamp("2020"),
        "m": pd.array([1, 2, 3], dtype="Int64"),
        "c": pd.Categorical(["p", "q", "p"]),
    }
    found = merged(frame(), lambda t: t.assign(**columns), lambda t: t.loc.__setitem__("r4", [9.0, "w", 9]))
    expected = frame().assign(**columns).reindex(["r1", "r2", "r3", "r4"])
    assert found.loc["r4", list(columns)].isna().all()
    for column in ("f", "i", "t", "m", "c", "s", "bool"):
        assert found[column].dtype == expected[column].dtype
        assert list(found[column][:3]) == list(expected[column][:3])


def test_many_rows_merge():
    base = large(5_000)[["f", "s", "n"]]
    base.index = pd.Index([f"row {n}" for n in range(5_000)])
    found = merged(base, lambda t: t.drop(index=t.index[10:20]), lambda t: t.loc.__setitem__("row 4000", [0.5, "x", 1]))
    assert len(found) == 4_990
    assert list(found.loc["row 4000"]) == [0.5, "x", 1]


def test_a_series_merges_too():
    base = pd.Series([1.0, 2.0, 3.0], index=["a", "b", "c"], name="s")
    found = merged(base, lambda s: s.__setitem__("a", 7.0), lambda s: s.drop("b"))
    assert_same(found, pd.Series([7.0, 3.0], index=["a", "c"], name="s"))


def conflicts(table: Any, ours: Edit, theirs: Edit) -> tuple[list[str], Versioned, MergeConflictError]:
    store = Memory()
    state = Versioned(store, pickle="refuse")
    state["t"] = table
    state.commit("base")
    state.repository.branches.create("other", "main")
    other = Versioned(store, branch="other", pickle="refuse")
    for handle, edit in ((state, ours), (other, theirs)):
        edit(handle["t"])
        handle.commit("edited")
    before = state["t"].copy(deep=True)
    with pytest.raises(MergeConflictError) as caught:
        state.merge("other")
    assert_same(state["t"], before)
    return [str(each.path) for each in caught.value.conflicts], state, caught.value


def test_a_cell_that_both_sides_changed_is_a_conflict_at_its_path():
    paths, state, error = conflicts(frame(), cell("r2", "a", 5.0), cell("r2", "a", 6.0))
    assert paths == ["t.a[1]"]
    assert error.merge is not None
    error.merge.resolve("t.a[1]", 5.5)
    error.merge.commit()
    assert list(state["t"]["a"]) == [1.0, 5.5, 3.0]
    paths, state, error = conflicts(frame(), cell("r2", "b", "ours"), cell("r2", "b", "theirs"))
    assert paths == ["t.b[1]"]
    assert error.merge is not None
    error.merge.resolve("t.b[1]", "both")
    error.merge.commit()
    assert list(state["t"]["b"]) == ["x", "both", "z"]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (lambda t: t.drop(index="r2", inplace=True), cell("r2", "a", 6.0), ["t"]),
        (lambda t: t.__delitem__("a"), cell("r2", "a", 6.0), ["t.a"]),
        (lambda t: t.__setitem__("a", t["a"].astype(str)), cell("r2", "a", 6.0), ["t.a"]),
        (lambda t: t.attrs.update(k=1), lambda t: t.attrs.update(k=2), ["t"]),
        (lambda t: t.__setitem__("p", 1), lambda t: t.__setitem__("p", 2), ["t.p"]),
    ],
)
def test_what_cannot_be_merged_is_one_conflict(ours: Edit, theirs: Edit, expected: list[str]):
    assert conflicts(frame(), ours, theirs)[0] == expected


def test_labels_that_occur_twice_do_not_tell_rows_apart():
    base = frame()
    base.index = ["x", "x", "y"]
    assert conflicts(base, lambda t: t.loc.__setitem__("z", [1.0, "", 1]), cell("y", "a", 9.0))[0] == ["t"]


def test_labels_that_are_numbers():
    base = pd.DataFrame(np.arange(6.0).reshape(3, 2))
    found = merged(base, lambda t: t.__setitem__(2, 7.0), lambda t: t.iloc.__setitem__((0, 0), -1.0))
    assert found.shape == (3, 3)
    assert found.iloc[0, 0] == -1.0
