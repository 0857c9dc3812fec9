"""Searches by keyword and by words: an index names candidates, and reading them decides. Layer: services."""

from __future__ import annotations

from itertools import islice
from operator import itemgetter
from typing import Any, Final

from versioned_state.services.calls.spending import counted
from versioned_state.services.memory.indexes.index import WordIndex, bm25, scan
from versioned_state.services.memory.memories import Memories, Place
from versioned_state.services.memory.text import keywords_of, matcher, pieces_of, text_of, words_of

_MOST_KEYWORDS: Final = 128
"""The most keywords, or words, of a query for which an index is used: with more, nearly every message has one."""


def by_keyword(memories: Memories, index: WordIndex, query: str, top_k: int | None) -> list[dict[str, Any]]:
    """Find the messages with one of the keywords of a query, in order of time. ``top_k`` limits them to the newest."""
    keywords = keywords_of(query)
    matches = matcher(keywords)
    places = _narrowed(memories, index, keywords)
    if top_k is None and (places is None or len(places) > len(memories) // 2):
        found = sorted((counted(row) for row in memories.all() if matches(text_of(row[1]))), key=itemgetter(0))
        return [data for _, data in found]
    newest = memories.read(sorted(memories.places() if places is None else places, reverse=True))
    return list(islice((counted(data) for _, data in newest if matches(text_of(data))), top_k))[::-1]


def by_words(memories: Memories, index: WordIndex, query: str, top_k: int | None) -> list[dict[str, Any]]:
    """Find the messages with one of the words of a query, the best by BM25 first."""
    words = words_of(query).keys()
    counts = index.counts(memories, words) if 0 < len(words) <= _MOST_KEYWORDS else None
    if counts is None:
        counts = scan(memories, words)
    return [counted(data) for _, data in memories.read(bm25(counts)[:top_k])]


def _narrowed(memories: Memories, index: WordIndex, keywords: frozenset[str]) -> set[Place] | None:
    """Find the messages that may have one of the keywords. Returns None if the index cannot narrow them."""
    if len(keywords) > _MOST_KEYWORDS:
        return None
    groups = []
    for keyword in sorted(keywords):
        pieces = pieces_of(keyword)
        if pieces == []:
            return None  # only punctuation, which is in no word
        if pieces is not None:
            groups.append(pieces)
    return index.holding(memories, groups)
