r"""``InState``: an index of words that lies in the state, in the same commits as the messages. Layer: services.

Each addition of messages writes a segment, which never changes. Once there are eight segments of one size, the next
addition merges them, so a message is rewritten at most once for each power of eight, and a search reads a few dozen
segments at most::

    @words["0.2.17.<mark>"]   {"words": "apple\nred\n…", "places": [[id, session, words], …],
                               "having": {"apple": …, "red": …}}
    @words["1.16.97.<mark>"]  eight of these: 16 messages, with 97 words in all

"words" is small and holds every word once; "having" is read by word: the numbers of the places, each followed by how
often the word is there. The names of segments are unique, so concurrent additions merge. The index is ignored, and
rebuilt by the next addition, if it does not have as many messages as the state: for example after a purge of one, or if
two writers merged the same segments.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgpack

from versioned_state.services.memory.indexes.index import Counts, WordIndex
from versioned_state.services.memory.memories import Memories, Place, count_in
from versioned_state.services.memory.text import is_plain, text_of, words_of
from versioned_state.state.versioned import Versioned
from versioned_state.values.paths.path import Index, Key

WORDS: Final = "words"

_GROUP: Final = 8
_ODD: Final = " "
"""An entry among the words for texts whose pieces are not those of their keywords: see ``text.is_plain``.

No word is a space.
"""
_FEW: Final = 32
"""The most places of a segment that are read one by one."""


class _Segment(NamedTuple):
    """A segment in memory: places with their length, and for each word how often each place has it."""

    places: list[tuple[Place, int]]
    having: dict[str, list[tuple[int, int]]]


class InState(WordIndex):
    """See the module."""

    def holding(self, memories: Memories, groups: Sequence[Sequence[str]]) -> set[Place] | None:
        segments = _open(memories)
        if segments is None:
            return None
        found: set[Place] = set()
        for segment in segments:
            words = segment.words
            numbers = set(segment.having(_ODD))
            for group in groups:
                sets = [
                    {number for word in _words_with(words, piece) for number in segment.having(word)}
                    for piece in set(group)
                ]
                numbers |= set.intersection(*sets)
            found |= set(segment.places(numbers))
        return found

    def counts(self, memories: Memories, words: Collection[str]) -> Counts | None:
        segments = _open(memories)
        if segments is None:
            return None
        lengths: dict[Place, int] = {}
        places: dict[str, dict[Place, int]] = defaultdict(dict)
        for segment in segments:
            having = {word: found for word in words if (found := segment.having(word))}
            known = segment.places({number for found in having.values() for number in found})
            by_number = {number: place for place, (number, _) in known.items()}
            lengths |= {place: length for place, (_, length) in known.items()}
            for word, found in having.items():
                places[word] |= {by_number[number]: times for number, times in found.items()}
        return Counts(len(memories), sum(segment.length for segment in segments), lengths, places)

    def added(self, state: Versioned, texts: Mapping[Place, str]) -> list[str]:
        stored = state.namespace(WORDS)
        memories = Memories(state.repository, state.branch, state.head)
        new = _segment_of(texts)
        segments = [_Stored(memories, name) for name in stored]
        if sum(segment.count for segment in segments) + len(texts) != count_in(state):
            new = _joined([_segment_of({place: text_of(fields) for place, fields in memories.all()}), new])
            for name in stored:
                del stored[name]
            segments = []
        level = _level_of(len(new.places))
        levels: dict[int, list[_Stored]] = defaultdict(list)
        for segment in segments:
            levels[segment.level].append(segment)
        old: list[_Stored] = []
        while len(levels[level]) >= _GROUP - 1:
            old += levels[level]
            level += 1
        for segment in old:
            del stored[segment.name]
        return [_store(stored, level, _joined([*_load(memories, old), new]), old)]

    def removing(self, state: Versioned, session: str) -> list[str]:
        stored = state.namespace(WORDS)
        memories = Memories(state.repository, state.branch, state.head)
        left = _joined(_without(segment, session) for segment in _load(memories, _all(memories)))
        for name in stored:
            del stored[name]
        return [_store(stored, _level_of(len(left.places)), left, ())] if left.places else []


class _Stored:
    """A segment at a commit. Each query costs what it reads."""

    def __init__(self, memories: Memories, name: str) -> None:
        self._memories = memories
        self.name = name
        self.level, self.count, self.length = map(int, name.split(".")[:3])

    @cached_property
    def _parts(self) -> dict[str, bytes]:
        cell = self._memories.cell((WORDS,), self.name)
        assert cell is not None
        return {name: self._memories.part(cell, Key(name)) or b"" for name in ("words", "places", "having")}

    @property
    def words(self) -> str:
        words: str = self._memories.decode([self._parts["words"]])[0]
        return words

    def having(self, word: str) -> dict[int, int]:
        """Return the numbers of the places that have a word, each with how often."""
        cell = self._memories.part(self._parts["having"], Key(word))
        return {} if cell is None else dict(_unpacked(self._memories.decode([cell])[0]))

    def places(self, numbers: Collection[int]) -> dict[Place, tuple[int, int]]:
        """Return the places of some numbers, each with the number and how many words it has."""
        if not numbers:
            return {}
        cell = self._parts["places"]
        if len(numbers) > _FEW:
            (rows,) = self._memories.decode([cell])
        else:
            cells = {number: self._memories.part(cell, Index(number)) or b"" for number in numbers}
            rows = dict(zip(cells, self._memories.decode(list(cells.values())), strict=True))
        return {Place(rows[number][0], rows[number][1]): (number, rows[number][2]) for number in numbers}


def _load(memories: Memories, segments: Iterable[_Stored]) -> Iterator[_Segment]:
    """Yield whole segments, which are read at once."""
    cells = [cell for segment in segments if (cell := memories.cell((WORDS,), segment.name)) is not None]
    for whole in memories.decode(cells):
        having = {word: list(_unpacked(packed)) for word, packed in whole["having"].items()}
        yield _Segment([(Place(id, session), length) for id, session, length in whole["places"]], having)


def _unpacked(packed: bytes) -> Iterator[tuple[int, int]]:
    flat = msgpack.unpackb(packed)
    return zip(flat[::2], flat[1::2], strict=True)


def _all(memories: Memories) -> list[_Stored]:
    return [_Stored(memories, name) for name in memories.keys((WORDS,))]


def _open(memories: Memories) -> list[_Stored] | None:
    """Return the segments, or None if they do not have all messages."""
    segments = _all(memories)
    return segments if sum(segment.count for segment in segments) == len(memories) else None


def _words_with(words: str, piece: str) -> Iterator[str]:
    """Return the words that contain a piece, out of lines of one word each."""
    at = words.find(piece)
    while at >= 0:
        start, end = words.rfind("\n", 0, at) + 1, words.index("\n", at)
        yield words[start:end]
        at = words.find(piece, end)


def _segment_of(texts: Mapping[Place, str]) -> _Segment:
    places = []
    having: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, (place, text) in enumerate(texts.items()):
        words = words_of(text)
        places.append((place, words.total()))
        for word, times in (words if is_plain(text) else words + Counter((_ODD,))).items():
            having[word].append((number, times))
    return _Segment(places, having)


def _joined(segments: Iterable[_Segment]) -> _Segment:
    """Join segments into one, without entries that two of them have."""
    places: list[tuple[Place, int]] = []
    seen: set[Place] = set()
    having: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for segment in segments:
        numbers = {}
        for old, (place, length) in enumerate(segment.places):
            if place not in seen:
                seen.add(place)
                numbers[old] = len(places)
                places.append((place, length))
        for word, found in segment.having.items():
            having[word] += [(numbers[number], times) for number, times in found if number in numbers]
    return _Segment(places, having)


def _without(segment: _Segment, session: str) -> _Segment:
    kept = [number for number, (place, _) in enumerate(segment.places) if place.session != session]
    numbers = {old: new for new, old in enumerate(kept)}
    having = {
        word: left
        for word, found in segment.having.items()
        if (left := [(numbers[old], times) for old, times in found if old in numbers])
    }
    return _Segment([segment.places[number] for number in kept], having)


def _level_of(count: int) -> int:
    """Return the level of a segment of this many messages: its logarithm to base eight."""
    level = 0
    while count >= _GROUP:
        count //= _GROUP
        level += 1
    return level


def _store(stored: Any, level: int, segment: _Segment, old: Iterable[_Stored]) -> str:
    """Stage a segment that replaces some others. Returns its name."""
    # Two writers who merge the same segments with different messages make two segments, not a conflict.
    mark = blake2b(
        "\n".join([*(each.name for each in old), *(place.key for place, _ in segment.places)]).encode(
            errors="surrogatepass"
        )
    )
    words = sorted(word for word, found in segment.having.items() if found)
    name = f"{level}.{len(segment.places)}.{sum(length for _, length in segment.places)}.{mark.hexdigest()[:16]}"
    stored[name] = {
        "words": "".join(f"{word}\n" for word in words),
        "places": [[place.id, place.session, length] for place, length in segment.places],
        "having": {word: msgpack.packb([number for pair in segment.having[word] for number in pair]) for word in words},
    }
    return name
