"""Printing: data to stdout, notes and errors to stderr, with colours and a pager on a terminal. Layer: cli.

Every text passes through ``escape`` here, so stored data cannot drive the terminal. Only ``Output.write_bytes`` writes
bytes unchanged; ``get --raw`` uses it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TextIO

import click

from versioned_state.cli.render.pager import Pager, find_pager
from versioned_state.records import dataclass
from versioned_state.repository.views.render import escape

ColorMode = Literal["auto", "always", "never"]

Style = Literal[
    "id", "ref", "time", "author", "meta", "path", "added", "removed", "changed", "dim", "title", "error", "hint"
]

# Only the 16 colours of the terminal, which its user chose.
_STYLES: dict[Style, dict[str, Any]] = {
    "id": {"fg": "yellow"},
    "ref": {"fg": "green", "bold": True},
    "time": {"fg": "cyan"},
    "author": {"fg": "magenta"},
    "meta": {"fg": "bright_black"},
    "path": {"bold": True},
    "added": {"fg": "green"},
    "removed": {"fg": "red"},
    "changed": {"fg": "yellow"},
    "dim": {"fg": "bright_black"},
    "title": {"bold": True},
    "error": {"fg": "red", "bold": True},
    "hint": {"fg": "cyan"},
}


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text in a style."""

    text: str
    style: Style


Part = str | Span
"""A piece of a line. Line breaks in it are escaped, like all control characters."""

Line = list[Part]


class Output:
    """The output of a command.

    Args:
        color: ``"auto"``: if stdout is a terminal and ``NO_COLOR`` is not set.
        pager: page long output if stdout is a terminal.
    """

    def __init__(self, *, color: ColorMode = "auto", pager: bool = True) -> None:
        self._color: ColorMode = color
        self._pager = pager
        self._page: Pager | None = None

    # What the terminal can do

    @property
    def is_terminal(self) -> bool:
        """Whether stdout is a terminal."""
        return _is_terminal(sys.stdout)

    @property
    def has_color(self) -> bool:
        """Whether stdout is printed in colour."""
        return self.has_color_on(sys.stdout)

    def has_color_on(self, stream: TextIO) -> bool:
        """Return whether a stream is printed in colour."""
        if self._color != "auto":
            return self._color == "always"
        return (
            _is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")
        )

    @property
    def columns(self) -> int | None:
        """The width of the terminal in columns, or None if stdout is not a terminal and lines may have any length."""
        import shutil

        return max(20, shutil.get_terminal_size((100, 24)).columns) if self.is_terminal else None

    @property
    def width(self) -> int:
        """Columns for values on several lines: those of the terminal, or 100."""
        return self.columns or 100

    # Data, to stdout

    def print(self, *parts: Part) -> None:
        """Print one line."""
        self._write(join(parts, color=self.has_color) + "\n")

    def lines(self, lines: Iterable[Line]) -> None:
        """Print several lines, each as it comes."""
        for line in lines:
            self.print(*line)

    def wrapped(self, lines: Iterable[Line], *, indent: int = 4) -> None:
        """Print several lines, broken between words at the terminal's width, and continued with ``indent`` blanks."""
        for line in lines:
            for row in [line] if self.columns is None else wrap(line, self.columns, indent):
                self.print(*row)

    def crop(self, *parts: Part) -> None:
        """Print one line, shortened to the width of the terminal, or whole if stdout is not a terminal."""
        self.print(*(crop(parts, self.width) if self.is_terminal else parts))

    def json(self, data: Any) -> None:
        """Print data of JSON's types on one line."""
        self._write(to_json(data) + "\n")

    def text(self, text: str) -> None:
        """Print a text of several lines.

        Its line breaks and tabs are kept, and every other control character is escaped.
        """
        for line in text.split("\n"):
            self._write("\t".join(map(escape, line.split("\t"))) + "\n")

    def write_bytes(self, data: bytes) -> None:
        """Write bytes as they are."""
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def flush(self) -> None:
        """Flush the output, so that its reader sees all of it now."""
        sys.stdout.flush()

    def _write(self, text: str) -> None:
        (sys.stdout if self._page is None else self._page).write(text)

    @contextmanager
    def paged(self, *, unless: bool = False) -> Iterator[None]:
        """Page the output of the block if stdout is a terminal. The pager starts with the first line.

        Args:
            unless: do not page; for JSON, which is for programs.
        """
        command = find_pager() if self._pager and self.is_terminal and not unless else None
        if command is None:
            yield
            return
        with Pager(command) as pager:
            self._page = pager
            try:
                yield
            finally:
                self._page = None

    # Notes and errors, to stderr

    def note(self, *parts: Part) -> None:
        """Print one line that is not data, to stderr."""
        print(join(parts, color=self.has_color_on(sys.stderr)), file=sys.stderr, flush=True)

    def nothing(self, message: str, hint: str = "") -> None:
        """Say that there is no data to print, and the way out, if there is one."""
        self._tell([Span(message, "dim")], hint)

    def error(self, message: str, hint: str = "") -> None:
        """Print an error on one line, and the way out, if there is one, on another."""
        self._tell([Span("error: ", "error"), message], hint)

    def _tell(self, line: Line, hint: str) -> None:
        self.note(*line)
        if hint:
            self.note(Span("hint: ", "hint"), hint)


def join(parts: Iterable[Part], *, color: bool) -> str:
    """Return the parts as one line, in colour or without it."""
    return "".join(_show(part, color=color) for part in parts)


def _show(part: Part, *, color: bool) -> str:
    text = escape(_text(part))
    return click.style(text, **_STYLES[part.style]) if isinstance(part, Span) and color and text else text


def crop(parts: Iterable[Part], width: int) -> Line:
    """Return the parts that fit into ``width`` columns. If not all do, the last one is shortened, with an ellipsis."""
    line: Line = list(parts)
    if sum(columns(_text(part)) for part in line) <= width:
        return line
    shown: Line = []
    ellipsis = "…" if is_utf8() else "..."
    room = max(0, width - len(ellipsis))
    for part in line:
        whole = escape(_text(part))
        text = _cut(whole, room)
        shown.append(text if isinstance(part, str) else Span(text, part.style))
        if text != whole:
            break
        room -= columns(text)
    return [*shown, ellipsis[:width]]


def wrap(parts: Iterable[Part], width: int, indent: int) -> Iterator[Line]:
    """Yield a line broken between words, if it is wider than ``width`` columns.

    A word that is wider than that stays whole.
    """
    line: Line = []
    used = 0
    for blanks, word in _words(parts):
        taken = sum(columns(_text(piece)) for piece in word)
        if line and word and used + blanks + taken > width:
            yield line
            line, used = [" " * indent, *word], indent + taken
        else:
            line += [" " * blanks, *word] if blanks else word
            used += blanks + taken
    yield line


def _words(parts: Iterable[Part]) -> Iterator[tuple[int, list[Part]]]:
    """Yield the words of a line, each with the number of blanks before it. A word may have several parts."""
    blanks, word = 0, list[Part]()
    for part in parts:
        for piece in re.findall(" +|[^ ]+", _text(part)):
            if not piece.startswith(" "):
                word.append(piece if isinstance(part, str) else Span(piece, part.style))
                continue
            if word:
                yield blanks, word
                blanks, word = 0, []
            blanks += len(piece)
    if word:
        yield blanks, word


def _text(part: Part) -> str:
    return part if isinstance(part, str) else part.text


def columns(text: str) -> int:
    """Return the terminal columns of a text with control characters escaped: a Chinese character takes two."""
    text = escape(text)
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):  # joins the character before it
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return a text filled with blanks to ``width`` columns, after it or, with ``right``, before it."""
    blanks = " " * (width - columns(text))
    return blanks + text if right else text + blanks


def _cut(text: str, width: int) -> str:
    while text and columns(text) > width:
        text = text[: width if len(text) > width else -1]
    return text


def to_json(data: Any, *, indent: int | None = None) -> str:
    """Return data of JSON's types as JSON.

    A character that does not print becomes an escape, which means the same to a parser.
    """
    text = json.dumps(data, ensure_ascii=not is_utf8(), indent=indent)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def is_utf8() -> bool:
    """Return whether stdout can encode every character. If not, bars and ellipses are drawn in ASCII."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"


def _is_terminal(stream: TextIO) -> bool:
    return not stream.closed and stream.isatty()
