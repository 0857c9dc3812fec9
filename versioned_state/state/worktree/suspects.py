"""Which live values may have been changed in place. Layer: state.

A large value has a baseline of its own. Small ones share marks in packs, so a status of 100,000 small dicts is some 1,600
packing calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from versioned_state.state.worktree.entries import IMMUTABLE, Entry, Pack
from versioned_state.values.codec.scalars import TooDeepError, is_plain
from versioned_state.values.detection.baselines import Pinned
from versioned_state.values.detection.fingerprinter import Fingerprinter
from versioned_state.values.detection.groups import GROUP_SIZE, Fingerprint

_SHORT_PACKS: Final = 8


class Suspects:
    """Watches the values that were what the head has. Not those that were assigned since: they are encoded anyway.

    Args:
        marker: makes and compares the marks.
        entries: where the values are, by root key.
    """

    def __init__(self, marker: Fingerprinter, entries: Mapping[bytes, Entry]) -> None:
        self._marker = marker
        self._entries = entries
        self._large: set[bytes] = set()  # keys with a baseline of their own that may change in place
        self._single: dict[bytes, Fingerprint] = {}  # small mutable values that were loaded since the packs were formed
        self._packs: list[Pack] = []

    def mark(self, value: Any) -> Fingerprint:
        """What a value that has no baseline is watched by, as it is now; for one that cannot change in place that is nothing."""
        return None if type(value) in IMMUTABLE else self._mark_run([value])

    def _mark_run(self, values: list[Any], *, plain: bool = False) -> Fingerprint:
        try:
            plain = plain or is_plain(values)
        except (TooDeepError, RecursionError):
            return None
        return self._marker.of(values, plain=plain)[0]

    def add(self, key: bytes, entry: Entry, mark: Fingerprint) -> None:
        """Suspects the value of a entry, by its baseline or by what ``mark`` gave."""
        if entry.base is not None:
            if not isinstance(entry.base, Pinned):
                self._large.add(key)
        elif type(entry.value) not in IMMUTABLE:
            self._single[key] = mark

    def forget(self, key: bytes) -> None:
        """Suspects it no longer."""
        self._large.discard(key)
        self._single.pop(key, None)
        entry = self._entries.get(key)
        if entry is not None:
            entry.pack = None

    def has(self, key: bytes, entry: Entry) -> bool:
        """Whether a change in place would be seen."""
        return entry.base is not None or entry.pack is not None or key in self._single

    def find(self, broken: list[Pack]) -> Iterator[bytes]:
        """The keys whose values may have been changed; packs that no longer hold together go to ``broken``."""
        entries, marker = self._entries, self._marker
        # What has a baseline of its own is compared as it is encoded.
        yield from list(self._large)
        for key, mark in self._single.items():
            if not marker.same(mark, [entries[key].value]):
                yield key
        for pack in self._packs:
            if marker.same(pack.mark, pack.values):
                continue
            broken.append(pack)
            for key in pack.keys:
                if key in entries and entries[key].pack is pack:
                    yield key

    def repack(self, broken: list[Pack], fresh: dict[bytes, bool]) -> None:
        """Form packs anew of what was loaded, of ``fresh`` (and whether each is known to be plain), and of packs that fell apart."""
        if not (broken or fresh or self._single):
            return
        keys = dict.fromkeys(self._single, False)
        self._single.clear()
        keys.update(fresh)
        gone = {id(pack) for pack in broken}
        short = self._packs[-_SHORT_PACKS:]
        if keys and len(short) == _SHORT_PACKS and all(len(pack.keys) < GROUP_SIZE // 2 for pack in short):
            # A handle that loads a few keys a round would mark all of a pack again each time; so it forms several, and then one.
            broken = [*broken, *(pack for pack in short if id(pack) not in gone)]
            gone.update(map(id, short))
        for pack in broken:
            for key in pack.keys:
                if key in self._entries and self._entries[key].pack is pack:
                    keys.setdefault(key, False)
        if gone:
            self._packs = [pack for pack in self._packs if id(pack) not in gone]
        members = [key for key in keys if key in self._entries]
        for start in range(0, len(members), GROUP_SIZE):
            part = members[start : start + GROUP_SIZE]
            values = [self._entries[key].value for key in part]
            pack = Pack(part, values, self._mark_run(values, plain=all(map(keys.__getitem__, part))))
            for key in part:
                self._entries[key].pack = pack
            self._packs.append(pack)
