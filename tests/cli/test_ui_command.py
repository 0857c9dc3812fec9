"""``vstate ui`` as a process: its link, what it answers, and its end."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.terminal import COMMAND
from versioned_state import Disk, Versioned


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Versioned(Disk(tmp_path / "store")) as state:
        state["n"] = 1
        state.commit("one")
        state["n"] = 2
        state.commit("two")
    return tmp_path / "store"


@pytest.fixture
def ui(store: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    begun: list[subprocess.Popen[str]] = []

    def begin(*options: str) -> tuple[subprocess.Popen[str], str]:
        command = [*COMMAND, "--store", str(store), "ui", "--port", "0", "--no-browser", *options]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        begun.append(process)
        assert process.stderr is not None
        found = re.search(r"http://\S+", process.stderr.readline())
        assert found is not None
        return process, found[0]

    yield begin
    for process in begun:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def content_of(folder: Path) -> dict[str, Any]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_link_signs_in_once_and_the_page_changes_no_byte(ui, store: Path):
    before = content_of(store)
    process, link = ui()
    base = link.partition("/login")[0]
    with httpx.Client() as client:
        assert client.get(base).status_code == 401
        answer = client.get(link)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        page = client.get(base)
        assert page.status_code == 200
        assert "two" in page.text
        assert client.get(f"{base}/edit/undo/main").status_code == 404
    assert httpx.get(link).status_code == 401
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert process.stderr.read().rstrip().endswith("Ctrl-C ends the page")
    assert content_of(store) == before


def test_edit_offers_to_change(ui):
    _, link = ui("--edit")
    base = link.partition("/login")[0]
    with httpx.Client() as client:
        client.get(link)
        assert "The exact change" in client.get(f"{base}/edit/undo/main").text


def test_serve_has_the_page_beside_the_api(store: Path, tmp_path: Path):
    tokens = tmp_path / "tokens.json"
    tokens.write_text('{"secret": {"user": "*", "scopes": ["read"]}}')
    tokens.chmod(0o600)
    command = [*COMMAND, "--store", str(store), "serve", "--port", "0", "--page"]
    with subprocess.Popen([*command, "--tokens", str(tokens)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.search(r"http://\S+", process.stderr.readline())
        assert found is not None
        base = found[0]
        with httpx.Client() as client:
            assert client.get(f"{base}/health").status_code == 200
            assert client.get(f"{base}/ui").status_code == 401
            form = {"origin": base}
            assert client.post(f"{base}/ui/login", data={"token": "secret"}, headers=form).headers["location"] == "/ui/"
            assert "two" in client.get(f"{base}/ui/").text
            assert "secret" not in client.get(f"{base}/ui/b/main").text
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_port_that_is_taken_is_said(ui, store: Path):
    _, link = ui()
    port = re.search(r":(\d+)/", link)
    assert port is not None
    command = [*COMMAND, "--store", str(store), "ui", "--port", port[1], "--no-browser"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "cannot listen" in done.stderr
