"""Moving here from AgentScope's modules is changing an import: the programs of its page, and states that it wrote.

Model, formatter, memory, toolkit and agent of AgentScope are replaced by small scripted ones, on ``StateModule`` of
this library. States that its own classes wrote are recorded below, and made anew if agentscope is installed.
"""

from __future__ import annotations

import asyncio
import copy
import json
import sys
import types
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from versioned_state.agents import modules
from versioned_state.agents.modules import JSONSession, StateModule, VersionedSession

# As printed there, except that the page has lost the indentation.

IMPORTS = """
import asyncio
import json
import os
from agentscope.agent import ReActAgent
from agentscope.formatter import DashScopeChatFormatter
from agentscope.memory import InMemoryMemory
from agentscope.message import Msg
from agentscope.model import DashScopeChatModel
from agentscope.module import StateModule
from agentscope.session import JSONSession
from agentscope.tool import Toolkit
"""

NESTED = """
class ClassA(StateModule):
    def __init__(self) -> None:
        super().__init__()
        self.cnt = 123
        # register cnt attribute as state
        self.register_state("cnt")

class ClassB(StateModule):
    def __init__(self) -> None:
        super().__init__()
        # attribute "a" inherits from StateModule
        self.a = ClassA()
        # register attribute "c" as state manually
        self.c = "Hello, world!"
        self.register_state("c")

obj_b = ClassB()
print("State of obj_b.a:")
print(obj_b.a.state_dict())
print("\\nState of obj_b:")
print(json.dumps(obj_b.state_dict(), indent=4))
"""

NESTED_OUTPUT = """State of obj_b.a:
{'cnt': 123}

State of obj_b:
{
    "a": {
        "cnt": 123
    },
    "c": "Hello, world!"
}
"""

AGENT = """
# Creating an agent
agent = ReActAgent(
    name="Friday",
    sys_prompt="You're a assistant named Friday.",
    model=DashScopeChatModel(
        model_name="qwen-max",
        api_key=os.environ["DASHSCOPE_API_KEY"],
    ),
    formatter=DashScopeChatFormatter(),
    memory=InMemoryMemory(),
    toolkit=Toolkit(),
)
initial_state = agent.state_dict()
print("Initial state of the agent:")
print(json.dumps(initial_state, indent=4))
"""

INITIAL = {
    "memory": {"content": []},
    "toolkit": {"active_groups": []},
    "name": "Friday",
    "_sys_prompt": "You're a assistant named Friday.",
}

REPLY = """
async def example_agent_state() -> None:
    \"\"\"Example of agent state management\"\"\"
    await agent(Msg("user", "Hello, agent!", "user"))
    print("State of the agent after generating a reply:")
    print(json.dumps(agent.state_dict(), indent=4))

asyncio.run(example_agent_state())
"""

RECOVER = """
agent.load_state_dict(initial_state)
print("State after loading the initial state:")
print(json.dumps(agent.state_dict(), indent=4))
"""

SAVE = """
# change the agent state by generating a reply message
asyncio.run(example_agent_state())
print("\\nState of agent:")
print(json.dumps(agent.state_dict(), indent=4))

session = JSONSession(
    session_id="session_2025-08-08", # Use the time as session id
    save_dir="./user-bob/", # Use the username as the save directory
)

async def example_session() -> None:
    \"\"\"Example of session management.\"\"\"
    await session.save_session_state(
        agent=agent,
    )
    print("The saved state:")
    with open(session.save_path, "r", encoding="utf-8") as f:
        print(json.dumps(json.load(f), indent=4))

asyncio.run(example_session())
"""

LOAD = """
async def example_load_session() -> None:
    \"\"\"Example of loading session state.\"\"\"
    # we first clear the memory of the agent
    await agent.memory.clear()
    print("Current state of the agent:")
    print(json.dumps(agent.state_dict(), indent=4))
    # then we load the session state
    await session.load_session_state(
        # The keyword argument must be the same as the one used in `save_session_state`
        agent=agent,
    )
    print("After loading the session state:")
    print(json.dumps(agent.state_dict(), indent=4))

asyncio.run(example_load_session())
"""


# What stands for AgentScope's own parts


class Msg:
    count = 0

    def __init__(self, name: str, content: Any, role: str, **fields: Any) -> None:
        Msg.count += 1
        self.fields = {
            "id": f"m{Msg.count}",
            "name": name,
            "role": role,
            "content": content,
            "metadata": None,
            "timestamp": "now",
            **fields,
        }

    def to_dict(self) -> dict[str, Any]:
        return self.fields

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Msg:
        return cls(**data)


class InMemoryMemory(StateModule):
    def __init__(self) -> None:
        super().__init__()
        self.content: list[Msg] = []
        self.register_state("content")

    async def add(self, *messages: Msg) -> None:
        self.content.extend(messages)

    async def clear(self) -> None:
        self.content = []

    def state_dict(self) -> dict[str, Any]:
        return {"content": [message.to_dict() for message in super().state_dict()["content"]]}

    def load_state_dict(self, state_dict: Any, strict: bool = True) -> None:  # noqa: FBT001, FBT002 - agentscope's signature
        self.content = []
        for data in state_dict["content"]:
            self.content.append(Msg.from_dict(dict(data)))


class Toolkit(StateModule):
    def __init__(self) -> None:
        super().__init__()
        self.active_groups: list[str] = []
        self.register_state("active_groups")


class ReActAgent(StateModule):
    def __init__(
        self, name: str, sys_prompt: str, model: Any, formatter: Any, memory: InMemoryMemory, toolkit: Toolkit
    ) -> None:
        super().__init__()
        self.model, self.formatter, self.memory, self.toolkit = model, formatter, memory, toolkit
        self.name, self._sys_prompt = name, sys_prompt
        self.register_state("name")
        self.register_state("_sys_prompt")

    async def __call__(self, message: Msg) -> None:
        text = "Hello! How can I assist you today?"
        call = {"id": "t1", "type": "tool_use", "name": "generate_response", "input": {"response": text}}
        result = {
            "type": "tool_result",
            "id": "t1",
            "name": "generate_response",
            "output": [{"type": "text", "text": "done"}],
        }
        await self.memory.add(
            message,
            Msg(self.name, [call], "assistant"),
            Msg("system", [result], "system"),
            Msg(self.name, text, "assistant"),
        )
        print(f"{self.name}: {text}")  # noqa: T201 - as the agent does


@pytest.fixture
def agentscope(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The mapping: ``agentscope.module`` and ``agentscope.session`` are this library's, the rest is scripted."""
    parts = {
        "": {},
        ".module": {"StateModule": modules.StateModule},
        ".session": {"JSONSession": modules.JSONSession, "SessionBase": modules.SessionBase},
        ".agent": {"ReActAgent": ReActAgent},
        ".formatter": {"DashScopeChatFormatter": object},
        ".memory": {"InMemoryMemory": InMemoryMemory},
        ".message": {"Msg": Msg},
        ".model": {"DashScopeChatModel": types.SimpleNamespace},
        ".tool": {"Toolkit": Toolkit},
    }
    for name, names in parts.items():
        module: Any = types.ModuleType(f"agentscope{name}")
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, f"agentscope{name}", module)
    monkeypatch.setenv("DASHSCOPE_API_KEY", "none")
    monkeypatch.chdir(tmp_path)


def printed(out: str) -> Iterator[Any]:
    """The JSON objects in an output."""
    for part in out.split("\n{")[1:]:
        yield json.JSONDecoder().raw_decode("{" + part)[0]


@pytest.mark.usefixtures("agentscope")
def test_the_programs_of_the_page(capsys):
    names: dict[str, Any] = {}
    exec(IMPORTS, names)
    exec(NESTED, names)
    assert capsys.readouterr().out == NESTED_OUTPUT

    exec(AGENT, names)
    assert list(printed(capsys.readouterr().out)) == [INITIAL]

    exec(REPLY, names)
    out = capsys.readouterr().out
    assert out.startswith("Friday: Hello! How can I assist you today?\nState of the agent after generating a reply:\n")
    (after,) = printed(out)
    assert list(after) == list(INITIAL)
    assert [message["role"] for message in after["memory"]["content"]] == ["user", "assistant", "system", "assistant"]

    exec(RECOVER, names)
    assert list(printed(capsys.readouterr().out)) == [INITIAL]

    exec(SAVE, names)
    _, state, saved = printed(capsys.readouterr().out)
    assert saved == {"agent": state}
    assert [path.name for path in Path("user-bob").iterdir()] == ["session_2025-08-08.json"]

    exec(LOAD, names)
    current, loaded = printed(capsys.readouterr().out)
    assert (current, loaded) == (INITIAL, state)


@pytest.mark.usefixtures("agentscope")
def test_the_same_agent_in_a_versioned_session(capsys):
    names: dict[str, Any] = {}
    for program in (IMPORTS, AGENT, REPLY):
        exec(program, names)
    agent, state = names["agent"], names["agent"].state_dict()
    session = VersionedSession()
    asyncio.run(session.save_session_state("session_2025-08-08", "bob", agent=agent))
    exec(REPLY, names)
    asyncio.run(session.save_session_state("session_2025-08-08", "bob", agent=agent))
    with session.state("session_2025-08-08", "bob") as branch:
        assert [str(change.path) for change in branch.diff("HEAD~1", "HEAD")] == [
            f"agent.memory.content[{at}]" for at in range(4, 8)
        ]
    asyncio.run(session.load_session_state("session_2025-08-08", "bob", revision="HEAD~1", agent=agent))
    assert agent.state_dict() == state


# States that AgentScope wrote


def message(name: str, role: str, content: Any) -> dict[str, Any]:
    return {
        "id": "NjCLvXtzBk56VruRBRUmAb",
        "name": name,
        "role": role,
        "content": content,
        "metadata": {},
        "timestamp": "2026-11-22 09:33:37.527",
    }


MESSAGES = [
    message("user", "user", "Hello, agent!"),
    message(
        "Friday",
        "assistant",
        [{"type": "tool_use", "id": "1", "name": "generate_response", "input": {"response": "Hello!"}}],
    ),
    message(
        "system",
        "system",
        [
            {
                "type": "tool_result",
                "id": "1",
                "name": "generate_response",
                "output": [{"type": "text", "text": "ok 用"}],
            }
        ],
    ),
]

PLAN = {
    "id": "ko8aocWegYiBGMNVStahsY",
    "name": "n",
    "description": "d",
    "expected_outcome": "o",
    "subtasks": [
        {
            "name": "a",
            "description": "b",
            "expected_outcome": "c",
            "outcome": None,
            "state": "todo",
            "created_at": "2026-11-22 09:33:37.527",
            "finished_at": None,
        }
    ],
    "created_at": "2026-11-22 09:33:37.527",
    "state": "todo",
    "finished_at": None,
    "outcome": None,
}

NAMES = {"name": "Friday", "_sys_prompt": "You're a assistant named Friday."}

RECORDED: dict[str, Any] = {
    "1.0.0": {"memory": {"content": MESSAGES}, "toolkit": {"active_groups": []}, **NAMES},
    "1.0.21": {
        "memory": {
            "_compressed_summary": "",
            "content": [[MESSAGES[0], []], [MESSAGES[1], ["hint"]], [MESSAGES[2], []]],
        },
        "toolkit": {"active_groups": ["search"]},
        "plan_notebook": {"storage": {"plans": {}}, "current_plan": PLAN},
        **NAMES,
    },
    "1.0.21, new": {
        "memory": {"_compressed_summary": "", "content": []},
        "toolkit": {"active_groups": []},
        "plan_notebook": {"storage": {"plans": {}}, "current_plan": None},
        **NAMES,
    },
}


def tree(state: dict[str, Any]) -> StateModule:
    """Modules of this library that have such a state."""
    module = StateModule()
    for name, value in state.items():
        if isinstance(value, dict) and name in {"memory", "toolkit", "plan_notebook", "storage"}:
            setattr(module, name, tree(value))
        else:
            setattr(module, name, None)
            module.register_state(name)
    return module


def written(state: Any, folder: Path) -> None:
    """As the JSONSession of AgentScope writes the session ``old`` of bob."""
    with (folder / "bob_old.json").open("w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(json.dumps({"agent": state}, ensure_ascii=False))


@pytest.mark.parametrize("release", RECORDED)
def test_a_state_of_agentscope_goes_in_and_out_as_it_is(release, tmp_path):
    state = copy.deepcopy(RECORDED[release])
    agent = tree(state)
    agent.load_state_dict(state)
    assert list(agent.state_dict().items()) != []
    assert agent.state_dict() == RECORDED[release]
    for session in (JSONSession(save_dir=tmp_path), VersionedSession()):
        asyncio.run(session.save_session_state("one", "bob", agent=agent))
        other = tree(state)
        asyncio.run(session.load_session_state("one", "bob", agent=other))
        assert other.state_dict() == RECORDED[release]
    written(state, tmp_path)
    other = tree(state)
    asyncio.run(JSONSession(save_dir=tmp_path).load_session_state("old", "bob", False, agent=other))
    assert other.state_dict() == RECORDED[release]


class TheirAgent:
    """The state-holding part of AgentScope's agent, if AgentScope is not installed: its own methods, none of ours."""

    def __init__(self, state: Any) -> None:
        self.__dict__["_module_dict"], self.__dict__["_attribute_dict"] = {}, {}
        self.state = state

    def register_state(self, attr_name: str) -> None: ...

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state_dict: Any, strict: bool = True) -> None:  # noqa: FBT001, FBT002 - agentscope's signature
        self.state = state_dict


def their_agents() -> list[Any]:
    """Two agents: one with a state, and a new one. Of AgentScope's own classes if it is installed."""
    if find_spec("agentscope") is None:
        return [TheirAgent(RECORDED["1.0.21"]), TheirAgent(RECORDED["1.0.21, new"])]
    from agentscope.agent import ReActAgent as Agent
    from agentscope.formatter import DashScopeChatFormatter
    from agentscope.memory import InMemoryMemory as Memory
    from agentscope.message import Msg as Message
    from agentscope.tool import Toolkit as Tools

    def agent() -> Any:
        tools = Tools()
        tools.create_tool_group("search", "")
        return Agent(
            "Friday", "", types.SimpleNamespace(stream=False), DashScopeChatFormatter(), toolkit=tools, memory=Memory()
        )

    full, new = agent(), agent()
    full.toolkit.update_tool_groups(["search"], active=True)
    asyncio.run(full.memory.add(Message("user", "Hello, agent!", "user")))
    return [full, new]


def test_an_agent_of_agentscope_itself_is_saved_and_loaded_and_may_be_part_of_a_module(tmp_path):
    full, new = their_agents()
    state, blank = copy.deepcopy(full.state_dict()), copy.deepcopy(new.state_dict())
    assert state != blank
    for session in (JSONSession(save_dir=tmp_path), VersionedSession()):
        asyncio.run(session.save_session_state("one", agent=full))
        asyncio.run(session.load_session_state("one", agent=new))
        assert new.state_dict() == state
        with pytest.raises((KeyError, ValueError)):
            asyncio.run(load_badly(session, new, blank))
        assert new.state_dict() == state, "a load that fails changes nothing in it"
        new.load_state_dict(blank)

    class Application(StateModule):
        def __init__(self, agent: Any) -> None:
            super().__init__()
            self.agent = agent
            self.turns = 0
            self.register_state("turns")

    application = Application(new)
    application.load_state_dict({"agent": state, "turns": 3})
    assert application.state_dict() == {"agent": state, "turns": 3}


async def load_badly(session: Any, agent: Any, blank: Any) -> None:
    """Load a session in which the agent's state is good and that of the module after it is not."""
    other = StateModule()
    await session.save_session_state("bad", agent=tree_with(blank), other=other)
    other.x = 1
    other.register_state("x")
    await session.load_session_state("bad", agent=agent, other=other)


def tree_with(state: Any) -> StateModule:
    agent = tree(state)
    agent.load_state_dict(state)
    return agent
