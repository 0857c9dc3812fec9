"""Search by vector: an embedder of the caller's, vectors in the state, an exact index in this process."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.services.memory_contract import said, texts_of
from versioned_state import Disk, Memory
from versioned_state.errors import EmbedderError, InvalidArgumentError
from versioned_state.services.memory import Embedder, InMemoryMemoryService, MemoryService, vectors
from versioned_state.services.memory.memories import Memories, escaped
from versioned_state.services.memory.memory_service import VersionedMemoryService
from versioned_state.storage import Counting

VECTOR = {"rank": "vector"}


class Letters:
    """Counts letters: the smallest embedder that puts similar words together."""

    dimension = 26

    def __init__(self, name: str = "letters-1") -> None:
        self.name = name
        self.seen: list[str] = []

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]] | Awaitable[Sequence[Sequence[float]]]:
        self.seen += texts
        return [[float(text.lower().count(chr(97 + letter))) for letter in range(26)] for text in texts]


class AsyncLetters(Letters):
    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        await asyncio.sleep(0)
        answer = super().embed(texts)
        assert isinstance(answer, list)
        return answer


class FewerLetters(Letters):
    """Another model that has the same name."""

    dimension = 3

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [[float(text.count(letter)) for letter in "abc"] for text in texts]


class Failing(Letters):
    """Answers as ``answer`` says, or raises it."""

    def __init__(self, answer: Any = None) -> None:
        super().__init__()
        self.answer = answer

    def embed(self, texts: Sequence[str]) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return super().embed(texts) if self.answer is None else self.answer


TEXTS = ["banana", "a cab", "zzz", "bandana", "", "xyz"]


async def nearest(service: MemoryService, query: str, **filters: Any) -> list[str]:
    return texts_of(await service.search_memory("u", [said(query)], {**VECTOR, **filters}))


def kept(service: VersionedMemoryService, embedder: str) -> int:
    branch = service.branch("u")
    return Memories(service.repository, branch, service.repository.branches[branch]).count(
        ("vectors", escaped(f"{embedder}/26"))
    )


@pytest.mark.parametrize("library", ["numpy", "none"])
@pytest.mark.parametrize("embedder", [Letters(), AsyncLetters()])
async def test_the_nearest_come_first(embedder: Letters, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if library == "none":
        monkeypatch.setattr(vectors, "_numpy", lambda: None)

    assert isinstance(embedder, Embedder)
    async with MemoryService.over(Memory(), embedder=embedder) as service:
        for number, text in enumerate(TEXTS):
            await service.add_memory("u", [said(text)], f"s{number % 2}")
        embedder.seen.clear()
        assert await nearest(service, "bananas") == ["banana", "bandana", "a cab", "xyz", "zzz"]
        assert await nearest(service, "banana", top_k=1) == ["banana"]
        assert await nearest(service, "zy", top_k=2) == ["xyz", "zzz"]
        assert (
            await nearest(service, "banana", top_k=0)
            == await nearest(service, "  ")
            == await nearest(service, "123")
            == []
        )
        # each message was embedded once, when it was added
        assert embedder.seen == ["bananas", "banana", "zy", "123"]
        await service.add_memory("u", [said("ananab")])
        assert await nearest(service, "banana", top_k=2) == ["ananab", "banana"]
        await service.delete_memory("u", "s0")
        assert await nearest(service, "banana", top_k=2) == ["ananab", "bandana"]
        await service.delete_memory("u")
        assert await nearest(service, "banana") == []


async def test_ten_are_found_if_no_number_is_given() -> None:
    async with InMemoryMemoryService(embedder=Letters()) as service:
        await service.add_memory("u", [said("a" * (number + 1)) for number in range(15)])
        assert len(await nearest(service, "a")) == 10
        assert len(await nearest(service, "a", top_k=100)) == 15


async def test_vectors_are_computed_once_and_outlive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with MemoryService.over(path, embedder=Letters()) as service:
        await service.add_memory("u", [said(text) for text in TEXTS])
    again = Letters()
    async with MemoryService.over(path, embedder=again) as service:
        assert await nearest(service, "banana", top_k=1) == ["banana"]
        assert again.seen == ["banana"]
        assert kept(service, "letters-1") == len(TEXTS)


async def test_another_embedder_embeds_all_anew() -> None:
    store = Memory()
    async with MemoryService.over(store, embedder=Letters("old")) as service:
        await service.add_memory("u", [said(text) for text in TEXTS])
        assert await nearest(service, "banana", top_k=1) == ["banana"]
    new = Letters("new")
    async with MemoryService.over(store, embedder=new) as service:
        assert await nearest(service, "banana", top_k=1) == ["banana"]
        assert sorted(new.seen) == sorted([*(text for text in TEXTS if text), "banana"])
        assert (kept(service, "old"), kept(service, "new")) == (0, len(TEXTS))
        await nearest(service, "a")
        assert new.seen[-1] == "a"


@pytest.mark.parametrize(
    "answer",
    [
        ConnectionError("refused"),
        [],
        [[1.0] * 26] * 7,
        [[1.0] * 25],
        [[math.nan] * 26],
        [[math.inf] * 26],
        ["text"],
        [None],
        None.__class__,
        7,
    ],
)
async def test_an_embedder_that_fails_costs_no_message(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    embedder = Failing(answer)

    async with MemoryService.over(Memory(), embedder=embedder) as service:
        with caplog.at_level(logging.WARNING, "versioned_state.services.memory"):
            await service.add_memory("u", [said("a private apple")])
        assert [record.message for record in caplog.records] == [
            "the embedder failed: messages are added without vectors"
        ]
        assert "private" not in str(vars(caplog.records[0]))
        assert texts_of(await service.search_memory("u", [said("apple")])) == ["a private apple"]
        with pytest.raises(EmbedderError, match="letters-1") as caught:
            await nearest(service, "apple")
        assert caught.value.embedder == "letters-1"
        embedder.answer = None  # it works again
        assert await nearest(service, "apple") == ["a private apple"]


async def test_a_service_without_an_embedder_says_so() -> None:
    async with InMemoryMemoryService() as service:
        await service.add_memory("u", [said("apple")])
        with pytest.raises(InvalidArgumentError, match="embedder"):
            await nearest(service, "apple")
    with pytest.raises(InvalidArgumentError, match="embedder must be an Embedder or None, not str"):
        InMemoryMemoryService(embedder="model")


async def test_messages_of_before_there_was_an_embedder_get_their_vectors() -> None:
    store = Memory()
    async with MemoryService.over(store) as service:
        for text in TEXTS:
            await service.add_memory("u", [said(text)])
    services = [MemoryService.over(store, embedder=Letters()) for _ in range(3)]
    for each in services:
        await each.start()
    await asyncio.gather(
        *(nearest(each, "banana") for each in services), *(each.add_memory("u", [said("new")]) for each in services)
    )
    assert [(await nearest(each, "banana"))[0] for each in services] == ["banana"] * 3
    assert kept(services[0], "letters-1") == len(TEXTS) + 3
    for each in services:
        await each.stop()


async def test_a_search_reads_the_new_vectors_only(tmp_path: Path) -> None:
    store = Counting(Disk(tmp_path / "store"))
    async with MemoryService.over(store, embedder=Letters()) as service:
        for start in range(0, 400, 50):
            await service.add_memory(
                "u", [said(f"word {chr(97 + number % 26)} {number}") for number in range(start, start + 50)]
            )
        await nearest(service, "q", top_k=1)
        await service.add_memory("u", [said("qqq")])
        store.reset()
        assert await nearest(service, "q", top_k=1) == ["qqq"]
        assert store.reset().bytes_read < 30_000
    store.close()


async def test_a_model_of_another_dimension_embeds_all_anew() -> None:
    store = Memory()
    async with MemoryService.over(store, embedder=Letters()) as service:
        await service.add_memory("u", [said("abb")])
        assert len(await service.search_memory("u", [said("abb")], VECTOR)) == kept(service, "letters-1") == 1
    async with MemoryService.over(store, embedder=FewerLetters()) as service:
        await service.add_memory("u", [said("acc")])
        assert len(await service.search_memory("u", [said("abb")], VECTOR)) == 2
        assert kept(service, "letters-1") == 0


async def test_only_so_many_vectors_stay_in_memory() -> None:
    known = vectors.Vectors(20_000)
    async with InMemoryMemoryService(embedder=Letters()) as service:
        service._vectors = known
        for user in "abcdef":
            await service.add_memory(user, [said(f"apple {number}") for number in range(20)])
        for user in "abcabcdefa":
            assert len(await service.search_memory(user, [said("apple")], VECTOR)) == 10
            assert sum(each.size for each in known._users.values()) <= 20_000
        assert 1 < len(known._users) < 6


async def test_scores_fall() -> None:
    async with InMemoryMemoryService(embedder=Letters()) as service:
        await service.add_memory("u", [said("ab" * number + "c" * (9 - number)) for number in range(10)])
        found = await nearest(service, "abab")
        assert all(a.count("c") <= b.count("c") for a, b in pairwise(found))
