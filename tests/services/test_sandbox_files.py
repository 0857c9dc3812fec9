"""The files of a session's sandboxes are a workspace of its state: saved, restored and brought back with the rounds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.support.processes import fork, join
from versioned_state import Disk, Memory
from versioned_state.agents.workspace import files_of
from versioned_state.errors import (
    DirtyWorkspaceError,
    InvalidArgumentError,
    LimitExceededError,
    QuotaExceededError,
    ServiceNotStartedError,
    UnknownRevisionError,
    WorkspaceError,
)
from versioned_state.sandbox import FilesystemSandbox
from versioned_state.services.agent_state import InMemoryStateService, StateService, VersionedStateService
from versioned_state.services.sandbox import SandboxService
from versioned_state.services.session_hooks import FILES_KEY
from versioned_state.storage import Counting
from versioned_state.storage.wrapper import Wrapper


def files_in(states: VersionedStateService, user: str, session: str) -> dict[str, bytes]:
    """The files of the head of a session."""
    return dict(files_of(states.repository.snapshot(states.branch(user, session)), FILES_KEY))


def texts(sandbox: FilesystemSandbox) -> dict[str, str]:
    return {
        path: sandbox.read_file(path)
        for path in sandbox.search_files(".", "*")
        if sandbox.get_file_info(path)["type"] == "file"
    }


@pytest.fixture
def states() -> InMemoryStateService:
    return InMemoryStateService()


@pytest.fixture
def service(states: InMemoryStateService) -> Iterator[SandboxService]:
    service = SandboxService(states)
    yield service
    asyncio.run(service.stop())


def files_of_a_session(service: SandboxService) -> FilesystemSandbox:
    (files,) = service.connect("s", "u", ["filesystem"])
    assert isinstance(files, FilesystemSandbox)
    return files


async def saved(service: SandboxService, *rounds: dict[str, str]) -> FilesystemSandbox:
    """A session with these files in its rounds 1, 2, …, the state of which names the round."""
    files, states = files_of_a_session(service), service._states
    assert states is not None
    for number, content in enumerate(rounds, 1):
        for path in texts(files).keys() - content.keys():
            files.delete_file(path)
        for path, text in content.items():
            files.write_file(path, text)
        assert await states.save_state("u", {"number": number}, "s") == number
    return files


async def test_a_round_has_the_state_and_the_files_in_one_commit(service: SandboxService, states: InMemoryStateService):
    base, files = service.connect("s", "u", ["base", "filesystem"])
    assert base.folder == files.folder
    base.run_ipython_cell("open('made.txt', 'w').write('by a cell')")
    files.write_file("src/a.py", "1\n")
    assert await states.save_state("u", {"mood": "good"}, "s") == 1

    assert await states.export_state("u", "s") == {"mood": "good"}
    assert files_in(states, "u", "s") == {"made.txt": b"by a cell", "src/a.py": b"1\n"}
    assert len(list(states.repository.log(states.branch("u", "s")))) == 1

    files.write_file("src/a.py", "2\n")
    assert await states.save_state("u", {"mood": "good"}, "s") == 2
    head, before = states.repository.log(states.branch("u", "s"))
    assert [str(change.path) for change in states.repository.diff(before, head)] == ['workspace["src/a.py"]']
    assert [each.name for each in files.folder.iterdir() if each.name.startswith(".versioned")] == []


async def test_a_round_of_the_state_and_of_the_files_belong_together(
    service: SandboxService, states: InMemoryStateService
):
    files = await saved(service, {"a": "1", "old": "1"}, {"a": "2", "new": "2"}, {"a": "3"})
    for number in (1, 3, 2):
        await service.restore("s", "u", number)
        assert await states.export_state("u", "s", number) == {"number": number}
        assert texts(files) == [{}, {"a": "1", "old": "1"}, {"a": "2", "new": "2"}, {"a": "3"}][number]
    await service.restore("s", "u")
    assert texts(files) == {"a": "3"}
    await service.restore("s", "u", 1)
    assert await states.save_state("u", {"number": 4}, "s") == 4
    assert files_in(states, "u", "s") == {"a": b"1", "old": b"1"}


async def test_the_latest_round_is_the_highest_one_for_files_too(service: SandboxService, states: InMemoryStateService):
    files = files_of_a_session(service)
    for number in (10, 3):
        files.write_file("a", str(number))
        await states.save_state("u", {"number": number}, "s", number)
    await service.restore("s", "u")
    assert texts(files) == {"a": "10"}
    service.release("s", "u")
    files = files_of_a_session(service)
    assert await states.export_state("u", "s") == {"number": 10}
    assert texts(files) == {"a": "10"}


async def test_work_that_no_round_has_is_not_overwritten_unless_asked(service: SandboxService):
    files = await saved(service, {"a": "1"}, {"a": "2"})
    files.write_file("a", "mine")
    files.write_file("b", "mine too")
    with pytest.raises(DirtyWorkspaceError, match="files whose content no commit has would be overwritten") as caught:
        await service.restore("s", "u", 1)
    assert sorted(caught.value.files) == ["a", "b"]
    assert "sandbox_service.restore(..., overwrite=True)" in caught.value.hint
    assert texts(files) == {"a": "mine", "b": "mine too"}
    await service.restore("s", "u", 1, overwrite=True)
    assert texts(files) == {"a": "1"}


async def test_a_new_process_has_the_files_of_the_latest_round(tmp_path: Path):
    states = StateService.over(Disk(tmp_path / "store"))
    async with states, SandboxService(states) as service:
        (files,) = service.connect("s", "u", ["filesystem"])
        files.write_file("notes.txt", "kept")
        await states.save_state("u", {"n": 1}, "s")
        files.write_file("notes.txt", "never saved")

    def child() -> None:
        async def look() -> None:
            again = StateService.over(Disk(tmp_path / "store"))
            async with again, SandboxService(again) as service:
                base, files = service.connect("s", "u", ["base", "filesystem"])
                assert base.run_ipython_cell("open('notes.txt').read()") == "'kept'"
                files.write_file("more.txt", "of the child")
                assert await again.save_state("u", {"n": 2}, "s") == 2

        asyncio.run(look())

    join(fork(child))
    states = StateService.over(Disk(tmp_path / "store"))
    async with states, SandboxService(states) as service:
        (files,) = service.connect("s", "u", ["filesystem"])
        assert texts(files) == {"notes.txt": "kept", "more.txt": "of the child"}


# Two processes on one session: two services over one store


async def test_saves_of_two_processes_keep_the_files_of_both():
    store = Memory()
    states = [StateService.over(store), StateService.over(store)]
    services = [SandboxService(each) for each in states]
    one, two = (service.connect("s", "u", ["filesystem"])[0] for service in services)
    one.write_file("one", "1")
    two.write_file("two", "2")
    assert await states[0].save_state("u", {"n": 1}, "s") == 1
    assert await states[1].save_state("u", {"n": 2}, "s") == 2
    assert texts(two) == {"one": "1", "two": "2"}
    assert await states[0].save_state("u", {"n": 3}, "s") == 3
    assert texts(one) == {"one": "1", "two": "2"}
    assert files_in(states[0], "u", "s") == {"one": b"1", "two": b"2"}
    for service in services:
        await service.stop()


@pytest.mark.parametrize("call", ["restore", "keep"])
async def test_a_file_that_two_processes_changed_is_settled_by_hand(call: str):
    store = Memory()
    states = [StateService.over(store), StateService.over(store)]
    services = [SandboxService(each) for each in states]
    one, two = (service.connect("s", "u", ["filesystem"])[0] for service in services)
    one.write_file("a", "one")
    two.write_file("a", "two")
    await states[0].save_state("u", {"n": 1}, "s")
    for _ in range(2):
        with pytest.raises(DirtyWorkspaceError) as caught:
            await states[1].save_state("u", {"n": 2}, "s")
        assert caught.value.files == ("a",)
        assert "sandbox_service.keep" in caught.value.hint
    assert texts(two) == {"a": "two"}
    assert await states[1].export_state("u", "s") == {"n": 1}

    kept = call == "keep"
    await (services[1].keep("s", "u") if kept else services[1].restore("s", "u", overwrite=True))
    assert await states[1].save_state("u", {"n": 2}, "s") == 2
    assert texts(two) == {"a": "two" if kept else "one"}
    assert files_in(states[0], "u", "s") == {"a": b"two" if kept else b"one"}
    for service in services:
        await service.stop()


# Sessions and their end


async def test_sessions_without_sandboxes_and_users_have_no_files(
    service: SandboxService, states: InMemoryStateService
):
    (loose,) = service.connect("s", None, ["filesystem"])
    loose.write_file("a", "1")
    files = files_of_a_session(service)
    files.write_file("a", "1")
    await states.save_state("u", {"n": 1}, "other")
    await states.save_state("v", {"n": 1}, "s")
    for user, session in (("u", "other"), ("v", "s")):
        assert FILES_KEY not in states.repository.snapshot(states.branch(user, session))
    for call in (service.restore, service.keep):
        with pytest.raises(InvalidArgumentError, match="without a user"):
            await call("s")
        with pytest.raises(InvalidArgumentError, match="without state_service"):
            await getattr(SandboxService(), call.__name__)("s", "u")


async def test_files_stay_in_the_state_when_the_sandboxes_are_released(
    service: SandboxService, states: InMemoryStateService
):
    files = await saved(service, {"a": "1"})
    files.write_file("a", "never saved")
    assert service.release("s", "u")
    assert await states.save_state("u", {"number": 2}, "s") == 2
    assert files_in(states, "u", "s") == {"a": b"1"}
    assert await states.export_state("u", "s") == {"number": 2}


async def test_restore_without_a_sandbox_makes_the_folder_for_the_next_connect(service: SandboxService):
    await saved(service, {"a": "1"}, {"a": "2"})
    service.release("s", "u")
    await service.restore("s", "u", 1)
    files = files_of_a_session(service)
    assert texts(files) == {"a": "1"}
    folder = files.folder
    await service.stop()
    assert not folder.parent.exists()


async def test_a_round_that_is_not_there_is_an_error_and_leaves_the_files(service: SandboxService):
    files = await saved(service, {"a": "1"})
    files.write_file("b", "never saved")
    with pytest.raises(UnknownRevisionError, match="round 7"):
        await service.restore("s", "u", 7)
    assert texts(files) == {"a": "1", "b": "never saved"}
    with pytest.raises(UnknownRevisionError, match="the latest round"):
        await service.restore("new", "u")
    assert service.release("new", "u") is False


async def test_a_session_that_was_deleted_begins_anew_with_the_files_of_the_folder(
    service: SandboxService, states: InMemoryStateService
):
    files = await saved(service, {"a": "1"})
    await states.delete_state("u", "s")
    files.write_file("b", "2")
    assert await states.save_state("u", {"n": 1}, "s") == 1
    assert texts(files) == {"a": "1", "b": "2"}
    assert files_in(states, "u", "s") == {"a": b"1", "b": b"2"}


async def test_deleted_rounds_and_undo(service: SandboxService, states: InMemoryStateService):
    await saved(service, {"a": "1"}, {"a": "2"})
    await states.delete_state("u", "s", 2)
    assert await states.export_state("u", "s") == {"number": 1}
    await service.restore("s", "u", overwrite=True)
    assert await states.save_state("u", {"number": 5}, "s", 5) == 5


async def test_a_key_of_the_state_that_is_that_of_the_files(service: SandboxService, states: InMemoryStateService):
    await states.save_state("u", {FILES_KEY: "of the agent"}, "s")
    assert await states.export_state("u", "s") == {FILES_KEY: "of the agent"}
    with pytest.raises(WorkspaceError, match="something other than files"):
        service.connect("s", "u", ["filesystem"])
    assert service.release("s", "u") is False
    (files,) = service.connect("other", "u", ["filesystem"])
    files.write_file("a", "1")
    with pytest.raises(InvalidArgumentError, match=FILES_KEY):
        await states.save_state("u", {FILES_KEY: "of the agent"}, "other")
    assert await states.save_state("u", {"n": 1}, "other") == 1


async def test_a_save_costs_the_changed_files_and_not_those_that_are_there():
    requests = []
    for count in (10, 300):
        store = Counting(Memory())
        states = StateService.over(store)
        await states.start()
        service = SandboxService(states)
        (files,) = service.connect("s", "u", ["filesystem"])
        for number in range(count):
            files.write_file(f"d/{number}", f"{number}\n" * 200)
        await states.save_state("u", {"n": 1}, "s")
        files.write_file("d/1", "changed")
        store.reset()
        await states.save_state("u", {"n": 2}, "s")
        counts = store.reset()
        requests.append((counts.round_trips, counts.bytes_written))
        await service.stop()
    (small, small_bytes), (large, large_bytes) = requests
    assert large <= small + 3
    assert large_bytes <= small_bytes + 20_000


# What can be saved


async def test_the_size_of_the_files_is_bounded():
    states = InMemoryStateService()
    service = SandboxService(states, max_folder_bytes=100_000)
    base, files = service.connect("s", "u", ["base", "filesystem"])
    files.write_file("a", "x" * 50_000)
    assert await states.save_state("u", {"n": 1}, "s") == 1
    base.run_ipython_cell("f = open('sparse', 'wb'); f.truncate(1 << 20)")
    with pytest.raises(QuotaExceededError):
        await states.save_state("u", {"n": 2}, "s")
    base.run_ipython_cell(
        "import os; os.unlink('sparse'); os.makedirs('many')\nfor n in range(30): open(f'many/{n}', 'w').close()"
    )
    with pytest.raises(QuotaExceededError):
        await states.save_state("u", {"n": 2}, "s")
    assert await states.export_state("u", "s") == {"n": 1}
    base.run_shell_command("rm -r many")
    assert await states.save_state("u", {"n": 2}, "s") == 2
    await service.stop()


HOSTILE = """
import os
os.makedirs(".versioned-state", exist_ok=True)
for name in ("lock", "index", "position"):
    os.mkfifo(f".versioned-state/{name}")
os.mkfifo("pipe"); os.symlink("/etc/passwd", "link"); open(b"\\xff", "w").close()
os.makedirs(".git"); open(".git/config", "w").close()
open(".gitignore", "w").write("*")
open("kept", "w").write("kept")
"""


async def test_whatever_code_leaves_in_the_folder_a_save_ends_and_takes_no_file_outside(
    service: SandboxService, states: InMemoryStateService
):
    (base,) = service.connect("s", "u")
    assert base.run_ipython_cell(HOSTILE) == "4"
    assert await states.save_state("u", {"n": 1}, "s") == 1
    found = files_in(states, "u", "s")
    assert sorted(found) == [".gitignore", "kept", os.fsdecode(b"\xff")]
    assert not any(b"root:" in data for data in found.values())
    service.release("s", "u")
    (base,) = service.connect("s", "u")
    assert "'kept'" in base.run_ipython_cell("import os; os.listdir()")
    assert base.run_ipython_cell("os.readlink('link')") == "'/etc/passwd'"


async def test_folders_within_folders_beyond_the_limit_are_a_typed_error_and_the_rest_goes_on(
    service: SandboxService, states: InMemoryStateService
):
    (base,) = service.connect("s", "u")
    base.run_ipython_cell("import os\nos.makedirs('/'.join('d' * 400))")
    with pytest.raises(ValueError, match="folders within folders"):
        await states.save_state("u", {"n": 1}, "s")
    base.run_shell_command("rm -r d")
    assert await states.save_state("u", {"n": 1}, "s") == 1


# Side by side


async def test_writes_while_the_session_is_saved_are_whole(service: SandboxService, states: InMemoryStateService):
    """A save takes new files of a filesystem sandbox, which it must not take for those of a killed process."""
    files = await saved(service, {"a": "0"})
    errors: list[BaseException] = []
    done = False

    def write() -> None:
        number = 0
        try:
            while not done:
                number += 1
                files.write_file("a", str(number) * 1000)
        except BaseException as error:  # noqa: BLE001 - looked at below
            errors.append(error)

    thread = Thread(target=write)
    thread.start()
    try:
        for number in range(40):
            await states.save_state("u", {"number": number}, "s")
            found = files_in(states, "u", "s")["a"].decode()
            assert found == "0" or found == found[: len(found) // 1000] * 1000
    finally:
        done = True
        thread.join()
    assert errors == []


async def test_a_release_during_saves_never_saves_half_a_folder(service: SandboxService, states: InMemoryStateService):
    names = {f"f{number}": b"x" for number in range(30)}
    for attempt in range(8):
        files = files_of_a_session(service)
        for name in names:
            files.write_file(name, "x")
        saving = asyncio.create_task(states.save_state("u", {"attempt": attempt}, "s"))
        await asyncio.sleep(0.001 * attempt)
        service.release("s", "u")
        await saving
        assert files_in(states, "u", "s") == names if attempt else True
        if not attempt:
            files = files_of_a_session(service)
            for name in names:
                files.write_file(name, "x")
            await states.save_state("u", {"attempt": attempt}, "s")
            service.release("s", "u")


async def test_a_fork_saves_without_the_sandboxes_of_its_parent(tmp_path: Path):
    states = StateService.over(str(tmp_path / "store"))
    await states.start()
    service = SandboxService(states)
    (files,) = service.connect("s", "u", ["filesystem"])
    files.write_file("a", "of the parent")

    def child() -> None:
        async def save() -> None:
            own = StateService.over(str(tmp_path / "store"))
            own.session_hooks = states.session_hooks
            async with own:
                await own.save_state("u", {"n": 1}, "s")
                assert FILES_KEY not in own.repository.snapshot(own.branch("u", "s"))

        asyncio.run(save())

    join(await asyncio.to_thread(fork, child))
    assert await states.save_state("u", {"n": 2}, "s") == 2
    assert files_in(states, "u", "s") == {"a": b"of the parent"}
    await service.stop()
    await states.stop()


async def test_a_restore_that_is_cancelled_is_done_or_not(service: SandboxService):
    files = await saved(
        service, {f"f{number}": "1" for number in range(50)}, {f"f{number}": "2" for number in range(50)}
    )
    for pauses in range(6):
        await service.restore("s", "u", 2)
        restoring = asyncio.create_task(service.restore("s", "u", 1))
        for _ in range(pauses):
            await asyncio.sleep(0)
        restoring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await restoring
        assert len(set(texts(files).values())) == 1


# Beginning and end


async def test_a_state_service_that_is_not_started_is_said(tmp_path: Path):
    states = StateService.over(str(tmp_path / "store"))
    service = SandboxService(states)
    with pytest.raises(ServiceNotStartedError):
        service.connect("s", "u")
    with pytest.raises(ServiceNotStartedError):
        await service.restore("s", "u")
    async with states:
        (files,) = service.connect("s", "u", ["filesystem"])
        await service.stop()
        with pytest.raises(ServiceNotStartedError):
            await service.restore("s", "u")
        assert not files.folder.exists()
    for wrong in (object(), Memory(), "memory:"):
        with pytest.raises(InvalidArgumentError, match="state_service must be a VersionedStateService"):
            SandboxService(wrong)  # type: ignore[arg-type]


async def test_files_that_no_save_could_take_are_not_written(service: SandboxService, states: InMemoryStateService):
    files = await saved(service, {"a": "1"})
    for call in (lambda path: files.write_file(f"{path}/f", "x"), files.create_directory):
        with pytest.raises(LimitExceededError, match="folders within folders"):
            call("d/" * 256 + "d")
        call("d/" * 255 + "d")
    assert await states.save_state("u", {}, "s") == 2
    assert len(files_in(states, "u", "s")) == 2


class Failing(Wrapper):
    """A store whose reads fail while ``broken``."""

    broken = False

    def get_many(self, keys: Any) -> dict[str, bytes]:
        if self.broken:
            raise OSError("the store is away")
        return super().get_many(keys)

    def get(self, key: str) -> bytes | None:
        if self.broken:
            raise OSError("the store is away")
        return super().get(key)


async def test_a_connect_while_the_store_is_away_leaves_nothing():
    store = Failing(Memory())
    states = StateService.over(store)
    await states.start()
    service = SandboxService(states)
    await states.save_state("u", {"n": 1}, "s")
    store.broken = True
    with pytest.raises(OSError, match="away"):
        service.connect("s", "u", ["filesystem"])
    store.broken = False
    assert service.release("s", "u") is False
    assert service.connect("s", "u", ["filesystem"])[0].list_directory() == []
    await service.stop()
