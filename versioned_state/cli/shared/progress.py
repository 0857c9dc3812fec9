"""A progress bar for work with several stages, on stderr if that is a terminal. Layer: cli."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from versioned_state.cli.render.output import Output, Span, crop, is_utf8, join

_WIDTH: Final = 40
_PAUSE_S: Final = 0.1  # between two updates: a terminal takes longer for one than most steps take


@contextmanager
def progress_bar(output: Output) -> Iterator[Callable[..., None] | None]:
    """Yield a function of stage, work done, total, and a text instead of both, or None if stderr is not a terminal.

    The bar is erased at the end.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM", "") in ("", "dumb"):
        yield None
        return
    bar = _Bar(color=output.has_color_on(sys.stderr))
    try:
        yield bar.show
    finally:
        bar.erase()


class _Bar:
    def __init__(self, *, color: bool) -> None:
        self._color = color
        self._line = ""
        self._next = 0.0

    def show(self, stage: str, done: float, total: float | None, text: str = "") -> None:
        text = text or f"{done:,}" + (f"/{total:,}" if total is not None else "")
        columns = (os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1
        width = max(0, min(_WIDTH, columns - len(stage) - len(text) - 2))
        filled = round(width * min(done / total, 1.0)) if total else 0
        mark = Span(("━" if is_utf8() else "-") * filled, "added")
        self._line = join(crop([stage, " ", mark, " " * (width - filled + 1), text], columns), color=self._color)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _PAUSE_S
            self._write(self._line)

    def erase(self) -> None:
        if self._line:
            self._write(self._line)  # the last update, if nobody has seen it yet
            self._write("")

    def _write(self, line: str) -> None:
        sys.stderr.write(f"\r\x1b[2K{line}")
        sys.stderr.flush()
