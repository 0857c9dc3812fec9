"""Changes word by word: removed and added words within a text. Layer: cli.

As ``git diff --word-diff`` shows it: ``Lisbon by [-train-]{+plane+}``.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, Final

from versioned_state.cli.render.changes import change_lines
from versioned_state.cli.render.output import Line, Part, Span
from versioned_state.repository.views.change import Change
from versioned_state.repository.views.render import one_line
from versioned_state.repository.views.word_diff import word_diff

_AROUND: Final = 40
"""Unchanged characters that are shown on either side of a change."""


def word_lines(change: Change, *, full: bool = False) -> Iterator[Line]:
    """Yield a change with both sides in one text. A value that is added or removed as a whole is shown as in any diff.

    Args:
        full: show all of the unchanged text.
    """
    old, new = change.old, change.new
    if change.kind != "changed" or change.cells.keys is not None:
        yield from change_lines(change)
    elif type(old) is not str or type(new) is not str:
        yield [
            Span(f"~ {change.path}", "changed"),
            " = ",
            *_marked("-", _shown(old, full=full)),
            *_marked("+", _shown(new, full=full)),
        ]
    elif "\n" in old or "\n" in new:
        yield [Span(f"~ {change.path}", "changed")]
        for line in _text_lines(old, new, full=full):
            yield ["    ", *line]
    else:
        yield [Span(f"~ {change.path}", "changed"), " = ", *_parts(old, new, full=full)]


def _shown(value: Any, *, full: bool) -> str:
    return one_line(value, width=1 << 62 if full else 100)


def _marked(sign: str, text: str) -> list[Part]:
    return [Span(f"[-{text}-]", "removed") if sign == "-" else Span(f"{{+{text}+}}", "added")] if text else []


def _parts(old: str, new: str, *, full: bool) -> Iterator[Part]:
    """Yield the pieces of both texts in order: unchanged ones plain, removed and added ones marked."""
    pieces = list(word_diff(old, new))
    for at, (sign, text) in enumerate(pieces):
        if sign == " ":
            yield from _kept(text, full=full, first=at == 0, last=at == len(pieces) - 1)
        else:
            yield from _marked(sign, text)


def _kept(text: str, *, full: bool, first: bool = False, last: bool = False) -> Iterator[Part]:
    if text:
        yield text if full else _abridged(text, first=first, last=last)


def _abridged(text: str, *, first: bool, last: bool) -> str:
    """Return an unchanged text without its middle, or at an end of the value without its beginning or end."""
    before, after = ("" if first else text[:_AROUND]), ("" if last else text[-_AROUND:])
    return text if len(text) <= len(before) + len(after) + _AROUND else f"{before}…{after}"


def _text_lines(old: str, new: str, *, full: bool) -> Iterator[Line]:
    """Yield the changed lines of a text with their removed and added words, and with ``full`` unchanged lines too."""
    a, b = old.split("\n"), new.split("\n")
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, a, b, autojunk=len(a) > 2000).get_opcodes():
        if tag == "equal":
            if full:
                yield from (Line([line]) for line in b[j1:j2])
            continue
        if not full:
            yield [Span(f"@ line {j1 + 1}", "dim")]
        yield from _broken(_parts("\n".join(a[i1:i2]), "\n".join(b[j1:j2]), full=True))


def _broken(parts: Iterator[Part]) -> Iterator[Line]:
    """Yield the parts as lines.

    As in git, a mark that spans lines is closed at the end of each and opened again on the next.
    """
    line: Line = []
    for part in parts:
        if isinstance(part, str):
            first, *rest = part.split("\n")
            line.append(first)
            for text in rest:
                yield line
                line = [text]
        else:
            first, *rest = part.text[2:-2].split("\n")
            sign = "-" if part.style == "removed" else "+"
            line += _marked(sign, first)
            for text in rest:
                yield line
                line = [*_marked(sign, text)]
    yield line
