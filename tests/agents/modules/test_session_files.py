"""Session files under processes that are killed, disks that are full, and other processes."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
from functools import partial
from pathlib import Path

import pytest

from tests.support.processes import fork, join, run
from versioned_state.agents.modules.files import replace_file


def content(path: Path) -> list[int]:
    found: list[int] = json.loads(path.read_text("utf-8"))["memory"]["content"]
    return found


def is_whole(path: Path) -> bool:
    found = content(path)
    return len(found) == 20_000 and len(set(found)) == 1


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_saves_that_are_killed_again_and_again(tmp_path, long_run):
    """Forked, so that each costs a few milliseconds: the process dies at another moment of a save each time."""
    path = tmp_path / "one.json"
    replace_file(path, data_of(0))
    for turn in range(200 if long_run else 40):
        pid = fork(partial(save_for_ever, path, turn))
        os.kill(pid, signal.SIGSTOP)  # until it has begun
        os.kill(pid, signal.SIGCONT)
        spin(turn % 40 * 100)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert is_whole(path)
        assert set(names(tmp_path)) <= {"one.json", ".one.json.0.tmp"}, "temporary files do not pile up"
    replace_file(path, data_of(1))
    assert names(tmp_path) == ["one.json"], "the next save takes the temporary file"


def data_of(number: int) -> bytes:
    return json.dumps({"memory": {"content": [number] * 20_000}}).encode()


def save_for_ever(path: Path, number: int) -> None:
    data = data_of(number)
    while True:
        replace_file(path, data)


def spin(steps: int) -> None:
    for _ in range(steps):
        os.getpid()


def test_processes_that_save_one_session_at_once(tmp_path):
    path = tmp_path / "one.json"

    def save(number: int) -> None:
        for _ in range(30):
            replace_file(path, data_of(number))
            assert is_whole(path)

    join(*[fork(partial(save, number)) for number in range(4)])
    assert is_whole(path)
    assert names(tmp_path) == ["one.json"]


def test_a_full_disk_leaves_the_file(tmp_path):
    path = tmp_path / "one.json"
    replace_file(path, data_of(1))

    def save() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # else the kernel ends the process; a full disk does not
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        with pytest.raises(OSError, match="large"):
            replace_file(path, data_of(2))

    join(fork(save))
    assert content(path)[0] == 1
    assert names(tmp_path) == ["one.json"]


def test_a_save_through_the_session_on_a_full_disk(tmp_path):
    program = """
        import asyncio, resource, signal, sys
        from versioned_state.agents.modules import JSONSession, StateModule
        from versioned_state.errors import SessionFileError

        class Memory(StateModule):
            def __init__(self, content):
                super().__init__()
                self.content = content
                self.register_state("content")

        async def main(folder):
            session = JSONSession(save_dir=folder)
            await session.save_session_state("one", memory=Memory([1]))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
            results = await asyncio.gather(
                *(session.save_session_state("one", memory=Memory([2] * 20_000)) for _ in range(3)),
                session.save_session_state("one", memory=Memory([3])),
                session.save_session_state("two", memory=Memory([2] * 20_000)),
                return_exceptions=True,
            )
            memory = Memory([])
            await session.load_session_state("one", memory=memory)
            print([type(result).__name__ for result in results], memory.content)

        asyncio.run(main(sys.argv[1]))
    """
    out = run(program, tmp_path).stdout
    assert out.splitlines()[-1] == "['SessionFileError', 'NoneType', 'NoneType', 'NoneType', 'SessionFileError'] [3]"
    assert names(tmp_path) == ["one.json"]


def test_a_temporary_file_of_a_process_that_is_alive_is_left_alone(tmp_path):
    path = tmp_path / "one.json"
    temporary = tmp_path / ".one.json.0.tmp"
    ready, go = os.pipe(), os.pipe()

    def hold() -> None:
        import fcntl

        with temporary.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write("half of a state")
            file.flush()
            os.write(ready[1], b".")
            os.read(go[0], 1)
            assert temporary.read_text() == "half of a state"

    pid = fork(hold)
    os.read(ready[0], 1)
    replace_file(path, data_of(1))
    assert names(tmp_path) == [".one.json.0.tmp", "one.json"]
    os.write(go[1], b".")
    join(pid)
    replace_file(path, data_of(2))
    assert names(tmp_path) == ["one.json"]
    assert content(path)[0] == 2


def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / ".one.json.0.tmp").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        replace_file(tmp_path / "one.json", b"{}")
    assert victim.read_text() == "kept"


def test_the_rights_of_a_file_stay(tmp_path):
    path = tmp_path / "one.json"
    replace_file(path, b"1")
    path.chmod(0o600)
    replace_file(path, b"2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_fork_does_not_wait_for_the_saves_of_its_parent(tmp_path):
    program = """
        import asyncio, os, sys
        from versioned_state.agents.modules import JSONSession, StateModule

        async def main(folder):
            session = JSONSession("one", folder)
            saves = [asyncio.ensure_future(session.save_session_state(module=StateModule())) for _ in range(5)]
            await asyncio.sleep(0)  # under way, and waiting
            pid = os.fork()
            if pid == 0:
                os._exit(await_in_child(session))
            assert os.waitpid(pid, 0)[1] == 0
            await asyncio.gather(*saves)

        def await_in_child(session):
            import threading
            done = []
            save = session.save_session_state(module=StateModule())
            thread = threading.Thread(target=lambda: done.append(asyncio.run(save)), daemon=True)
            thread.start()
            thread.join(20)
            return 0 if done else 1

        asyncio.run(main(sys.argv[1]))
    """
    run(program, tmp_path)
    assert names(tmp_path) == ["one.json"]
