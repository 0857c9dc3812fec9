"""A file of JSON or JSON lines, compressed or not, as a stream of items. Layer: cli."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, BinaryIO, Final

from versioned_state.cli.shared.hints import json_reason
from versioned_state.errors import StateError

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Item:
    """A value of JSON, and its position: ``item 3`` or ``line 4``."""

    value: Any
    where: str


@dataclass(frozen=True, slots=True)
class Source:
    """The content of a file.

    Attributes:
        name: the file's name in messages.
        items: the elements of a list, the lines of a JSONL file, or a single document that is not a list.
        is_list: False for the single document.
        in_memory: whether all of it was read; the lines of a JSONL file are read as they are taken.
        fraction: the part of the file that was read, 0 to 1; None if that is unknown.
    """

    name: str
    items: Iterator[Item]
    is_list: bool
    in_memory: bool
    fraction: Callable[[], float | None]


# The first bytes of compressed files.
_OPENERS: Final[dict[bytes, Callable[[BinaryIO], Any]]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}


@contextmanager
def open_source(path: str, convert: Convert | None = None) -> Iterator[Source]:
    """Open a file, or with ``-`` standard input.

    Args:
        convert: makes the value of each item from the JSON that holds a ``$``.

    Raises, here or while items are taken:
        OSError: the file cannot be read.
        StateError: the file is damaged or is not JSON; the message says where.
    """
    if path == "-":
        stdin: Any = sys.stdin.buffer
        piped = io.BufferedReader(stdin)
        try:
            yield _read(_Reader("standard input", convert), _lines("standard input", _plain(piped)), lambda: None)
        finally:
            piped.detach()  # standard input is not ours to close
        return
    with open(path, "rb") as file:  # noqa: PTH123 - the path as it was given, for errors to show
        total = os.fstat(file.fileno()).st_size
        raw = file.raw
        yield _read(
            _Reader(path, convert), _lines(path, _plain(file)), lambda: min(1.0, raw.tell() / total) if total else None
        )


def _plain(file: io.BufferedReader[Any]) -> BinaryIO:
    """Return the file itself, or its content if it is compressed."""
    opener = next((opener for magic, opener in _OPENERS.items() if file.peek(8).startswith(magic)), None)
    if opener is None:
        return file
    return io.BufferedReader(opener(file))


def _lines(name: str, file: BinaryIO) -> Iterator[bytes]:
    try:
        for line in file:  # noqa: UP028 - "yield from" would close the file with the generator
            yield line
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise StateError(
            f"{name} is damaged, or was cut short: {error}", hint="decompress it by hand to see how much is intact"
        ) from error


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the values of a file. Its name is for messages."""

    name: str
    convert: Convert | None

    def parse(self, text: bytes, line: int) -> Any:
        """Return the JSON in a text that begins on a line of the file."""
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise StateError(
                f"{self.name}, line {line + error.lineno - 1}, column {error.colno}: not JSON: {error.msg}",
                hint="import takes JSON or JSON lines, plain or compressed with gzip, bzip2 or xz",
            ) from error
        except (ValueError, RecursionError) as error:  # not text, a number of thousands of digits, or endless brackets
            raise StateError(f"{self.name}, line {line}: not JSON that can be read: {json_reason(error)}") from error

    def item(self, value: Any, where: str, text: bytes) -> Item:
        """Return an item of a text. Most hold no ``$``, and are not looked through."""
        if self.convert is None or not (b"$" in text or b"\\u0024" in text):
            return Item(value, where)
        try:
            return Item(self.convert(value), where)
        except StateError as error:
            error.what = f"{self.name}, {where}: {error.what}"
            raise


def _read(reader: _Reader, lines: Iterator[bytes], fraction: Callable[[], float | None]) -> Source:
    # A file is JSONL if its first line is a whole value and another line follows: no other JSON looks like that.
    name = reader.name
    text = b""
    numbered = enumerate(lines, 1)
    number = 0
    while not text.strip():
        number, line = next(numbered, (0, b""))
        if not number:
            raise StateError(f"{name} is empty")
        text += line
    try:
        first = json.loads(text)
    except (ValueError, RecursionError):
        text += b"".join(lines)
        first = reader.parse(text, 1)
        second = None
    else:
        second = next((pair for pair in numbered if pair[1].strip()), None)
    if second is not None:
        rest = chain([second], numbered)
        parsed = (reader.item(reader.parse(line, at), f"line {at}", line) for at, line in rest if line.strip())
        beginning = [reader.item(first, f"line {number}", text)]
        return Source(name, chain(beginning, parsed), is_list=True, in_memory=False, fraction=fraction)
    if isinstance(first, list):
        items = (reader.item(value, f"item {index}", text) for index, value in enumerate(first))
        return Source(name, items, is_list=True, in_memory=True, fraction=fraction)
    return Source(
        name, iter([reader.item(first, "the document", text)]), is_list=False, in_memory=True, fraction=fraction
    )
