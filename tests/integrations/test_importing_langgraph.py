"""An import from LangGraph: what its own SqliteSaver lists is what ``VersionedSaver`` lists afterwards.

Hostile rows are refused.
"""

from __future__ import annotations

import operator
import pickle
import random
import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
import psycopg
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.types import Command, interrupt

from tests.support.importing import import_into, stop_after
from tests.support.langgraph_threads import config
from versioned_state import Disk, Memory
from versioned_state.errors import StateError
from versioned_state.integrations.importing.database import Database
from versioned_state.integrations.importing.run import ImportReport, open_importer
from versioned_state.integrations.importing.source import (
    DamagedRowError,
    ImportMismatchError,
    ImportSourceError,
    PickledRowError,
    SourceFormatError,
    ThreadExistsError,
)
from versioned_state.integrations.langgraph import VersionedSaver
from versioned_state.storage import KVStore


class Talk(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    count: Annotated[int, operator.add]


@dataclass(frozen=True)
class Order:
    """A class that LangGraph does not call safe."""

    price: int


made: list[int] = []


class Trap_:
    """Says that it was made."""

    def __init__(self, *, price: int) -> None:
        made.append(price)


def answer(state: Talk) -> dict[str, Any]:
    if state["count"] % 3 == 2:
        interrupt("go on?")
    return {"messages": [AIMessage(f"answer {state['count']}")], "count": 1}


def graph(saver: Any) -> Any:
    inner = StateGraph(Talk).add_node("answer", answer).add_edge(START, "answer").add_edge("answer", END).compile()
    return (
        StateGraph(Talk)
        .add_node("inner", inner)
        .add_edge(START, "inner")
        .add_edge("inner", END)
        .compile(checkpointer=saver)
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "check points?.db"  # a name that a URL would end at


@pytest.fixture
def saver(source: Path) -> Iterator[SqliteSaver]:
    with SqliteSaver.from_conn_string(str(source)) as saver:
        saver.setup()
        yield saver


def talk(saver: Any, thread: str, seed: int, *, turns: int = 4) -> None:
    """A random history: turns, answers to interrupts, and time travel."""
    chance = random.Random(seed)
    compiled = graph(saver)
    at = config(thread)
    for turn in range(turns):
        pending = compiled.get_state(config(thread)).interrupts
        compiled.invoke(
            Command(resume="yes") if pending else {"messages": [HumanMessage(f"question {turn}")], "count": 0}, at
        )
        history = [each.config for each in compiled.get_state_history(config(thread))]
        at = chance.choice(history) if chance.random() < 0.4 else config(thread)


def imported(source: Path | str, store: KVStore, **options: Any) -> ImportReport:
    return import_into(store, "langgraph", source, **options)


def listed(saver: Any) -> list[Any]:
    """All checkpoints, as bytes of the serializer where a class has no equality."""
    dump = JsonPlusSerializer().dumps_typed
    found = []
    for each in saver.list(None):
        values = {name: dump(value) for name, value in sorted(each.checkpoint["channel_values"].items())}
        rest = {name: value for name, value in each.checkpoint.items() if name != "channel_values"}
        writes = [(task, channel, dump(value)) for task, channel, value in each.pending_writes]
        found.append((each.config["configurable"], each.parent_config, rest, values, each.metadata, writes))
    return sorted(found, key=lambda each: (each[0]["thread_id"], each[0]["checkpoint_ns"], each[0]["checkpoint_id"]))


def put(
    saver: Any,
    thread: str,
    values: dict[str, Any],
    parent: str | None = None,
    *,
    versions: bool = False,
    **metadata: Any,
) -> str:
    checkpoint: Any = {**empty_checkpoint(), "id": str(uuid6()), "channel_values": values}
    checkpoint["channel_versions"] = dict.fromkeys(values if versions else (), "1")
    saver.put(config(thread, parent), checkpoint, metadata, checkpoint["channel_versions"])
    return str(checkpoint["id"])


def change(source: Path, query: str, *values: Any) -> None:
    with closing(sqlite3.connect(source)) as connection, connection:
        assert connection.execute(query, values).rowcount == 1


@pytest.mark.parametrize("seed", range(3))
def test_the_adapter_lists_what_langgraphs_own_saver_lists(saver: SqliteSaver, source: Path, seed: int):
    for thread in ("1", "of/Anna %", "ü" * 80):
        talk(saver, thread, seed)
    before = source.read_bytes()
    with Memory() as store:
        report = imported(source, store)
        assert report.written == sum(each.thread.steps for each in report.threads)
        assert all(each.verified for each in report.threads)
        with VersionedSaver(store) as mine:
            assert listed(mine) == listed(saver)
            assert any(row[0]["checkpoint_ns"] for row in listed(mine)), "no subgraph"
            assert any(row[5] for row in listed(mine)), "no pending writes"
            assert graph(mine).get_state(config("1")) == graph(saver).get_state(config("1"))
    assert source.read_bytes() == before


@pytest.mark.every_case
def test_a_database_of_postgresql_is_read_as_its_own_saver_reads_it(postgres_server):
    schema = postgres_server.fresh_schema()
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    url = f"{postgres_server.url}{'&' if '?' in postgres_server.url else '?'}options=-csearch_path%3D{schema}"
    with pytest.raises(SourceFormatError, match="no table 'checkpoint"):
        open_importer("langgraph", url)
    with PostgresSaver.from_conn_string(url) as saver, Memory() as store:
        saver.setup()
        for thread in ("1", "of/Anna %"):
            talk(saver, thread, 1)
        first = put(
            saver, "2", {"a": 1, "order": Order(2), "message": HumanMessage("hi"), "nothing": None}, versions=True
        )
        put(saver, "2", {"a": 2.5}, first, versions=True)
        saver.put_writes(config("2", str(uuid6())), [("early", HumanMessage("later"))], "task")
        report = imported(url, store)
        assert report.written == len(listed(saver)) + 1
        assert imported(url, store).written == 0
        with VersionedSaver(store) as mine:
            assert listed(mine) == listed(saver)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE checkpoint_blobs SET blob = '\\xc1' WHERE channel = 'order'")
        with Memory() as other, pytest.raises(DamagedRowError, match="channel 'order' of checkpoint"):
            imported(url, other)


def test_a_server_that_is_not_there_is_an_error_without_the_password():
    with pytest.raises(ImportSourceError, match="cannot be reached") as caught:
        open_importer("langgraph", "postgresql://me:secret@127.0.0.1:1/db")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("part", [{"channel_values": {"": 1}}, {5: 6}, {"channel_values": {"a": {None: 1, 2: 3}}}])
def test_odd_keys_come_back(saver: SqliteSaver, source: Path, part: dict[Any, Any]):
    saver.put(config("x"), {**empty_checkpoint(), "id": "1", **part}, {"score": 2**70}, {})
    with Memory() as store:
        imported(source, store)
        with VersionedSaver(store) as mine:
            assert listed(mine) == listed(saver)


def test_a_channel_whose_name_is_not_text_is_refused(saver: SqliteSaver, source: Path):
    saver.put(config("x"), {**empty_checkpoint(), "id": "1", "channel_values": {5: 1}}, {}, {})
    with Memory() as store, pytest.raises(DamagedRowError, match="checkpoint '1' of thread 'x'"):
        imported(source, store)


def test_a_thread_goes_on_after_the_import(saver: SqliteSaver, source: Path):
    talk(saver, "1", 1, turns=2)
    with Memory() as store:
        imported(source, store)
        with VersionedSaver(store) as mine:
            for each in (saver, mine):
                graph(each).invoke({"messages": [HumanMessage("and now?")], "count": 0}, config("1"))
            texts = [
                [each.content for each in graph(one).get_state(config("1")).values["messages"]] for one in (saver, mine)
            ]
            assert texts[0] == texts[1]


def test_values_of_every_kind_come_back_as_langgraphs_own_saver_reads_them(saver: SqliteSaver, source: Path):
    values = {
        "order": Order(3),
        "orders": [Order(1), {"in": (Order(2), {3})}, {Order.__name__: Order(4)}],
        "set": {1, 2},
        "set of orders": {Order(9)},
        "deque": deque([1, [Order(10)]]),
        "array": np.arange(6).reshape(2, 3),
        "address": ip_address("127.0.0.1"),
        "float": float("nan"),
        "bytes": b"\0\xff",
        "nothing": None,
        "message": HumanMessage("hi", additional_kwargs={"order": Order(5)}),
        "large": ["x" * 1000] * 100,
    }
    first = put(saver, "1", values, source="input", step=-1, score={"a": [1, None, 2.5]}, checkpoint_id="taken")
    put(saver, "1", {}, first)
    saver.put_writes(config("1", first), [("a", Order(6)), ("__error__", "bad"), ("b", 1)], "task", "~path")
    saver.put_writes(config("1", str(uuid6())), [("early", HumanMessage("later"))], "t" * 300)
    with Memory() as store:
        imported(source, store)
        with VersionedSaver(store) as mine:
            assert listed(mine) == listed(saver)


def test_nothing_that_a_value_names_is_run(saver: SqliteSaver, source: Path):
    put(saver, "1", {"order": Order(7), "orders": [Order(8)]})
    for table, column in (("checkpoints", "checkpoint"),):
        change(
            source,
            f"UPDATE {table} SET {column} = "
            f"CAST(REPLACE({column}, CAST('Order' AS BLOB), CAST('Trap_' AS BLOB)) AS BLOB)",
        )
    made.clear()
    with Memory() as store:
        imported(source, store)
        assert made == []
        with VersionedSaver(store) as mine:  # as LangGraph's own saver does
            assert mine.get_tuple(config("1")) is not None
            assert made == [7, 8]


def test_an_interrupted_import_goes_on_and_writes_nothing_twice(saver: SqliteSaver, source: Path, tmp_path: Path):
    for thread in "12":
        talk(saver, thread, 5)
    counts = []
    for stop in (1, 4, 9, 14, 10_000):
        with Disk(tmp_path / "store") as store:
            report = ImportReport()
            try:
                imported(source, store, report=report, told=stop_after(stop))
            except KeyboardInterrupt:
                assert not any(each.verified for each in report.threads)
            counts.append(report.written)
    with Disk(tmp_path / "store") as store, VersionedSaver(store) as mine:
        assert listed(mine) == listed(saver)
        assert sum(counts) == len(listed(saver))
        assert counts[0] == 1
        assert imported(source, store).written == 0


def test_a_source_that_has_grown_gives_the_rest(saver: SqliteSaver, source: Path):
    talk(saver, "1", 2)
    with Memory() as store:
        first = imported(source, store).written
        talk(saver, "1", 3)
        talk(saver, "new", 3)
        newest = next(iter(saver.list(config("1"))))
        saver.put_writes(newest.config, [("late", 1)], "another task")
        assert imported(source, store).written >= len(listed(saver)) - first
        with VersionedSaver(store) as mine:
            assert listed(mine) == listed(saver)


def test_a_dry_run_writes_nothing_and_reads_everything(saver: SqliteSaver, source: Path):
    talk(saver, "1", 2)
    with Memory() as store:
        report = imported(source, store, dry_run=True)
        assert report.written == len(listed(saver))
        assert not any(each.verified for each in report.threads)
        with VersionedSaver(store) as mine:
            assert listed(mine) == []
            assert list(mine.repository.branches) == []


def test_a_thread_that_has_gone_on_in_the_store_is_refused(saver: SqliteSaver, source: Path):
    put(saver, "1", {"a": 1})
    with Memory() as store:
        imported(source, store)
        with VersionedSaver(store) as mine:
            mine.put(config("1"), {**empty_checkpoint(), "id": str(uuid6())}, {}, {})
        with pytest.raises(ThreadExistsError, match="1 other checkpoints") as caught:
            imported(source, store)
        assert caught.value.branch == "langgraph/1"


@pytest.mark.parametrize(
    ("part", "options", "words"),
    [
        ({"channel_values": {"a": True}}, {}, "the values"),
        ({"channel_values": {"a": 1, "b": 2}}, {}, "the values"),
        ({"channel_versions": {"a": 7}}, {}, "the versions of channels"),
        ({}, {"parent": "0"}, "the parents"),
        ({}, {"metadata": {"step": 1.0}}, "the metadata"),
        ({}, {"writes": [("b", 1)]}, "the writes"),
    ],
)
def test_what_the_store_has_otherwise_is_found_out(
    saver: SqliteSaver, source: Path, part: Any, options: Any, words: str
):
    checkpoint: Any = {**empty_checkpoint(), "id": "1", "channel_values": {"a": 1}}
    saver.put(config("x"), checkpoint, {"step": 1}, {})
    saver.put_writes(config("x", "1"), [("a", 1)], "task")
    with Memory() as store:
        with VersionedSaver(store) as mine:
            mine.put(
                config("x", options.get("parent")), {**checkpoint, **part}, options.get("metadata", {"step": 1}), {}
            )
            mine.put_writes(config("x", "1"), options.get("writes", [("a", 1)]), "task")
        with pytest.raises(ImportMismatchError, match=f"{words} of checkpoint '1' differ"):
            imported(source, store)


def test_what_a_resumed_task_writes_again_is_there_once(saver: SqliteSaver, source: Path):
    id = put(saver, "1", {})
    writes = [("a", 1), ("__error__", "bad"), ("b", 2)]
    saver.put_writes(config("1", id), writes, "task")
    with Memory() as store:
        imported(source, store)
        with VersionedSaver(store) as mine:
            for each in (mine, saver):
                each.put_writes(config("1", id), [*writes, ("c", 3)], "task")
            assert listed(mine) == listed(saver)


def test_a_source_cannot_be_written(saver: SqliteSaver, source: Path):
    put(saver, "1", {})
    database = Database(str(source), "LangGraph", {})
    with pytest.raises(DamagedRowError, match="readonly"):
        list(database.rows("CREATE TABLE more (id)"))
    database.close()


PICKLE = pickle.dumps({**empty_checkpoint(), "id": "1", "channel_values": {}})


@pytest.mark.parametrize(
    ("column", "value", "error", "words"),
    [
        ("checkpoint", b"\xc1", DamagedRowError, "checkpoint '1' of thread 'x'"),
        ("checkpoint", b"", DamagedRowError, "checkpoint '1' of thread 'x'"),
        ("checkpoint", 5, DamagedRowError, "not bytes"),
        ("checkpoint", JsonPlusSerializer().dumps_typed([1])[1], DamagedRowError, "no values of channels"),
        (
            "checkpoint",
            JsonPlusSerializer().dumps_typed({"id": "2", "channel_values": {}})[1],
            DamagedRowError,
            "its id is '2'",
        ),
        (
            "checkpoint",
            JsonPlusSerializer().dumps_typed({"id": "1", "v": 99, "channel_values": {}})[1],
            SourceFormatError,
            "version 99",
        ),
        ("checkpoint", b"\x91" * 5000, DamagedRowError, "does not read"),
        ("type", "msgpack+aes", DamagedRowError, "encrypted"),
        ("type", "yaml", DamagedRowError, "format is unknown"),
        ("type", None, DamagedRowError, "name of their format"),
        ("type", "json", DamagedRowError, "does not read"),
        ("metadata", b"{", DamagedRowError, "metadata of checkpoint '1'"),
        ("metadata", b"[]", DamagedRowError, "instead of an object"),
        ("metadata", b"\xff", DamagedRowError, "not text"),
        ("thread_id", b"\xff\0", DamagedRowError, "not text"),
        ("type", "pickle", PickledRowError, "pickled"),
    ],
)
def test_a_damaged_row_is_named(
    saver: SqliteSaver, source: Path, column: str, value: Any, error: type[StateError], words: str
):
    saver.put(config("x"), {**empty_checkpoint(), "id": "1"}, {}, {})
    put(saver, "y", {"a": 1})
    change(source, f"UPDATE checkpoints SET {column} = ? WHERE thread_id = 'x'", value)
    with Memory() as store:
        with pytest.raises(error, match=words) as caught:
            imported(source, store)
        assert str(source) in str(caught.value)
        if column == "thread_id":
            return
        report = imported(source, store, keep_going=True)
        assert [type(each.error) for each in report.threads] == [error, type(None)]
        with VersionedSaver(store) as mine:
            assert [each.config["configurable"]["thread_id"] for each in mine.list(None)] == ["y"]


def test_a_pickle_is_read_only_if_the_user_says_so(saver: SqliteSaver, source: Path):
    saver.put(config("x"), {**empty_checkpoint(), "id": "1"}, {}, {})
    change(source, "UPDATE checkpoints SET type = 'pickle', checkpoint = ?", PICKLE)
    with Memory() as store:
        assert imported(source, store, allow_pickle=True).written == 1
        with VersionedSaver(store) as mine:
            assert mine.get_tuple(config("x")) is not None


def test_a_file_that_is_not_langgraphs_is_refused(tmp_path: Path):
    missing, text, other, folder = tmp_path / "missing", tmp_path / "text", tmp_path / "other", tmp_path / "folder"
    text.write_text("no database" * 100)
    folder.mkdir()
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE checkpoints (id)")
    with pytest.raises(FileNotFoundError):
        open_importer("langgraph", str(missing))
    with pytest.raises(IsADirectoryError):
        open_importer("langgraph", str(folder))
    with pytest.raises(SourceFormatError, match="not a SQLite database"):
        open_importer("langgraph", str(text))
    with pytest.raises(SourceFormatError, match="unknown version of LangGraph"):
        open_importer("langgraph", str(other))
    assert not missing.exists()


def test_a_file_that_is_cut_short_is_damaged(saver: SqliteSaver, source: Path, tmp_path: Path):
    put(saver, "1", {"a": "x" * 50_000})
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    cut = tmp_path / "cut.db"
    cut.write_bytes(source.read_bytes()[:20_000])
    with Memory() as store, pytest.raises(StateError, match="damaged"):
        imported(cut, store)


def test_metadata_may_be_missing(saver: SqliteSaver, source: Path):
    put(saver, "1", {"a": 1})
    change(source, "UPDATE checkpoints SET metadata = NULL")
    with Memory() as store:
        imported(source, store)
        with VersionedSaver(store) as mine:
            assert listed(mine) == listed(saver)
