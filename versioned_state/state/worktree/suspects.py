"""``Suspects``: the live values that may have changed in place. Layer: state.

A large value has its own baseline. Small values share the fingerprint of a pack, so a status over 100,000 small dicts
takes about 1,600 packing calls.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from versioned_state.state.worktree.entries import IMMUTABLE, Entry, Pack, Repacking
from versioned_state.values.codec.scalars import TooDeepError, is_plain
from versioned_state.values.detection.baselines import Pinned
from versioned_state.values.detection.fingerprinter import Fingerprinter
from versioned_state.values.detection.groups import GROUP_SIZE, Fingerprint

_SHORT_PACKS: Final = 8
"""The number of short packs at the end of the list that are merged at once."""

_NO_PACKS: Final = Repacking((), ())


class Suspects:
    """The detection of changes in place, in values that were equal to the head's.

    Assigned values are not compared, but always encoded.

    Args:
        fingerprinter: makes and compares the fingerprints.
        entries: the entries of the tracked keys.
    """

    def __init__(self, fingerprinter: Fingerprinter, entries: Mapping[bytes, Entry]) -> None:
        self._fingerprinter = fingerprinter
        self._entries = entries
        self._large: set[bytes] = set()  # keys of mutable values with their own baseline
        self._single: dict[bytes, Fingerprint] = {}  # small mutable values loaded since the packs were formed
        self._packs: list[Pack] = []

    @property
    def held_bytes(self) -> int:
        """Approximate bytes of memory of the accelerator's marks. Cost: the packs."""
        return sum(sys.getsizeof(pack.marks) for pack in self._packs if pack.marks is not None)

    def fingerprint(self, value: Any) -> Fingerprint:
        """Return the fingerprint of a value without a baseline, or None if its type cannot change in place."""
        return None if type(value) in IMMUTABLE else self._fingerprint_of([value])

    def _fingerprint_of(self, values: list[Any], *, plain: bool = False) -> Fingerprint:
        try:
            plain = plain or is_plain(values)
        except (TooDeepError, RecursionError):
            return None
        return self._fingerprinter.of(values, plain=plain)[0]

    def add(self, key: bytes, entry: Entry, fingerprint: Fingerprint) -> None:
        """Begin to compare the value of an entry with its baseline, or with ``fingerprint``."""
        if entry.base is not None:
            if type(entry.base) is not Pinned:
                self._large.add(key)
        elif type(entry.value) not in IMMUTABLE:
            self._single[key] = fingerprint

    def forget(self, key: bytes) -> None:
        """Stop comparing the value of a key."""
        self._large.discard(key)
        self._single.pop(key, None)
        entry = self._entries.get(key)
        if entry is not None:
            pack, entry.pack = entry.pack, None
            if pack is not None:
                pack.members -= 1
                if not pack.members:
                    pack.values = []  # the next commit removes the pack itself

    def has(self, key: bytes, entry: Entry) -> bool:
        """Return whether a change in place would be detected."""
        return entry.base is not None or entry.pack is not None or key in self._single

    def find(self, broken: list[Pack]) -> Iterator[bytes]:
        """Iterate over the keys whose values may have changed. Packs whose fingerprint differs go to ``broken``."""
        entries, fingerprinter = self._entries, self._fingerprinter
        # The encoder compares a large value with its baseline.
        yield from list(self._large)
        for key, fingerprint in self._single.items():
            if not fingerprinter.same(fingerprint, [entries[key].value]):
                yield key
        for pack in self._packs:
            if not pack.values:
                broken.append(pack)
                continue
            marks = pack.marks
            if marks is not None:
                if marks.same(pack.values, 0):
                    continue
                marked = fingerprinter.of_marked(pack.values)
                if marked is not None and marked[0] == pack.fingerprint:  # equal leaves have taken the places of some
                    pack.marks = marked[2]
                    continue
            elif fingerprinter.same(pack.fingerprint, pack.values):
                continue
            broken.append(pack)
            for key in pack.keys:
                if key in entries and entries[key].pack is pack:
                    yield key

    def repack(self, broken: list[Pack], fresh: Mapping[bytes, bool], encoded: Collection[bytes]) -> Repacking:
        """Form new packs from newly loaded values, broken packs and ``fresh``, with their present content.

        ``install`` activates them.

        Args:
            fresh: encoded keys, each with whether its value is known to be plain.
            encoded: all keys that were encoded; the others have not changed.
        """
        keys = {key: False for key in self._single if key not in encoded} if self._single else {}
        if not (broken or fresh or keys):
            return _NO_PACKS
        keys.update(fresh)
        gone = {id(pack) for pack in broken}
        short = self._packs[-_SHORT_PACKS:]
        if keys and len(short) == _SHORT_PACKS and all(len(pack.keys) < GROUP_SIZE // 2 for pack in short):
            # Merge short packs only when there are many. Adding a round's few keys to the last pack would repack that
            # one every round.
            broken = [*broken, *(pack for pack in short if id(pack) not in gone)]
            gone.update(map(id, short))
        for pack in broken:
            for key in pack.keys:
                if key in self._entries and key not in encoded and self._entries[key].pack is pack:
                    keys.setdefault(key, False)
        members = [key for key in keys if key in self._entries]
        packs = []
        for start in range(0, len(members), GROUP_SIZE):
            part = members[start : start + GROUP_SIZE]
            values = [self._entries[key].value for key in part]
            marked = self._fingerprinter.of_marked(values) if self._fingerprinter.fast is not None else None
            if marked is not None:
                packs.append(Pack(part, values, marked[0], marked[2]))
            else:
                packs.append(Pack(part, values, self._fingerprint_of(values, plain=all(map(keys.__getitem__, part)))))
        return Repacking(gone, packs)

    def install(self, repacking: Repacking) -> None:
        """Use new packs for comparison from now on. Reads no value."""
        if repacking.gone:
            self._packs = [pack for pack in self._packs if id(pack) not in repacking.gone]
        for pack in repacking.packs:
            for key, value in zip(pack.keys, pack.values, strict=True):
                entry = self._entries.get(key)
                if entry is not None and entry.value is value:
                    self._single.pop(key, None)
                    entry.pack = pack
                    pack.members += 1
        self._packs += repacking.packs
