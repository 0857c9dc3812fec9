"""Moving here from agex is changing an import: the programs of agex's page on state, with a scripted model."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scripted_model import code_runner

from versioned_state import ActionEvent, Agent, Live, Versioned, events, view
from versioned_state.errors import UnserializableValueError
from versioned_state.storage import KVStore, Memory

# As printed there, except that the page has lost the indentation.

WITHOUT_STATE = '''
@agent.task
def analyze_data(data: list[float]) -> dict: # type: ignore[return-value]
    """Analyze data without memory."""
    pass
# Each call is independent. No state object is needed.
result1 = analyze_data([1, 2, 3])
result2 = analyze_data([4, 5, 6]) # No memory of the previous call
'''

LIVE = '''
from agex import Live
@agent.task
def build_analysis(data: list[float]) -> dict: # type: ignore[return-value]
    """Build cumulative analysis with memory."""
    pass
# State persists across calls within the same process.
shared_state = Live()
result1 = build_analysis([1, 2, 3], state=shared_state)
result2 = build_analysis([4, 5, 6], state=shared_state) # Remembers result1
'''

VERSIONED = '''
from agex import Versioned
@agent.task
def build_analysis(data: list[float]) -> dict: # type: ignore[return-value]
    """Build cumulative analysis with memory."""
    pass
# State persists across calls and can survive process restarts.
shared_state = Versioned()
result1 = build_analysis([1, 2, 3], state=shared_state)
result2 = build_analysis([4, 5, 6], state=shared_state) # Remembers result1
'''

HISTORY = """
from agex import ActionEvent, events, view
# 1. Find an event of interest after a run
all_events = events(state)
action_event = next(e for e in all_events if isinstance(e, ActionEvent))
# 2. Get the commit hash from that event
commit_to_inspect = action_event.commit_hash
# 3. Checkout the state to a new variable
historical_state = state.checkout(commit_to_inspect)
# `historical_state` is a read-only view of the past.
print(f"--- Inspecting state at {commit_to_inspect[:7]} ---")
print(view(historical_state, focus="full"))
"""

DISK = """
from agex import Versioned, Disk
# Path to storage directory
state = Versioned(Disk("/path/to/storage"))
# Optional size limit (default: 1GB)
state = Versioned(Disk("/path/to/storage", size_limit=500*1024*1024))
"""

CACHED = """
from agex import Versioned, Cache, Disk
disk_store = Disk("/path/to/storage")
state = Versioned(Cache(disk_store, max_bytes=64*1024*1024))
"""

CUSTOM = """
from agex import Versioned
from agex.state.kv import KVStore
class RedisStore(KVStore):
    def __init__(self, redis_url):
        # Implementation details...
        pass
    def get(self, key: str) -> bytes | None:
        # Return bytes from Redis
        pass
    def set(self, key: str, value: bytes) -> None:
        # Store bytes in Redis
        pass
    # ... implement remaining abstract methods
"""

USE_OF_CUSTOM = """
# Use with your agent
state = Versioned(RedisStore("redis://localhost:6379"))
"""

QUICK_REFERENCE = """
my_task(data)
my_task(data, state=Live())
my_task(data, state=Versioned())
"""


def moved(program: str) -> str:
    """The program with its imports changed, and nothing else."""
    return program.replace("from agex.state.kv import", "from versioned_state.storage import").replace(
        "from agex import", "from versioned_state import"
    )


def run(program: str, **names: Any) -> dict[str, Any]:
    exec(moved(program), names)
    return names


def remembers(call: Any) -> dict[str, Any]:
    """A model whose code looks for what earlier calls left, and adds to it."""
    call.emit(ActionEvent(thinking="I add to what I remember.", code="..."))
    call.state.setdefault("seen", []).append(call.inputs["data"])
    return {"seen": [list(each) for each in call.state["seen"]]}


@pytest.fixture
def agent() -> Agent:
    return Agent("analyst", runner=remembers)


ALONE = [{"seen": [[1, 2, 3]]}, {"seen": [[4, 5, 6]]}]
TOGETHER = [{"seen": [[1, 2, 3]]}, {"seen": [[1, 2, 3], [4, 5, 6]]}]


@pytest.mark.parametrize(("program", "results"), [(WITHOUT_STATE, ALONE), (LIVE, TOGETHER), (VERSIONED, TOGETHER)])
def test_a_task_without_state_forgets_and_with_one_remembers(agent: Agent, program: str, results: list[Any]):
    names = run(program, agent=agent)
    assert [names["result1"], names["result2"]] == results


def test_every_call_on_a_versioned_state_is_a_commit(agent: Agent):
    state = run(VERSIONED, agent=agent)["shared_state"]
    assert [commit.meta["task"] for commit in state.log()] == ["build_analysis"] * 2
    assert state.checkout("HEAD~1")["seen"] == [[1, 2, 3]]


def test_an_event_leads_to_the_memory_of_that_time(agent: Agent, capsys: pytest.CaptureFixture[str]):
    state = run(VERSIONED, agent=agent)["shared_state"]
    names = run(HISTORY, state=state)
    assert names["action_event"].commit_hash == state.repository.commit("main~2").id
    out = capsys.readouterr().out
    assert out.startswith(f"--- Inspecting state at {names['commit_to_inspect'][:7]} ---\n")
    assert "seen" not in out, "the agent knew nothing yet"
    second = events(state, types=ActionEvent)[1]
    past = state.checkout(second.commit_hash)
    assert past["seen"] == [[1, 2, 3]]
    assert "[1, 2, 3]" in view(past, focus="full")
    assert "4, 5, 6" not in view(past, focus="full")


@pytest.mark.parametrize("program", [DISK, CACHED])
def test_a_state_on_disk_is_there_in_the_next_process(agent: Agent, program: str, tmp_path: Path):
    program = program.replace("/path/to/storage", str(tmp_path / "storage"))
    names: dict[str, Any] = {}
    task: Any = run(WITHOUT_STATE, agent=agent)["analyze_data"]
    for count in (1, 2):
        names = run(program)
        assert len(task([count], state=names["state"])["seen"]) == count
        names["state"].close()


def test_a_store_of_your_own_says_what_it_lacks():
    store = run(CUSTOM)["RedisStore"]
    with pytest.raises(TypeError, match="apply"):
        run(USE_OF_CUSTOM, RedisStore=store, Versioned=Versioned)


def test_a_store_of_your_own_with_the_remaining_methods(agent: Agent):
    base: Any = run(CUSTOM)["RedisStore"]
    server = Memory()  # stands for Redis

    class RedisStore(base):  # type: ignore[misc]
        get, get_many, keys, apply, set, close = (
            server.get,
            server.get_many,
            server.keys,
            server.apply,
            server.set,
            server.close,
        )

    assert issubclass(RedisStore, KVStore)
    task: Any = run(WITHOUT_STATE, agent=agent)["analyze_data"]
    for count in (1, 2):
        state = run(USE_OF_CUSTOM, RedisStore=RedisStore, Versioned=Versioned)["state"]
        assert len(task([count], state=state)["seen"]) == count


def test_the_quick_reference(agent: Agent):
    task = run(WITHOUT_STATE, agent=agent)["analyze_data"]
    run(QUICK_REFERENCE, my_task=task, data=[1.0], Live=Live, Versioned=Versioned)


# Objects that cannot be pickled


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript("create table users (name); insert into users values ('Ana'), ('Bo')")
        yield connection


def querying(*code: str) -> Callable[..., Any]:
    left = iter(code)
    agent = Agent("librarian", runner=code_runner(lambda _: ("", next(left))))

    @agent.task
    def find(db: sqlite3.Connection) -> list[Any]:  # type: ignore[empty-body]
        """Find all users."""
        pass  # noqa: PIE790 - as users of agex write it

    return find


CHAINED = "names = [name for (name,) in db.execute('select name from users').fetchall()]\nfinish(names)"


def test_a_resource_that_is_used_up_in_one_chain_leaves_its_result(db: sqlite3.Connection):
    state = Versioned()
    assert querying(CHAINED)(db, state=state) == ["Ana", "Bo"]
    assert dict(state) == {"names": ["Ana", "Bo"]}


def test_a_cursor_in_the_state_is_an_error_that_names_task_and_path(db: sqlite3.Connection):
    agent = Agent(
        "librarian", runner=lambda call: call.state.update(found={"cursor": call.inputs["db"].execute("select 1")})
    )

    @agent.task
    def find(db: sqlite3.Connection) -> None: ...

    state = Versioned()
    with pytest.raises(UnserializableValueError) as raised:
        find(db, state=state)
    assert (raised.value.task, raised.value.path) == ("find", "found.cursor")
    assert "'find'" in str(raised.value)
    assert "sqlite3.Cursor" in str(raised.value)
    assert not state.checkout("HEAD")


@pytest.mark.parametrize("make", [Live, lambda: None], ids=["live", "none"])
def test_a_cursor_is_welcome_without_commits(db: sqlite3.Connection, make: Callable[[], Any]):
    state = make()
    find = querying("cursor = db.execute('select name from users')", "finish(cursor.fetchall())")
    assert find(db, state=state) == [("Ana",), ("Bo",)]
    if state is not None:
        assert isinstance(state["cursor"], sqlite3.Cursor)


def test_names_that_agex_has_at_its_top_are_here():
    import versioned_state

    states = {"Live", "Versioned", "Disk", "Cache", "Memory", "view"}
    kinds = {"TaskStartEvent", "ActionEvent", "OutputEvent", "SuccessEvent", "FailEvent", "ClarifyEvent", "ErrorEvent"}
    assert states | kinds | {"Agent", "events"} <= set(versioned_state.__all__)
