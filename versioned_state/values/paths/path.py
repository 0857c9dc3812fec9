"""Paths into a state, and into the values in it: as steps, as strings, and back. Layer: values.

============================  ==============================================================
in a string                   means
============================  ==============================================================
``messages``, ``.content``    the key of a state or dict, if it is an identifier, as ``名前`` is too
``["a.b"]``                   the key in JSON's notation, if it is not
``[17]``                      the element of a list or tuple
``{1}``, ``{(1, "a")}``       a key that is not a string, as a Python literal
``{#c403d1...}``              a key that has no literal: its cell in hex
``@worker.``                  a namespace before a state's key; quoted or in hex as a key is, if it is not an identifier
============================  ==============================================================
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, Final

import msgpack

from versioned_state.errors import InvalidArgumentError, InvalidPathError
from versioned_state.records import dataclass
from versioned_state.values.cells import has_surrogate, pack_text


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a dict or state. ``cell`` is set for a key that has no literal, and then stands for it."""

    key: Any
    cell: bytes | None = None


@dataclass(frozen=True, slots=True)
class Index:
    """The offset of an element of a list or tuple."""

    index: int


@dataclass(frozen=True, slots=True)
class Namespace:
    """The name of a namespace."""

    name: str


Step = Key | Index | Namespace

_JOINERS: Final = "\u200c\u200d"
"""Part of emoji and of words, though they do not print. Bidirectional controls are escaped."""

_LITERALS: Final = (int, float, complex, bool, bytes, tuple, frozenset, type(None))


@dataclass(frozen=True, slots=True)
class StatePath:
    """Steps from the root of a state. Its string parses back to an equal path."""

    steps: tuple[Step, ...] = ()

    def key(self, key: Any, cell: bytes | None = None) -> StatePath:
        """Return the path of an entry under this one."""
        if cell is None or type(key) is str or _literal(key) is not None:
            return StatePath((*self.steps, Key(key)))
        return StatePath((*self.steps, Key(None, cell)))

    def index(self, index: int) -> StatePath:
        """Return the path of an element under this one."""
        return StatePath((*self.steps, Index(index)))

    def namespace(self, name: str) -> StatePath:
        """Return the path of a namespace under this one."""
        return StatePath((*self.steps, Namespace(name)))

    def __str__(self) -> str:
        return self.suffix().removeprefix(".")

    def __repr__(self) -> str:
        return f"StatePath({str(self)!r})"

    def __len__(self) -> int:
        return len(self.steps)

    def __truediv__(self, other: StatePath) -> StatePath:
        return StatePath(self.steps + other.steps)

    def suffix(self) -> str:
        """Return the string that continues the string of another path."""
        return "".join(map(_show, self.steps))

    @classmethod
    def parse(cls, text: str) -> StatePath:
        """Return the path that a string shows.

        Raises ``InvalidPathError`` with the offset at which it stops making sense.
        """
        steps: list[Step] = []
        position = 0
        while position < len(text):
            step, position = parse_step(text, position, first=not steps)
            steps.append(step)
        if not steps:
            raise InvalidPathError(text, 0, "it is empty")
        if isinstance(steps[-1], Namespace):
            raise InvalidPathError(text, len(text), "a key must follow a namespace")
        return cls(tuple(steps))


def as_path(path: str | StatePath) -> StatePath:
    """Return the path that a caller gives as a string or a path.

    Raises ``InvalidPathError``, or ``InvalidArgumentError`` for any other type.
    """
    if isinstance(path, str):
        return StatePath.parse(path)
    if not isinstance(path, StatePath):
        raise InvalidArgumentError(f"a path must be a string or a StatePath, not {type(path).__name__}")
    return path


def _show(step: Step) -> str:
    if isinstance(step, Index):
        return f"[{step.index}]"
    if isinstance(step, Namespace):
        if not step.name.isascii() and has_surrogate(step.name):
            return f".@{{#{pack_text(step.name).hex()}}}"
        return ".@" + (step.name if step.name.isidentifier() else _quote(step.name))
    if step.cell is not None:
        return f"{{#{step.cell.hex()}}}"
    if type(step.key) is str:
        if not step.key.isascii() and has_surrogate(step.key):
            # JSON would join two lone surrogates that happen to form a pair.
            return f"{{#{pack_text(step.key).hex()}}}"
        return f".{step.key}" if step.key.isidentifier() else f"[{_quote(step.key)}]"
    return "{" + (_literal(step.key) or "?") + "}"


def _quote(text: str) -> str:
    """Return a string in JSON's notation: legible, but with everything escaped that does not print."""
    import json

    quoted = json.dumps(text, ensure_ascii=False)
    if quoted.isprintable():
        return quoted
    return "".join(char if char.isprintable() or char in _JOINERS else json.dumps(char)[1:-1] for char in quoted)


def _literal(key: Any) -> str | None:
    """Return the Python literal of a key, if it has one that gives back the same key."""
    if type(key) not in _LITERALS or type(key) is frozenset:
        return None
    try:
        text = repr(key)
    except ValueError:  # an int of more digits than Python writes out
        return hex(key) if type(key) is int else None
    from ast import literal_eval

    try:
        back = literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return text if type(back) is type(key) and repr(back) == text else None


def parse_step(text: str, position: int, *, first: bool) -> tuple[Step, int]:
    """Return the step that begins at a position, and the position of the next one. Raises ``InvalidPathError``."""
    char = text[position]
    if char == "[":
        return _parse_brackets(text, position)
    if char == "{":
        return _parse_braces(text, position)
    start = position
    if char == ".":
        position += 1
    elif not first:
        raise InvalidPathError(text, position, "expected '.', '[' or '{'")
    if text[position : position + 1] == "@":
        position += 1
        if text[position : position + 1] == '"':
            name, position = _parse_json(text, position)
            return Namespace(name), position
        if text.startswith("{#", position):
            key, position = _parse_braces(text, position)
            if isinstance(key.key, str):
                return Namespace(key.key), position
        end = _identifier_end(text, position)
        if end > position:
            return Namespace(text[position:end]), end
        raise InvalidPathError(text, position, "expected the name of a namespace")
    end = _identifier_end(text, position)
    if end == position or (start == 0 and char == "."):
        raise InvalidPathError(text, position, 'expected a key; if it is not an identifier, write it as ["key"]')
    return Key(text[position:end]), end


def _identifier_end(text: str, start: int) -> int:
    """Return the end of the longest identifier that begins at ``start``, or ``start`` itself if there is none."""
    end = start
    # A character may continue an identifier if it may follow a letter.
    while end < len(text) and (text[end].isidentifier() if end == start else f"a{text[end]}".isidentifier()):
        end += 1
    return end


def _can_be_key(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return type(value) is str or type(value) in _LITERALS


def _parse_json(text: str, position: int) -> tuple[str, int]:
    import json

    try:
        value, end = json.JSONDecoder().raw_decode(text, position)
    except ValueError as error:
        raise InvalidPathError(text, position, "the quoted key does not end") from error
    if type(value) is not str:
        raise InvalidPathError(text, position, "expected a quoted key")
    return value, end


def _parse_brackets(text: str, position: int) -> tuple[Step, int]:
    inner = position + 1
    step: Step
    if text[inner : inner + 1] == '"':
        key, end = _parse_json(text, inner)
        step = Key(key)
    else:
        match = re.compile(r"-?\d+").match(text, inner)
        if not match:
            raise InvalidPathError(text, inner, "expected a number or a quoted key")
        step, end = Index(int(match.group())), match.end()
    if text[end : end + 1] != "]":
        raise InvalidPathError(text, end, "expected ']'")
    return step, end + 1


def _key_of(cell: bytes) -> Key:
    """Return the key of a cell: the string that it holds, if it is one."""
    if cell and (0xA0 <= cell[0] <= 0xBF or 0xD9 <= cell[0] <= 0xDB):
        with contextlib.suppress(ValueError, msgpack.UnpackException):
            return Key(msgpack.unpackb(cell, unicode_errors="surrogatepass"))
    return Key(None, cell)


def _parse_braces(text: str, position: int) -> tuple[Key, int]:
    # A literal may hold braces in its strings, so the end is the first '}' up to which it parses.
    end = position
    while (end := text.find("}", end + 1)) > 0:
        inner = text[position + 1 : end]
        if inner.startswith("#"):
            try:
                cell = bytes.fromhex(inner[1:])
            except ValueError as error:
                raise InvalidPathError(text, position + 2, "expected hex digits") from error
            return _key_of(cell), end + 1
        from ast import literal_eval

        try:
            key = literal_eval(inner)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        except TypeError:  # a dict or set within, with an unhashable part
            break
        if not _can_be_key(key):
            raise InvalidPathError(text, position + 1, f"a {type(key).__name__} like that cannot be a key")
        return Key(key), end + 1
    raise InvalidPathError(text, position, "expected a Python literal in braces")
