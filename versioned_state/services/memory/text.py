"""The text of messages, and its parts: keywords, words, pieces of words. Layer: services.

Keywords are compared after ``str.casefold``: a message matches if it contains one of them, anywhere. Words, for
ranking, are runs of letters, digits and underscores. A run of Chinese, Japanese or Korean characters counts as its
pairs of neighbours, since it has no spaces. So all pieces of a keyword that is in a text are in words of that text, and
an index of words can narrow a search by keywords.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from unicodedata import is_normalized, normalize

from versioned_state.services.calls.deadline import check_deadline
from versioned_state.services.schemas.agent_schemas import Message, MessageType

_CJK: Final = (
    "\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_RUN: Final = re.compile(f"[{_CJK}]+|[^\\W{_CJK}]+")
_IS_CJK: Final = re.compile(f"[{_CJK}]")

_MOST_MARKS: Final = 64
_LONG_RUN: Final = re.compile(f"[^\\w\\s\\x00-\\x7f]{{{_MOST_MARKS + 1},}}")
"""A longer run of possible combining marks than any language has.

Unicode normalization sorts such a run in quadratic time.
"""

_LONG_TEXT: Final = 1 << 12
"""Characters of a text from which the deadline is checked for each keyword."""

_MANY: Final = 256
"""Keywords of one length from which a text's parts are looked up among them, instead of each of them in the text."""


def text_of(message: Message | Mapping[str, Any]) -> str:
    """Return all texts of a message, or of its stored form, each on its own lines.

    A call, a result and the like have none.
    """
    fields: Any = message if isinstance(message, Mapping) else vars(message)
    if fields.get("type", MessageType.MESSAGE) != MessageType.MESSAGE:
        return ""
    found = []
    for part in fields.get("content") or ():
        read = part.get if isinstance(part, Mapping) else vars(part).get
        text = read("text") if read("type") == "text" else None
        if isinstance(text, str):
            found.append(text)
    return "\n".join(found)


def keywords_of(text: str) -> frozenset[str]:
    """Return the keywords of a query."""
    return frozenset(text.casefold().split())


def matcher(keywords: frozenset[str]) -> Callable[[str], bool]:
    """Return a function that returns whether a text contains one of the keywords.

    Cost: the length of the text, times the keywords, each of which is found at the speed of C, or times the lengths
    that many of them share. The deadline of the call is checked.
    """
    by_length: dict[int, set[str]] = defaultdict(set)
    for keyword in keywords:
        by_length[len(keyword)].add(keyword)
    few = [keyword for group in by_length.values() if len(group) < _MANY for keyword in group]
    many = [(length, group) for length, group in by_length.items() if len(group) >= _MANY]

    def matches(text: str) -> bool:
        folded = text.casefold()
        check = check_deadline if len(folded) > _LONG_TEXT else _do_nothing
        for keyword in few:
            check()
            if keyword in folded:
                return True
        words = folded.split() if many else ()
        for length, group in many:
            for word in words:
                check()
                if any(word[start : start + length] in group for start in range(len(word) - length + 1)):
                    return True
        return False

    return matches


def words_of(text: str) -> Counter[str]:
    """Count the words of a text."""
    return Counter(_iter_words(_composed(text.casefold())))


def _do_nothing() -> None:
    pass


def _composed(text: str) -> str:
    """Return a text in the form NFC, which is made piece by piece where there are long runs of marks.

    Cost: linear in the text.
    """
    pieces = []
    start = 0
    for run in _LONG_RUN.finditer(text):
        for end in range(run.start() + _MOST_MARKS, run.end(), _MOST_MARKS):
            pieces.append(normalize("NFC", text[start:end]))
            start = end
    pieces.append(normalize("NFC", text[start:]))
    return "".join(pieces)


def _iter_words(text: str) -> Iterator[str]:
    for run in _RUN.findall(text):
        if len(run) < 2 or not _IS_CJK.match(run):
            yield run
        else:
            for start in range(len(run) - 1):
                yield run[start : start + 2]


def is_plain(text: str) -> bool:
    """Return whether the words of a text contain the pieces of every keyword that is in it.

    If not, no index narrows a search for it.
    """
    return is_normalized("NFC", text.casefold())


def pieces_of(keyword: str) -> list[str] | None:
    """Return the pieces of a keyword: any plain text that contains it has each within a word.

    None if no plain text contains it.
    """
    return [*_iter_words(keyword)] if is_normalized("NFC", keyword) else None


def grams_of(word: str) -> set[str]:
    """Return the pairs and triples of neighbouring characters of a word, and its only character or its Chinese ones."""
    grams = {word[start : start + length] for length in (2, 3) for start in range(len(word) - length + 1)}
    return grams | {character for character in word if _IS_CJK.match(character)} | ({word} if len(word) == 1 else set())


def grams_within(piece: str) -> set[str] | None:
    """Return the grams of each word with this piece, or None if it narrows nothing: a letter is in too many words."""
    if len(piece) > 2:
        return {piece[start : start + 3] for start in range(len(piece) - 2)}
    return {piece} if len(piece) == 2 or _IS_CJK.match(piece) else None
