"""A sandbox whose tools return what those of AgentScope Runtime return."""

from __future__ import annotations

from typing import Any

import pytest

from versioned_state import sandbox
from versioned_state.errors import HandleClosedError, InvalidArgumentError
from versioned_state.sandbox import ContentSandbox
from versioned_state.sandbox.tools.base import run_ipython_cell, run_shell_command
from versioned_state.services.sandbox import SandboxService


@pytest.fixture(scope="module")
def box():
    with ContentSandbox(timeout=20) as made:
        yield made


def texts(result: dict[str, Any]) -> dict[str, str]:
    assert set(result) == {"meta", "content", "isError"}
    assert all(set(each) == {"type", "text", "annotations", "description"} for each in result["content"])
    assert {each["type"] for each in result["content"]} == {"text"}
    return {each["description"]: each["text"] for each in result["content"]}


@pytest.mark.parametrize(
    ("code", "shown", "failed"),
    [
        ("print('hi')", "hi\n", False),
        ("6 * 7", "42", False),
        ("", "", False),
        ("import sys; print('warning', file=sys.stderr)", "warning\n", False),
        ("print('before')\n1 / 0", "ZeroDivisionError: division by zero\n", True),
        ("this is no Python", "SyntaxError: invalid syntax\n", True),
        ("raise SystemExit(0)", "SystemExit: 0\n", True),
    ],
)
def test_a_cell(box, code, shown, failed):
    result = box.run_ipython_cell(code)
    assert texts(result)["stdout"].endswith(shown)
    assert list(texts(result)) == ["stdout"]
    assert result["isError"] is failed


@pytest.mark.parametrize(
    ("command", "shown", "status"),
    [
        ("echo hi", "hi\n", "0"),
        ("echo hi; exit 3", "hi\n[exit status 3]", "3"),
        ("echo no >&2; false", "no\n[exit status 1]", "1"),
        ("kill -9 $$", "[ended by SIGKILL]", "-9"),
    ],
)
def test_a_command(box, command, shown, status):
    result = box.run_shell_command(command)
    assert texts(result) == {"stdout": shown, "returncode": status}
    assert result["isError"] is (status != "0")


def test_a_cell_cannot_hide_that_it_raised(box):
    """It may write to the socket over which its interpreter answers, but it does not have the mark of the answer."""
    result = box.run_ipython_cell(
        "import os\nfor fd in range(3, 64):\n  try: os.write(fd, b'\\0' * 40)\n  except OSError: pass\n1 / 0"
    )
    assert result["isError"] is True
    assert box.run_ipython_cell("1")["isError"] is False


def test_what_a_limit_ends_has_failed():
    with ContentSandbox(timeout=0.5) as quick:
        assert quick.run_ipython_cell("while True: pass")["isError"] is True
        assert quick.run_shell_command("sleep 20")["isError"] is True
        quick._timeout = 20  # a busy machine may take longer than half a second to start an interpreter
        assert quick.run_ipython_cell("import os; os._exit(1)")["isError"] is True
        assert quick.run_ipython_cell("print('next')")["isError"] is False
        with pytest.raises(InvalidArgumentError):
            quick.call_tool("run_ipython_cell", {"code": 5})
    with pytest.raises(HandleClosedError):
        quick.run_ipython_cell("1")


def test_a_service_gives_it_if_it_is_registered():
    sandbox.register("base", ContentSandbox)
    try:
        service = SandboxService()
        boxes = service.connect("s", "u", tools=[run_ipython_cell])
        assert texts(run_ipython_cell(boxes, code="print(1)")) == {"stdout": "1\n"}
        assert texts(run_shell_command(boxes, command="pwd"))["returncode"] == "0"
        assert boxes[0].call_tool("run_ipython_cell", {"code": "1 / 0"})["isError"] is True
        service.release("s", "u")
    finally:
        sandbox.unregister("base")
