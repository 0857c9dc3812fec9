"""Cells and commands of a base sandbox: what they show, which names persist, and what happens after a crash."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread, get_ident

import pytest

from tests.support.processes import fork, join
from tests.support.waiting import eventually
from versioned_state.errors import HandleClosedError, InvalidArgumentError, LimitExceededError, SandboxError
from versioned_state.sandbox import BaseSandbox


@pytest.fixture(scope="module")
def shared() -> Iterator[BaseSandbox]:
    with BaseSandbox() as sandbox:
        yield sandbox


# What a cell shows


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("1 + 1", "2"),
        ("'text'", "'text'"),
        ("None", ""),
        ("x = 3", ""),
        ("5;", ""),
        ("", ""),
        ("# nothing", ""),
        ("print('hi')", "hi\n"),
        ("print('hi'); 7", "hi\n7"),
        ("for i in range(2):\n    i", ""),
        ("import sys; print('bad', file=sys.stderr)", "bad\n"),
        ("import os; os.system('echo from a child') and None", "from a child\n0"),
        ("print('ä€😀')", "ä€😀\n"),
        ("print('\\ud800')", "\\ud800\n"),
        ("import asyncio\nawait asyncio.sleep(0, 'awaited')", "'awaited'"),
        ("__name__", "'__main__'"),
    ],
)
def test_what_a_cell_shows(shared: BaseSandbox, code: str, shown: str):
    assert shared.run_ipython_cell(code) == shown


def test_names_persist_and_the_last_value_has_a_name(shared: BaseSandbox):
    shared.run_ipython_cell("import math\ndef double(n):\n    return 2 * n")
    assert shared.run_ipython_cell("double(math.floor(21.5))") == "42"
    assert shared.run_ipython_cell("_ + 1") == "43"


def test_a_traceback_is_text_and_shows_the_lines_of_cells_alone(shared: BaseSandbox):
    shared.run_ipython_cell("def divide(a, b):\n    return a / b\n")
    shown = shared.run_ipython_cell("kept = 1\ndivide(kept, 0)")
    assert shown.startswith("Traceback")
    assert "return a / b" in shown
    assert shown.endswith("ZeroDivisionError: division by zero\n")
    assert "worker.py" not in shown
    assert shared.run_ipython_cell("kept") == "1"


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("input()", "EOFError"),
        ("exit()", "SystemExit"),
        ("class Bad:\n    def __repr__(self): raise ValueError('no repr')\nBad()", "ValueError: no repr"),
        ("raise ValueError('\\ud800')", "ValueError"),
        ("x = '\0'", "null bytes"),
        ("'\ud800'", "surrogates"),
    ],
)
def test_what_a_cell_raises_is_text_and_the_interpreter_lives(shared: BaseSandbox, code: str, named: str):
    shared.run_ipython_cell("alive = True")
    assert named in shared.run_ipython_cell(code)
    assert shared.run_ipython_cell("alive") == "True"


def test_a_cell_that_closes_or_replaces_the_output_harms_no_later_one():
    with BaseSandbox() as sandbox:
        sandbox.run_ipython_cell("import sys; sys.stdout.close(); sys.stderr = None")
        assert sandbox.run_ipython_cell("8") == "8"
        assert "NameError" in sandbox.run_ipython_cell("missing")


def test_modules_in_the_folder_are_imported(tmp_path: Path):
    (tmp_path / "helper.py").write_text("value = 9")
    with BaseSandbox(tmp_path) as sandbox:
        assert sandbox.run_ipython_cell("import helper; helper.value") == "9"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["helper.py"]


# Commands


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("echo hi", "hi\n"),
        ("echo bad >&2", "bad\n"),
        ("true", ""),
        ("exit 3", "[exit status 3]"),
        ("printf half; false", "half\n[exit status 1]"),
        ("kill -9 $$", "[ended by SIGKILL]"),
        ("cat", ""),
        ("yes | head -n 2", "y\ny\n"),
        ("", ""),
    ],
)
def test_what_a_command_shows(shared: BaseSandbox, command: str, shown: str):
    assert shared.run_shell_command(command) == shown


def test_commands_and_cells_share_the_folder(shared: BaseSandbox):
    assert shared.run_shell_command("pwd") == f"{shared.folder}\n"
    shared.run_ipython_cell("open('made by a cell', 'w').write('x')")
    assert shared.run_shell_command("ls 'made by a cell'") == "made by a cell\n"
    shared.run_shell_command("cd / && true")
    assert shared.run_ipython_cell("import os; os.getcwd()") == repr(str(shared.folder))


def test_names_outlive_commands(shared: BaseSandbox):
    shared.run_ipython_cell("before = 1")
    shared.run_shell_command("kill -9 $$")
    assert shared.run_ipython_cell("before") == "1"


# Input


@pytest.mark.parametrize("code", [None, 3, b"1"])
def test_code_is_a_string(shared: BaseSandbox, code: object):
    with pytest.raises(InvalidArgumentError, match="must be a string, not"):
        shared.run_ipython_cell(code)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="must be a string, not"):
        shared.run_shell_command(code)  # type: ignore[arg-type]


def test_a_command_that_no_shell_can_be_given_is_refused(shared: BaseSandbox):
    for command in ["echo \0", "echo \ud800"]:
        with pytest.raises(InvalidArgumentError):
            shared.run_shell_command(command)
    with pytest.raises(LimitExceededError):
        shared.run_shell_command("#" * 5_000_000)
    assert "Argument list too long" in shared.run_shell_command("#" * 3_000_000)
    assert shared.run_ipython_cell("#" + "x" * 3_000_000 + "\n1") == "1"


@pytest.mark.parametrize("option", ["timeout", "max_memory", "max_file_bytes", "max_processes", "max_output"])
@pytest.mark.parametrize("value", [0, -1, "1", None, True, float("nan"), float("inf")])
def test_a_limit_is_a_positive_number(option: str, value: object):
    with pytest.raises(InvalidArgumentError, match=option):
        BaseSandbox(**{option: value})  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_used_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    for folder in [str(tmp_path / "file"), str(tmp_path / "file" / "below"), "a\0b"]:
        with pytest.raises(SandboxError):
            BaseSandbox(folder)


def test_tools_are_called_by_name(shared: BaseSandbox):
    assert shared.list_tools() == ["run_ipython_cell", "run_shell_command"]
    assert shared.call_tool("run_ipython_cell", {"code": "3"}) == "3"
    with pytest.raises(InvalidArgumentError, match="no tool 'close'"):
        shared.call_tool("close")
    with pytest.raises(InvalidArgumentError, match="cod"):
        shared.call_tool("run_ipython_cell", {"cod": "3"})


def test_a_child_that_a_cell_forks_ends_with_the_cell(shared: BaseSandbox):
    assert shared.run_ipython_cell(
        "import os\nchild = os.fork()\nif child: os.waitpid(child, 0)\n'parent' if child else 'child'"
    ) == ("'child''parent'")
    assert shared.run_ipython_cell("child > 0") == "True"


# Crashes


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("import os; os._exit(3)", "with exit status 3"),
        ("import ctypes; ctypes.string_at(0)", "by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", "by SIGKILL"),
        ("import os; os.closerange(3, 1000)", "with exit status"),  # the control socket among them
    ],
)
def test_after_a_crash_the_next_cell_runs_in_a_new_interpreter(code: str, how: str):
    with BaseSandbox() as sandbox:
        sandbox.run_ipython_cell("x = 1")
        shown = sandbox.run_ipython_cell(f"print('so far', flush=True)\n{code}\n")
        assert "so far" in shown
        assert "its names are lost" in shown
        assert how in shown or "closerange" in code
        assert "NameError" in sandbox.run_ipython_cell("x")
        assert sandbox.run_ipython_cell("1") == "1"


def test_a_crash_between_cells_is_said_by_the_next_one():
    with BaseSandbox() as sandbox:
        # during the command, not before it
        late = "def late():\n    while not os.path.exists('end'): time.sleep(0.01)\n    os._exit(4)"
        sandbox.run_ipython_cell(f"import os, threading, time\n{late}")
        process = sandbox.run_ipython_cell("threading.Thread(target=late).start()\nos.getpid()")
        assert (
            sandbox.run_shell_command(f"touch end; while kill -0 {process}; do sleep 0.01; done 2>&-; echo gone")
            == "gone\n"
        )
        assert (
            sandbox.run_ipython_cell("2")
            == "2\n[the interpreter ended with exit status 4 after the last cell; its names are lost]"
        )


# Threads, forks, the end


def test_calls_of_several_threads_take_turns(shared: BaseSandbox):
    shared.run_ipython_cell("total = 0")
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: shared.run_ipython_cell("before = total; total = before + 1"), range(40)))
    assert shared.run_ipython_cell("total") == "40"


def test_a_close_ends_a_call_under_way():
    sandbox = BaseSandbox()
    sandbox.run_ipython_cell("1")
    began = Event()
    raised: list[BaseException] = []

    def wait() -> None:
        began.set()
        try:
            sandbox.run_ipython_cell("open('began', 'w').close()\nimport time; time.sleep(1000)")
        except BaseException as error:  # noqa: BLE001 - looked at below
            raised.append(error)

    thread = Thread(target=wait)
    thread.start()
    began.wait()
    while not (sandbox.folder / "began").exists():
        pass
    sandbox.close()
    thread.join(20)
    assert [type(error) for error in raised] == [HandleClosedError]
    assert not sandbox.folder.exists()


def test_a_closed_sandbox_says_so(tmp_path: Path):
    sandbox = BaseSandbox(tmp_path / "files")
    sandbox.close()
    sandbox.close()
    for call in (
        lambda: sandbox.run_ipython_cell("1"),
        lambda: sandbox.run_shell_command("true"),
        lambda: sandbox.isolation,
    ):
        with pytest.raises(HandleClosedError):
            call()
    assert (tmp_path / "files").is_dir()


def test_a_fork_has_processes_of_its_own():
    with BaseSandbox() as sandbox:
        sandbox.run_ipython_cell("x = 'of the parent'")

        def child() -> None:
            assert "NameError" in sandbox.run_ipython_cell("x")
            sandbox.close()

        join(fork(child))
        assert sandbox.run_ipython_cell("x") == "'of the parent'"
        assert sandbox.folder.is_dir()


def test_an_interrupt_stops_the_cell_and_keeps_the_names():
    with BaseSandbox() as sandbox:
        sandbox.run_ipython_cell("x = 1")
        old = signal.signal(signal.SIGALRM, signal.default_int_handler)
        main = get_ident()

        def interrupt() -> None:
            assert eventually((sandbox.folder / "began").exists)
            signal.pthread_kill(main, signal.SIGALRM)

        thread = Thread(target=interrupt)
        thread.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                sandbox.run_ipython_cell("import time\nopen('began', 'w').close()\ntime.sleep(1000)")
        finally:
            thread.join()
            signal.signal(signal.SIGALRM, old)
        assert sandbox.run_ipython_cell("x") == "1"


def test_an_answer_that_nobody_reads_keeps_no_later_call_waiting():
    """The first call is interrupted. Its answer and the next request are longer than the buffers of the socket."""
    with BaseSandbox(max_output=4 << 20) as sandbox:
        sandbox.run_ipython_cell("1")
        process = sandbox._process
        assert process is not None
        process._send({"id": -1, "kind": "cell", "text": "print('x' * 3_000_000)", "timeout": 5})
        assert sandbox.run_ipython_cell("#" * 3_000_000 + "\n2") == "2"
        assert sandbox._process is process


def test_limits_beyond_those_of_the_system():
    with BaseSandbox(timeout=1e12, max_memory=1 << 80, max_file_bytes=1 << 80, max_processes=1 << 40) as sandbox:
        assert sandbox.run_ipython_cell("1") == "1"
    with pytest.raises(LimitExceededError):
        BaseSandbox(max_output=1 << 30)


def test_the_supervisor_killed_from_outside_costs_the_names_alone():
    with BaseSandbox() as sandbox:
        sandbox.run_ipython_cell("x = 1")
        process = sandbox._process
        assert process is not None
        os.kill(process._supervisor.pid, 9)
        # What it started in a namespace ends a moment later, and may answer until then. The socket ends with the last
        # of them.
        process._channel.settimeout(20)
        assert process._channel.recv(1, socket.MSG_PEEK) == b""
        assert "names are lost" in sandbox.run_ipython_cell("x")
        assert "NameError" in sandbox.run_ipython_cell("x")


@pytest.mark.parametrize("said", ["b'.'", "b'x' * 100", "bytes(16)"])
def test_a_cell_that_writes_to_a_descriptor_that_is_not_its_own_ends_no_call(shared: BaseSandbox, said: str):
    for descriptor in shared.run_ipython_cell("import os; ' '.join(os.listdir('/proc/self/fd'))").strip("'").split():
        if int(descriptor) > 2:
            write = f"try: n = os.write({descriptor}, {said})\nexcept OSError: pass"
            cell = f"import os, time\nprint('before')\n{write}\ntime.sleep(0.05)\nprint('after')"
            assert shared.run_ipython_cell(cell) == "before\nafter\n"
            assert shared.run_ipython_cell("'next'") == "'next'"
