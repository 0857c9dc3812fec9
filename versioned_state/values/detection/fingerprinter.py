"""Whether live values are unchanged since they were committed, at packing speed. Layer: values."""

from __future__ import annotations

from typing import Any, Final

import msgpack

from versioned_state.values.cells import array_header
from versioned_state.values.codec import arrays
from versioned_state.values.codec.scalars import NotDataError, TooDeepError, is_plain
from versioned_state.values.detection.baselines import Baseline, Buffer, Elements, Entries, Pinned, Whole
from versioned_state.values.detection.exact import pack_exactly
from versioned_state.values.detection.groups import GROUP_BYTES, GROUP_SIZE, Fingerprint, Groups, Run, hash_bytes
from versioned_state.values.trees.blob import binary_spans

_CANNOT_PACK: Final = (TypeError, OverflowError, ValueError)
"""The errors of a Packer: another type; an int beyond 64 bits; a lone surrogate, or a value that contains itself."""


class Fingerprinter:
    """Makes and compares fingerprints, of JSON types by MessagePack, of others by ``exact``. Not for two threads at once."""

    def __init__(self) -> None:
        # strict_types: a subclass must not pass as its base. No default: any type that is not JSON's raises.
        self._pack = msgpack.Packer(strict_types=True).pack
        self._known: dict[bytes, bytes] = {}  # see pack_exactly
        self._compared: tuple[Groups, int, bytes] | None = None  # the last group of JSON types that was as before, packed

    # Runs of values

    def of(self, run: list[Any], *, plain: bool = False) -> tuple[Fingerprint, int]:
        """The fingerprint of a run, and its packed size. ``plain``: the values are known to be of JSON types."""
        if plain or _is_plain(run):
            try:
                packed = self._pack(run)
            except _CANNOT_PACK:
                pass
            else:
                return hash_bytes(packed), len(packed)
        pickled = pack_exactly(run, self._known)
        if pickled is None:
            return None, 0
        return ~hash_bytes(pickled), len(pickled)

    def same(self, fingerprint: Fingerprint, run: list[Any]) -> bool:
        """Whether a run is surely unchanged since it got this fingerprint."""
        if fingerprint is None:
            return False
        if type(fingerprint) is tuple:
            return self._pack_as_leaves(fingerprint, run) is not None
        if fingerprint >= 0:  # type: ignore[operator]
            try:
                return hash_bytes(self._pack(run)) == fingerprint
            except _CANNOT_PACK:
                return False
        pickled = pack_exactly(run, self._known)
        return pickled is not None and ~hash_bytes(pickled) == fingerprint

    def _pack_as_leaves(self, leaves: tuple[bytes, ...], run: list[Any]) -> bytes | None:
        """The packed run if these leaves still hold the same, else None."""
        try:
            packed: bytes = self._pack(run)
        except _CANNOT_PACK:
            return None
        return packed if packed == array_header(len(run)) + b"".join(map(_elements_of, leaves)) else None

    # Groups

    def group(self, values: list[Any], sizes: list[int], children: dict[int, Baseline], *, plain: bool = False) -> Groups:
        """The groups over values.

        Args:
            sizes: the length of each value's cell.
            children: the baselines of the large values, by index.
            plain: the others are known to be of JSON types.
        """
        groups = Groups()
        start = weight = 0
        for index, size in enumerate(sizes):
            if index in children:
                self._add(groups, values[start:index], plain=plain)
                groups.add(1, None, 0, children[index])
                start, weight = index + 1, 0
                continue
            weight += size
            if index + 1 - start >= GROUP_SIZE or weight >= GROUP_BYTES:
                self._add(groups, values[start : index + 1], plain=plain)
                start, weight = index + 1, 0
        self._add(groups, values[start:], plain=plain)
        return groups

    def _add(self, groups: Groups, run: list[Any], *, plain: bool) -> None:
        if run:
            groups.add(len(run), *self.of(run, plain=plain))

    def find_runs(self, groups: Groups, elements: list[Any], *, prefix: int | None = None, suffix: int | None = None) -> list[Run]:
        """The runs that may have changed, in order. If the length changed, all between the first and the last change is one run.

        Args:
            prefix, suffix: how many elements from either end may count as the same; without them, all.
        """
        sizes, count, length = groups.sizes, len(groups.sizes), len(elements)
        shift = length - groups.total
        first = position = 0
        most = length if prefix is None else prefix
        same = self._same_group
        while first < count and position + sizes[first] <= most and same(groups, first, elements, position):
            position += sizes[first]
            first += 1
        if first == count and shift == 0:
            return []
        last, old_end = count, groups.total
        least = max(position, 0 if suffix is None else length - suffix)
        while last > first:
            start = old_end - sizes[last - 1]
            if start + shift < least or not same(groups, last - 1, elements, start + shift):
                break
            old_end = start
            last -= 1
        if prefix is not None or shift:
            return [Run(first, last, position, old_end, position, old_end + shift)]
        runs = []
        for group in range(first, last):
            end = position + sizes[group]
            if group in (first, last - 1) or not same(groups, group, elements, position):
                runs.append(Run(group, group + 1, position, end, position, end))
            position = end
        return runs

    def _same_group(self, groups: Groups, group: int, elements: list[Any], start: int) -> bool:
        child = groups.children[group]
        if child is not None:
            return self.is_unchanged(elements[start], child)
        fingerprint = groups.fingerprints[group]
        run = elements[start : start + groups.sizes[group]]
        if fingerprint is None:
            return False
        if type(fingerprint) is tuple:
            packed = self._pack_as_leaves(fingerprint, run)
            if packed is None:
                return False
            groups.hashed(group, hash_bytes(packed), len(packed))
        elif fingerprint < 0:  # type: ignore[operator]
            return self.same(fingerprint, run)
        else:
            try:
                packed = self._pack(run)
            except _CANNOT_PACK:
                return False
            if hash_bytes(packed) != fingerprint:
                return False
        self._compared = groups, group, packed
        return True

    def extended(self, groups: Groups, group: int, cells: list[bytes]) -> tuple[int, int] | None:
        """The fingerprint and size of a group with the elements of these cells behind it, if the group was the last to be compared.

        All are of JSON types. Cost: hashing them; nothing is packed again.
        """
        compared, self._compared = self._compared, None
        if compared is None or compared[0] is not groups or compared[1] != group:
            return None
        size = groups.sizes[group]
        packed = array_header(size + len(cells)) + compared[2][len(array_header(size)) :] + b"".join(cells)
        return hash_bytes(packed), len(packed)

    # Values with a baseline of their own

    def is_unchanged(self, value: Any, base: Baseline) -> bool:
        """Whether a value is surely unchanged since its baseline. Cost: packing it once."""
        cls: type = type(value)  # of its own, so that the check narrows nothing
        if cls is not base.type:
            return False
        if type(base) is Pinned:
            return value is base.value
        if type(base) is Elements:
            return not self.find_runs(base.groups, value)
        if type(base) is Whole:
            return self.same(base.fingerprint, [value])
        if type(base) is Entries:
            return self.same(base.keys_fingerprint, list(value)) and not self.find_runs(base.groups, list(value.values()))
        assert isinstance(base, Buffer)
        try:
            form, view = arrays.buffer_of(value)
        except NotDataError:  # an array that is stored in another way than the one before it
            return False
        return form == base.form and len(view) == base.size and [hash_bytes(view[a:b]) for a, b in binary_spans(len(view))] == base.hashes


def _is_plain(run: list[Any]) -> bool:
    try:
        return is_plain(run)
    except (TooDeepError, RecursionError):
        return False


def _elements_of(leaf: bytes) -> bytes:
    """The cells of a leaf, behind its kind and the header of its array."""
    return leaf[{0xDC: 4, 0xDD: 6}.get(leaf[1], 2) :]
