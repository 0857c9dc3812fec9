"""A process that has none of the classes reads the same paths, edits, and writes back the same addresses."""

from __future__ import annotations

from pathlib import Path

from tests.support.processes import run
from versioned_state import Disk, Versioned

OWNER = """
    import enum, sys
    from dataclasses import dataclass, field
    from typing import Any, NamedTuple
    import attrs, pydantic
    from versioned_state import Disk, Tagged, Versioned

    class Role(enum.Enum):
        USER = "user"
    @dataclass
    class Message:
        role: Role
        content: Any
        tags: list = field(default_factory=list)
    class Reply(pydantic.BaseModel, extra="allow"):
        text: str = ""
        _seen: int = 3
    @attrs.frozen
    class Visit:
        city: str
    class Place(NamedTuple):
        city: str
        at: Any = 0
    class Agent:
        pass
    class History(list):
        pass

    state = Versioned(Disk(sys.argv[1]))
    if sys.argv[2] == "write":
        agent = Agent()
        agent.messages = [Message(Role.USER, "x" * (9000 if n == 5 else 9), [n]) for n in range(200)]
        agent.reply, agent.place = Reply(text="hi", more=1), Place("Rome", {Visit("Rome")})
        agent.visits = {Visit("Oslo"): [Visit("Bonn")]}
        history = History([1, agent.reply])
        history.title = "t"
        state["agent"], state["history"], state["error"] = agent, history, ValueError("bad", Role.USER)
        state.commit("written")
        print(state.head.root)
    else:
        agent = state["agent"]
        assert type(agent.messages[5]) is Message and agent.messages[5].tags == [5, "edited"], agent.messages[5]
        assert agent.messages[7].role is Role.USER and agent.reply == Reply(text="edited", more=1), agent.reply
        assert agent.reply.model_fields_set == {"text", "more"} and agent.reply._seen == 3
        assert state["history"].title == "t" and type(state["history"]) is History
        assert not state.status()
        print("read")
"""

STRANGER = """
    import sys
    from versioned_state import Disk, Tagged, Versioned
    state = Versioned(Disk(sys.argv[1]))
    agent = state["agent"]
    assert type(agent) is Tagged and agent.name == "__main__:Agent", agent
    snapshot = state.checkout("HEAD")
    assert snapshot.at("agent.messages[7].role") == Tagged("__main__:Role", "USER")
    assert snapshot.at("agent.messages[5].content") == "x" * 9000 and snapshot.at("agent.reply.more") == 1
    assert snapshot.at("agent.place.city") == snapshot.at("agent.place[0]") == "Rome"
    assert snapshot.at("agent.reply._seen") == 3 and snapshot.at("history[1].text") == "hi"
    assert snapshot.at("error.args")[1] == Tagged("__main__:Role", "USER"), snapshot.at("error")
    assert not state.status()
    before = state.head.root
    other = Versioned(state.repository, branch="other")
    for key in state:
        other[key] = snapshot[key]
    assert other.commit("again").root == before, "written back as it was"
    messages = agent.fields["messages"]
    messages[5].fields["tags"].append("edited")
    agent.fields["reply"].fields["text"] = "edited"
    paths = [str(change.path) for change in state.status()]
    assert paths == ["agent.messages[5].tags[1]", "agent.reply.text"], paths
    state.commit("edited")
    state.reset("HEAD~1")
    assert messages[5].fields["tags"] == [5] and state["agent"] is agent
    state.undo()
    assert messages[5].fields["tags"] == [5, "edited"]
    print(before)
"""


def test_one_process_writes_another_edits_and_the_first_reads(tmp_path: Path):
    path = tmp_path / "store"
    root = run(OWNER, path, "write").stdout
    assert run(STRANGER, path).stdout == root
    assert run(OWNER, path, "read").stdout == "read\n"
    with Versioned(Disk(path), pickle="refuse") as state:
        assert state["agent"].fields["reply"].fields["text"] == "edited"
        assert str(state.diff("HEAD~1")).splitlines() == [
            "+ agent.messages[5].tags[1] = 'edited'",
            "~ agent.reply.text = 'hi' -> 'edited'",
        ]
