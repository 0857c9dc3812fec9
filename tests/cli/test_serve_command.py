"""`vstate serve`: what keeps it from starting. What it does once it runs is in tests/server."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.command_line import Vstate
from tests.support.services.served import write_tokens


def test_it_needs_tokens(vstate: Vstate, tmp_path: Path):
    result = vstate("serve", store=tmp_path / "store")
    assert result.code == 2
    assert "--tokens" in result.stderr


@pytest.mark.parametrize(
    ("text", "mode", "error", "hint"),
    [
        (None, 0o600, "tokens.json: No such file or directory", ""),
        ("{}", 0o644, "tokens.json has tokens, and others may read it; nothing was started", "chmod 600"),
        ('{"SECRET": {}}', 0o600, "tokens.json, line 1: a token has exactly", '"scopes": ["read", "write"]'),
        ("[]", 0o600, "tokens.json, line 1: expected {", '"user": "alice"'),
    ],
)
def test_tokens_that_are_wrong(vstate: Vstate, tmp_path: Path, text: str | None, mode: int, error: str, hint: str):
    path = tmp_path / "tokens.json"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    result = vstate("serve", "--tokens", str(path), store=tmp_path / "store")
    assert result.code == 1
    assert error in result.stderr
    assert hint in result.stderr
    assert "SECRET" not in result.stderr
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "option",
    [
        ["--port", "70000"],
        ["--port", "x"],
        ["--max-body", "0"],
        ["--timeout", "0"],
        ["--timeout", "nan"],
        ["--grace", "-1"],
    ],
)
def test_options_that_make_no_sense(vstate: Vstate, tmp_path: Path, option: list[str]):
    result = vstate("serve", "--tokens", str(write_tokens(tmp_path)), *option, store=tmp_path / "store")
    assert (result.code, "serving" in result.stderr) == (2, False)


def test_a_port_that_is_taken(vstate: Vstate, tmp_path: Path):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        result = vstate("serve", "--tokens", str(write_tokens(tmp_path)), "--port", str(port), store=tmp_path / "store")
    assert result.code == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; nothing was started" in result.stderr


def test_a_host_that_nobody_has(vstate: Vstate, tmp_path: Path):
    result = vstate("serve", "--tokens", str(write_tokens(tmp_path)), "--host", "999.1.1.1", store=tmp_path / "store")
    assert result.code == 1
    assert "cannot listen on 999.1.1.1:" in result.stderr


def test_a_store_in_memory_is_refused(vstate: Vstate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VSTATE_STORE", "memory:")
    result = vstate("serve", "--tokens", str(write_tokens(tmp_path)))
    assert result.code == 1
    assert "a store in memory ends with the command" in result.stderr


@pytest.mark.parametrize(("missing", "extra"), [("uvicorn", "server"), ("starlette", "server"), ("pydantic", "server")])
def test_without_its_extra_it_says_which_one(tmp_path: Path, missing: str, extra: str):
    program = f"""
        import sys
        sys.modules[{missing!r}] = None
        from versioned_state.cli.main import vstate
        vstate.main(["--store", "store", "serve", "--tokens", {str(write_tokens(tmp_path))!r}], prog_name="vstate")
    """
    process = processes.start(program)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"versioned-state[{extra}]" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("missing", "extra"), [("httpx", "client"), ("pydantic", "services")])
def test_a_client_without_its_extra_says_which_one(missing: str, extra: str):
    program = f"""
        import sys
        sys.modules[{missing!r}] = None
        from versioned_state.errors import MissingDependencyError
        try:
            from versioned_state.services import RemoteSessionHistoryService
        except MissingDependencyError as error:
            print(error, error.hint)
    """
    assert f"versioned-state[{extra}]" in processes.run(program).stdout


def test_the_names_of_the_package():
    from versioned_state import services

    assert {"RemoteMemoryService", "RemoteSessionHistoryService", "RemoteStateService"} <= {*dir(services)}
    assert json.dumps(services.RemoteStateService.__name__) == '"RemoteStateService"'
