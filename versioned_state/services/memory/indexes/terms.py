"""The terms of a text for an index outside of the state: its words and grams, spelled in ASCII letters and digits.

Layer: services.

So a query is never more than text: neither FTS5 nor PostgreSQL gets a character of the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from typing import Final
from unicodedata import unidata_version

from versioned_state.errors import MissingObjectError
from versioned_state.repository.history.commit import Commit
from versioned_state.services.memory.memories import Memories
from versioned_state.services.memory.text import grams_of, grams_within, is_plain, words_of

ODD: Final = "z"
"""The term of texts whose pieces are not those of their keywords: see ``text.is_plain``."""

_LONGEST: Final = 64
"""The largest word in bytes. A longer one has its hash as its term, and its usual grams."""


_TERMS: Final = f"1/{unidata_version}"
"""To be raised when the terms of a text change. They also change with Python's tables of Unicode."""


def head_of(memories: Memories) -> str:
    """Return the record of an index that is at the commit of the memories, with the terms of this version."""
    return f"{_TERMS} {memories.commit.id}"


def commit_of(memories: Memories, head: str | None) -> Commit | None:
    """Return the commit of an index whose record is ``head``, or None if the index must be rebuilt."""
    terms, _, id = (head or "").partition(" ")
    if terms == _TERMS:
        with suppress(LookupError, MissingObjectError):
            return memories.repository.commit(id)
    return None


def word_term(word: str) -> str:
    """Return the term of a word."""
    stored = word.encode("utf-8", "surrogatepass")
    return f"w{stored.hex()}" if len(stored) <= _LONGEST else f"y{blake2b(stored, digest_size=16).hexdigest()}"


@lru_cache(4096)
def _gram_terms(word: str) -> frozenset[str]:
    """Return the terms of the grams of a word. The cache serves the few words that a language repeats most."""
    return frozenset(map(_gram_term, grams_of(word)))


def _gram_term(gram: str) -> str:
    return "g" + gram.encode("utf-8", "surrogatepass").hex()


def terms_of(text: str) -> tuple[Counter[str], list[str]]:
    """Return the terms of the words of a text, each with its count, and those of its grams."""
    words = words_of(text)
    grams = {term for word in words for term in _gram_terms(word)}
    terms = Counter({word_term(word): times for word, times in words.items()})
    return terms, [*sorted(grams), *([] if is_plain(text) else [ODD])]


def terms_within(groups: Sequence[Sequence[str]]) -> list[list[str]] | None:
    """Return the groups of terms that a text must have for groups of pieces, or None if one of them narrows nothing."""
    found = []
    for group in groups:
        narrowing = [grams for piece in group if (grams := grams_within(piece)) is not None]
        if not narrowing:
            return None
        found.append(sorted({_gram_term(gram) for grams in narrowing for gram in grams}))
    return found
