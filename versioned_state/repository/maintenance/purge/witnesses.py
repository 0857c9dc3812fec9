"""Witnesses: refs that lead to the commits which branches to erase share with others, found without a scan of all refs.

Layer: repository.

The candidates are hints only: the record of a shared commit names the ref that was pointed there last and the one that
it came from, a commit names its tag, and the branches that changed last are likely to be in use. Each candidate is
examined as it is now. So a wrong or missing hint may cost a reading of the whole store, and never an object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from versioned_state.errors import CorruptObjectError, CorruptRefError, MissingObjectError
from versioned_state.objects.address import Address
from versioned_state.objects.keys import RECENT, REF_KINDS, RefKind, commit_in, read_index_key, shared_key
from versioned_state.repository.history import graph
from versioned_state.repository.refs.ref import Ref, may_be_name, read_refs
from versioned_state.repository.refs.shared import read_shared, write_shared

if TYPE_CHECKING:
    from versioned_state.repository.database import Database
    from versioned_state.repository.history.commit import Commit

_LIKELY: Final = 64
"""Branches that moved lately, and branches that changed last, that are examined if no record names a witness."""

_ENTRIES: Final = 8
"""Entries of a reflog that are examined: a deleted ref has its last head in the newest one."""


class Witnesses:
    """The refs that lead to some commits now, without those that are to be erased.

    Args:
        erased: the refs that are to be erased.
        moved: the refs that moved since the last gc.
        expired: log entries before this time, in microseconds, keep nothing.
    """

    def __init__(self, database: Database, erased: Collection[Ref], moved: Sequence[Ref], expired: int) -> None:
        self._database = database
        self._erased = {(ref.kind, ref.name) for ref in erased}
        self._moved = moved[:_LIKELY]
        self._expired = expired
        self._recent: list[Ref] | None = None
        self._vouching: dict[Address, tuple[Commit, str]] = {}
        self._shared: Mapping[str, bytes] = {}

    def cover(self, addresses: Collection[Address], *, known: Collection[Address]) -> dict[Address, str | None] | None:
        """Return the latest of some commits, each with the name of a ref that leads to it now.

        The latest commits lead to all of the others. Returns None if there may be no such ref for one of them.
        ``known`` are further commits, to which others are known to lead, so no ref is looked for. Cost: some reads for
        each of the latest, O(log n) in the length of the histories.

        Raises:
            MissingObjectError, CorruptObjectError: one of the commits cannot be read.
        """
        if not addresses and not known:
            return {}
        commits = self._database.commits.read_many([*addresses, *known]).values()
        self._shared = self._database.store.get_many([shared_key(each.address) for each in commits])
        latest: dict[Address, str | None] = {}
        tops: list[Commit] = []
        for commit in sorted(commits, key=lambda each: (-each.generation, each.id)):
            if any(self._leads(top, commit) for top in tops):
                continue
            name = None if commit.address in known else self._find(commit)
            if name is None and commit.address not in known:
                return None
            latest[commit.address] = name
            tops.append(commit)
        return latest

    def records(self, latest: Mapping[Address, str | None]) -> dict[str, bytes]:
        """Return the records of the commits that were covered, by their keys, without the names of the erased refs.

        Only those that change.

        A witness takes the place of these names, so that it is found at once by the next purge. ``latest`` is the
        result of ``cover``.
        """
        gone = {name for _, name in self._erased}
        puts = {}
        for key, stored in self._shared.items():
            names = read_shared(key, stored)
            witness = latest.get(commit_in(key))
            kept = [name for name in names if name not in gone]
            if kept != names:
                puts.update(write_shared(commit_in(key), kept if witness is None else [*kept, witness]))
        return puts

    def _find(self, commit: Commit) -> str | None:
        """Return the name of a ref that leads to a commit."""
        for start, name in self._vouching.values():
            if self._leads(start, commit):
                return name
        seen: set[tuple[RefKind, str]] = set(self._erased)
        for candidates in self._candidates(commit):
            for ref in candidates():
                if (ref.kind, ref.name) in seen:
                    continue
                seen.add((ref.kind, ref.name))
                for start in self._starts(ref):
                    if self._leads(start, commit):
                        self._vouching[start.address] = start, ref.name
                        return ref.name
        return None

    def _candidates(self, commit: Commit) -> Iterator[Callable[[], list[Ref]]]:
        yield lambda: self._named(commit)
        yield lambda: list(self._moved)
        yield self._recently_changed

    def _named(self, commit: Commit) -> list[Ref]:
        key = shared_key(commit.address)
        stored = self._shared.get(key)
        names = [] if stored is None else read_shared(key, stored)
        names += [] if commit.tag is None else [commit.tag]
        return self._read([(kind, name) for name in dict.fromkeys(filter(may_be_name, names)) for kind in REF_KINDS])

    def _recently_changed(self) -> list[Ref]:
        if self._recent is None:
            keys = self._database.store.page(RECENT, limit=_LIKELY, reverse=True)
            self._recent = self._read([("branch", read_index_key(key)[1]) for key in keys])
        return self._recent

    def _read(self, names: Collection[tuple[RefKind, str]]) -> list[Ref]:
        wanted = [each for each in names if each not in self._erased]
        with suppress(CorruptRefError):
            return read_refs(self._database.store, wanted) if wanted else []
        return []

    def _starts(self, ref: Ref) -> Iterator[Commit]:
        """Yield the commits that a ref leads to: its head, and those that the newest entries of its reflog name."""
        log = ref.log
        with suppress(MissingObjectError, CorruptObjectError):
            if ref.head is not None:
                yield self._database.commits.read(ref.head)
            for _ in range(_ENTRIES):
                if log is None:
                    return
                entry = self._database.read_log(log)
                if entry.time < self._expired:
                    return
                for address in (entry.new, entry.old):
                    if address is not None and address != ref.head:
                        yield self._database.commits.read(address)
                log = entry.previous

    def _leads(self, start: Commit, commit: Commit) -> bool:
        with suppress(MissingObjectError, CorruptObjectError):
            return graph.is_ancestor(commit, start, self._database.commits.read)
        return False
