"""Changes of files as git shows them, so that ``git apply`` and ``patch`` read them. Layer: cli."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from difflib import unified_diff
from typing import Any, Final

from versioned_state.agents.workspace.entries import data_of, text_or_bytes, why_no_entry
from versioned_state.cli.render.output import Line, Span, Style
from versioned_state.values.codec.files import Folder, Symlink

_PLAIN: Final = re.compile(r'[^\x00-\x1f\x7f"\\\ud800-\udfff]*')

_STYLES: Final[dict[str, Style]] = {"+": "added", "-": "removed", "@": "dim"}

_FOLDER: Final = "040000"


def quoted(path: str) -> str:
    """Return a path as git prints it: in quotes, with escapes, if it has characters that a terminal would not show."""
    if _PLAIN.fullmatch(path):
        return path
    escapes = {0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n", 0x09: "\\t"}
    raw = path.encode("utf-8", "surrogateescape") if _can_encode(path) else path.encode("utf-8", "surrogatepass")
    return (
        '"'
        + "".join(escapes.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}") for byte in raw)
        + '"'
    )


def _can_encode(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def mode_of(entry: Any) -> str:
    """Return the mode of an entry in octal digits, as git writes it, with all permission bits."""
    if isinstance(entry, Symlink):
        return "120000"
    if isinstance(entry, Folder):
        return _FOLDER
    return "------" if why_no_entry(entry) else f"100{data_of(entry)[1]:03o}"


def patch_lines(path: str, old: Any, new: Any) -> Iterator[Line]:
    """Yield the change of one file.

    Args:
        old, new: the entries before and after; None if there is none.
    """
    before, after = quoted("a/" + path), quoted("b/" + path)
    yield [Span(f"diff --git {before} {after}", "id")]
    if old is None:
        yield [Span(f"new file mode {mode_of(new)}", "dim")]
    elif new is None:
        yield [Span(f"deleted file mode {mode_of(old)}", "dim")]
    elif mode_of(old) != mode_of(new):
        yield [Span(f"old mode {mode_of(old)}", "dim")]
        yield [Span(f"new mode {mode_of(new)}", "dim")]
    a, b = _content(old), _content(new)
    if a == b:
        return
    source, target = "/dev/null" if old is None else before, "/dev/null" if new is None else after
    if isinstance(a, bytes) or isinstance(b, bytes):
        yield [f"Binary files {source} and {target} differ"]
        return
    if " " in path:  # so that the name is known to end there, as git does
        source, target = source + "\t", target + "\t"
    for line in unified_diff(_lines(a), _lines(b), source, target):
        text = line.removesuffix("\n")
        yield [Span(text, _STYLES[text[:1]])] if text[:1] in _STYLES else [text]
        if not line.endswith("\n"):
            yield [Span("\\ No newline at end of file", "dim")]


def _content(entry: Any) -> str | bytes:
    if isinstance(entry, Symlink):
        return entry.target
    if entry is None or isinstance(entry, Folder):
        return ""
    data = b"\0" if why_no_entry(entry) else data_of(entry)[0]
    return data if b"\0" in data else text_or_bytes(data)


def _lines(text: str | bytes) -> list[str]:
    """Return the lines of a text, each with the newline that ends it."""
    assert isinstance(text, str)
    return re.findall(r"[^\n]*\n|[^\n]+", text)
