"""The interpreter of cells: a program of its own, started by the supervisor, that imports nothing of the library.

It reads a cell from its control socket, runs it, and answers with the mark that came with the cell, behind a byte that
says whether the cell raised. A cell that writes to the descriptor of that socket does not have the mark, so nothing
that it writes ends its call. What the cell shows goes to the standard output.
"""

import ast
import asyncio
import builtins
import inspect
import itertools
import linecache
import os
import signal
import socket
import sys
import traceback
from types import CodeType, FrameType, ModuleType
from typing import Any

_MARK = 16  # bytes of the mark, as in calls.py
_ENCODING = ("utf-8", "surrogatepass")


class Interpreter:
    """Runs cells. The names that they define persist."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._module = ModuleType("__main__")
        sys.modules["__main__"] = self._module
        self._names: dict[str, Any] = self._module.__dict__
        self._names["__builtins__"] = builtins
        self._count = 0
        self._running = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def serve(self) -> None:
        """Run cells until the control socket is closed."""
        signal.signal(signal.SIGINT, self._interrupted)
        process = os.getpid()
        while True:
            mark, length = self._read(_MARK), int.from_bytes(self._read(8), "big")
            source = self._read(length).decode(*_ENCODING)
            raised = True
            try:
                self._running = True
                raised = self._run(source)
            except KeyboardInterrupt:
                traceback.print_exc()
            finally:
                self._running = False
            self._flush()
            if os.getpid() != process:  # a child that the cell forked has come to the end of the cell
                os._exit(0)
            self._control.sendall(bytes((raised,)) + mark)

    def _read(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            part = self._control.recv(length - len(data))
            if not part:
                os._exit(0)
            data += part
        return bytes(data)

    def _interrupted(self, signum: int, frame: FrameType | None) -> None:
        if self._running:  # an interrupt for a cell that has just ended is dropped
            raise KeyboardInterrupt

    def _run(self, source: str) -> bool:
        """Run a cell. Returns whether it raised."""
        self._count += 1
        name = f"<cell {self._count}>"
        linecache.cache[name] = (len(source), None, [line + "\n" for line in source.splitlines()], name)
        try:
            tree = ast.parse(source, name)
            last = tree.body[-1] if tree.body else None
            if isinstance(last, ast.Expr):
                tree.body.pop()
            self._execute(compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
            if not isinstance(last, ast.Expr):
                return False
            value = self._execute(compile(ast.Expression(last.value), name, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
            if value is not None:
                self._names["_"] = value
                if not source.rstrip().endswith(";"):
                    self._show(value)
        except BaseException as error:  # noqa: BLE001 - a cell may raise anything
            self._report(error)
            return True
        return False

    def _execute(self, code: CodeType) -> Any:
        result = eval(code, self._names)  # noqa: S307 - it is what a cell is for
        if code.co_flags & inspect.CO_COROUTINE:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                asyncio.set_event_loop(self._loop)
            return self._loop.run_until_complete(result)
        return result

    def _show(self, value: Any) -> None:
        text = repr(value)
        self._flush()
        _write(text)

    def _report(self, error: BaseException) -> None:
        """Show a traceback from the cell on, without the frames of this module."""
        shown = traceback.TracebackException.from_exception(error)
        frames = list(itertools.dropwhile(lambda frame: not frame.filename.startswith("<cell "), shown.stack))
        shown.stack = traceback.StackSummary.from_list([frame for frame in frames if frame.filename != __file__])
        self._flush()
        _write("".join(shown.format()))

    def _flush(self) -> None:
        for stream in {id(each): each for each in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)}.values():
            try:
                if stream is not None:
                    stream.flush()
            except (OSError, ValueError, AttributeError):  # a cell has closed or replaced it
                continue


def _write(text: str) -> None:
    data = memoryview(text.encode("utf-8", "backslashreplace"))
    while data:
        data = data[os.write(1, data) :]


def main() -> None:
    """Serve on the socket whose descriptor is the argument."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    sys.argv = [""]
    sys.path.insert(0, "")  # modules in the folder can be imported
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    Interpreter(control).serve()


if __name__ == "__main__":
    main()
