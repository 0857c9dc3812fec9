"""``vstate mcp``: the real client over stdin and stdout, over HTTP and in process, with both kinds of protocol."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from mcp import Client, StdioServerParameters

from versioned_state import Disk, Repository, Versioned
from versioned_state.integrations.tools import StateTools
from versioned_state.integrations.tools.mcp import http_app, mcp_server
from versioned_state.server.tokens import Grant, Tokens

VSTATE = [sys.executable, "-m", "versioned_state.cli.main"]


@pytest.fixture
def place(tmp_path: Path) -> str:
    with Versioned(Disk(tmp_path / "store")) as state:
        state["plan"] = ["one"]
        state.commit("first")
    return str(tmp_path / "store")


def text_of(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


async def use_each_part(client: Any, *, writes: bool) -> None:
    listed = await client.list_tools()
    assert len(listed.tools) == (10 if writes else 8)
    assert len(listed.model_dump_json(by_alias=True, exclude_none=True)) <= 10_000
    assert all(
        tool.annotations.read_only_hint == (tool.name not in ("state_set", "state_mark")) for tool in listed.tools
    )
    answer = await client.call_tool("state_get", {"path": "plan"})
    assert not answer.is_error
    assert "[0]: 'one'" in text_of(answer)
    refused = await client.call_tool("state_get", {"path": "nothing"})
    assert refused.is_error
    assert "state_outline" in text_of(refused)
    assert (await client.call_tool("state_none", {})).is_error
    [value] = (await client.list_resources()).resources
    assert "'one'" in (await client.read_resource(value.uri)).contents[0].text
    assert (await client.list_resource_templates()).resource_templates[
        0
    ].uri_template == "state://{branch}/{rev}/{+path}"
    prompt = await client.get_prompt("debug-round", {"rev": "HEAD"})
    assert '"HEAD"' in prompt.messages[0].content.text


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_over_stdin_and_stdout(place, mode):
    server = StdioServerParameters(command=VSTATE[0], args=[*VSTATE[1:], "--store", place, "mcp", "--write"])
    async with Client(server, mode=mode) as client:
        await use_each_part(client, writes=True)
        head = Repository(Disk(place)).branches["main"]
        changes = [{"path": "plan", "append": ["two"]}]
        done = await client.call_tool("state_set", {"changes": changes, "expected_head": head.id})
        assert "committed" in text_of(done)
        again = await client.call_tool("state_set", {"changes": changes, "expected_head": head.id})
        assert again.is_error
        assert "read it again" in text_of(again)
    with Disk(place) as disk:
        state = Versioned(disk)
        assert state["plan"] == ["one", "two"]
        assert state.head.author == "model"
        assert state.head.meta is not None
        assert state.head.meta["mcp"]["tool"] == "state_set"


def test_without_write_the_store_is_read_only(place):
    async def run() -> None:
        server = StdioServerParameters(command=VSTATE[0], args=[*VSTATE[1:], "--store", place, "mcp"])
        async with Client(server) as client:
            await use_each_part(client, writes=False)

    before = (Path(place) / "store.sqlite3").read_bytes()
    asyncio.run(run())
    assert (Path(place) / "store.sqlite3").read_bytes() == before


async def test_a_client_in_process():
    state = Versioned()
    state["plan"] = ["one"]
    state.commit()

    async with Client(mcp_server(StateTools(state, write=True))) as client:
        await use_each_part(client, writes=True)


@pytest.fixture
def served(place: str) -> Iterator[tuple[str, Versioned]]:
    """A server over HTTP at an address, with tokens of three kinds."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    grants = {
        "reader": Grant("*", frozenset({"read"})),
        "writer": Grant("*", frozenset({"read", "write"})),
        "alice": Grant("alice", frozenset({"read", "write"})),
    }
    with Versioned(Disk(place)) as state:
        app = http_app(StateTools(state, write=True, branches=True), Tokens(grants), hosts=[f"127.0.0.1:{port}"])
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}/mcp", state
        server.should_exit = True
        thread.join()
        listener.close()


def ask(url: str, method: str, params: Any = None, *, token: str = "reader", **headers: str) -> httpx.Response:
    return httpx.post(
        url,
        json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}},
        headers={
            "authorization": f"Bearer {token}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2025-11-25",
        }
        | headers,
    )


def test_over_http_a_token_says_what_is_offered(served):
    url, state = served

    def names(token: str) -> set[str]:
        answer = ask(url, "tools/list", token=token)
        assert answer.status_code == 200, answer.text
        return {tool["name"] for tool in answer.json()["result"]["tools"]}

    assert len(names("reader")) == 8
    assert {"state_set", "state_branch"} <= names("writer")
    assert ask(url, "tools/list", token="unknown").status_code == 401
    assert ask(url, "tools/list", token="alice").status_code == 403
    change = {"changes": [{"path": "plan", "append": ["two"]}], "expected_head": state.head.id}
    call = {"name": "state_set", "arguments": change}
    assert "there is no tool" in ask(url, "tools/call", call).text
    assert "committed" in ask(url, "tools/call", call, token="writer").text
    switch = {"name": "state_branch", "arguments": {"name": "try", "switch": True}}
    assert "no branch of yours" in ask(url, "tools/call", switch, token="writer").text
    assert set(state.repository.branches) == {"main"}


def test_over_http_a_web_page_of_another_origin_is_refused(served):
    url, _ = served
    assert ask(url, "tools/list", host="evil.example").status_code == 421
    assert ask(url, "tools/list", origin="http://evil.example").status_code == 403


def test_a_server_that_is_killed_has_committed_all_or_nothing(place):
    """A call of a tool is one commit, even if the client dies at any moment."""

    async def run() -> None:
        server = StdioServerParameters(command=VSTATE[0], args=[*VSTATE[1:], "--store", place, "mcp", "--write"])
        async with Client(server) as client:
            head = Repository(Disk(place)).branches["main"]
            changes = [{"path": f"key{n}", "value": "x" * 1000} for n in range(200)]
            call = asyncio.ensure_future(client.call_tool("state_set", {"changes": changes, "expected_head": head.id}))
            await asyncio.sleep(0.02)
            find = ["pgrep", "-f", f"--store {place} mcp"]
            children = (
                await asyncio.to_thread(subprocess.run, find, capture_output=True, text=True, check=False)
            ).stdout.split()
            for child in children:
                os.kill(int(child), signal.SIGKILL)
            call.cancel()

    with suppress(BaseException):  # the client says in its own way that the server is gone
        asyncio.run(asyncio.wait_for(run(), 20))
    with Disk(place) as disk:
        assert sum(key.startswith("key") for key in Versioned(disk)) in (0, 200)
        assert not Repository(disk).fsck().findings


@pytest.mark.parametrize("client", ["claude", "cursor", "vscode", "codex"])
def test_the_configuration_starts_this_command(place, client):
    shown = subprocess.run(
        [*VSTATE, "--store", place, "mcp", "--write", "--config", client], capture_output=True, text=True, check=True
    ).stdout
    if client == "codex":
        import tomllib

        entry = tomllib.loads(shown)["mcp_servers"]["state"]
    else:
        entry = next(iter(json.loads(shown).values()))["state"]
    assert entry["command"] == "vstate"
    assert entry["args"] == ["--store", place, "mcp", "--write"]


@pytest.mark.parametrize(("store", "variable"), [("store", ""), ("disk:store", ""), (None, "store"), (None, "")])
def test_the_configuration_names_a_store_that_every_folder_leads_to(tmp_path, store, variable):
    Disk(tmp_path / ("store" if store or variable else ".vstate")).close()
    given = ["--store", store] if store else []
    env = {**os.environ, "VSTATE_STORE": variable}
    done = subprocess.run(
        [*VSTATE, *given, "mcp", "--config", "claude"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    option, named, *rest = json.loads(done.stdout)["mcpServers"]["state"]["args"]
    assert (option, rest) == ("--store", ["mcp"])
    assert Path(named.removeprefix("disk:")) == tmp_path / ("store" if store or variable else ".vstate")


def test_the_configuration_has_no_url_of_the_environment(tmp_path):
    env = {**os.environ, "VSTATE_STORE": "redis://:secret@cache/0"}
    done = subprocess.run(
        [*VSTATE, "mcp", "--config", "claude"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert "secret" not in done.stdout + done.stderr
    assert "VSTATE_STORE" in done.stderr
