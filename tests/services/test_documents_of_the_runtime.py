"""The programs of AgentScope Runtime's pages on its services run over ours: only imports and Redis's address differ.

The programs of a page share their names, as the cells of a notebook do. Those of stores that a company hosts are not
ours to run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.redis import RedisServer
from versioned_state import sandbox
from versioned_state.agents.modules import StateModule

PAGES = Path(__file__).parent / "documents"

IMPORTS = (
    ("agentscope_runtime.engine.services.", "versioned_state.services."),
    ("agentscope_runtime.engine.schemas.", "versioned_state.services.schemas."),
    ("agentscope_runtime.sandbox.", "versioned_state.sandbox."),
)


def programs(page: str) -> Iterator[str]:
    for program in re.findall(
        r"^```(?:\{code-cell\}|python)\n(.*?)^```", (PAGES / page).read_text(), re.DOTALL | re.MULTILINE
    ):
        if "Tablestore" in program:
            continue
        for theirs, ours in IMPORTS:
            program = program.replace(theirs, ours)  # noqa: PLW2901
        assert "agentscope_runtime" not in program
        yield program


async def run(program: str, names: dict[str, Any]) -> None:
    code = compile(program, "a program of the page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if isawaitable(result):
        await result


class Agent(StateModule):
    def __init__(self) -> None:
        super().__init__()
        self.mood = "calm"
        self.steps: list[str] = []
        self.register_state("mood")
        self.register_state("steps")


async def test_the_programs_on_the_state_service(redis_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    agent = Agent()
    names: dict[str, Any] = {"agent": agent}
    memory, redis = programs("agent_state.md")
    await run(memory, names)
    assert capsys.readouterr().out == "State saved in round 1\n"
    assert names["loaded_state"] == {"mood": "calm", "steps": []}
    agent.steps.append("Rome")
    await run(redis.replace("redis://localhost:6379/0", redis_server.url), names)
    assert names["state"] == {"mood": "calm", "steps": ["Rome"]}
    assert agent.steps == ["Rome"]
    await names["state_service"].stop()


class Browser:
    """Stands for a browser, which is a plug-in."""


async def test_the_programs_on_the_services(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    sandbox.register("browser", lambda **_: Browser())
    try:
        for program in programs("services.md"):
            await run(program, names)
    finally:
        sandbox.unregister("browser")
        if "sandbox_service" in names:
            await names["sandbox_service"].stop()
    said = capsys.readouterr().out
    assert "Service health status: True" in said
    assert "Configured 2 sandboxes" in said
    assert "Release successful: True" in said
    assert "Message count: 2" in said
    assert "Custom session ID: my_custom_session_id" in said
    assert await names["MockService"]("a mock").health() is False
    assert type(names["state_service"]).__name__ == "InMemoryStateService"
