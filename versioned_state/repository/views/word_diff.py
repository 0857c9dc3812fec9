"""The words of two texts that differ. Layer: repository."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Final

Words = tuple[str, str]
"""``" "`` and words that both texts have, ``"-"`` and words of the old one, or ``"+"`` and words of the new one."""

_WORD: Final = re.compile(r"\w+|\s+|[^\w\s]")

_JUNK: Final = 2000
"""The number of words from which those that occur often are not anchors."""

MOST: Final = 20_000
"""The largest number of words to compare.

In longer texts the whole middle differs, since the comparison is quadratic at best.
"""


def word_diff(old: str, new: str, *, most: int = MOST) -> Iterator[Words]:
    """Yield the pieces of both texts in order. The first and the last one are in both texts, and may be empty."""
    a, b = _WORD.findall(old), _WORD.findall(new)
    *others, last = differing(a, b, most=most)
    for tag, i1, i2, j1, j2 in others:
        if tag == "equal":
            yield " ", "".join(b[j1:j2])
            continue
        if i1 < i2:
            yield "-", "".join(a[i1:i2])
        if j1 < j2:
            yield "+", "".join(b[j1:j2])
    yield " ", "".join(b[last[3] :])


def differing(a: Sequence[str], b: Sequence[str], *, most: int) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield how to turn one list into another, as ``difflib`` does, with an equal run at each end, perhaps empty.

    Equal runs at both ends are set aside first, so that a change within a long list costs no more than one in a short
    list. If what is left is longer than ``most`` on a side, all of it differs.
    """
    start = _count_alike(a, b)
    end = _count_alike(a[: start - 1 if start else None : -1], b[: start - 1 if start else None : -1])
    a_end, b_end = len(a) - end, len(b) - end
    yield "equal", 0, start, 0, start
    if max(a_end, b_end) - start > most:
        yield "replace", start, a_end, start, b_end
    else:
        matcher = SequenceMatcher(None, a[start:a_end], b[start:b_end], autojunk=b_end - start > _JUNK)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            yield tag, start + i1, start + i2, start + j1, start + j2
    yield "equal", a_end, len(a), b_end, len(b)


def _count_alike(a: Sequence[str], b: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
