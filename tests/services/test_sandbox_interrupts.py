"""An interrupt at any line of a call on sandboxes leaves a service that works, and nothing that outlives it."""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.support.dice import dice
from tests.support.interrupts import Interrupt, Trace
from tests.support.sandboxes import mark, marked, open_files
from tests.support.waiting import eventually
from versioned_state.sandbox import BaseSandbox
from versioned_state.services.agent_state import InMemoryStateService
from versioned_state.services.sandbox import SandboxService


def _has_ended(known: str) -> bool:
    """Whether no process with a mark runs any more."""
    return marked(known) == []


class Scene:
    """A service with a saved session. ``s`` is connected."""

    def __init__(self) -> None:
        self.states = InMemoryStateService()
        self.service = SandboxService(self.states)
        (files,) = self.service.connect("s", "u", ["filesystem"])
        files.write_file("a", "1")
        asyncio.run(self.states.save_state("u", {"n": 1}, "s"))

    def check(self) -> None:
        (files,) = self.service.connect("s", "u", ["filesystem"])
        assert files.read_file("a") == "1"
        files.write_file("b", "2")
        assert asyncio.run(self.states.save_state("u", {"n": 2}, "s")) == 2
        self.service.release("s", "u")
        (files,) = self.service.connect("s", "u", ["filesystem"])
        assert files.list_directory() == ["a", "b"]

    def end(self) -> None:
        asyncio.run(self.service.stop())
        asyncio.run(self.states.stop())


CALLS: dict[str, Callable[[Scene], object]] = {
    "connect again": lambda scene: scene.service.connect("s", "u", ["filesystem"]),
    "release": lambda scene: scene.service.release("s", "u"),
    "release and connect": lambda scene: (
        scene.service.release("s", "u"),
        scene.service.connect("s", "u", ["filesystem"]),
    ),
}


# a socket that was collected unclosed
LEFT_OPEN = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_interrupted_connect_or_release(
    call: Callable[[Scene], object],
    long_run: bool,  # noqa: FBT001 - a fixture
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scene = Scene()
    trace = Trace()
    trace.run(partial(call, scene))
    scene.end()
    assert trace.count > 5
    lines = range(1, trace.count + 1)
    for line in sorted(dice("connect").sample(lines, min(200 if long_run else 3, len(lines)))):
        scene = Scene()
        trace = Trace(at=line)
        with suppress(Interrupt):
            trace.run(partial(call, scene))
        scene.check()
        scene.end()
        hit = trace.hit
        del scene, trace
        gc.collect()
        assert list(tmp_path.iterdir()) == [], hit


@LEFT_OPEN
@pytest.mark.parametrize("step", ["start", "call", "close"])
def test_an_interrupted_base_sandbox(step: str, long_run: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # noqa: FBT001
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def run(trace: Trace, known: str) -> None:
        sandbox = BaseSandbox()
        if step != "start":
            sandbox.run_shell_command(f"sleep {known} &")
        with suppress(Interrupt):
            trace.run(sandbox.close if step == "close" else lambda: sandbox.run_shell_command(f"sleep {known} &"))
        if step != "close":
            assert sandbox.run_ipython_cell("6 * 7").startswith("42") or step == "call"
            assert sandbox.run_ipython_cell("6 * 7") == "42"
        sandbox.close()

    trace = Trace()
    run(trace, mark())
    lines = range(1, trace.count + 1)
    for line in sorted(dice(step).sample(lines, min(60 if long_run else 1, len(lines)))):
        known, files = mark(), open_files()
        trace = Trace(at=line)
        run(trace, known)
        gc.collect()
        assert eventually(partial(_has_ended, known)), trace.hit
        assert list(tmp_path.iterdir()) == [], trace.hit
        # an interrupt may come between a call of the system and its assignment
        assert open_files() <= files + 2, trace.hit
