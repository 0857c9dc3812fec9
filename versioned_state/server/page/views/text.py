"""Text as the page shows it: characters that would not be seen are written out, and a page has a budget. Layer: server."""

from __future__ import annotations

import re
from typing import Final

from markupsafe import escape

# The control characters but tab and line feed, the format characters but the two joiners, which emoji and words are made with, and lone
# surrogates. Fixed ranges, as in branch_name: a Unicode table would differ between releases of Python.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)

BUDGET: Final = 700_000
"""Bytes of text on a page of at most a mebibyte; the rest is markup."""

_AFTER: Final = 80
"""Characters of each text that are shown once the budget is used up."""


def visible(text: str) -> str:
    """Return a text in which every character can be seen: those that cannot, or that turn its direction, as ``⟦U+202E⟧``."""
    return text if text.isprintable() else _UNSEEN.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    return f"⟦U+{ord(found[0]):04X}⟧"


class Budget:
    """The bytes of text that a page may still show.

    Attributes:
        left_out: whether a text was cut because the budget was used up.
    """

    def __init__(self, size: int = BUDGET) -> None:
        self.left = size
        self.left_out = False

    def cut(self, text: str, most: int) -> str:
        """Return at most so many characters of a text, or fewer once the budget is used up, and take them from the budget."""
        if self.left <= 0 and len(text) > _AFTER:
            self.left_out = True
            most = min(most, _AFTER)
        part = text[:most]
        size = len(escape(visible(part)).encode())
        if size > max(self.left, _AFTER * 12):
            self.left_out = True
            part = part[: max(_AFTER, len(part) * max(self.left, 0) // size)]
            size = len(escape(visible(part)).encode())
        self.left -= size
        return part
