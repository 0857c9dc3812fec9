"""The limits of a base sandbox hold, with and without namespaces and Landlock, and nothing is left after its end."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import ROOT
from tests.support.sandboxes import LEAVE_BEHIND, mark, marked, open_files
from tests.support.waiting import eventually
from versioned_state.sandbox import BaseSandbox, Isolation
from versioned_state.sandbox.local import usage

MIB = 1 << 20

WAYS = [
    pytest.param({}, id="all that there is"),
    pytest.param({"_namespaces": False}, id="no namespaces", marks=pytest.mark.long),
    pytest.param({"_namespaces": False, "_landlock": False}, id="limits alone"),
]


@pytest.fixture(params=WAYS)
def make(request: pytest.FixtureRequest) -> Callable[..., BaseSandbox]:
    return lambda **options: BaseSandbox(**{**request.param, **options})


# Time


@contextmanager
def hasty(sandbox: BaseSandbox, seconds: float) -> Iterator[None]:
    """Limit the time of what runs within the block.

    The start of an interpreter is not limited: a busy machine may take longer for it.
    """
    sandbox._timeout, before = seconds, sandbox._timeout
    yield
    sandbox._timeout = before


TRIES = (0.4, 3, 15)
"""Limits in seconds, to try in turn: a busy machine may not begin within the first, or answer an interrupt too late."""


def test_a_cell_that_takes_too_long_is_interrupted_and_its_names_stay(make: Callable[..., BaseSandbox]):
    with make() as sandbox:
        for seconds in TRIES:
            sandbox.run_ipython_cell("x = 1")
            with hasty(sandbox, seconds):
                shown = sandbox.run_ipython_cell("print('so far')\nwhile True: pass")
            if "so far" in shown and "names are lost" not in shown:
                break
        assert shown.startswith("so far\n")
        assert shown.endswith(f"KeyboardInterrupt\n[stopped: the limit of time of {seconds} s]")
        assert sandbox.run_ipython_cell("x") == "1"


def test_one_that_does_not_let_itself_be_interrupted_is_killed():
    known = mark()
    with BaseSandbox() as sandbox:
        sandbox.run_ipython_cell(f"import signal, subprocess, time\nx = subprocess.Popen(['sleep', '{known}'])")
        sandbox.run_ipython_cell("signal.signal(signal.SIGINT, lambda *_: None)")
        with hasty(sandbox, 0.2):
            shown = sandbox.run_ipython_cell("while True: time.sleep(1000)")
        assert shown == "[stopped: the limit of time of 0.2 s]\n[the interpreter was ended; its names are lost]"
        assert "NameError" in sandbox.run_ipython_cell("x")
        assert marked(known) == []


def test_an_interrupt_of_its_own_ends_a_command():
    with BaseSandbox() as sandbox:
        assert sandbox.run_shell_command("kill -2 $$; echo alive") == "[ended by SIGINT]"


def test_a_command_that_takes_too_long_is_killed_with_its_children():
    known = mark()
    with BaseSandbox() as sandbox:
        sandbox.run_ipython_cell("x = 1")
        for seconds in TRIES:
            with hasty(sandbox, seconds):
                shown = sandbox.run_shell_command(f"trap '' INT TERM; echo began; sleep {known}; sleep {known}")
            if "began" in shown:
                break
        assert shown == f"began\n[stopped: the limit of time of {seconds} s]"
        assert eventually(lambda: marked(known) == [])
        assert sandbox.run_ipython_cell("x") == "1"


# Memory, files, output, processes


def test_memory(make: Callable[..., BaseSandbox]):
    with make(max_memory=256 * MIB) as sandbox:
        assert sandbox.run_ipython_cell("x = bytearray(32 << 20); len(x)") == str(32 * MIB)
        assert sandbox.run_ipython_cell("y = bytearray(512 << 20)").endswith("MemoryError\n")
        assert sandbox.run_ipython_cell("len(x)") == str(32 * MIB)
        assert "exit status" in sandbox.run_shell_command(f"{sys.executable} -c 'bytearray(512 << 20)'")


def test_the_size_of_a_file(make: Callable[..., BaseSandbox]):
    with make(max_file_bytes=MIB) as sandbox:
        assert "File too large" in sandbox.run_ipython_cell(
            "with open('big', 'wb', 0) as f:\n    while True: f.write(bytes(4096))"
        )
        assert (sandbox.folder / "big").stat().st_size == MIB
        assert "SIGXFSZ" in sandbox.run_shell_command("exec head -c 2000000 /dev/zero > bigger")
        assert (sandbox.folder / "bigger").stat().st_size == MIB


def test_output_beyond_its_limit_loses_its_middle():
    with BaseSandbox(max_output=1000) as sandbox:
        shown = sandbox.run_ipython_cell("print('begin'); print('x' * 1_000_000); print('end')")
        assert shown.startswith("begin\nxxx")
        assert shown.endswith("xxx\nend\n")
        assert "[... 999011 bytes left out ...]" in shown
        assert len(shown) < 1100
        assert (
            sandbox.run_ipython_cell("'y' * 1000")
            == repr("y" * 1000)[:500] + "\n[... 2 bytes left out ...]\n" + repr("y" * 1000)[-500:]
        )


def test_output_without_an_end_does_not_outlast_the_limit_of_time(make: Callable[..., BaseSandbox]):
    with make(max_output=1000) as sandbox:
        with hasty(sandbox, 0.4):
            assert "[stopped: the limit of time" in sandbox.run_shell_command("yes & yes")
        assert sandbox.run_ipython_cell("1").endswith("1")


FORKS = {
    "a bomb": "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
    "children that stay": "import subprocess\n"
    "all = [subprocess.Popen(['sleep', '{mark}'], start_new_session=True) for _ in range(40)]\n"
    "import time; time.sleep(1000)",
}


@pytest.mark.parametrize("code", FORKS.values(), ids=FORKS)
def test_processes(make: Callable[..., BaseSandbox], code: str):
    known = mark()
    with make(max_processes=20) as sandbox:
        shown = sandbox.run_ipython_cell(code.replace("{mark}", known))
        assert "[stopped: the limit of 20 processes; all processes of the sandbox were ended]" in shown
        assert marked(known) == []
        assert sandbox.run_ipython_cell("1 + 1") == "2"
        assert sandbox.run_shell_command("echo ok") == "ok\n"


def test_processes_in_the_background_are_counted_too():
    known = mark()
    with BaseSandbox(max_processes=10) as sandbox:
        sandbox.run_shell_command(f"for i in 1 2 3 4 5 6 7 8; do sleep {known} & done")
        # one that is about to become a sleep has no command line for an instant
        assert eventually(lambda: len(marked(known)) == 8)
        assert "limit of 10 processes" in sandbox.run_shell_command(
            f"for i in 1 2 3 4; do sleep {known} & done; sleep 1000"
        )
        assert marked(known) == []


# All processes together


def test_memory_of_all_processes_together(make: Callable[..., BaseSandbox]):
    known = mark()
    hold = (
        "import os, sys, time\nx = bytearray(os.urandom(1 << 20) * 40)\n"
        f"print(len(x), flush=True)\ntime.sleep(1000) # {known}"
    )
    with make(max_total_memory=150 * MIB, timeout=20) as sandbox:
        (sandbox.folder / "hold.py").write_text(hold)
        assert sandbox.run_ipython_cell("x = bytearray(64 << 20); 'fits'") == "'fits'"
        shown = sandbox.run_shell_command(f"for i in 1 2 3 4; do {sys.executable} hold.py {known} & done; wait")
        assert f"[stopped: the limit of {150 * MIB} bytes of memory; all processes of the sandbox were ended]" in shown
        assert marked(known) == []
        assert sandbox.run_ipython_cell("1 + 1").startswith("2\n[the interpreter ended by SIGKILL")


def test_memory_that_forks_share_counts_once():
    share = """
        import os, time
        x = bytearray(os.urandom(1 << 20) * 64)
        for _ in range(5):
            if not os.fork():
                time.sleep(0.5)
                os._exit(0)
        for _ in range(5):
            os.wait()
        'shared'
    """
    with BaseSandbox(max_total_memory=200 * MIB) as sandbox:
        assert sandbox.run_ipython_cell(textwrap.dedent(share)) == "'shared'"


def test_the_size_of_all_files():
    write = "import time\nfor n in range({}):\n    open(f'{{n}}', 'wb').write(bytes(1 << 20))\ntime.sleep({})"
    with BaseSandbox(max_folder_bytes=8 * MIB, timeout=20) as sandbox:
        assert sandbox.run_ipython_cell(write.format(4, 0)) == ""
        shown = sandbox.run_ipython_cell(write.format(12, 1000))
        assert f"[stopped: the limit of {8 * MIB} bytes of files; all processes of the sandbox were ended]" in shown
        # What there is can be read and removed, and nothing can be added.
        assert sandbox.run_ipython_cell("import time; time.sleep(0.3); 'as it is'") == "'as it is'"
        assert "bytes of files" in sandbox.run_shell_command("head -c 1000000 /dev/zero > more; sleep 1000")
        assert sandbox.run_shell_command("rm *; sleep 0.3; echo left: *").startswith("left: *\n")
        assert sandbox.run_ipython_cell(write.format(4, 0.3)) == ""


@pytest.mark.parametrize(
    ("take", "of"),
    [
        ("x = mmap.mmap(-1, 200 << 20)\nfor at in range(0, 200 << 20, 4096): x[at] = 1", "memory"),
        ("for n in range(4): f = os.memfd_create('x'); x.append(f); os.write(f, bytes(50 << 20))", "memory"),
        (
            "for n in range(4): f = open('x', 'wb', buffering=0); os.unlink('x'); x.append(f); f.write(bytes(3 << 20))",
            "files",
        ),
    ],
    ids=["shared memory", "files in memory", "deleted files"],
)
def test_what_has_no_name_counts(take: str, of: str):
    with BaseSandbox(max_total_memory=150 * MIB, max_folder_bytes=8 * MIB, timeout=20) as sandbox:
        shown = sandbox.run_ipython_cell(f"import mmap, os, time\nx = []\n{take}\ntime.sleep(1000)")
        assert f"bytes of {of}; all processes of the sandbox were ended]" in shown


def test_files_that_were_there_are_no_reason_to_end(tmp_path: Path):
    (tmp_path / "large").write_bytes(bytes(4 * MIB))
    with BaseSandbox(tmp_path, max_folder_bytes=MIB, timeout=20) as sandbox:
        assert sandbox.run_ipython_cell("import time; time.sleep(0.3); 'fine'") == "'fine'"
        assert "bytes of files" in sandbox.run_shell_command("head -c 2000000 /dev/zero > more; sleep 1000")


def test_many_files_that_were_there_hide_none_that_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """They are counted before the first command, which would have written its own by the time their count ends."""
    monkeypatch.setattr(usage, "_PAUSE_S", 0)
    monkeypatch.setattr(usage, "_SHARE", 0)
    for number in range(20):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}/file").write_bytes(bytes(100))
    files = usage.Files([str(tmp_path)], 2 * MIB)
    files.begin()
    (tmp_path / "more").write_bytes(bytes(3 * MIB))
    files.begin()
    assert any(files.are_over() for _ in range(50))


# What is handed in


def test_the_environment_of_the_program_is_not_handed_in(
    make: Callable[..., BaseSandbox], monkeypatch: pytest.MonkeyPatch
):
    secret = mark()
    monkeypatch.setenv("SECRET_KEY", secret)
    with make() as sandbox:
        assert secret not in sandbox.run_shell_command("env; cat /proc/self/environ /proc/$PPID/environ")
        assert "SECRET_KEY" not in sandbox.run_ipython_cell("import os; dict(os.environ)")


def test_open_files_are_not_handed_in(tmp_path: Path):
    with (tmp_path / "secret").open("w+") as file:
        os.set_inheritable(file.fileno(), True)
        with BaseSandbox() as sandbox:
            found = sandbox.run_shell_command("ls -l /proc/self/fd")
    assert "secret" not in found
    assert "socket" not in found


# Isolation. What the system does not offer is not claimed.


def test_isolation_is_what_it_says(make: Callable[..., BaseSandbox], tmp_path: Path):
    outside = tmp_path / "outside.txt"
    outside.write_text("secret")
    with make() as sandbox:
        isolation = sandbox.isolation
        assert sandbox.network is not isolation.network
        interfaces = sandbox.run_ipython_cell("import socket; sorted(name for _, name in socket.if_nameindex())")
        assert (interfaces == "['lo']") or not isolation.network
        lookup = sandbox.run_ipython_cell("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))")
        assert "Network is unreachable" in lookup or not isolation.network
        if isolation.files:
            for code in [
                f"open({str(outside)!r}).read()",
                f"open({str(outside)!r}, 'w')",
                f"import os; os.unlink({str(outside)!r})",
                f"os.symlink({str(outside)!r}, 'link'); open('link').read()",
                f"os.link({str(outside)!r}, 'hard')",
                f"os.rename({str(outside)!r}, 'moved')",
                f"os.listdir({str(tmp_path)!r})",
                f"open({str(tmp_path)!r} + '/new', 'w')",
            ]:
                assert (
                    "Permission denied" in (shown := sandbox.run_ipython_cell(code))
                    or "Invalid cross-device link" in shown
                ), code
            assert sandbox.run_ipython_cell("import tempfile; tempfile.TemporaryFile().write(b'x')") == "1"
        if isolation.processes:
            assert sandbox.run_ipython_cell("import os; len([n for n in os.listdir('/proc') if n.isdigit()])") == "2"
            assert "No such process" in sandbox.run_ipython_cell(f"os.kill({os.getpid()}, 0)") or os.getpid() < 10
            assert (
                sandbox.run_ipython_cell("kept = [os.kill(1, each) for each in (2, 9, 15, 17)]") == ""
            )  # the first process of a namespace
            assert sandbox.run_ipython_cell("len(kept)") == "4"  # gets no signal from within that ends it
        assert sandbox.run_ipython_cell("1") == "1"
    assert outside.read_text() == "secret"
    assert [each.name for each in tmp_path.iterdir()] == ["outside.txt"]


def test_loopback_works_within_the_sandbox():
    with BaseSandbox() as sandbox:
        sandbox.run_ipython_cell(
            "import socket\ns = socket.create_server(('127.0.0.1', 0))\nc = socket.create_connection(s.getsockname())"
        )
        sandbox.run_ipython_cell("s.accept()[0].send(b'hi')")
        assert sandbox.run_ipython_cell("c.recv(2)") == "b'hi'"


def test_the_network_is_there_if_it_is_asked_for():
    with BaseSandbox(network=True) as sandbox:
        assert sandbox.network
        assert not sandbox.isolation.network


def test_without_what_the_kernel_offers_nothing_is_claimed():
    with BaseSandbox(_namespaces=False, _landlock=False) as sandbox:
        assert sandbox.isolation == Isolation()
        assert sandbox.run_ipython_cell("1") == "1"


def test_processes_have_no_privileges(make: Callable[..., BaseSandbox]):
    with make() as sandbox:
        status = sandbox.run_shell_command("cat /proc/self/status")
        assert "CapEff:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status
        if sandbox.isolation.processes:
            assert "exit status" in sandbox.run_shell_command("unshare --user true")


# The end


def test_nothing_is_left_after_the_end(make: Callable[..., BaseSandbox]):
    known = mark()
    gc.collect()
    files = open_files()
    sandbox = make()
    assert sandbox.run_ipython_cell(LEAVE_BEHIND.format(mark=known)) == "'left'"
    assert eventually(lambda: len(marked(known)) >= 6)
    assert sandbox._process is not None
    homes = [sandbox.folder, sandbox._process.home.path]
    assert all(home.is_dir() for home in homes)
    supervisor = sandbox._process._supervisor.pid
    sandbox.close()
    assert marked(known) == []
    assert not Path(f"/proc/{supervisor}").exists()
    assert not any(home.exists() for home in homes)
    assert open_files() <= files  # those of earlier tests may be closed meanwhile


def test_nothing_is_left_after_a_sandbox_that_was_forgotten():
    known = mark()
    sandbox = BaseSandbox()
    folder = sandbox.folder
    sandbox.run_ipython_cell(LEAVE_BEHIND.format(mark=known))
    del sandbox
    gc.collect()
    assert marked(known) == []
    assert not folder.exists()


PROGRAM = """
import os, sys, time
from versioned_state.sandbox import BaseSandbox
sandbox = BaseSandbox(**{options})
sandbox.run_ipython_cell({code!r})
print(sandbox.folder, flush=True)
{end}
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program that is not in a command line: that would have the marks too."""
    return subprocess.run([sys.executable], input=program, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize(
    "end", ["pass", "raise SystemExit(1)", "os.kill(os.getpid(), 9)"], ids=["end", "error", "kill -9"]
)
def test_no_process_outlives_the_program(options: dict[str, bool], end: str):
    known = mark()
    program = PROGRAM.format(options=options, code=LEAVE_BEHIND.format(mark=known), end=end)
    done = run(program)
    assert done.stderr == ""
    assert eventually(lambda: marked(known) == [])
    folder = Path(done.stdout.strip()).parent
    assert folder.name.startswith("versioned-state-sandbox-")
    assert eventually(lambda: not folder.exists())


def test_an_abandoned_fork_does_not_keep_the_processes_alive():
    """A child that was forked from the program has its sockets, and lives on."""
    known = mark()
    end = (
        "if os.fork() == 0:\n    os.close(0); os.close(1); os.close(2); time.sleep(5); os._exit(0)\n"
        "os.kill(os.getpid(), 9)"
    )
    program = PROGRAM.format(options={}, code=LEAVE_BEHIND.format(mark=known), end=end)
    run(program)
    assert eventually(lambda: marked(known) == [])


def test_a_folder_is_removed_whatever_is_in_it():
    hostile = """
        import os
        os.makedirs("locked/inner"); open("locked/inner/file", "w").close()
        os.chmod("locked/inner", 0); os.chmod("locked", 0)
        os.symlink("/", "link"); os.mkfifo("pipe"); open(b"\\xff name", "w").close()
        here = os.open(".", os.O_RDONLY)
        for _ in range(500):
            os.mkdir("d" * 200, dir_fd=here)
            below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        _
    """
    sandbox = BaseSandbox()
    assert sandbox.run_ipython_cell(textwrap.dedent(hostile)) == "499"
    folder = sandbox.folder
    sandbox.close()
    assert not folder.parent.exists()
