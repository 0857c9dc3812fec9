"""The words of two texts that differ. Layer: repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Final

Words = tuple[str, str]
"""``" "`` and words that both texts have, ``"-"`` and words of the old one, or ``"+"`` and words of the new one."""

_WORD: Final = re.compile(r"\w+|\s+|[^\w\s]")

MOST: Final = 20_000
"""Words that are compared; of longer texts the whole middle differs, since the comparison is quadratic at worst."""


def word_diff(old: str, new: str, *, most: int = MOST) -> Iterator[Words]:
    """Yield the pieces of both texts in order, first and last the equal ones at both ends, even if they are empty.

    Equal words at both ends are set aside first, so that a change within a long text costs no more than one in a short text.
    """
    a, b = _WORD.findall(old), _WORD.findall(new)
    start = _count_alike(a, b)
    end = _count_alike(a[: start - 1 if start else None : -1], b[: start - 1 if start else None : -1])
    yield " ", "".join(a[:start])
    a_middle, b_middle = a[start : len(a) - end], b[start : len(b) - end]
    if max(len(a_middle), len(b_middle)) > most:
        a_middle, b_middle = ["".join(a_middle)], ["".join(b_middle)]
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, a_middle, b_middle, autojunk=len(b_middle) > 2000).get_opcodes():
        if tag == "equal":
            yield " ", "".join(b_middle[j1:j2])
            continue
        if i1 < i2:
            yield "-", "".join(a_middle[i1:i2])
        if j1 < j2:
            yield "+", "".join(b_middle[j1:j2])
    yield " ", "".join(a[len(a) - end :])


def _count_alike(a: list[str], b: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
