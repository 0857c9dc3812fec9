"""``Fingerprinter``: whether live values are unchanged since they were committed, at packing speed. Layer: values."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgpack

from versioned_state.values import accelerator
from versioned_state.values.accelerator import MOST_MARKED, Accelerator, Marks
from versioned_state.values.cells import MAX_DEPTH, PACKER_BYTES, array_header
from versioned_state.values.codec import arrays
from versioned_state.values.codec.scalars import NotDataError, TooDeepError, is_plain
from versioned_state.values.detection.alignment import rising
from versioned_state.values.detection.baselines import Baseline, Buffer, Elements, Entries, Pinned, Typed, Whole
from versioned_state.values.detection.exact import ExactPacker, holds_binary
from versioned_state.values.detection.groups import (
    GROUP_BYTES,
    GROUP_SIZE,
    UNKNOWN,
    Fingerprint,
    Group,
    Groups,
    Run,
    hash_bytes,
    is_plain_fingerprint,
)
from versioned_state.values.trees.blob import binary_spans
from versioned_state.values.typed.registry import quick_fingerprint, take_apart
from versioned_state.values.typed.tagged import Notes

_CANNOT_PACK: Final = (TypeError, OverflowError, ValueError)
"""The errors of a Packer: another type; an int beyond 64 bits; a lone surrogate, or a value that contains itself."""

_MANY_GROUPS: Final = 4
"""Seemingly changed groups from which they are searched for elsewhere: encoding fewer takes no longer than a search."""

_HEADER: Final = 5
"""The most bytes of the header of a packed run."""

_BY_PICKLE: Final = -(1 << 64) - 1
"""Fingerprints from here down are of runs that pickle packed."""


class _Found(NamedTuple):
    """A value compared with its baseline: whether it is unchanged, and the runs of a list or dict that may differ."""

    base: Baseline
    value: Any
    unchanged: bool
    runs: list[Run] | None


class Fingerprinter:
    """Fingerprints, made and compared: of JSON types by MessagePack, of others by an ``ExactPacker``.

    Not for two threads at once.

    Attributes:
        keeps_found: whether the results of comparisons are kept, and used again, so that none is made anew at each
            level. Only while one value is encoded, and none can change.
        found: these results. ``forget_found`` empties it.
        fast: the accelerator, or None.
        keeps_marks: whether comparisons may keep the leaves of values alive, because the values stay alive anyway.
    """

    def __init__(self) -> None:
        self.fast: Accelerator | None = accelerator.fast
        self.keeps_marks = True
        self.renew_buffers()
        self._exact = ExactPacker()
        self._content: ExactPacker | None = None
        self._compared: tuple[Group, bytes] | None = None  # the last unchanged group of JSON types, packed
        self.found: dict[int, _Found] = {}  # by the id of the baseline
        # by id: the instances among them, taken apart
        self._records: dict[int, tuple[Any, tuple[str, Any, Notes]]] = {}
        self.keeps_found = False

    def renew_buffers(self) -> None:
        """Release the packer's buffer, which is as large as the largest run that it has packed."""
        # strict_types: a subclass must not pass as its base. No default: any type that is not JSON's raises.
        self._pack = msgpack.Packer(strict_types=True, buf_size=PACKER_BYTES).pack

    # Runs of values

    def of(self, run: list[Any], *, plain: bool = False) -> tuple[Fingerprint, int]:
        """Return the fingerprint of a run, and its packed size. ``plain``: the values are known to be of JSON types."""
        if self.fast is not None and (at_once := self.fast.pack(run, MAX_DEPTH + 1, MOST_MARKED)) is not None:
            return hash_bytes(at_once), len(at_once)
        if plain or _is_plain(run):
            try:
                packed = self._pack(run)
            except _CANNOT_PACK:
                pass
            else:
                return hash_bytes(packed), len(packed)
        try:
            packed = None if holds_binary(run) else self._exact.pack(run)
        except RecursionError:  # it contains itself
            return None, 0
        if packed is not None:
            return ~hash_bytes(packed), len(packed)
        pickled = self._exact.pickle(run)
        if pickled is None:
            return None, 0
        return _BY_PICKLE - hash_bytes(pickled), len(pickled)

    def of_marked(self, run: list[Any]) -> tuple[int, int, Marks] | None:
        """Return the fingerprint, packed size and marks of a run of JSON types, or None if it can have no marks."""
        if self.fast is None or not self.keeps_marks:
            return None
        marked = self.fast.pack_marked(run, 0, len(run), MAX_DEPTH, MOST_MARKED)
        return None if marked is None else (hash_bytes(marked[0]), len(marked[0]), marked[1])

    def same(self, fingerprint: Fingerprint, run: list[Any]) -> bool:
        """Return whether a run is certainly unchanged since this fingerprint was made."""
        if fingerprint is None:
            return False
        if type(fingerprint) is tuple:
            return self._pack_as_leaves(fingerprint, run) is not None
        if fingerprint >= 0:  # type: ignore[operator]
            try:
                return hash_bytes(self._pack(run)) == fingerprint
            except _CANNOT_PACK:
                return False
        if fingerprint > _BY_PICKLE:  # type: ignore[operator]
            exact = self._exact.pack(run)
            return exact is not None and ~hash_bytes(exact) == fingerprint
        pickled = self._exact.pickle(run)
        return pickled is not None and _BY_PICKLE - hash_bytes(pickled) == fingerprint

    def content(self, value: Any) -> Any:
        """Return a hash of a value's content, whether or not parts are the same object, or None if there is none."""
        if self._content is None:
            self._content = ExactPacker(identities=False)
        run = [value]
        try:
            packed = None if holds_binary(run) else self._content.pack(run)
        except RecursionError:
            return None
        if packed is not None:
            return hash_bytes(packed)
        pickled = self._content.pickle(run)
        return None if pickled is None else _BY_PICKLE - hash_bytes(pickled)

    def of_object(self, value: Any) -> Fingerprint:
        """Return the fingerprint of a value that is stored as an object."""
        packed = self._exact.pack_object(value)
        return None if packed is None else ~hash_bytes(packed)

    def of_record(self, data: Any, notes: Notes) -> tuple[Fingerprint, Fingerprint]:
        """Return the fingerprints of the data and the notes of a typed value. ``data`` is None if it has a baseline."""
        return None if data is None else self.of([data])[0], 0 if notes is None else self.of([notes])[0]

    def is_unchanged_record(self, data: Any, notes: Notes, base: Typed) -> bool:
        """Return whether the data and the notes of a typed value are certainly unchanged since its baseline."""
        if notes is None:
            if base.notes_fingerprint != 0:
                return False
        elif not self.same(base.notes_fingerprint, [notes]):
            return False
        return self.same(base.fingerprint, [data]) if base.inner is None else self.is_unchanged(data, base.inner)

    def _pack_as_leaves(self, leaves: tuple[bytes, ...], run: list[Any]) -> bytes | None:
        """Return the packed run if it has the content of these leaves, else None."""
        return self._pack_as(map(_elements_of, leaves), run)

    def _pack_as(self, parts: Iterable[bytes], run: list[Any]) -> bytes | None:
        """Return the packed run if it consists of these parts, which are of JSON types, else None."""
        try:
            packed: bytes = self._pack(run)
        except _CANNOT_PACK:
            return None
        return packed if packed == array_header(len(run)) + b"".join(parts) else None

    def same_cells(self, cells: list[bytes], run: list[Any]) -> bool:
        """Return whether a run certainly has these cells.

        Each cell must be that of a value of JSON types, or of a value that cannot change.

        Cost: packing the run once. No cell is a prefix of another, so equal bytes of the run mean that each cell is
        equal.
        """
        return self._pack_as(cells, run) is not None

    # Groups

    def group(
        self, values: list[Any], sizes: list[int], children: dict[int, Baseline], *, plain: bool = False
    ) -> Groups:
        """Return the groups over values.

        Args:
            sizes: the length of each value's cell, or less.
            children: the baselines of the large values, by index.
            plain: whether the other values are known to be of JSON types.
        """
        groups = Groups()
        start = weight = 0
        for index, size in enumerate(sizes):
            if index in children:
                self._add(groups, values[start:index], sizes[start:index], plain=plain)
                groups.add(Group(1, None, 0, children[index]))
                start, weight = index + 1, 0
                continue
            weight += size
            if index + 1 - start >= GROUP_SIZE or weight >= GROUP_BYTES:
                self._add(groups, values[start : index + 1], sizes[start : index + 1], plain=plain)
                start, weight = index + 1, 0
        self._add(groups, values[start:], sizes[start:], plain=plain)
        return groups

    def _add(self, groups: Groups, run: list[Any], sizes: list[int], *, plain: bool) -> None:
        if not run:
            return
        if self.fast is not None and (marked := self.of_marked(run)) is not None:
            fingerprint, weight, marks = marked
            groups.add(Group(len(run), fingerprint, weight, least=sum(sizes), marks=marks))
        else:
            groups.add(Group(len(run), *self.of(run, plain=plain), least=sum(sizes)))

    def find_runs(
        self,
        groups: Groups,
        elements: list[Any],
        *,
        prefix: int | None = None,
        suffix: int | None = None,
        firsts: list[int] | None = None,
    ) -> list[Run]:
        """Return the runs that may have changed, in order.

        If the length changed and there are no ``firsts``, all between the first and the last change is one run.

        Args:
            prefix, suffix: how many elements from either end may count as unchanged; by default all.
            firsts: the identity that the first element of each group had: it shows where a group may have moved.
        """
        parts, count, length = groups.all, len(groups.all), len(elements)
        shift = length - groups.total
        first = position = 0
        most = length if prefix is None else prefix
        same = self._same_group
        while first < count and position + (part := parts[first]).size <= most:
            # Marks first: of a long list nearly all groups are unchanged, and a call for each would take longer than
            # the comparison.
            if not ((part.marks is not None and part.marks.same(elements, position)) or same(part, elements, position)):
                break
            position += part.size
            first += 1
        if first == count and shift == 0:
            return []
        # whether the group ``first`` differs at this position
        differs = first < count and position + parts[first].size <= most
        last, old_end = count, groups.total
        least = max(position, 0 if suffix is None else length - suffix)
        while last > first:
            start = old_end - parts[last - 1].size
            if start + shift < least or (differs and last - 1 == first and start + shift == position):
                break
            if not same(parts[last - 1], elements, start + shift):
                break
            old_end = start
            last -= 1
        gap = Run(first, last, position, old_end, position, old_end + shift)
        if prefix is not None or shift:
            return (
                [gap]
                if firsts is None or last - first < _MANY_GROUPS
                else self._find_moved(groups, elements, gap, firsts)
            )
        runs = []
        for group in range(first, last):
            end = position + parts[group].size
            if group in (first, last - 1) or not same(parts[group], elements, position):
                runs.append(Run(group, group + 1, position, end, position, end))
            position = end
        return runs if firsts is None or len(runs) < _MANY_GROUPS else self._find_moved(groups, elements, gap, firsts)

    def find_list_runs(self, value: list[Any], base: Elements) -> list[Run]:
        """Return the runs of a list that may have changed.

        Costs nothing if a search in what is around the list has found them before.
        """
        known = self.known_runs(value, base) if self.found else None
        return self.find_runs(base.groups, value, firsts=base.firsts) if known is None else known

    def forget_found(self) -> None:
        """Forget the results of comparisons."""
        self._records.clear()
        self.found.clear()

    def known_runs(self, value: Any, base: Elements | Entries) -> list[Run] | None:
        """Return the runs that a comparison of this value with its baseline found, or None if there was none."""
        found = self.found.get(id(base)) if self.keeps_found else None
        return found.runs if found is not None and found.base is base and found.value is value else None

    def known_record(self, value: Any) -> tuple[str, Any, Notes] | None:
        """Return the name, data and notes of an instance that was compared."""
        known = self._records.get(id(value)) if self.keeps_found else None
        return known[1] if known is not None and known[0] is value else None

    def _note(
        self,
        value: Any,
        base: Baseline,
        *,
        unchanged: bool,
        runs: list[Run] | None = None,
        record: tuple[str, Any, Notes] | None = None,
    ) -> bool:
        if self.keeps_found:
            self.found[id(base)] = _Found(base, value, unchanged, runs)
            if record is not None:
                self._records[id(value)] = value, record
        return unchanged

    def _find_moved(self, groups: Groups, elements: list[Any], gap: Run, firsts: list[int]) -> list[Run]:
        """Return the runs within a gap, between groups that have moved to another place with all their elements.

        So a list that loses elements at its beginning and gains others at its end, as a bounded one does, is not
        encoded again.
        """
        places = {
            id(element): gap.new_end - 1 - back
            for back, element in enumerate(reversed(elements[gap.new_start : gap.new_end]))
        }
        moved = rising(
            [(group, places[firsts[group]]) for group in range(gap.first, gap.last) if firsts[group] in places]
        )
        sizes = [group.size for group in groups.all[gap.first : gap.last]]
        starts = dict(zip(range(gap.first, gap.last), accumulate(sizes, initial=gap.old_start), strict=False))
        runs = []
        first, old, new = gap.first, gap.old_start, gap.new_start  # of the open run
        for group, at in moved:
            size = groups.all[group].size
            if at < new or at + size > gap.new_end or not self._same_group(groups.all[group], elements, at):
                continue
            if first < group or new < at:
                runs.append(Run(first, group, old, starts[group], new, at))
            first, old, new = group + 1, starts[group] + size, at + size
        if first < gap.last or new < gap.new_end:
            runs.append(Run(first, gap.last, old, gap.old_end, new, gap.new_end))
        return runs

    def _same_group(self, group: Group, elements: list[Any], start: int) -> bool:
        if group.child is not None:
            return self.is_unchanged(elements[start], group.child)
        fingerprint = group.fingerprint
        if fingerprint is None:
            return False
        if group.marks is not None and group.marks.same(elements, start):
            return True
        if self.fast is not None and self.keeps_marks and is_plain_fingerprint(fingerprint):
            same = self._same_marked(self.fast, group, elements, start)
            if same is not None:
                return same
        run = elements[start : start + group.size]
        if type(fingerprint) is tuple:
            packed = self._pack_as_leaves(fingerprint, run)
            if packed is None:
                return False
            group.fingerprint, group.weight = hash_bytes(packed), len(packed)
        elif fingerprint < 0:  # type: ignore[operator]
            return self.same(fingerprint, run)
        else:
            packed = self._packed(run, group.weight)
            if packed is None or hash_bytes(packed) != fingerprint:
                return False
        self._compared = group, packed
        return True

    def _packed(self, run: list[Any], weight: int) -> bytes | None:
        """Return a run packed, or None if it is not of JSON types. ``weight``: its packed size, if it has not changed.

        Unlike the accelerator, MessagePack needs a buffer of its own for each handle, and keeps UTF-8 beside each text.
        """
        if self.fast is not None and (packed := self.fast.pack(run, MAX_DEPTH + 1, weight + _HEADER)) is not None:
            return packed
        try:
            slow: bytes = self._pack(run)
        except _CANNOT_PACK:
            return None
        return slow

    def _same_marked(self, fast: Accelerator, group: Group, elements: list[Any], start: int) -> bool | None:
        """Do ``_same_group`` for a group of JSON types, and keep its marks.

        Returns None for values that the accelerator does not pack: other types, a longer run than the group's, and
        values that are too deep to be committed, of which a handle may hold one that a crafted store gave it.
        """
        marked = fast.pack_marked(elements, start, start + group.size, MAX_DEPTH, group.weight + _HEADER)
        if marked is None:
            return None
        packed, fingerprint = marked[0], group.fingerprint
        if type(fingerprint) is tuple:
            if packed != array_header(group.size) + b"".join(map(_elements_of, fingerprint)):
                return False
            group.fingerprint, group.weight = hash_bytes(packed), len(packed)
        elif hash_bytes(packed) != fingerprint:
            return False
        group.marks = marked[1]  # made with these bytes: a change by another thread since then differs from both
        return True

    def extended(self, group: Group, cells: list[bytes], values: list[Any], start: int) -> Group | None:
        """Return a group with the elements of these cells appended, or None if it has to be made anew.

        All are of JSON types. Cost: hashing them; nothing is packed again, or only by the accelerator.

        Args:
            values: the list; the elements of the group begin at ``start``.
        """
        if self.fast is not None and group.marks is not None:
            return self._extended_marked(self.fast, group, group.marks, cells, values, start)
        compared, self._compared = self._compared, None
        if compared is None or compared[0] is not group:
            return None
        size = group.size + len(cells)
        packed = array_header(size) + compared[1][len(array_header(group.size)) :] + b"".join(cells)
        return Group(size, hash_bytes(packed), len(packed))

    def _extended_marked(
        self, fast: Accelerator, group: Group, before: Marks, cells: list[bytes], values: list[Any], start: int
    ) -> Group:
        size = group.size + len(cells)
        marked = fast.pack_marked(values, start, start + size, MAX_DEPTH, MOST_MARKED)
        if marked is not None:
            packed, marks = marked
            new = b"".join(cells)
            length = len(array_header(size)) + group.weight - len(array_header(group.size)) + len(new)
            if len(packed) == length and packed.endswith(new) and before.begin(marks):
                return Group(size, hash_bytes(packed), length, marks=marks)
        # Another thread has changed elements since they were compared and encoded. The next comparison must find that.
        return Group(size, UNKNOWN, 0)

    def is_surely_longer(self, groups: Groups, runs: list[Run], limit: int) -> bool:
        """Return whether a packed value with these groups, of which only the runs may differ, surely exceeds the limit.

        So it does if the other groups do, or if a list within it does, whose runs were looked for just before.
        """
        if groups.packed_without(runs) > limit:
            return True
        if not self.found or not self.keeps_found:
            return False
        children = (
            group.child for run in runs for group in groups.all[run.first : run.last] if group.child is not None
        )
        found = (self.found.get(id(child)) for child in children)
        return any(
            isinstance(each.base, Elements | Entries)
            and each.runs
            and each.base.groups.packed_without(each.runs) > limit
            for each in found
            if each is not None
        )

    # Values with a baseline of their own

    def is_unchanged(self, value: Any, base: Baseline) -> bool:
        """Return whether a value is certainly unchanged since its baseline. Cost: packing it once."""
        cls: type = type(value)  # a variable, so that mypy does not narrow the type of ``value``
        if cls is not base.type:
            return False
        if type(base) is Pinned:
            return value is base.value
        if (
            self.keeps_found
            and (found := self.found.get(id(base))) is not None
            and found.base is base
            and found.value is value
        ):
            return found.unchanged
        if type(base) is Elements:
            runs = self.find_runs(base.groups, value, firsts=base.firsts if self.keeps_found else None)
            return self._note(value, base, unchanged=not runs, runs=runs)
        if type(base) is Whole:
            if base.is_object:
                return base.fingerprint is not None and self.of_object(value) == base.fingerprint
            return self.same(base.fingerprint, [value])
        if type(base) is Typed:
            return self._is_unchanged_typed(value, base)
        if type(base) is Entries:
            if not self.same(base.keys_fingerprint, list(value)):
                return False
            runs = self.find_runs(base.groups, list(value.values()))
            return self._note(value, base, unchanged=not runs, runs=runs)
        assert isinstance(base, Buffer)
        return _is_same_buffer(value, base)

    def _is_unchanged_typed(self, value: Any, base: Typed) -> bool:
        try:
            if base.quick is not None and quick_fingerprint(value) == base.quick:
                return True
            record = take_apart(value)
        except Exception:  # noqa: BLE001 - code of the value's own type; encoding it gives the error its path
            return False
        if record is None:
            return False
        return self._note(value, base, unchanged=self.is_unchanged_record(record[1], record[2], base), record=record)


def _is_same_buffer(value: Any, base: Buffer) -> bool:
    try:
        form, view = arrays.buffer_of(value)
    except NotDataError:  # an array that is stored in another way than before
        return False
    return (
        form == base.form
        and len(view) == base.size
        and [hash_bytes(view[a:b]) for a, b in binary_spans(len(view))] == base.hashes
    )


def _is_plain(run: list[Any]) -> bool:
    try:
        return is_plain(run)
    except (TooDeepError, RecursionError):
        return False


def _elements_of(leaf: bytes) -> bytes:
    """Return the cells of a leaf, after its kind and the header of its array."""
    return leaf[{0xDC: 4, 0xDD: 6}.get(leaf[1], 2) :]
