"""`SessionHistoryContract`: the promises of a session history service, whatever is beneath.

A backend's test subclasses it and has a fixture `opened`, which gives a function that makes a service over one and the
same store, with the options that it is given.
"""

from __future__ import annotations

import asyncio
import math
import threading
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Protocol

import pytest

from tests.support.services.state_contract import HOSTILE_IDS
from versioned_state.errors import (
    InvalidArgumentError,
    PickleRefusedError,
    SessionNotFoundError,
    UnserializableValueError,
)
from versioned_state.services.schemas.agent_schemas import (
    AudioContent,
    DataContent,
    Error,
    FileContent,
    ImageContent,
    Message,
    RefusalContent,
    TextContent,
)
from versioned_state.services.schemas.session import Session
from versioned_state.services.session_history import SessionHistoryService


class Opened(Protocol):
    def __call__(self, **options: Any) -> Any: ...  # a SessionHistoryService with the options of ours


STRIPPED_IDS = [id for id in HOSTILE_IDS if id and id == id.strip()]


def text(words: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": words}]}


def texts(session: Session | None) -> list[str]:
    assert session is not None
    return [message.get_text_content() or "" if isinstance(message, Message) else "" for message in session.messages]


class SessionHistoryContract:
    async def test_a_session_is_created_appended_to_and_read(self, opened: Opened) -> None:
        async with opened() as service:
            assert isinstance(service, SessionHistoryService)
            session = await service.create_session("alice", "trip")
            assert (session.id, session.user_id, session.messages) == ("trip", "alice", [])
            await service.append_message(session, text("Rome?"))
            await service.append_message(session, Message(role="assistant", content=[TextContent(text="Yes.")]))
            await service.append_message(
                session, [text("When?"), Message(role="assistant", content=[TextContent(text="May.")])]
            )
            found = await service.get_session("alice", "trip")
            assert found is not None
            assert (found.id, found.user_id) == ("trip", "alice")
            assert found.messages == session.messages
            assert all(type(message) is Message for message in found.messages)
            assert texts(found) == ["Rome?", "Yes.", "When?", "May."]
            assert await service.health()

    async def test_an_id_is_stripped_and_a_blank_one_is_a_new_one(self, opened: Opened) -> None:
        async with opened() as service:
            assert (await service.create_session("u", " a\t")).id == "a"
            fresh = [(await service.create_session("u", blank)).id for blank in (None, "", "  ")]
            assert len({*fresh, "a"}) == 4
            session = await service.create_session("u", "a ")
            await service.append_message(session, text("hi"))
            await service.append_message(Session(id=" a", user_id="u"), text("ho"))
            assert texts(await service.get_session("u", "\na")) == ["hi", "ho"]
            assert await service.get_session("u", " ") is None
            await service.delete_session("u", " ")
            with pytest.raises(SessionNotFoundError):
                await service.append_message(Session(id="", user_id="u"), text("hi"))
            await service.delete_session("u", " a ")
            assert sorted(each.id for each in await service.list_sessions("u")) == sorted(fresh)

    async def test_creating_a_session_again_keeps_its_history(self, opened: Opened) -> None:
        async with opened() as service:
            session = await service.create_session("u", "s")
            await service.append_message(session, [text("1"), text("2")])
            assert texts(await service.create_session("u", "s")) == ["1", "2"]
            assert texts(await service.create_session("u", "s", last=1)) == ["2"]
            assert texts(await service.get_session("u", "s")) == ["1", "2"]

    async def test_a_missing_session_is_created_or_none(self, opened: Opened) -> None:
        async with opened() as service:
            session = await service.get_session("u", "new")
            assert session is not None
            assert session.messages == []
            await service.append_message(session, text("hi"))
        async with opened(create_missing=False) as service:
            assert texts(await service.get_session("u", "new")) == ["hi"]
            assert await service.get_session("u", "other") is None
            assert await service.get_session("nobody", "new") is None
            assert [each.id for each in await service.list_sessions("u")] == ["new"]
            assert await service.list_sessions("nobody") == []

    async def test_a_deleted_session_is_none_until_it_is_created_again(self, opened: Opened) -> None:
        async with opened() as service, opened() as other:
            session = await service.create_session("u", "s")
            await service.append_message(session, text("hi"))
            assert texts(await other.get_session("u", "s")) == ["hi"]
            await other.append_message(session, text("from elsewhere"))
            await service.delete_session("u", "s")
            await service.delete_session("u", "s")
            await service.delete_session("nobody", "never")
            for each in (service, other):
                assert await each.get_session("u", "s") is None
                assert await each.list_sessions("u") == []
                before = list(session.messages)
                with pytest.raises(SessionNotFoundError) as caught:
                    await each.append_message(session, text("late"))
                assert isinstance(caught.value, KeyError)
                assert session.messages == before
            again = await other.create_session("u", "s")
            assert again.messages == []
            await service.append_message(session, text("new"))
            assert texts(await other.get_session("u", "s")) == ["new"]
            assert await service.get_session("u", "never") is not None

    async def test_a_session_that_another_client_deleted_begins_anew(self, opened: Opened) -> None:
        async with opened() as service, opened() as other:
            session = await service.create_session("u", "s")
            await service.append_message(session, text("hi"))
            await other.delete_session("u", "s")
            assert texts(await service.create_session("u", "s")) == []
            await other.append_message(session, text("new"))
            await other.delete_session("u", "s")
            await other.create_session("u", "s")
            await service.append_message(session, text("newer"))
            assert texts(await other.get_session("u", "s")) == ["newer"]

    async def test_a_session_that_was_never_created_takes_no_message(self, opened: Opened) -> None:
        async with opened() as service:
            session = Session(id="made by hand", user_id="u")
            with pytest.raises(SessionNotFoundError):
                await service.append_message(session, text("hi"))
            assert session.messages == []
            assert await service.list_sessions("u") == []

    async def test_the_last_messages_alone(self, opened: Opened) -> None:
        async with opened() as service:
            session = await service.create_session("u", "s")
            await service.append_message(session, [text(str(number)) for number in range(50)])
            assert texts(await service.get_session("u", "s", last=3)) == ["47", "48", "49"]
            assert texts(await service.get_session("u", "s", last=0)) == []
            assert len(texts(await service.get_session("u", "s", last=1000))) == 50
            few = await service.get_session("u", "s", 2)
            await service.append_message(few, text("50"))
            assert texts(few) == ["48", "49", "50"]
            assert len(texts(await service.get_session("u", "s"))) == 51

    async def test_sessions_are_listed_without_messages_and_by_the_page(self, opened: Opened) -> None:
        async with opened() as service:
            for user, name in (("u", "b"), ("u", "a"), ("v", "c"), ("u", "d"), ("u/a", "e"), ("", "f")):
                session = await service.create_session(user, name)
                await service.append_message(session, text("hi"))
            listed = await service.list_sessions("u")
            assert [(each.id, each.user_id, each.messages) for each in listed] == [
                ("a", "u", []),
                ("b", "u", []),
                ("d", "u", []),
            ]
            assert [each.id for each in await service.list_sessions("u", limit=2)] == ["a", "b"]
            assert [each.id for each in await service.list_sessions("u", after="b", limit=2)] == ["d"]
            assert [each.id for each in await service.list_sessions("u", after="c")] == ["d"]
            assert await service.list_sessions("u", limit=0) == []
            assert [each.id for each in await service.list_sessions("")] == ["f"]
            await service.delete_user_sessions("u")
            await service.delete_user_sessions("nobody")
            assert await service.list_sessions("u") == []
            assert await service.get_session("u", "a") is None
            assert [each.id for each in await service.list_sessions("u/a")] == ["e"]

    async def test_any_ids(self, opened: Opened) -> None:
        async with opened() as service:
            for user in ("", "..", "\udcff", "y" * 300):
                sessions = [await service.create_session(user, id) for id in STRIPPED_IDS]
                for number, session in enumerate(sessions):
                    await service.append_message(session, text(f"{number}"))
                for number, id in enumerate(STRIPPED_IDS):
                    found = await service.get_session(user, id)
                    assert texts(found) == [f"{number}"]
                    assert found.id == id
                assert sorted(each.id for each in await service.list_sessions(user)) == sorted(STRIPPED_IDS)

    async def test_messages_come_back_as_they_were(self, opened: Opened) -> None:
        message = Message(
            id="msg_own",
            type="function_call",
            role="assistant",
            status="completed",
            content=[
                TextContent(text="ö\0", index=0, delta=True, msg_id="m"),
                DataContent(
                    data={
                        "arguments": '{"a": 1}',
                        1: (2, {3}),
                        "when": datetime(2026, 1, 2, tzinfo=UTC),
                        "price": Decimal("1.10"),
                    }
                ),
                ImageContent(image_url="data:,"),
                AudioContent(data="UklGRg==", format="wav"),
                FileContent(file_id="f", error=Error(code="1", message="no", detail="kept")),  # type: ignore[call-arg]
                RefusalContent(refusal="no", newer="field"),  # type: ignore[call-arg]
            ],
            code="c",
            message="m",
            usage={"input_tokens": 7},
            metadata={"nested": {"list": [1, [2.5, math.inf], None, True, b"\0"], "empty": {}}},
            sequence_number=3,
            error=Error(code="500", message="broken"),
            newer={"field": [1]},
        )
        plain = Message()
        async with opened() as service:
            session = await service.create_session("u", "s")
            await service.append_message(session, [message, plain, {"id": "msg_dict", "unknown": 7}])
            found = await service.get_session("u", "s")
            assert found is not None
            assert found.messages == session.messages
            first, second, third = found.messages
            assert isinstance(first, Message)
            assert first.model_dump() == message.model_dump()
            assert [type(part) for part in first.content or ()] == [type(part) for part in message.content or ()]
            assert second == plain
            assert isinstance(third, Message)
            assert third.model_dump()["unknown"] == 7
            assert third.id == "msg_dict"

    async def test_what_is_read_and_what_was_given_share_nothing_with_what_is_stored(self, opened: Opened) -> None:
        async with opened() as service:
            session = await service.create_session("u", "s")
            message = Message(role="user", metadata={"tags": ["a"]})
            await service.append_message(session, message)
            assert session.messages[0] is message
            assert message.metadata is not None
            message.metadata["tags"].append("later")
            found = await service.get_session("u", "s")
            assert found.messages[0].metadata == {"tags": ["a"]}
            found.messages[0].metadata["tags"].append("copy")
            found.messages.clear()
            again = await service.get_session("u", "s")
            assert again.messages[0].metadata == {"tags": ["a"]}

    @pytest.mark.parametrize(
        "wrong",
        [
            {"role": "robot"},
            "hi",
            None,
            7,
            [text("good"), {"content": [{"type": "smell"}]}],
            [text("good"), None],
            [[text("nested")]],
            {"role": "user", "content": "not a list"},
            Message.model_construct(role="robot"),
            Message.model_construct(id=7),
        ],
        ids=lambda wrong: type(wrong).__name__,
    )
    async def test_an_invalid_message_appends_nothing(self, opened: Opened, wrong: Any) -> None:
        async with opened() as service:
            session = await service.create_session("u", "s")
            with pytest.raises(InvalidArgumentError, match="not valid"):
                await service.append_message(session, wrong)
            assert session.messages == []
            assert texts(await service.get_session("u", "s")) == []
            await service.append_message(session, [])
            assert texts(await service.get_session("u", "s")) == []

    async def test_a_message_that_cannot_be_stored_appends_nothing(self, opened: Opened) -> None:
        async with opened() as service:
            session = await service.create_session("u", "s")
            with pytest.raises((UnserializableValueError, PickleRefusedError), match="lock") as caught:
                await service.append_message(
                    session, [text("good"), {"role": "user", "metadata": {"lock": threading.Lock()}}]
                )
            assert "good" not in str(caught.value)
            assert session.messages == []
            await service.append_message(session, text("after"))
            assert texts(await service.get_session("u", "s")) == ["after"]

    @pytest.mark.parametrize(
        ("call", "arguments"),
        [
            ("create_session", (7, "s")),
            ("create_session", ("u", 7)),
            ("get_session", (None, "s")),
            ("get_session", ("u", None)),
            ("get_session", ("u", "s", -1)),
            ("get_session", ("u", "s", True)),
            ("get_session", ("u", "s", 1.5)),
            ("delete_session", ("u", b"s")),
            ("list_sessions", (["u"],)),
            ("delete_user_sessions", (None,)),
            ("append_message", (None, text("hi"))),
            ("append_message", ("s", text("hi"))),
        ],
    )
    async def test_an_argument_of_a_wrong_type_is_named(
        self, opened: Opened, call: str, arguments: tuple[Any, ...]
    ) -> None:
        async with opened() as service:
            with pytest.raises(InvalidArgumentError, match=r"user_id must|session_id must|session must|last"):
                await getattr(service, call)(*arguments)

    async def test_a_hundred_appends_at_once_from_each_of_four_clients_keep_all(self, opened: Opened) -> None:
        async with opened() as one, opened() as two, opened() as three, opened() as four:
            await one.create_session("u", "s")

            async def append(service: Any, number: int) -> None:
                session = Session(id="s", user_id="u")
                await service.append_message(session, [text(f"{number}a"), text(f"{number}b")])
                assert texts(session) == [f"{number}a", f"{number}b"]

            await asyncio.gather(
                *(
                    append(each, n)
                    for at, each in enumerate((one, two, three, four))
                    for n in range(100 * at, 100 * at + 100)
                )
            )
            kept = texts(await one.get_session("u", "s"))
            assert sorted(kept) == sorted(f"{n}{half}" for n in range(400) for half in "ab")
            assert all(kept[at].rstrip("a") + "b" == kept[at + 1] for at in range(0, 800, 2))

    async def test_the_appends_of_one_task_keep_their_order_among_those_of_others(self, opened: Opened) -> None:
        async with opened() as service:
            session = await service.create_session("u", "s")
            waiting = [asyncio.ensure_future(service.append_message(session, text(str(n)))) for n in range(30)]
            await asyncio.gather(*waiting)
            assert texts(session) == [str(n) for n in range(30)]
            assert texts(await service.get_session("u", "s")) == [str(n) for n in range(30)]

    async def test_a_bad_message_does_not_spoil_those_that_wait_with_it(self, opened: Opened) -> None:
        async with opened() as service:
            session = await service.create_session("u", "s")
            given = [
                text(str(n)) if n % 5 else {"role": "user", "metadata": {"lock": threading.Lock()}} for n in range(20)
            ]
            outcomes = await asyncio.gather(
                *(service.append_message(session, each) for each in given), return_exceptions=True
            )
            assert [outcome is None for outcome in outcomes] == [bool(n % 5) for n in range(20)]
            assert texts(session) == [str(n) for n in range(20) if n % 5]
            assert texts(await service.get_session("u", "s")) == texts(session)
