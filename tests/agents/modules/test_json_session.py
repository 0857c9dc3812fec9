"""``JSONSession``: its forms, what a file holds, and what remains after a failure."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from tests.support.modules import Agent, Memory, Message, Toolkit
from versioned_state.agents.modules import JSONSession, SessionBase, StateModule
from versioned_state.agents.modules.files import session_file
from versioned_state.errors import CorruptStoreError, InvalidArgumentError, StateError
from versioned_state.storage.testing.writers import run_together

CONTENT = {"memory": {"content": ["hi"]}, "name": "Friday"}


def agent() -> Agent:
    return Agent(content=["hi"])


def files(folder: Path) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text("utf-8")) for path in folder.iterdir()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# The forms


async def test_the_form_of_the_document(tmp_path):
    session = JSONSession(session_id="session_2025-08-08", save_dir=f"{tmp_path}/user-bob/")
    assert session.save_path == f"{tmp_path}/user-bob/session_2025-08-08.json"
    with pytest.raises(ValueError, match="never saved"):
        await session.load_session_state(agent=agent())
    await session.save_session_state(agent=agent())
    assert files(tmp_path / "user-bob") == {"session_2025-08-08.json": {"agent": CONTENT}}
    other = Agent("other")
    await JSONSession("session_2025-08-08", f"{tmp_path}/user-bob").load_session_state(agent=other)
    assert other.state_dict() == CONTENT


async def test_the_form_of_later_releases(tmp_path):
    session = JSONSession(save_dir=str(tmp_path))
    other = Agent("other")
    await session.load_session_state("one", agent=other)
    await session.load_session_state(session_id="one", user_id="bob", agent=other)
    assert other.name == "other", "a session that was never saved changes nothing"
    with pytest.raises(ValueError, match="never saved"):
        await session.load_session_state("one", "bob", allow_not_exist=False, agent=other)
    await session.save_session_state("one", "bob", agent=agent(), tools=Toolkit(a=True))
    nobody: Any = None
    await session.save_session_state(session_id="one", user_id=nobody, agent=Agent("nobody's"))
    await session.load_session_state("one", user_id="bob", allow_not_exist=False, agent=other)
    assert other.state_dict() == CONTENT
    await session.load_session_state("one", agent=other)
    assert other.name == "nobody's"
    with pytest.raises(AttributeError, match="save_path"):
        session.save_path  # noqa: B018


async def test_the_form_with_a_session_and_a_user(tmp_path):
    session = JSONSession("one", tmp_path)
    await session.save_session_state("one", user_id="bob", agent=agent())
    other = Agent("other")
    await session.load_session_state(user_id="bob", agent=other)
    assert other.state_dict() == CONTENT
    await session.load_session_state(allow_not_exist=True, agent=other)
    with pytest.raises(InvalidArgumentError, match="'one', not 'two'"):
        await session.save_session_state("two", agent=agent())


async def test_what_is_no_session_or_no_module(tmp_path):
    session: Any = JSONSession(save_dir=tmp_path / "made")
    for call in (session.save_session_state, session.load_session_state):
        with pytest.raises(InvalidArgumentError, match="no session_id"):
            await call(agent=agent())
        with pytest.raises(InvalidArgumentError, match="session_id must be a string, not int"):
            await call(5, agent=agent())
        with pytest.raises(InvalidArgumentError, match="user_id must be a string, not int"):
            await call("one", 5, agent=agent())
        with pytest.raises(InvalidArgumentError, match="agent= must be a StateModule, not dict"):
            await call("one", agent={})
    with pytest.raises(InvalidArgumentError):
        JSONSession(5)  # type: ignore[arg-type]
    assert not (tmp_path / "made").exists()


async def test_a_folder_relative_to_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    await JSONSession().save_session_state("one", agent=agent())
    assert JSONSession("one").save_path == "./one.json"
    assert files(tmp_path) == {"one.json": {"agent": CONTENT}}


def test_a_session_of_ones_own():
    class Kept(SessionBase):
        def __init__(self) -> None:
            super().__init__(session_id="one")
            self.states: dict[str, Any] = {}

        async def save_session_state(self, **modules: StateModule) -> None:
            self.states = {name: module.state_dict() for name, module in modules.items()}

        async def load_session_state(self, **modules: StateModule) -> None:
            for name, module in modules.items():
                module.load_state_dict(self.states[name])

    session, other = Kept(), Agent("other")
    asyncio.run(session.save_session_state(agent=agent()))
    asyncio.run(session.load_session_state(agent=other))
    assert (session.session_id, other.state_dict()) == ("one", CONTENT)
    with pytest.raises(TypeError, match="abstract"):
        SessionBase()  # type: ignore[abstract]


# What a file holds


async def test_a_name_that_was_not_saved_is_skipped(tmp_path):
    session = JSONSession(save_dir=tmp_path)
    await session.save_session_state("one", agent=agent())
    first, second = Agent("1"), Agent("2")
    await session.load_session_state("one", second=second, agent=first)
    assert (first.name, second.name) == ("Friday", "2")
    await session.save_session_state("one", second=second)
    assert files(tmp_path) == {"one.json": {"second": second.state_dict()}}, "a save replaces the file"


async def test_text_of_any_kind_comes_back_and_agentscope_can_read_it(tmp_path):
    session = JSONSession(save_dir=tmp_path)
    texts = ["用户", "\ud800", "\x00", " ", "😀", ""]
    await session.save_session_state("one", memory=Memory(texts), plain=Memory(["用"]))
    text = (tmp_path / "one.json").read_text("utf-8")  # its first release reads strict UTF-8
    assert json.loads(text) == {"memory": {"content": texts}, "plain": {"content": ["用"]}}
    await session.save_session_state("two", memory=Memory(["用户"]))
    assert "用户" in (tmp_path / "two.json").read_text("utf-8")
    memory = Memory()
    await session.load_session_state("one", memory=memory)
    assert memory.content == texts


async def test_the_state_is_that_of_the_call(tmp_path):
    session = JSONSession(save_dir=tmp_path)
    memory = Memory([["a"]])
    save = asyncio.ensure_future(session.save_session_state("one", memory=memory))
    await asyncio.sleep(0)  # its first step
    memory.content[0].append("later")
    await save
    await session.load_session_state("one", memory=memory)
    assert memory.content == [["a"]]


# Failures


async def test_a_load_that_fails_changes_nothing_in_any_module(tmp_path):
    session = JSONSession(save_dir=tmp_path)
    await session.save_session_state("one", first=agent(), tools=Toolkit(a=True), last=Memory(["new"]))
    path = tmp_path / "one.json"
    saved = json.loads(path.read_text("utf-8"))
    for name, state in {"last": {}, "tools": {"more": 1}, "first": {"memory": {"content": []}}}.items():
        path.write_text(json.dumps(saved | {name: state}), "utf-8")
        first, tools, last = Agent("1"), Toolkit(a=False), Memory()
        with pytest.raises((KeyError, ValueError)) as caught:
            await session.load_session_state("one", first=first, tools=tools, last=last)
        assert name in str(caught.value) or name == "tools"
        assert (first.name, first.memory.content, tools.groups, last.content) == ("1", [], {"a": [False]}, [])


async def test_a_save_of_what_json_cannot_hold_leaves_the_file(tmp_path):
    session = JSONSession(save_dir=tmp_path)
    await session.save_session_state("one", agent=agent())
    before = (tmp_path / "one.json").read_bytes()
    bad = Agent()
    bad.memory.content = [1, {"a": (0, Message("x"))}]
    with pytest.raises(TypeError, match=r"cannot store agent\.memory\.content\[1\]\.a\[1\] of type Message") as caught:
        await session.save_session_state("one", agent=bad)
    assert isinstance(caught.value, StateError)
    assert "custom_to_json" in caught.value.hint
    bad.memory.content = [[]]
    for _ in range(400):
        bad.memory.content = [bad.memory.content]
    circle = bad.memory.content
    circle.append(circle)
    with pytest.raises(StateError):
        await session.save_session_state("one", agent=bad)
    assert (tmp_path / "one.json").read_bytes() == before
    assert list(files(tmp_path)) == ["one.json"]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"x"', b"\xff", b"[" * 100_000, b"\x00" * 10])
async def test_a_file_that_is_no_session(tmp_path, data):
    (tmp_path / "one.json").write_bytes(data)
    other = Agent("other")
    with pytest.raises(CorruptStoreError, match=r"one\.json"):
        await JSONSession(save_dir=tmp_path).load_session_state("one", agent=other)
    assert other.name == "other"
    assert (tmp_path / "one.json").read_bytes() == data


async def test_a_folder_that_cannot_be_one(tmp_path):
    (tmp_path / "file").write_text("")
    session = JSONSession(save_dir=tmp_path / "file" / "folder")
    with pytest.raises(OSError, match="could not be written") as caught:
        await session.save_session_state("one", agent=agent())
    assert isinstance(caught.value, StateError)
    assert caught.value.errno is not None
    (tmp_path / "one.json").mkdir()
    session = JSONSession(save_dir=tmp_path)
    with pytest.raises(OSError, match="could not be read"):
        await session.load_session_state("one", agent=agent())
    with pytest.raises(OSError, match="could not be written"):
        await session.save_session_state("one", agent=agent())
    assert names(tmp_path) == ["file", "one.json"], "no temporary file is left"


# Side by side


async def test_a_thousand_saves_at_once(tmp_path):
    session = JSONSession(save_dir=tmp_path)
    await asyncio.gather(
        *(session.save_session_state(f"s{number % 3}", memory=Memory([number] * 100)) for number in range(1_000))
    )
    assert names(tmp_path) == ["s0.json", "s1.json", "s2.json"]
    last = {f"s{number % 3}": number for number in range(1_000)}
    for name, number in last.items():
        memory = Memory()
        await session.load_session_state(name, memory=memory)
        assert memory.content == [number] * 100, "the last call's"


async def test_a_load_comes_after_the_saves_before_it(tmp_path):
    session = JSONSession(save_dir=tmp_path)
    loaded = [Memory() for _ in range(3)]
    calls = []
    for number, memory in enumerate(loaded):
        calls += [
            session.save_session_state("one", memory=Memory([number])),
            session.load_session_state("one", memory=memory),
        ]
    await asyncio.gather(*calls)
    numbers = [memory.content[0] for memory in loaded]
    assert all(number >= at for at, number in enumerate(numbers))


async def test_a_cancelled_save_leaves_one_of_both_states_and_holds_up_nobody(tmp_path):
    session = JSONSession(save_dir=tmp_path)
    await session.save_session_state("one", memory=Memory(["old"]))
    for steps in range(12):
        saves = [
            asyncio.ensure_future(session.save_session_state("one", memory=Memory([number]))) for number in range(4)
        ]
        for _ in range(steps):
            await asyncio.sleep(0)
        for save in saves[1:3]:
            save.cancel()
        ended = await asyncio.gather(*saves, return_exceptions=True)
        assert [type(each) for each in ended if each is not None] in (
            [asyncio.CancelledError] * 2,
            [asyncio.CancelledError],
            [],
        )
        memory = Memory()
        await asyncio.wait_for(session.load_session_state("one", memory=memory), 10)
        assert memory.content == [3]
        save = asyncio.ensure_future(session.save_session_state("one", memory=Memory([4])))
        for _ in range(steps):
            await asyncio.sleep(0)
        save.cancel()
        await asyncio.gather(save, return_exceptions=True)
        await session.load_session_state("one", memory=memory)
        assert memory.content in ([3], [4])
    assert names(tmp_path) == ["one.json"]


async def test_a_cancelled_save_does_not_take_the_others_with_it(tmp_path):
    """Of the saves that wait, the last one is written, or one before it if that is cancelled."""
    session = JSONSession(save_dir=tmp_path)
    await session.save_session_state("one", memory=Memory([0]))
    saves = [session.save_session_state("one", memory=Memory([number])) for number in range(1, 4)]
    tasks = [asyncio.ensure_future(each) for each in saves]
    await asyncio.sleep(0)
    tasks[2].cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert ended[:2] == [None, None]
    memory = Memory()
    await session.load_session_state("one", memory=memory)
    assert memory.content in ([2], [3])


def test_threads_with_event_loops_of_their_own(tmp_path):
    session = JSONSession(save_dir=tmp_path)

    async def work(number: int) -> None:
        for turn in range(10):
            await session.save_session_state("one", memory=Memory([number, turn]))
            memory = Memory()
            await session.load_session_state("one", memory=memory)
            assert len(memory.content) == 2

    run_together([partial(asyncio.run, work(number)) for number in range(4)])
    assert names(tmp_path) == ["one.json"]


def test_without_an_event_loop_of_asyncio_nothing_is_saved(tmp_path):
    save = JSONSession(save_dir=tmp_path).save_session_state("one", agent=agent())
    with pytest.raises(StateError, match="event loop"):
        save.send(None)
    assert names(tmp_path) == []


# Names

IDS = st.one_of(
    st.text(st.characters(exclude_categories=[]), max_size=8), st.text("%_h.cCoOnN1", max_size=6), st.just("x" * 300)
)


@given(st.tuples(IDS, IDS), st.tuples(IDS, IDS))
@example(("c", "a_b"), ("b_c", "a"))
@example(("b", "a"), ("a_b", ""))
@example(("b", "a"), ("a%_b", ""))
@example(("A", ""), ("a", ""))
@example(("con", ""), ("CON", ""))
@example(("x" * 300, ""), ("x" * 299, ""))
@example(("\x00", ""), ("%00", ""))
@example(("é", ""), ("e\u0301", ""))
def test_one_file_for_each_session_on_every_file_system(ids, others):
    name, other = session_file(*ids), session_file(*others)
    assert (name == other) == (ids == others)
    assert len(name) <= 207
    assert name.isascii()
    assert not set(name) & set('/\\:*?"<>|\x00 ')
    assert not name.startswith(".")
    assert name.partition(".")[0] not in {"con", "prn", "aux", "nul", "com1", "lpt1"}
    assert (name.casefold() == other.casefold()) == (ids == others)


@pytest.mark.parametrize(
    ("session_id", "user_id"),
    [
        ("../../outside", ""),
        ("/etc/x", "../u"),
        ("x" * 300, "y" * 300),
        ("a\x00b", "\ud800"),
        ("", ""),
        (".", ".."),
        ("con", "nul"),
        ("A", "a"),
    ],
)
async def test_ids_of_any_kind_stay_in_the_folder(tmp_path, session_id, user_id):
    session = JSONSession(save_dir=tmp_path / "in" / "here")
    await session.save_session_state(session_id, user_id, memory=Memory([session_id]))
    memory = Memory()
    await session.load_session_state(session_id, user_id, allow_not_exist=False, memory=memory)
    assert memory.content == [session_id]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [
        tmp_path / "in" / "here" / session_file(session_id, user_id)
    ]


# Files that AgentScope wrote


def written_by_agentscope(folder: Path, name: str, content: Any) -> None:
    with (folder / name).open("w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(json.dumps({"memory": {"content": content}}, ensure_ascii=False))


@pytest.mark.parametrize(
    ("name", "session_id", "user_id"),
    [
        ("session_1.json", "session_1", ""),
        ("Trip to Rome.json", "Trip to Rome", ""),
        ("bob_s_1.json", "s_1", "bob"),
        ("用户_s.json", "s", "用户"),
    ],
)
async def test_a_file_of_agentscope_is_read_and_ours_comes_first(tmp_path, name, session_id, user_id):
    written_by_agentscope(tmp_path, name, ["there", "\ud800"])
    session, memory = JSONSession(save_dir=tmp_path), Memory()
    await session.load_session_state(session_id, user_id, allow_not_exist=False, memory=memory)
    assert memory.content == ["there", "\ud800"]
    await session.save_session_state(session_id, user_id, memory=Memory(["here"]))
    await session.load_session_state(session_id, user_id, memory=memory)
    assert memory.content == ["here"]
    assert (tmp_path / name).exists()


async def test_a_file_outside_the_folder_is_not_taken_for_agentscopes(tmp_path):
    (tmp_path / "in").mkdir()
    written_by_agentscope(tmp_path, "secret.json", ["secret"])
    written_by_agentscope(tmp_path / "in", ".hidden.json", ["secret"])
    session: Any = JSONSession(save_dir=tmp_path / "in")
    for ids in [
        ("../secret",),
        ("secret", "..\\"),
        (".hidden",),
        (str(tmp_path / "secret"),),
        ("hidden", "."),
        ("x" * 300,),
        ("\ud800",),
        ("\x00",),
    ]:
        with pytest.raises(ValueError, match="never saved"):
            await session.load_session_state(*ids, allow_not_exist=False, memory=Memory())


async def test_our_file_of_another_session_is_not_taken_for_agentscopes(tmp_path):
    """Else whoever chooses the id of a session without a user could speak to the agent of bob."""
    session = JSONSession(save_dir=tmp_path)
    await session.save_session_state("bob_s1", memory=Memory(["not bob's"]))
    assert (tmp_path / "bob_s1.json").exists()
    with pytest.raises(ValueError, match="never saved"):
        await session.load_session_state("s1", "bob", allow_not_exist=False, memory=Memory())
