"""``WordIndex``, the interface of indexes of words, and BM25, which is the same for all of them. Layer: services."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Final

from versioned_state.services.memory.memories import Memories, Place
from versioned_state.services.memory.text import text_of, words_of
from versioned_state.state.versioned import Versioned

_K1: Final = 1.2
_B: Final = 0.75
"""How quickly repetitions of a word saturate, and how much the length of a message matters.

These are the usual values (Robertson, Zaragoza 2009, The Probabilistic Relevance Framework).
"""


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts for BM25.

    Attributes:
        messages, length: how many messages the user has, and how many words they have in all.
        lengths: how many words each message has that contains one of the words of the query.
        places: for each word of the query, how often each of those messages has it.
    """

    messages: int
    length: int
    lengths: Mapping[Place, int]
    places: Mapping[str, Mapping[Place, int]]


class WordIndex(ABC):
    """An index of the words of all messages. It only names candidates, which a search reads.

    None means that the index has no answer, so that the search reads all messages.
    """

    @abstractmethod
    def holding(self, memories: Memories, groups: Sequence[Sequence[str]]) -> set[Place] | None:
        """Return the messages that have each piece of one of the groups within a word, and perhaps others."""

    @abstractmethod
    def counts(self, memories: Memories, words: Collection[str]) -> Counts | None:
        """Count how often the messages have some words."""

    def added(self, state: Versioned, texts: Mapping[Place, str]) -> list[str]:
        """Stage the entries of an index in the state for new messages. Returns the keys of ``@words`` that it set."""
        return []

    def removing(self, state: Versioned, session: str) -> list[str]:
        """Stage the removal of a session from an index in the state. Returns the keys of ``@words`` that it set."""
        return []

    def erase(self, branch: str) -> None:  # noqa: B027 - an index in the state has nothing there
        """Erase the index of a branch outside of the state. The next search rebuilds it."""


def scan(memories: Memories, words: Collection[str]) -> Counts:
    """Count words as ``WordIndex.counts``, by reading every message."""
    wanted = frozenset(words)
    total, lengths = 0, {}
    places: dict[str, dict[Place, int]] = defaultdict(dict)
    for place, fields in memories.all():
        found = words_of(text_of(fields))
        length = found.total()
        total += length
        for word in wanted & found.keys():
            places[word][place] = found[word]
            lengths[place] = length
    return Counts(len(memories), total, lengths, places)


def bm25(counts: Counts) -> list[Place]:
    """Return the messages with one of the words, the best first, and among equals the newest first."""
    mean = counts.length / counts.messages if counts.length else 1.0
    norms = {place: _K1 * (1 - _B + _B * length / mean) for place, length in counts.lengths.items()}
    scores: dict[Place, float] = defaultdict(float)
    for word in sorted(counts.places):  # a sum of floats depends on its order
        having = counts.places[word]
        rarity = log(1 + (counts.messages - len(having) + 0.5) / (len(having) + 0.5))
        for place, times in having.items():
            scores[place] += rarity * times * (_K1 + 1) / (times + norms[place])
    return sorted(sorted(scores, reverse=True), key=lambda place: round(-scores[place], 9))
