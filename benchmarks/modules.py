"""``scripts/bench agents``, the part "modules": trees of modules, saved and loaded beside AgentScope's in one run.

AgentScope is taken from a folder beside the environment, without what it depends on: its modules and sessions need next
to nothing of it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks import report
from benchmarks.measure import alternate, median, ms, paired, timed
from versioned_state.agents.modules import JSONSession, StateModule, VersionedSession
from versioned_state.storage import Disk

MODULES: Final = 1_000
CHILDREN: Final = 8
MEMORY: Final = Path("/dev/shm")
PEERS: Final = Path(sys.prefix) / "agentscope"


def print_modules(folder: Path, turns: int) -> None:
    """Measure, and print the table."""
    theirs = _agentscope()
    if theirs is None:
        print(f"agentscope is not in {PEERS}: scripts/bench agents puts it there")
        return
    rows = list(_rows(folder, turns, *theirs))
    report.print_table(
        [f"a tree of {MODULES:,} modules", "here", "AgentScope", "ratio", "10 to 90 % of pairs", "note"], rows
    )


def _agentscope() -> tuple[type[Any], type[Any]] | None:
    """The ``StateModule`` and the ``JSONSession`` of AgentScope; None if it is not there."""
    found = PEERS / "agentscope"
    if not found.is_dir():
        return None
    package = types.ModuleType("agentscope")
    package.__path__ = [str(found)]  # its own __init__ imports all of it
    sessions = types.ModuleType("agentscope.session")
    sessions.__path__ = [str(found / "session")]
    sys.path.append(str(PEERS))
    sys.modules.update({"agentscope": package, "agentscope.session": sessions})
    package.session = sessions  # type: ignore[attr-defined]
    import logging

    from agentscope.module import StateModule as TheirModule
    from agentscope.session._json_session import JSONSession as TheirSession

    logging.getLogger("as").setLevel(logging.WARNING)  # else it logs a line for each save and load
    return TheirModule, TheirSession


def _tree(base: type[Any], *, plain: bool) -> Any:
    """A tree of modules; with ``plain`` their attributes are a text and a number, else a list of dicts too."""

    class Node(base):  # type: ignore[misc]
        def __init__(self, number: int) -> None:
            super().__init__()
            self.name = f"module {number}"
            self.count = number
            self.notes = [{"role": "user", "content": f"note {number}"}, {"role": "assistant", "content": "yes"}]
            for name in ("name", "count") if plain else ("name", "count", "notes"):
                self.register_state(name)

    nodes = [Node(number) for number in range(MODULES)]
    for number, node in enumerate(nodes[1:]):
        setattr(nodes[number // CHILDREN], f"child{number % CHILDREN}", node)
    return nodes[0]


def _rows(folder: Path, turns: int, their_module: type[Any], their_session: type[Any]) -> Iterator[list[str]]:
    for plain in (True, False):
        here, there = _tree(StateModule, plain=plain), _tree(their_module, plain=plain)
        state = there.state_dict()
        assert here.state_dict() == state
        kind = "text and number" if plain else "and a list of dicts"
        yield _row(
            f"state_dict, {kind}", turns, here.state_dict, there.state_dict, "" if plain else "theirs is not a copy"
        )
        yield _row(
            f"load_state_dict, {kind}",
            turns,
            partial(here.load_state_dict, state),
            partial(there.load_state_dict, state),
            "" if plain else "theirs is not a copy",
        )
    loop = asyncio.new_event_loop()
    here, there = _tree(StateModule, plain=False), _tree(their_module, plain=False)
    ours, other = JSONSession(save_dir=folder / "here"), their_session(save_dir=str(folder / "there"))
    versioned = VersionedSession(Disk(folder / "store"))

    def call(method: Callable[..., Any], tree: Any) -> Callable[[], object]:
        return lambda: loop.run_until_complete(method("one", agent=tree))

    def one_changed() -> object:
        here.child0.count += 1
        return loop.run_until_complete(versioned.save_session_state("one", agent=here))

    call(versioned.save_session_state, here)()

    def through_file(save: str, load: str, notes: tuple[str, str]) -> Iterator[list[str]]:
        yield _row(save, turns, call(ours.save_session_state, here), call(other.save_session_state, there), notes[0])
        yield _row(load, turns, call(ours.load_session_state, here), call(other.load_session_state, there), notes[1])

    yield from through_file("save to a file", "load from the file", ("ours syncs the file", "all or nothing"))
    if MEMORY.is_dir():
        with tempfile.TemporaryDirectory(dir=MEMORY) as name:
            ours, other = JSONSession(save_dir=name), their_session(save_dir=name)
            yield from through_file("save to a file in memory", "load from it", ("", ""))
    yield _row(
        "save one change, VersionedSession", turns, one_changed, call(other.save_session_state, there), "a commit"
    )
    loop.close()


def _row(name: str, turns: int, here: Callable[[], object], there: Callable[[], object], note: str) -> list[str]:
    here()
    there()
    seconds = alternate({"here": lambda _: timed(here), "there": lambda _: timed(there)}, turns, batch=3)
    mine, theirs = seconds["here"], seconds["there"]
    return [name, ms(median(mine)), ms(median(theirs)), *paired(mine, theirs), note]
