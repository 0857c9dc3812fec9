"""The memory service's indexes: they agree with each other and with a scan, follow the branch anywhere, and erase."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.postgres import PostgresServer
from tests.support.services.memory_contract import WORDS, found_by_reading, said, texts_of
from tests.support.stores import MinimalStore, OneCondition
from versioned_state import Disk, Memory, Versioned
from versioned_state.services.memory import MemoryService, VersionedMemoryService
from versioned_state.services.memory.indexes.choice import index_of
from versioned_state.services.memory.indexes.full_text import FullText
from versioned_state.services.memory.indexes.in_state import WORDS as SEGMENTS, InState
from versioned_state.services.memory.indexes.index import bm25, scan
from versioned_state.services.memory.indexes.terms import head_of, word_term
from versioned_state.services.memory.memories import Memories
from versioned_state.services.memory.text import matcher, words_of
from versioned_state.storage import Cache, Counting, KVStore, Postgres
from versioned_state.storage.wrappers.encrypted.store import Encrypted

RANKED = {"rank": "bm25"}


async def search(service: MemoryService, query: str, user: str = "u", **filters: Any) -> list[str]:
    return texts_of(await service.search_memory(user, [said(query)], filters or None))


async def filled(service: MemoryService, texts: list[str], user: str = "u") -> None:
    for number, text in enumerate(texts):
        await service.add_memory(user, [said(text)], f"s{number % 3}")


def some_texts(count: int, seed: int = 1) -> list[str]:
    dice = random.Random(seed)
    return [" ".join(dice.choices(WORDS, k=dice.randint(0, 8))) for _ in range(count)]


# Agreement


async def test_all_indexes_rank_as_a_scan_does(tmp_path: Path, postgres_server: PostgresServer) -> None:
    texts = some_texts(70)
    with (
        Disk(tmp_path / "store") as disk,
        Postgres(postgres_server.url, schema=postgres_server.fresh_schema()) as postgres,
    ):
        stores: list[KVStore] = [Memory(), disk, postgres]
        assert [type(index_of(store)).__name__ for store in stores] == ["InState", "FullText", "PostgresText"]
        services = [MemoryService.over(store) for store in stores]
        for service in services:
            await service.start()
            await filled(service, texts)
        head = services[0].repository.branches[services[0].branch("u")]
        for query in [*WORDS, "apple red rust", "苹果 trust x x", "nothing of it"]:
            memories = Memories(services[0].repository, services[0].branch("u"), head)
            words = words_of(query).keys()
            expected = texts_of_places(memories, bm25(scan(memories, words)))
            found = [texts_of(await service.search_memory("u", [said(query)], RANKED)) for service in services]
            assert found == [expected] * 3, query
            assert [await search(service, query) for service in services] == [found_by_reading(texts, query)] * 3, query
        for service in services:
            await service.stop()


def texts_of_places(memories: Memories, places: Any) -> list[str]:
    return [data["content"][0]["text"] for _, data in memories.read(places)]


async def test_a_search_reads_what_it_finds_and_not_all() -> None:
    cost: dict[int, list[int]] = {}
    for size in (60, 1200):
        store = Counting(Memory())
        async with VersionedMemoryService(store) as service:
            texts = [
                f"message {number} about {number % 7} things and a few more words than that" for number in range(size)
            ]
            texts[size // 2] = "the needle"
            for start in range(0, size, 30):
                await service.add_memory("u", [said(text) for text in texts[start : start + 30]], f"s{start % 4}")
        cost[size] = []
        for filters in ({}, RANKED, {"top_k": 1}):
            async with VersionedMemoryService(store) as service:  # which has nothing in memory
                service.repository.database.forget()
                store.reset()
                assert await search(service, "needle", **filters) == ["the needle"]
                cost[size].append(store.counts.bytes_read)
    # Twenty times the messages: the vocabulary is about the same, and the paths are a level longer.
    assert all(large < 6 * small for small, large in zip(cost[60], cost[1200], strict=True)), cost


async def test_an_addition_costs_its_messages_and_one_batch(tmp_path: Path) -> None:
    for store in (Counting(Memory()), Counting(Disk(tmp_path / "store"))):
        written, trips = [], []
        async with MemoryService.over(store) as service:
            for size in (64, 512):
                while len(await service.list_memory("u", {"page_size": 10_000})) < size:
                    await service.add_memory("u", [said(f"word{number} and others") for number in range(32)])
                store.reset()
                for number in range(48):  # the ids are random, and so is how often a leaf is divided
                    await service.add_memory("u", [said(f"one more {number}")])
                counts = store.reset()
                written.append(counts.bytes_written)
                trips.append(counts.round_trips)
                assert counts.applies == 48
        assert written[1] < 3 * written[0], (store, written)
        assert trips[1] <= 96, (store, trips)
        store.close()


async def test_ten_thousand_keywords_are_looked_up_and_not_tried() -> None:
    keywords = frozenset(f"k{number}" for number in range(10_000))
    matches = matcher(keywords)
    assert matches("xxK77xx")
    assert not matches("nothing " * 1000)
    few = matcher(frozenset(["k77"]))
    for text in ("a k7 7", "K77", "xk77x", ""):
        assert few(text) == ("k77" in text.casefold())


# Following the branch


@pytest.fixture
def disk(tmp_path: Path) -> Any:
    with Disk(tmp_path / "store") as store:
        yield store


def derived(store: Disk) -> Path:
    folder = store.derived
    assert folder is not None
    return folder


def index_file(store: Disk) -> Path:
    (file,) = derived(store).glob("*.sqlite3")
    return file


def change(*sql: str) -> Callable[[Path], None]:
    def run(file: Path) -> None:
        with closing(sqlite3.connect(file)) as connection, connection:
            for each in sql:
                connection.execute(each)

    return run


HARMS: dict[str, Callable[[Path], object]] = {
    "another header": lambda file: file.write_bytes(b"not SQLite at all" * 300),
    "cut short": lambda file: os.truncate(file, 5000),
    "empty": lambda file: os.truncate(file, 0),
    "removed": Path.unlink,
    "newer": change("PRAGMA user_version = 99"),
    "a table less": change("DROP TABLE places"),
    "a message less": change("DELETE FROM places", "UPDATE state SET head = 'no such commit'"),
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
async def test_a_file_that_is_not_as_it_should_be_is_made_anew(disk: Disk, harm: Callable[[Path], object]) -> None:
    async with MemoryService.over(disk) as service:
        await filled(service, ["red apple", "green apple", "red rust"])
        assert await search(service, "red") == ["red apple", "red rust"]
        file = index_file(disk)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        harm(file)
        assert await search(service, "red") == ["red apple", "red rust"]
        assert await search(service, "apple", **RANKED) == ["green apple", "red apple"]
        with sqlite3.connect(index_file(disk)) as connection:
            assert connection.execute("SELECT head FROM state").fetchone() == (head_of(memories_of(service)),)
            assert connection.execute("SELECT count(*) FROM places").fetchone() == (3,)
        connection.close()


async def test_a_file_that_cannot_be_made_leaves_the_search_as_it_is(disk: Disk) -> None:
    derived(disk).write_text("no folder")
    async with MemoryService.over(disk) as service:
        await filled(service, ["red apple", "green apple"])
        assert await search(service, "red") == ["red apple"]
        assert await search(service, "red", **RANKED) == ["red apple"]
        await service.delete_memory("u", "s0")
        assert await search(service, "apple") == ["green apple"]


async def test_undo_fork_and_merge_take_the_index_along(place: KVStore | str) -> None:
    async with MemoryService.over(place) as service:
        branch = service.branch("u")
        await filled(service, ["red apple", "green apple"])
        assert await search(service, "apple", **RANKED) == ["green apple", "red apple"]
        state = Versioned(service.repository, branch=branch)
        state.undo()
        assert await search(service, "apple", **RANKED) == ["red apple"]
        state.redo()
        state.fork("aside").close()
        await service.add_memory("u", [said("blue apple")])
        aside = MemoryService.over(place)
        aside.branch = lambda *_: "aside"  # type: ignore[method-assign]
        await aside.start()
        await aside.add_memory("u", [said("grey apple")])
        await aside.stop()
        state.refresh()
        state.merge("aside")
        everything = ["red apple", "green apple", "blue apple", "grey apple"]
        assert await search(service, "pple") == everything
        assert await search(service, "apple", **RANKED) == everything[::-1]
        state.reset("HEAD~1")
        state.close()
        assert len(await search(service, "apple", **RANKED)) == 3
        for number in range(20):
            await service.add_memory("u", [said(f"apple {number}")])
        assert len(await search(service, "apple", **RANKED)) == 23


async def test_an_index_in_the_state_that_lacks_a_message_is_not_asked_and_mended() -> None:
    async with MemoryService.over(Memory()) as service:
        texts = [f"apple {number}" for number in range(20)]
        await filled(service, texts)
        with Versioned(service.repository, branch=service.branch("u")) as state:
            session = state.namespace("messages").namespace("s0")
            del session[next(iter(session))]
            session[next(iter(session))]["content"][0]["text"] = "apple with a worm"
            state.commit()
        assert len(await search(service, "apple", **RANKED)) == 19
        assert await search(service, "worm") == ["apple with a worm"]
        for number in range(2):  # the handle that adds the first one has not seen what was done to the branch
            await service.add_memory("u", [said(f"new apple {number}")])
            assert await search(service, "worm") == ["apple with a worm"]
        assert await search(service, "worm", **RANKED) == ["apple with a worm"]
        memories = memories_of(service)
        assert sum(int(name.split(".")[1]) for name in memories.keys((SEGMENTS,))) == len(memories) == 21


def memories_of(service: VersionedMemoryService) -> Memories:
    branch = service.branch("u")
    return Memories(service.repository, branch, service.repository.branches[branch])


async def test_segments_are_few() -> None:
    async with MemoryService.over(Memory()) as service:
        for number in range(150):
            await service.add_memory("u", [said(f"apple {number}")])
        names = memories_of(service).keys((SEGMENTS,))
        assert len(names) <= 3 * 7
        assert len(await search(service, "apple", **RANKED)) == 150


# Erasing


def bytes_under(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


SECRET = "Xylophonist"


def traces(content: bytes) -> bool:
    """Whether bytes have the secret word, or what an index makes of it.

    FTS5 leaves out of a term what it shares with the term before.
    """
    return SECRET.casefold().encode() in content.lower() or word_term(SECRET.casefold())[5:].encode() in content


@pytest.mark.parametrize("call", ["session", "user", "all", "purge", "purge of the branch", "delete_user"])
async def test_nothing_that_is_deleted_stays_in_the_index_of_a_disk(disk: Disk, call: str) -> None:
    async with MemoryService.over(disk) as service:
        for number in range(30):
            await service.add_memory("u", [said(f"{SECRET} {number}")], "secret")
            await service.add_memory("u", [said(f"apple {number}")], "other")
        await service.add_memory("v", [said("apple of v")])
        for user in ("u", "v"):
            await search(service, f"{SECRET} apple", user=user)
        assert traces(bytes_under(derived(disk)))
        if call == "session":
            await service.delete_memory("u", "secret")
        elif call == "user":
            await service.delete_memory("u")
        elif call == "all":
            await service.clear_all_memory()
        elif call == "purge":
            service.repository.purge("@messages.@secret")
        elif call == "purge of the branch":
            service.repository.gc()  # so that it is erased at its own cost
            files = len(list(derived(disk).iterdir()))
            service.repository.purge(branches=service.branch("u"))
            assert len(list(derived(disk).iterdir())) == files - 1, "the index of another user stays"
        else:
            report = await service.delete_user("u")
            assert report.branches == (service.branch("u"),)
        assert not traces(bytes_under(derived(disk)))
        assert await search(service, SECRET) == []
        assert await search(service, SECRET, **RANKED) == []
        left = 30 if call in {"session", "purge"} else 0
        assert len(await search(service, "apple")) == left
        assert await search(service, "apple", user="v") == ([] if call == "all" else ["apple of v"])
        assert not traces(bytes_under(derived(disk)))
        if call == "delete_user":
            assert not traces(bytes_under(disk.path))


async def test_a_deleted_session_leaves_an_index_in_the_state() -> None:
    async with MemoryService.over(Memory()) as service:
        for number in range(30):
            await service.add_memory("u", [said(f"{SECRET} {number}")], "secret")
            await service.add_memory("u", [said(f"apple {number}")], "other")
        await service.delete_memory("u", "secret")
        assert SECRET.casefold() not in str(service.repository.snapshot(service.branch("u")).namespace(SEGMENTS).copy())
        assert len(await search(service, "apple", **RANKED)) == 30
        await service.delete_memory("u", "other")
        assert memories_of(service).keys((SEGMENTS,)) == []


async def test_nothing_that_is_deleted_stays_in_the_tables_of_postgres(postgres_server: PostgresServer) -> None:
    schema = postgres_server.fresh_schema()

    def rows() -> int:
        with postgres_server.connection() as connection:
            found = connection.execute(f"SELECT count(*) FROM {schema}.derived_words".encode()).fetchone()
            assert found is not None
            return int(found[0])

    with Postgres(postgres_server.url, schema=schema) as store:
        async with MemoryService.over(store) as service:
            await filled(service, ["red apple", "green apple", "blue apple"])
            await filled(service, ["red apple"], user="v")
            for user in ("u", "v"):
                await search(service, "apple", user=user)
            assert rows() == 4
            await service.delete_memory("u", "s0")
            assert rows() == 1
            assert await search(service, "apple") == ["green apple", "blue apple"]
            await service.delete_memory("u")
            assert rows() == 1
            with Versioned(service.repository, branch="another") as another:
                another["x"] = 1
                another.commit()
            service.repository.gc()  # so that branches are erased at their own cost
            service.repository.purge(branches="another")
            assert rows() == 1
            service.repository.purge(branches=service.branch("v"))
            assert rows() == 0


async def test_an_encrypted_store_has_nothing_in_the_clear(tmp_path: Path) -> None:
    with Disk(tmp_path / "store") as disk:
        store = Encrypted(disk, b"k" * 32)
        assert isinstance(index_of(Cache(store)), InState)
        assert isinstance(index_of(Counting(Cache(disk))), FullText)
        async with MemoryService.over(store) as service:
            await service.add_memory("u", [said(f"{SECRET} {number}") for number in range(20)])
            assert len(await search(service, SECRET)) == len(await search(service, SECRET, **RANKED)) == 20
        assert not derived(disk).exists()
        assert not traces(bytes_under(disk.path))


async def test_users_do_not_show_in_each_others_ranking_or_files(disk: Disk) -> None:
    async with MemoryService.over(disk) as service:
        texts = ["red apple", "apple apple pear", "pear"]
        await filled(service, texts)
        before = await search(service, "apple pear", **RANKED)
        await filled(service, ["pear"] * 30, user="v")
        await search(service, "pear", user="v")
        assert await search(service, "apple pear", **RANKED) == before
        assert await search(service, "pear", user="nobody") == await search(service, "zzz", user="v") == []
        assert len(list(derived(disk).glob("*"))) == 2  # nobody was asked for, and left nothing
        assert b"alice" not in b"".join(os.fsencode(path) for path in derived(disk).glob("*"))


# Rights


async def test_a_store_for_reading_only_is_searched_and_not_written(disk: Disk) -> None:
    async with MemoryService.over(disk) as service:
        await filled(service, ["red apple", "green apple"])
    with Disk(disk.path, read_only=True) as reader:
        assert isinstance(index_of(reader), InState)
        async with MemoryService.over(reader) as service:
            assert await search(service, "red") == ["red apple"]
            assert await search(service, "apple", **RANKED) == ["green apple", "red apple"]
    assert not derived(disk).exists()


@pytest.mark.parametrize("kind", [OneCondition, MinimalStore])
async def test_a_store_that_promises_little(kind: type[KVStore]) -> None:
    async with MemoryService.over(kind()) as service:
        for number in range(20):
            await service.add_memory("u", [said(f"apple {number}")], f"s{number % 3}")
        await service.delete_memory("u", "s1")
        assert len(await search(service, "apple")) == len(await search(service, "apple", **RANKED)) == 13
        await service.clear_all_memory()
        assert await service.list_memory("u") == []


async def test_a_process_that_does_not_know_of_a_purge_adds_all_the_same(local_place: KVStore | str) -> None:
    async with MemoryService.over(local_place) as one, MemoryService.over(local_place) as other:
        for number in range(20):
            await one.add_memory("u", [said(f"{SECRET} {number}")], "secret")
            await other.add_memory("u", [said(f"apple {number}")], "other")
        await one.delete_user("u")
        await other.add_memory("u", [said("new apple")])
        assert await search(one, "apple") == await search(other, f"apple {SECRET}", **RANKED) == ["new apple"]
        await one.add_memory("u", [said("apple two")])
        one.repository.purge("@messages.@default", "@words")
        await other.add_memory("u", [said("apple three")])
        await other.add_memory("u", [said("apple four")])
        assert await search(one, "apple", top_k=2) == ["apple three", "apple four"]
        assert (await search(one, "apple", **RANKED))[:2] == ["apple four", "apple three"]


async def test_a_role_that_may_not_make_tables_searches_by_reading(postgres_server: PostgresServer) -> None:
    schema = postgres_server.fresh_schema()
    Postgres(postgres_server.url, schema=schema).close()
    role = f"r_{schema}"
    with postgres_server.connection() as connection:
        for sql in (
            f"CREATE ROLE {role} LOGIN",
            f"GRANT USAGE ON SCHEMA {schema} TO {role}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
        ):
            connection.execute(sql.encode())

    with Postgres(postgres_server.url_of(user=role), schema=schema) as store:
        async with MemoryService.over(store) as service:
            await filled(service, ["red apple", "green apple"])
            assert await search(service, "red") == ["red apple"]
            assert await search(service, "apple", **RANKED) == ["green apple", "red apple"]
            await service.delete_memory("u", "s0")
            assert await search(service, "apple", **RANKED) == ["green apple"]
