"""Changes word by word: removed and added words within a text. Layer: cli.

As ``git diff --word-diff`` shows it: ``Lisbon by [-train-]{+plane+}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Any, Final

from versioned_state.cli.render.changes import change_lines
from versioned_state.cli.render.output import Line, Part, Span
from versioned_state.repository.views.change import Change
from versioned_state.repository.views.render import one_line

_WORD: Final = re.compile(r"\w+|\s+|[^\w\s]")
_AROUND: Final = 40
"""Unchanged characters that are shown on either side of a change."""

_WORDS: Final = 20_000
"""Longer texts are not compared by word: the comparison is quadratic at worst."""


def word_lines(change: Change, *, full: bool = False) -> Iterator[Line]:
    """Yield a change with both sides in one text. A value that is added or removed as a whole is shown as in any diff.

    Args:
        full: show all of the unchanged text.
    """
    old, new = change.old, change.new
    if change.kind != "changed" or change.cells.keys is not None:
        yield from change_lines(change)
    elif type(old) is not str or type(new) is not str:
        yield [Span(f"~ {change.path}", "changed"), " = ", *_marked("-", _shown(old, full=full)), *_marked("+", _shown(new, full=full))]
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
    a, b = _WORD.findall(old), _WORD.findall(new)
    # Equal words at both ends are set aside first, so that a change within a long text costs no more than one in a short text.
    start = _count_alike(a, b)
    end = _count_alike(a[: start - 1 if start else None : -1], b[: start - 1 if start else None : -1])
    yield from _kept("".join(a[:start]), full=full, first=True)
    a_middle, b_middle = a[start : len(a) - end], b[start : len(b) - end]
    if max(len(a_middle), len(b_middle)) > _WORDS:
        a_middle, b_middle = ["".join(a_middle)], ["".join(b_middle)]
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, a_middle, b_middle, autojunk=len(b_middle) > 2000).get_opcodes():
        if tag == "equal":
            yield from _kept("".join(b_middle[j1:j2]), full=full)
        else:
            yield from _marked("-", "".join(a_middle[i1:i2]))
            yield from _marked("+", "".join(b_middle[j1:j2]))
    yield from _kept("".join(a[len(a) - end :]), full=full, last=True)


def _count_alike(a: list[str], b: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def _kept(text: str, *, full: bool, first: bool = False, last: bool = False) -> Iterator[Part]:
    if text:
        yield text if full else _abridged(text, first=first, last=last)


def _abridged(text: str, *, first: bool, last: bool) -> str:
    """Return an unchanged text without its middle, or at an end of the value without its beginning or end."""
    before, after = ("" if first else text[:_AROUND]), ("" if last else text[-_AROUND:])
    return text if len(text) <= len(before) + len(after) + _AROUND else f"{before}…{after}"


def _text_lines(old: str, new: str, *, full: bool) -> Iterator[Line]:
    """Yield the changed lines of a text, each with its removed and added words, and with ``full`` the unchanged lines too."""
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
    """Yield the parts as lines. As in git, a mark that spans lines is closed at the end of each and opened again on the next."""
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
