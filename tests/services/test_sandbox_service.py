"""The service of sandboxes: by session and user, reused, released, all of them at the end."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import fork, join
from tests.support.sandboxes import LEAVE_BEHIND, mark, marked, open_files
from versioned_state import sandbox as sandboxes
from versioned_state.errors import HandleClosedError, InvalidArgumentError, LimitExceededError, ServiceNotStartedError
from versioned_state.sandbox import FilesystemSandbox, SandboxType
from versioned_state.sandbox.tools.base import run_ipython_cell
from versioned_state.sandbox.tools.browser import browser_navigate
from versioned_state.sandbox.tools.filesystem import list_directory, read_file
from versioned_state.services.base import ServiceWithLifecycleManager
from versioned_state.services.sandbox import SandboxService


@pytest.fixture
def service() -> Iterator[SandboxService]:
    service = SandboxService()
    yield service
    asyncio.run(service.stop())


class Plugin:
    """A sandbox of another type, which counts."""

    made = closed = 0

    def __init__(self, **options: Any) -> None:
        type(self).made += 1
        self.options = options

    def close(self) -> None:
        type(self).closed += 1


@pytest.fixture
def plugin() -> Iterator[type[Plugin]]:
    class Counted(Plugin):
        made = closed = 0

    sandboxes.register("browser", Counted)
    yield Counted
    sandboxes.unregister("browser")


def kinds(found: list[Any]) -> list[str]:
    return [str(each.sandbox_type) for each in found]


# Types


def test_a_session_gets_the_types_that_it_asks_for_in_their_order(service: SandboxService):
    assert kinds(service.connect("s1", "u1", env_types=["filesystem", "base"])) == ["filesystem", "base"]
    assert kinds(service.connect("s2", "u1", [SandboxType.BASE])) == ["base"]
    assert kinds(service.connect("s3", "u1", sandbox_types=["base", None, "base"])) == ["base"]
    assert kinds(service.connect("s4")) == ["base"]
    assert kinds(service.connect("s5", tools=[])) == ["base"]
    assert kinds(service.connect("s6", env_types=(each for each in ["filesystem"]))) == ["filesystem"]


def test_types_follow_from_tools(service: SandboxService, plugin: type[Plugin]):
    def ordinary() -> None:
        """A tool that needs no sandbox."""

    found = service.connect("s", "u", tools=[read_file, list_directory, ordinary, browser_navigate])
    assert [type(each) for each in found] == [FilesystemSandbox, plugin]
    assert kinds(service.connect("t", "u", env_types=["base"], tools=[read_file])) == ["base", "filesystem"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"env_types": ["nonsense"]}, "no type of sandbox 'nonsense'"),
        ({"env_types": ["gui"]}, "no factory is registered"),
        ({"env_types": "base"}, "env_types must be a list"),
        ({"env_types": [3]}, "must be a string"),
        ({"tools": ["read_file"]}, "is not a tool"),
        ({"tools": "read_file"}, "tools must be a list"),
        ({"tools": 3}, "tools must be a list"),
        ({"session_id": None}, "session_id must be a string"),
        ({"user_id": 3}, "user_id must be a string"),
    ],
)
def test_what_makes_no_sense_is_a_value_error_and_makes_no_sandbox(
    service: SandboxService, arguments: dict[str, Any], said: str
):
    with pytest.raises(ValueError, match=said):
        service.connect(**{"session_id": "s", "user_id": "u", **arguments})
    assert service.release("s", "u") is False


# Reuse and release


def test_a_second_connect_returns_the_same_and_adds_what_is_missing(service: SandboxService):
    (base,) = service.connect("s", "u", ["base"])
    assert service.connect("s", "u", ["base"]) == [base]
    assert service.connect("s", "u") == [base]
    both = service.connect("s", "u", tools=[read_file, run_ipython_cell])
    assert both[1] is base
    assert service.connect("s", "u") == [base, both[0]]
    assert base.folder == both[0].folder


def test_sessions_share_nothing(service: SandboxService):
    pairs: list[tuple[str, str | None]] = [
        ("a_b", None),
        ("a", "b"),
        ("a_b", ""),
        ("a/b", None),
        ("a", None),
        ("", "a"),
        ("\0", "\ud800"),
    ]
    found = [service.connect(session, user, ["filesystem"])[0] for session, user in pairs]
    assert len({id(each) for each in found}) == len({each.folder for each in found}) == len(pairs)
    assert service.release("a_b") is True
    assert service.release("a_b") is False
    assert service.connect("a", "b", ["filesystem"]) == [found[1]]
    assert service.connect("default", "a", ["filesystem"]) == [found[5]]


def test_released_sandboxes_are_closed_with_their_processes_and_folder(service: SandboxService):
    known = mark()
    base, files = service.connect("s", "u", ["base", "filesystem"])
    files.write_file("a.txt", "from the files")
    assert base.run_ipython_cell("open('a.txt').read()") == "'from the files'"
    base.run_ipython_cell(LEAVE_BEHIND.format(mark=known))
    assert service.release("s", "u") is True
    assert marked(known) == []
    assert not base.folder.parent.exists()
    for call in (lambda: base.run_ipython_cell("1"), lambda: files.read_file("a.txt")):
        with pytest.raises(HandleClosedError):
            call()
    assert service.connect("s", "u", ["filesystem"])[0].list_directory() == []


async def test_stop_releases_all(plugin: type[Plugin]):
    known = mark()
    service = SandboxService()
    found = [service.connect(str(number), "u", ["base", "filesystem", "browser"]) for number in range(3)]
    found[0][0].run_ipython_cell(LEAVE_BEHIND.format(mark=known))
    gc.collect()
    await service.stop()
    await service.stop()
    assert (plugin.made, plugin.closed) == (3, 3)
    assert marked(known) == []
    assert not any(base.folder.exists() for base, _, _ in found)


async def test_the_life_of_the_service():
    service = SandboxService()
    assert isinstance(service, ServiceWithLifecycleManager)
    assert await service.health() is False
    (before,) = service.connect("s")  # local sandboxes need no start
    await service.start()
    assert await service.health() is True
    assert service.connect("s") == [before]
    await service.stop()
    assert await service.health() is False
    with pytest.raises(RuntimeError, match="was stopped") as caught:
        service.connect("s")
    assert isinstance(caught.value, ServiceNotStartedError)
    assert service.release("s") is False
    await service.start()
    assert service.connect("s") != [before]
    async with service:
        pass
    assert await service.health() is False


def test_nothing_is_left_of_a_service_that_was_forgotten():
    known = mark()
    files = open_files()
    service = SandboxService()
    (base,) = service.connect("s")
    base.run_ipython_cell(LEAVE_BEHIND.format(mark=known))
    folder = base.folder
    del service, base
    gc.collect()
    assert marked(known) == []
    assert not folder.parent.exists()
    assert open_files() <= files  # those of earlier tests may be closed meanwhile


def test_sessions_that_come_and_go_leave_memory_and_descriptors_flat():
    service = SandboxService()
    for number in range(2):
        service.connect(str(number), "u", ["base", "filesystem"])[0].run_ipython_cell("1")
        service.release(str(number), "u")
    gc.collect()
    files, threads = open_files(), set(threading.enumerate())
    for number in range(60):
        base, _ = service.connect(str(number), "u", ["base", "filesystem"])
        if number < 3:
            base.run_ipython_cell("1")
        service.release(str(number), "u")
    gc.collect()
    assert open_files() <= files  # those of earlier tests may be closed meanwhile
    assert set(threading.enumerate()) <= threads
    assert service._sessions == {}


# Limits and plug-ins


def test_limits_reach_the_sandboxes():
    service = SandboxService(timeout=0.3, max_memory=200 << 20, max_file_bytes=1000)
    base, files = service.connect("s", env_types=["base", "filesystem"])
    assert "limit of time of 0.3 s" in base.run_ipython_cell("while True: pass")
    base._timeout = 60  # a busy machine may take longer than the limit for what follows
    assert "MemoryError" in base.run_ipython_cell("bytearray(500 << 20)")
    assert "File too large" in base.run_ipython_cell(
        "open('a', 'wb', 0).write(bytes(1000)); open('a', 'ab', 0).write(bytes(1000))"
    )
    with pytest.raises(LimitExceededError):
        files.write_file("b", "x" * 1001)
    service.release("s")
    for option in ("timeout", "max_memory", "max_file_bytes", "max_total_memory", "max_folder_bytes"):
        with pytest.raises(InvalidArgumentError, match=option):
            SandboxService(**{option: -1})  # type: ignore[arg-type]


def test_a_factory_gets_the_session(plugin: type[Plugin]):
    service = SandboxService(timeout=5, base_url="http://cluster", bearer_token="secret")
    (made,) = service.connect("s", "u", ["browser"])
    folder = made.options.pop("folder")
    assert folder.is_dir()
    assert made.options == {
        "session_id": "s",
        "user_id": "u",
        "timeout": 5,
        "max_memory": 1 << 30,
        "max_file_bytes": 64 << 20,
        "max_total_memory": 2 << 30,
        "max_folder_bytes": 1 << 30,
        "base_url": "http://cluster",
        "bearer_token": "secret",
    }
    with pytest.raises(InvalidArgumentError, match="need a factory") as caught:
        service.connect("s", "u", ["base"])
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="need a factory"):
        service.connect("other", "u")
    service.release("s", "u")
    assert not folder.exists()


def test_a_factory_that_fails_releases_those_before_it_and_none_that_was_there(
    service: SandboxService, plugin: type[Plugin]
):
    def fails() -> None:
        raise OSError("no screen")

    sandboxes.register("gui", fails)
    try:
        with pytest.raises(OSError, match="no screen"):
            service.connect("new", "u", ["filesystem", "browser", "gui"])
        assert (plugin.made, plugin.closed) == (1, 1)
        assert service.release("new", "u") is False

        (there,) = service.connect("s", "u", ["base"])
        with pytest.raises(OSError, match="no screen"):
            service.connect("s", "u", ["browser", "gui"])
        assert (plugin.made, plugin.closed) == (2, 2)
        assert service.connect("s", "u") == [there]
        assert there.run_ipython_cell("1") == "1"
    finally:
        sandboxes.unregister("gui")


async def test_one_that_fails_to_close_does_not_keep_the_others(plugin: type[Plugin]):
    def fails(self: Plugin) -> None:
        raise OSError("stuck")

    plugin.close = fails  # type: ignore[method-assign]
    service = SandboxService()
    folders = [service.connect(name, "u", ["browser", "filesystem"])[1].folder for name in ("a", "b", "c")]
    with pytest.raises(ExceptionGroup) as caught:
        service.release("a", "u")
    assert [str(each) for each in caught.value.exceptions] == ["stuck"]
    with pytest.raises(ExceptionGroup):
        await service.stop()
    assert not any(folder.exists() for folder in folders)


# Side by side


def test_two_connects_at_once_make_one_sandbox(service: SandboxService):
    made = []
    barrier = threading.Barrier(8)

    def slow(folder: Path) -> object:
        made.append(folder)
        threading.Event().wait(0.05)
        return object()

    sandboxes.register("mobile", slow)

    def connect(number: int) -> list[Any]:
        barrier.wait()
        return service.connect("s", "u", ["mobile"])

    try:
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(connect, range(8)))
    finally:
        sandboxes.unregister("mobile")
    assert len(made) == 1
    assert all(each == found[0] for each in found)


def test_a_slow_session_keeps_no_other_waiting(service: SandboxService):
    entered, go_on = threading.Event(), threading.Event()

    def slow() -> object:
        entered.set()
        assert go_on.wait(20)
        return object()

    sandboxes.register("mobile", slow)
    try:
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(service.connect, "slow", "u", ["mobile"])
            assert entered.wait(20)
            assert kinds(service.connect("quick", "u", ["filesystem"])) == ["filesystem"]
            assert service.release("quick", "u")
            go_on.set()
            assert len(waiting.result()) == 1
    finally:
        go_on.set()
        sandboxes.unregister("mobile")


def test_connect_and_release_side_by_side_leave_nothing(service: SandboxService, plugin: type[Plugin]):
    def work(number: int) -> None:
        for _ in range(30):
            service.connect("s", "u", ["browser"])
            service.release("s", "u")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    service.release("s", "u")
    assert plugin.made == plugin.closed


def test_a_fork_has_sandboxes_of_its_own(service: SandboxService):
    (base,) = service.connect("s", "u")
    base.run_ipython_cell("x = 'of the parent'")

    def child() -> None:
        (own,) = service.connect("s", "u")
        assert own.folder != base.folder
        assert "NameError" in own.run_ipython_cell("x")
        asyncio.run(service.stop())

    with service._lock:  # a thread of the parent may have it
        children = [fork(child)]
    join(*children)
    assert service.connect("s", "u") == [base]
    assert base.run_ipython_cell("x") == "'of the parent'"


async def test_a_stop_that_is_cancelled_has_released_all(service: SandboxService):
    found = [service.connect(str(number))[0] for number in range(3)]
    for each in found:
        each.run_ipython_cell("1")
    stopping = asyncio.create_task(service.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    if not any(each.folder.exists() for each in found):
        return
    await service.stop()  # it was cancelled before it began
    assert not any(each.folder.exists() for each in found)
