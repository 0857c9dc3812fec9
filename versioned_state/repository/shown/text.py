"""Text for display in HTML: unseen characters are written out, and what is shown at once has a budget.

Layer: repository.
"""

from __future__ import annotations

import re
from html import escape
from typing import Final
from urllib.parse import quote

# The control characters but tab and line feed, the format characters but the two joiners, which emoji and words are
# made with, and lone surrogates. Fixed ranges, as in branch_name: a Unicode table would differ between releases of
# Python.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)

BUDGET: Final = 800_000
"""Bytes of text and of rows on a page of at most a mebibyte.

The rest is for the frame of the page, and for what is shown beyond the budget.
"""

_AFTER: Final = 24
"""Characters of each text that are shown once the budget is used up, down to ``_LAST``."""

_LAST: Final = -100_000

ROW: Final = 300
"""Bytes of the markup of a row."""


def visible(text: str) -> str:
    """Return a text with its invisible characters, and those that turn its direction, written like ``⟦U+202E⟧``."""
    return text if text.isprintable() else _UNSEEN.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    return f"⟦U+{ord(found[0]):04X}⟧"


class Budget:
    """The bytes that a page may still show.

    Attributes:
        left_out: whether something was cut or left out because the budget was used up.
    """

    def __init__(self, size: int = BUDGET) -> None:
        self.left: int = size
        self.left_out: bool = False

    def cut(self, text: str, most: int) -> str:
        """Take the beginning of a text from the budget: ``most`` characters, or fewer once the budget is used up."""
        part = text[:most]
        size = _size(part)
        if size > self.left and len(part) > _AFTER:
            self.left_out = True
            part = part[: max(_AFTER, len(part) * max(self.left, 0) // size)] if self.left > _LAST else ""
            size = _size(part)
        self.left -= size
        return part

    def row(self, size: int = ROW) -> bool:
        """Take the markup of a row from the budget, and return whether there was room for it."""
        if self.left <= 0:
            self.left_out = True
            return False
        self.left -= size
        return True

    def path(self, path: object) -> str | None:
        """Return a path as text, for links to it, or None if there is no room for them."""
        text = str(path)
        size = 2 * len(quote(text, errors="replace")) if len(text) > _AFTER else 2 * len(text)
        return text if size <= 2 * _AFTER or self.row(size) else None


def _size(text: str) -> int:
    return len(escape(visible(text)).encode("utf-8", "replace"))
