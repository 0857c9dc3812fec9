"""`MemoryServiceContract`: the promises of a memory service, whatever is beneath.

A backend's test subclasses it and has a fixture `opened`, which gives a function that makes a service over one and the
same store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest

from tests.support.services.state_contract import HOSTILE_IDS
from versioned_state.errors import InvalidArgumentError
from versioned_state.services.memory import MemoryService
from versioned_state.services.schemas.agent_schemas import DataContent, FunctionCall, ImageContent, Message, TextContent

Opened = Callable[[], MemoryService]

LONG_AND_HOSTILE_IDS = [*HOSTILE_IDS, "\x01", "x" * 3000]

HOSTILE_QUERIES = [
    '"',
    "'",
    '" OR 1 --',
    "NEAR(a b, 5)",
    "a AND b OR NOT c",
    "title:hello",
    "hel*",
    "^hello",
    "{a b}",
    "-hello",
    "a & b | !c <-> d:*",
    "\0",
    "hello\0world",
    "%",
    "_",
    "\\",
    ");DROP TABLE words;--",
    "(" * 300,
    "\udcff",
    "İ",
    "ﬁ",
]

WORDS = (
    "apple Äpfel red straße Straße e\u0301clair éclair 苹果 红苹果 りんご c++ foo_bar x rust trust ﬁne".split()
    + "İstanbul σίσυφος ΣΊΣΥΦΟΣ 사과 ok".split()
)


def said(*texts: str, role: Any = "user") -> Message:
    """Return a message with a text content for each text."""
    return Message(role=role, content=[TextContent(text=text) for text in texts])


def texts_of(messages: Iterable[Message]) -> list[str]:
    """Return the first texts of some messages."""
    return [message.get_text_content() or "" for message in messages]


def found_by_reading(texts: list[str], query: str) -> list[str]:
    """Return the texts with one of the keywords of a query: what a search by keyword means."""
    keywords = query.casefold().split()
    return [text for text in texts if any(keyword in text.casefold() for keyword in keywords)]


class MemoryServiceContract:
    async def test_the_document(self, opened: Opened) -> None:
        async with opened() as service:
            await service.add_memory("user1", [said("hello world")], session_id="session1")
            retrieved = await service.search_memory("user1", [said("hello")])
            assert texts_of(retrieved) == ["hello world"]
            assert isinstance(retrieved[0], Message)
            assert texts_of(await service.list_memory("user1", filters={"page_size": 10, "page_num": 1})) == [
                "hello world"
            ]
            await service.delete_memory("user1", "session1")
            assert await service.list_memory("user1") == []
            await service.delete_memory("user1")
            assert await service.health()

    async def test_messages_come_back_as_they_were(self, opened: Opened) -> None:
        messages = [
            Message(
                role="user",
                content=[
                    TextContent(text="look"),
                    ImageContent(image_url="http://x/y.png"),
                    DataContent(data={"a": [1, None, {"b": 2.5}]}),
                ],
                metadata={"tags": ["x"]},
                usage={"tokens": 3},
            ),
            Message(
                type="function_call",
                role="assistant",
                content=[DataContent(data=FunctionCall(name="look", arguments="{}").model_dump())],
            ),
            Message(role="assistant"),
            Message(role="user", content=[]),
        ]
        async with opened() as service:
            await service.add_memory(
                "u", [*messages, {"role": "user", "content": [{"type": "text", "text": "a dict"}]}]
            )
            found = await service.list_memory("u")
            assert found[:4] == messages
            assert found[4].id.startswith("msg_")
            assert found[4] == (await service.list_memory("u"))[4]
            messages[0].content[0].text = "changed"  # type: ignore[index, union-attr]
            found[0].metadata["tags"].append("y")  # type: ignore[index]
            again = (await service.list_memory("u"))[0]
            assert (again.get_text_content(), again.metadata) == ("look", {"tags": ["x"]})

    async def test_keywords(self, opened: Opened) -> None:
        async with opened() as service:
            texts = [
                "I live in ROME",
                "My cat is called Tom",
                "roaming costs",
                "Straße nach Rom",
                "c++ and foo-bar",
                "我喜欢红苹果",
                "ok",
            ]
            for number, text in enumerate(texts):
                await service.add_memory("u", [said(text)], f"s{number % 2}")

            async def search(query: str, **filters: Any) -> list[str]:
                return texts_of(await service.search_memory("u", [said("ignored"), said(query)], filters or None))

            assert await search("rome cat") == texts[:2]
            assert await search("ROM") == ["I live in ROME", "Straße nach Rom"]
            assert await search("rom", top_k=1) == ["Straße nach Rom"]
            assert await search("ro", top_k=2) == ["roaming costs", "Straße nach Rom"]
            assert await search("ro", top_k=100) == ["I live in ROME", "roaming costs", "Straße nach Rom"]
            assert await search("ro", top_k=0) == []
            assert await search("STRASSE") == ["Straße nach Rom"]
            assert await search("++") == await search("o-b") == ["c++ and foo-bar"]
            assert await search("苹果") == await search("果") == await search("红") == ["我喜欢红苹果"]
            assert await search("k") == ["ok"]
            assert await search("   ") == await search("nothing") == []

    async def test_all_texts_of_a_message_count_and_nothing_else(self, opened: Opened) -> None:
        async with opened() as service:
            await service.add_memory(
                "u", [said("first", "second"), Message(type="function_call", content=[TextContent(text="second call")])]
            )
            await service.add_memory(
                "u", [Message(role="user", content=[DataContent(data={"text": "second"})]), Message(role="user")]
            )
            assert texts_of(await service.search_memory("u", [said("secon")])) == ["first"]
            assert texts_of(await service.search_memory("u", [said("zzz", "SECOND")])) == ["first"]
            assert texts_of(await service.search_memory("u", [said("second")], {"rank": "bm25"})) == ["first"]

    async def test_an_empty_query_finds_nothing(self, opened: Opened) -> None:
        async with opened() as service:
            await service.add_memory("u", [said("hello")])
            await service.add_memory("u", [])
            for query in ([], None, [said("")], [Message(role="user")], [said("hello"), Message(role="user")]):
                assert await service.search_memory("u", query) == []  # type: ignore[arg-type]
                assert await service.search_memory("u", query, {"rank": "bm25"}) == []  # type: ignore[arg-type]
            assert texts_of(
                await service.search_memory("u", [{"role": "user", "content": [{"type": "text", "text": "HELL"}]}])
            ) == ["hello"]

    async def test_ranked_search_gives_the_best_first(self, opened: Opened) -> None:
        async with opened() as service:
            texts = [
                "the cat sat",
                "the dog sat on the cat and the cat ran away from the big dog",
                "a bird",
                "cat cat cat",
                "the the the",
            ]
            await service.add_memory("u", [said(text) for text in texts])

            async def ranked(query: str, **filters: Any) -> list[str]:
                return texts_of(await service.search_memory("u", [said(query)], {"rank": "bm25", **filters}))

            assert await ranked("cat") == [
                "cat cat cat",
                "the cat sat",
                "the dog sat on the cat and the cat ran away from the big dog",
            ]
            assert await ranked("the bird", top_k=1) == ["a bird"]
            assert await ranked("CAT", top_k=2) == (await ranked("cat"))[:2]
            assert await ranked("at") == []
            assert await ranked("...") == []

    async def test_pages(self, opened: Opened) -> None:
        async with opened() as service:
            for session in ("b", "a", "c", "B", "ab"):
                await service.add_memory("u", [said(f"{session}{number}") for number in range(5)], session)
            everything = [f"{session}{number}" for session in ("B", "a", "ab", "b", "c") for number in range(5)]
            assert texts_of(await service.list_memory("u")) == everything[:10]
            assert texts_of(await service.list_memory("u", {"page_num": 3})) == everything[20:]
            assert texts_of(await service.list_memory("u", {"page_num": 2, "page_size": 7})) == everything[7:14]
            assert texts_of(await service.list_memory("u", {"page_size": 10**9})) == everything
            for number in (4, 10**30):
                assert await service.list_memory("u", {"page_num": number}) == []
            assert await service.list_memory("nobody") == []

    async def test_filters_are_checked(self, opened: Opened) -> None:
        async with opened() as service:
            await service.add_memory("u", [said("hello")])
            searches: list[Any] = [
                {"top_k": -1},
                {"top_k": "1"},
                {"top_k": True},
                {"top_k": 1.0},
                {"rank": "best"},
                {"rank": None},
                {"rank": ["bm25"]},
                {"rank": 10**5000},
                {"top_k": -(10**5000)},
                {10**5000: 1},
                {"topk": 1},
                {"page_num": 1},
                [],
                7,
            ]
            for filters in searches:
                with pytest.raises(InvalidArgumentError):
                    await service.search_memory("u", [said("hello")], filters)
            pages: list[Any] = [
                {"page_num": 0},
                {"page_num": -1},
                {"page_size": 0},
                {"page_size": "10"},
                {"page_num": 1.5},
                {"top_k": 1},
                "x",
            ]
            for filters in pages:
                with pytest.raises(InvalidArgumentError):
                    await service.list_memory("u", filters)
            for most in (None, 2**63, 10**5000):
                assert len(await service.search_memory("u", [said("hello")], {"top_k": most})) == 1

    async def test_bad_messages_and_ids_add_nothing(self, opened: Opened) -> None:
        async with opened() as service:
            for messages in ([said("fine"), {"role": "nobody"}], [7], "text", [said("fine"), None], [{"content": 7}]):
                with pytest.raises(InvalidArgumentError):
                    await service.add_memory("u", messages)  # type: ignore[arg-type]
            for user, session in ((7, None), (None, None), (b"u", None), ("u", 7), ("u", ["s"])):
                with pytest.raises(InvalidArgumentError, match=r"(user|session)_id must be a string"):
                    await service.add_memory(user, [said("x")], session)  # type: ignore[arg-type]
                with pytest.raises(InvalidArgumentError, match=r"(user|session)_id must be a string"):
                    await service.delete_memory(user, session)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgumentError):
                await service.search_memory("u", [7])
            assert await service.list_memory("u") == []

    async def test_users_and_sessions_of_any_ids_are_apart(self, opened: Opened) -> None:
        async with opened() as service:
            for number, id in enumerate(LONG_AND_HOSTILE_IDS):
                await service.add_memory(id, [said(f"hello {number}")], LONG_AND_HOSTILE_IDS[-number - 1])
            for number, id in enumerate(LONG_AND_HOSTILE_IDS):
                assert texts_of(await service.search_memory(id, [said("hello")])) == [f"hello {number}"]
                assert texts_of(await service.search_memory(id, [said("hello")], {"rank": "bm25"})) == [
                    f"hello {number}"
                ]
            sessions = sorted(set(LONG_AND_HOSTILE_IDS) - {""})
            for session in LONG_AND_HOSTILE_IDS[::-1]:
                await service.add_memory("all", [said(session.encode(errors="backslashreplace").decode())], session)
            listed = texts_of(await service.list_memory("all", {"page_size": 100}))
            assert [text for text in listed if text] == [
                each.encode(errors="backslashreplace").decode() for each in sessions
            ]
            for number, session in enumerate(sessions):
                await service.delete_memory("all", session)
                assert len(await service.list_memory("all", {"page_size": 100})) == len(listed) - number - 1 - (
                    number >= sessions.index("default")
                )

    async def test_a_falsy_session_is_the_default_one(self, opened: Opened) -> None:
        async with opened() as service:
            for session in (None, "", "default"):
                await service.add_memory("u", [said("hello")], session)
            await service.delete_memory("u", "default")
            assert await service.list_memory("u") == []

    async def test_what_is_deleted_is_not_found(self, opened: Opened) -> None:
        async with opened() as service:
            await service.add_memory("u", [said("secret apple"), said("apple")], "a")
            await service.add_memory("u", [said("apple pie")], "b")
            await service.add_memory("v", [said("apple of v")])
            assert len(await service.search_memory("u", [said("apple")])) == 3
            await service.delete_memory("u", "a")
            for rank in ("keyword", "bm25"):
                assert texts_of(await service.search_memory("u", [said("apple secret")], {"rank": rank})) == [
                    "apple pie"
                ]
            await service.delete_memory("u", "missing")
            await service.delete_memory("nobody")
            await service.delete_memory("nobody", "a")
            await service.add_memory("u", [said("new apple")], "a")
            assert texts_of(await service.search_memory("u", [said("apple")])) == ["apple pie", "new apple"]
            await service.delete_memory("u")
            assert await service.search_memory("u", [said("apple")]) == []
            await service.add_memory("u", [said("an apple")])
            assert texts_of(await service.list_memory("u")) == ["an apple"]
            assert texts_of(await service.search_memory("v", [said("apple")])) == ["apple of v"]

    async def test_hostile_queries_are_only_text(self, opened: Opened) -> None:
        async with opened() as service:
            texts = [f"<{text}>" for text in (*HOSTILE_QUERIES, "hello world", "title: hello", "100%")]
            await service.add_memory("u", [said(text) for text in texts])
            for query in HOSTILE_QUERIES:
                found = texts_of(await service.search_memory("u", [said(query)]))
                assert found == found_by_reading(texts, query)
                await service.search_memory("u", [said(query)], {"rank": "bm25"})
            assert len(await service.list_memory("u", {"page_size": 100})) == len(texts)

    async def test_a_megabyte_as_a_query_and_as_a_message(self, opened: Opened) -> None:
        dice = Random(7)
        long = " ".join(f"{dice.getrandbits(50):x}" for _ in range(20_000))
        async with opened() as service:
            await service.add_memory("u", [said("hello"), said(f"start {long}"), said("end")])
            assert texts_of(await service.search_memory("u", [said(long[-100_000:])])) == [f"start {long}"]
            assert texts_of(
                await service.search_memory("u", [said(f"{long[-100_000:]} end")], {"rank": "bm25", "top_k": 2})
            ) == [
                f"start {long}",
                "end",
            ]
            assert texts_of(await service.search_memory("u", [said(long.split()[10_000])])) == [f"start {long}"]
            assert texts_of(await service.search_memory("u", [said("start")], {"rank": "bm25"})) == [f"start {long}"]
            assert len(await service.search_memory("u", [said("x" * 1_000_000)])) == 0

    async def test_searches_find_what_reading_everything_finds(self, opened: Opened) -> None:
        dice = Random(14)
        texts = [" ".join(dice.choices(WORDS, k=dice.randint(0, 6))) for _ in range(120)]
        queries = [
            *WORDS,
            *(
                word[start : start + length]
                for word in WORDS
                for length in (1, 2, 3)
                for start in range(len(word) - length + 1)
            ),
            *(f"{dice.choice(WORDS)[:3]} {dice.choice(WORDS)[-3:]}" for _ in range(20)),
        ]
        async with opened() as service:
            for number in range(0, 100, 4):
                await service.add_memory("u", [said(text) for text in texts[number : number + 4]], f"s{number % 3}")
            kept = list(texts[:100])
            for text in texts[100:]:
                await service.add_memory("u", [said(text)])
                kept.append(text)
                query = dice.choice(queries)
                assert texts_of(await service.search_memory("u", [said(query)])) == found_by_reading(kept, query)
            for query in dice.sample(queries, 30):
                expected = found_by_reading(kept, query)
                assert texts_of(await service.search_memory("u", [said(query)])) == expected, query
                assert texts_of(await service.search_memory("u", [said(query)], {"top_k": 3})) == expected[-3:], query

    async def test_four_clients_lose_nothing(self, opened: Opened) -> None:
        services = [opened() for _ in range(4)]
        for service in services:
            await service.start()

        async def client(number: int) -> None:
            for index in range(25):
                some = [said(f"message {number} {each}") for each in range(4 * index, 4 * index + 4)]
                if index % 2:
                    await asyncio.gather(*(services[number].add_memory("u", [each], "s") for each in some))
                else:
                    await services[number].add_memory("u", some, "s")

        await asyncio.gather(*map(client, range(4)))
        found = texts_of(await services[0].list_memory("u", {"page_size": 1000}))
        assert sorted(found) == sorted(f"message {number} {each}" for number in range(4) for each in range(100))
        for number in range(4):
            assert [text for text in found if text.startswith(f"message {number} ")] == [
                f"message {number} {each}" for each in range(100)
            ]
            mine = await services[number].search_memory("u", [said("MESSAGE")])
            assert len(mine) == 400
            assert len(await services[number].search_memory("u", [said("message")], {"rank": "bm25"})) == 400
        for service in services:
            await service.stop()

    async def test_memory_stays_over_a_restart(self, opened: Opened) -> None:
        first = opened()
        async with first as service:
            await service.add_memory("u", [said("hello")])
            assert texts_of(await service.search_memory("u", [said("hello")])) == ["hello"]
        with pytest.raises(RuntimeError):
            await first.add_memory("u", [said("late")])
        async with opened() as second:
            await second.add_memory("u", [said("hello again")])
            assert texts_of(await second.search_memory("u", [said("hello")])) == ["hello", "hello again"]
        async with first as service:
            assert texts_of(await service.search_memory("u", [said("hello")], {"rank": "bm25"})) == [
                "hello",
                "hello again",
            ]
