"""Calls of ``state.aio`` on the history of ``commits_on``, for tests of what else happens while they run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.support.handles import RollbackWantedError
from versioned_state import Versioned


@dataclass
class Note:
    """A value with fields."""

    text: str
    tags: list[str]


def edit(state: Versioned) -> None:
    """Change values of every kind, loaded or not."""
    state["n"] = 50
    state["many"][7]["text"] = "seven"
    state["many"].append({"i": 300})
    state.sequence("log").append("one")
    state["note"] = Note("hello", ["a"])


async def _read_log(state: Versioned) -> int:
    return len([commit async for commit in state.aio.log()])


async def _in_transaction(state: Versioned, *, failing: bool) -> None:
    with suppress(RollbackWantedError):
        async with state.aio.transaction("t"):
            edit(state)
            if failing:
                raise RollbackWantedError


CALLS: dict[str, Callable[[Versioned], Awaitable[Any]]] = {
    "load": lambda state: state.aio.load("many", "notes"),
    "commit": lambda state: state.aio.commit("edited"),
    "commit of a key": lambda state: state.aio.commit("edited", keys=["n"]),
    "status": lambda state: state.aio.status(),
    "discard": lambda state: state.aio.discard(),
    "refresh": lambda state: state.aio.refresh(),
    "reset": lambda state: state.aio.reset("HEAD~2"),
    "merge": lambda state: state.aio.merge("side"),
    "cherry_pick": lambda state: state.aio.cherry_pick("side"),
    "rebase": lambda state: state.aio.rebase("side"),
    "revert": lambda state: state.aio.revert("HEAD"),
    "undo": lambda state: state.aio.undo(),
    "switch": lambda state: state.aio.switch("side"),
    "fork": lambda state: state.aio.fork("what-if"),
    "checkout": lambda state: state.aio.checkout("main~2"),
    "diff": lambda state: state.aio.diff("HEAD~2"),
    "log": _read_log,
    "restore": lambda state: state.aio.restore("many[3]", at="side"),
    "apply": lambda state: state.aio.apply([]),
    "transaction": partial(_in_transaction, failing=False),
    "failing transaction": partial(_in_transaction, failing=True),
    "close": lambda state: state.aio.close(),
}
