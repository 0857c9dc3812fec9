"""Tables of pandas are data: they come back as they were, and a change in place is seen, whichever way it was made."""

# ruff: noqa: PD002, PD009 - changes in place are the subject

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings

from tests.support.processes import run
from tests.support.tables import A, assert_same, large, tables
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import PickleRefusedError, UnknownPathError
from versioned_state.values.tables import arrow

TABLES = tables()

pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword", "ignore:The behavior of DataFrame concatenation")


@pytest.mark.parametrize("name", TABLES)
def test_a_table_comes_back_without_pickle(name: str):
    table, store = TABLES[name], Memory()
    state = Versioned(store, pickle="refuse")
    state["t"] = table
    made = state.commit()
    assert not state.status()
    assert state.commit() == made
    reader = Versioned(store, pickle="refuse")
    assert_same(reader["t"], table)
    assert not reader.status()
    reader["t"] = reader.checkout("HEAD")["t"]
    assert not reader.status(), "an equal table is no change"
    assert Repository(store).fsck().findings == ()


def raw(frame: pd.DataFrame, at: int) -> Any:
    """A column's own memory, as code that goes around pandas has it."""
    array = frame.iloc[:, at].to_numpy()
    array.flags.writeable = True
    return array


def put(row: Any, column: str, held: Any) -> Callable[[pd.DataFrame], object]:
    def edit(frame: pd.DataFrame) -> None:
        frame.iat[row, frame.columns.get_loc(column)] = held  # of pandas' ways the one that takes a tuple as one value

    return edit


EDITS: dict[str, Callable[[pd.DataFrame], object]] = {
    "loc": lambda f: f.loc.__setitem__((3, "f"), 1.5),
    "text": put(4, "s", "longer than it was"),
    "text of Python": put(4, "py", "longer than it was"),
    "object": put(4, "o", ("a", 1)),
    "missing": put(2, "n", pd.NA),
    "category": put(0, "c", 5),
    "time with a zone": put(0, "t", pd.Timestamp("2021", tz="UTC")),
    "time": put(0, "d", pd.Timestamp("2021")),
    "arrow": put(0, "a", 77),
    "memory": lambda f: raw(f, 0).__setitem__(3, 99),
    "memory of integers": lambda f: raw(f, 1).__setitem__(slice(2, 4), -7),
    "column inserted": lambda f: f.insert(1, "new", 7),
    "column assigned": lambda f: f.__setitem__("f", f["f"] * 2),
    "column deleted": lambda f: f.__delitem__("i"),
    "columns renamed": lambda f: f.rename(columns={"f": "F"}, inplace=True),
    "columns in another order": lambda f: f.insert(0, "last", f.pop("d")),
    "label twice": lambda f: setattr(f, "columns", ["x"] * len(f.columns)),
    "type": lambda f: f.__setitem__("i", f["i"].astype("int32")),
    "categories": lambda f: f.__setitem__("c", f["c"].cat.add_categories([9])),
    "attributes": lambda f: f.attrs.update(k=[1]),
    "attributes within": lambda f: f.attrs["of the table"].append(2),
    "flags": lambda f: setattr(f.flags, "allows_duplicate_labels", False),
    "rows sorted": lambda f: f.sort_values("f", ascending=False, inplace=True),
    "row labels": lambda f: f.set_index("i", inplace=True),
    "name of the labels": lambda f: setattr(f.index, "name", "row"),
    "row appended": lambda f: f.loc.__setitem__(len(f), f.iloc[0].tolist()),
    "row removed": lambda f: f.drop(index=1, inplace=True),
    "rows removed": lambda f: f.drop(index=f.index, inplace=True),
}


@pytest.mark.parametrize("rows", [8, 1_200])
@pytest.mark.parametrize("name", EDITS)
def test_a_change_in_place_is_seen_and_taken_back(name: str, rows: int):
    store = Memory()
    state = Versioned(store, pickle="refuse")
    state["t"] = large(rows)
    state["t"].attrs["of the table"] = [1]
    state.commit()
    frame = Versioned(store, pickle="refuse") if rows == 8 else state  # as it was read, and as it was given
    live = frame["t"]
    before = live.copy(deep=True)
    EDITS[name](live)
    after = live.copy(deep=True)
    assert frame.status(), "the change was missed"
    frame.commit()
    assert frame["t"] is live
    assert_same(Versioned(store, pickle="refuse")["t"], after)
    frame.undo()
    assert frame["t"] is live
    assert_same(live, before)
    assert not frame.status()


def test_a_view_of_a_table_writes_to_the_table_only_where_pandas_says_so():
    state = Versioned(Memory())
    state["t"] = large(100)
    state.commit()
    copied = state["t"].copy()
    copied.loc[0, "f"] = 5.0
    assert not state.status()


def test_a_series_and_an_array_change_in_place():
    store = Memory()
    state = Versioned(store, pickle="refuse")
    state["s"], state["c"] = pd.Series([1.0, 2.0], name="s"), pd.array([1, None], dtype="Int64")
    state.commit()
    series, array = state["s"], state["c"]
    series[1] = 7.0
    series.name = "renamed"
    array[0] = 5
    assert sorted({str(change.path).partition(".")[0] for change in state.status()}) == ["c", "s"]
    state.commit()
    reader = Versioned(store, pickle="refuse")
    assert_same(reader["s"], pd.Series([1.0, 7.0], name="renamed"))
    assert_same(reader["c"], pd.array([5, None], dtype="Int64"))
    state.undo()
    assert state["s"] is series
    assert_same(series, pd.Series([1.0, 2.0], name="s"))
    assert_same(array, pd.array([1, None], dtype="Int64"))


def test_equal_tables_are_equal_data_whatever_lies_beneath_what_is_missing():
    a, b = (pd.arrays.IntegerArray(np.array([1, hidden]), np.array([False, True])) for hidden in (5, 6))
    state = Versioned(Memory())
    state["t"] = pd.DataFrame({"n": a})
    state.commit()
    state["t"] = pd.DataFrame({"n": b})
    assert not state.status()


def test_a_column_of_a_class_of_a_user_is_an_object_and_the_others_are_data():
    class Odd:
        pass

    state = Versioned(Memory(), pickle="refuse")
    state["t"] = pd.DataFrame({"a": [1], "o": pd.Series([Odd()], dtype=object)})
    with pytest.raises(PickleRefusedError, match=r"t\.o\[0\]"):
        state.commit()
    state["t"] = state["t"][["a"]]
    state.commit()


def test_one_cell_of_a_long_table_costs_kilobytes():
    store = Memory()
    state = Versioned(store)
    state["t"] = large(100_000)
    state.commit()
    known = set(store.keys())

    def stored() -> int:
        new = set(store.keys()) - known
        known.update(new)
        return sum(len(held) for held in store.get_many(sorted(new)).values())

    for edit, most in (("loc", 80_000), ("text", 20_000), ("arrow", 80_000), ("missing", 80_000), ("object", 20_000)):
        EDITS[edit](state["t"])
        state.commit()
        assert stored() < most, edit


def test_an_unchanged_table_is_hashed_and_not_taken_apart(monkeypatch: pytest.MonkeyPatch):
    state = Versioned(Memory())
    state["t"] = large(1_200)[["f", "s", "a", "d"]]
    state.commit()
    monkeypatch.setattr(arrow, "chunked_data", lambda _chunked: pytest.fail("a column of Arrow was converted"))
    assert not state.status()


columns = st.sampled_from(["f", "i", "s", "py", "o", "c", "n", "t", "a", "d"])
HELD: dict[str, Any] = {
    "f": -1.5,
    "i": -3,
    "s": "text",
    "py": "text",
    "o": [1, "x"],
    "c": 0,
    "n": pd.NA,
    "a": 9,
    "t": pd.Timestamp("2031", tz="UTC"),
    "d": pd.Timestamp("2031"),
}


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_changes_are_the_same_in_a_table_and_in_its_copy(data: st.DataObject):
    store = Memory()
    state = Versioned(store, pickle="refuse")
    rows = data.draw(st.sampled_from([0, 1, 30, 700]))
    state["t"] = large(rows) if rows else large(2).iloc[:0]
    copy = state["t"].copy(deep=True)
    state.commit()
    for _ in range(data.draw(st.integers(1, 4))):
        live = state["t"]
        kind = data.draw(st.sampled_from(["cell", "column", "drop", "append", "remove", "order", "labels"]))
        column = data.draw(columns)
        at = data.draw(st.integers(0, max(len(copy) - 1, 0)))
        for frame in (live, copy):
            if kind == "cell" and len(frame) and column in frame.columns:
                frame.iat[at, frame.columns.get_loc(column)] = HELD[column]
            elif kind == "column":
                frame[f"{column}{len(frame.columns)}"] = at
            elif kind == "drop" and column in frame.columns:
                del frame[column]
            elif kind == "remove" and len(frame):
                frame.drop(index=frame.index[at], inplace=True)
            elif kind == "order" and len(frame.columns):
                frame.sort_index(ascending=False, inplace=True)
            elif kind == "labels":
                frame.index = [f"r{n}" for n in range(len(frame))]
        state.commit()
        assert_same(state["t"], copy)
        assert_same(Versioned(store, pickle="refuse")["t"], copy)
    again = Versioned(Memory(), pickle="refuse")
    again["t"] = copy
    again.commit()
    assert again.head.root == state.head.root, "one content has one root, whatever led to it"


WITHOUT = """
    import sys
    class Missing:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == {missing!r}:
                raise ImportError(name)
    sys.meta_path.insert(0, Missing())
    from versioned_state import Disk, Repository, Versioned
    from versioned_state.errors import MissingDependencyError
    state = Versioned(Disk(sys.argv[1]))
    for key in ("t", "list"):
        try:
            state[key]
        except MissingDependencyError as error:
            print(key, error.extra)
    state["n"] = 2
    state.commit("without")
    print([commit.message for commit in state.log()][:3])
    print(str(state.diff("HEAD~2", "HEAD~1")))
    print([str(match.path) for match in state.repository.grep("needle")])
    print(state.repository.fsck().findings)
    print(type(state.repository.snapshot("HEAD", describe=True)["t"]).__name__)
"""


@pytest.mark.parametrize("missing", ["pandas", "pyarrow"])
def test_without_pandas_only_reading_a_table_fails(tmp_path: Path, missing: str):
    with Disk(tmp_path / "s") as store:
        state = Versioned(store)
        state["t"] = pd.DataFrame({"f": np.arange(1_200) / 3, "w": pd.array(["x"] * 1_200, dtype=A(pa.string()))})
        state["n"], state["list"] = 1, [1, pd.NA]
        state.commit("first")
        state["t"].loc[17, "f"] = -1.0
        state["t"].iloc[18, 1] = "needle"
        state.commit("second")
    shown = run(WITHOUT.format(missing=missing), tmp_path / "s").stdout
    assert f"t {missing}\n" in shown
    assert ("list pandas" in shown) == (missing == "pandas")
    for part in ("['without', 'second', 'first']", "+ [17] -1.0", "['t.w.values[18]']", "\n()\n"):
        assert part in shown


def test_nothing_imports_pandas_before_a_table_is_met():
    program = """
        import sys
        from versioned_state import Versioned
        state = Versioned()
        state["n"] = {"a": [1, 2.5]}
        state.commit()
        assert not {"pandas", "numpy", "pyarrow"} & sys.modules.keys()
    """
    run(program)


def test_a_cell_of_a_column_is_at_a_path_and_has_a_blame():
    state = Versioned(Memory())
    state["t"] = large(9_000)
    state.commit("first")
    state["t"].loc[17, "f"] = 0.5
    state.commit("a cell")
    state["t"].loc[9_000] = state["t"].iloc[0].tolist()
    state.commit("a row")
    snapshot = state.checkout("HEAD")
    for column in "f i s o c t a d".split():
        for at in (0, 17, 8_999):
            assert snapshot.at(f"t.{column}[{at}]") == state.at(f"t.{column}[{at}]") == state["t"][column].array[at]
    assert snapshot.at('t["f"][-1]') == state["t"]["f"][0]
    assert [part.commit.message for part in state.blame("t.f[17]")] == ["a cell"]
    assert [part.commit.message for part in state.blame("t.f[18]")] == ["first"]
    assert [part.commit.message for part in state.blame("t.f")] == ["a row"]
    for path in ("t.f[9001]", "t.nothing", "t.f[0][0]", "t.n[-9002]"):
        with pytest.raises(UnknownPathError):
            snapshot.at(path)
        with pytest.raises(UnknownPathError):
            state.at(path)
