"""``.gitignore``: its patterns, as git reads them. Layer: agents.

Patterns are matched byte by byte against each entry. The content of an ignored folder is ignored because the folder is
not entered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

_CLASSES: Final = {
    b"alnum": rb"0-9A-Za-z",
    b"alpha": rb"A-Za-z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"!-~",
    b"lower": rb"a-z",
    b"print": rb" -~",
    b"punct": rb"!-/:-@\[-`{-~",
    b"space": rb" \t\n\v\f\r",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9A-Fa-f",
}


class Rules:
    """The patterns of one ``.gitignore``, or of an argument."""

    __slots__ = ("_rules",)

    def __init__(self, lines: Iterable[bytes]) -> None:
        # the last one that matches decides
        self._rules = [rule for line in lines if (rule := _read(line)) is not None][::-1]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def decide(self, path: bytes, *, is_folder: bool) -> bool | None:
        """Return whether an entry is ignored, or None if no pattern matches.

        Args:
            path: relative to the folder of the ``.gitignore``.
        """
        name = path.rpartition(b"/")[2]
        for matches, by_name, folders_only, ignored in self._rules:
            if (is_folder or not folders_only) and matches(name if by_name else path):
                return ignored
        return None


def rules_of(data: bytes) -> Rules:
    """Return the rules of a ``.gitignore`` with this content."""
    return Rules(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"))


_Rule = tuple[Callable[[bytes], object], bool, bool, bool]
"""An expression for a name or a path, whether it is for folders only, and whether its matches are ignored."""


def _read(line: bytes) -> _Rule | None:
    line = line.removesuffix(b"\r")
    if line.startswith(b"#"):
        return None
    line = _without_trailing_spaces(line)
    ignored = not line.startswith(b"!")
    pattern = line if ignored else line[1:]
    folders_only = pattern.endswith(b"/")
    if folders_only:
        pattern = pattern[:-1]
    by_name = b"/" not in pattern
    pattern = pattern.removeprefix(b"/")
    translated = _translate(pattern, by_name=by_name) if pattern else None
    if translated is None:
        return None
    return re.compile(translated, re.DOTALL).fullmatch, by_name, folders_only, ignored


def _without_trailing_spaces(line: bytes) -> bytes:
    end = at = 0
    while at < len(line):
        if line[at] == 0x5C:  # a backslash keeps the next character
            at += 1
            end = min(at + 1, len(line))
        elif line[at] != 0x20:
            end = at + 1
        at += 1
    return line[:end]


def _translate(pattern: bytes, *, by_name: bool) -> bytes | None:
    """Return the regular expression of a pattern, by git's ``wildmatch`` rules, or None if nothing can match it."""
    parts = []
    at, size = 0, len(pattern)
    while at < size:
        char = pattern[at : at + 1]
        if char == b"\\":
            if at + 1 == size:
                return None
            parts.append(re.escape(pattern[at + 1 : at + 2]))
            at += 2
        elif char == b"?":
            parts.append(b"[^/]")
            at += 1
        elif char == b"*":
            end = at
            while pattern[end : end + 1] == b"*":
                end += 1
            at, part = _stars(pattern, at, end, by_name=by_name)
            parts.append(part)
        elif char == b"[":
            found = _bracket(pattern, at + 1)
            if found is None:
                return None
            at, part = found
            parts.append(part)
        else:
            parts.append(re.escape(char))
            at += 1
    return b"".join(parts)


def _stars(pattern: bytes, start: int, end: int, *, by_name: bool) -> tuple[int, bytes]:
    """Return the end of a run of stars, and its expression."""
    is_free = end - start > 1 and (start == 0 or pattern[start - 1 : start] == b"/") and not by_name
    if is_free and end == len(pattern):
        return end, b".*"
    if is_free and pattern[end : end + 1] == b"/":
        return end + 1, b"(?:.*/)?"
    return end, b"[^/]*"


def _bracket(pattern: bytes, at: int) -> tuple[int, bytes] | None:
    """Return the end of a bracket expression, and its expression, or None if it does not end."""
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    members: list[bytes] = []
    while not members or pattern[at : at + 1] != b"]":
        found = _named_class(pattern, at) or _range(pattern, at)
        if found is None:
            return None
        at, member = found
        members.append(member)
    inside = b"".join(members)
    if not inside:
        return at + 1, b"[^/]" if negated else b"(?!)"
    return at + 1, b"(?!/)[" + (b"^" if negated else b"") + inside + b"]"


def _named_class(pattern: bytes, at: int) -> tuple[int, bytes] | None:
    if pattern[at : at + 2] != b"[:":
        return None
    end = pattern.find(b"]", at + 2)
    if end <= at + 2 or pattern[end - 1 : end] != b":":
        return None
    named = _CLASSES.get(pattern[at + 2 : end - 1])
    return None if named is None else (end + 1, named)


def _range(pattern: bytes, at: int) -> tuple[int, bytes] | None:
    """Return the expression of one character in brackets, or of all from one to another."""
    if pattern[at : at + 2] == b"[:" and pattern[pattern.find(b"]", at + 2) - 1 : pattern.find(b"]", at + 2)] == b":":
        return None  # a class of an unknown name
    low, at = _member(pattern, at)
    high = low
    if pattern[at : at + 1] == b"-" and pattern[at + 1 : at + 2] not in (b"", b"]"):
        high, at = _member(pattern, at + 1)
    if low is None or high is None:
        return None
    return at, re.escape(low) + b"-" + re.escape(high) if low <= high else b""


def _member(pattern: bytes, at: int) -> tuple[bytes | None, int]:
    """Return one character of a bracket expression, and the place where the next begins."""
    if pattern[at : at + 1] == b"\\":
        at += 1
    char = pattern[at : at + 1]
    return char or None, at + 1
