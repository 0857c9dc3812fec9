"""Reading commits: from the store, through a small cache, with the parents that history still has.

Layer: repository.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from versioned_state.errors import CorruptRefError, MissingObjectError
from versioned_state.objects.address import Address, Kind
from versioned_state.objects.keys import SHALLOW, object_key
from versioned_state.objects.store import ObjectStore, verified
from versioned_state.repository.caches import CommitCache
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import Commit, read_commit
from versioned_state.repository.history.shallow import Shallow, ShallowCommit, read_shallow, with_cuts


class CommitReader:
    """Commits by address. Safe for many threads. Holds no lock while it reads the store.

    Args:
        cache: of this store; by default a new one.

    Attributes:
        shallow: where history ends, as last read; see ``refresh_shallow``.
    """

    def __init__(self, objects: ObjectStore, cache: CommitCache | None = None) -> None:
        self.shallow: Shallow = Shallow({})
        self._objects = objects
        self.cache = CommitCache() if cache is None else cache

    def read(self, address: Address) -> Commit:
        """Return the commit at an address, with the parents that history still has.

        Cost: one read, or none if it was read lately.

        Raises:
            MissingObjectError: there is no such object.
        """
        try:
            return self.shallow.graft(self.read_stored(address))
        except MissingObjectError:
            # Another process may have pruned history and collected the commit; the walk then reads the child again.
            self.refresh_shallow()
            raise

    def read_stored(self, address: Address) -> Commit:
        """Return the commit at an address as it was made, whether or not history still has its parents.

        Cost and errors: as ``read``.
        """
        commit = self.cache.get(address)
        if commit is None:
            clears = self.cache.clears
            commit = read_commit(address, self._objects.read(address))
            self.cache.keep(commit, clears)
        return commit

    def read_beside(self, address: Address, keys: Sequence[str]) -> tuple[Commit, dict[str, bytes]]:
        """Return what ``read`` does, and the values of those of some keys that exist.

        Cost: one call of the store. Raises as ``read``.
        """
        commit, clears = self.cache.get(address), self.cache.clears
        key = object_key(address)
        found = self._objects.kv.get_many(keys if commit is not None else [key, *keys])
        if commit is None:
            stored = found.pop(key, None)
            if stored is None:
                self.refresh_shallow()
                raise MissingObjectError(address.hex())
            commit = read_commit(address, verified(address, stored))
            self.cache.keep(commit, clears)
        return self.shallow.graft(commit), found

    def read_many(self, addresses: Iterable[Address]) -> dict[Address, Commit]:
        """Return what ``read`` does, for many commits.

        Cost: one call of the store for all that were not read lately.
        """
        wanted = dict.fromkeys(addresses)
        known = self.cache.get_many(wanted)
        found = {address: self.shallow.graft(commit) for address, commit in known.items()}
        missing = [address for address in wanted if address not in known]
        clears = self.cache.clears
        try:
            raws = self._objects.read_many(missing)
        except MissingObjectError:
            self.refresh_shallow()
            raise
        read = [read_commit(address, raw) for address, raw in raws.items()]
        self.cache.keep_many(read, clears)
        found.update((commit.address, self.shallow.graft(commit)) for commit in read)
        return found

    def find(self, address: Address) -> Commit | None:
        """Return the commit at an address, or None if there is no object, or one of another kind.

        Cost: one read, or none.
        """
        if self.cache.get(address) is not None:
            return self.read(address)
        with suppress(MissingObjectError):
            raw = self._objects.read(address)
            if raw[:1] == bytes((Kind.COMMIT,)):
                return self.shallow.graft(read_commit(address, raw))
        return None

    def parents(self, commit: Commit) -> list[Commit]:
        """Return the parents of a commit that history still has. Cost: one read each."""
        return graph.parents_of(commit, self.read)

    def refresh_shallow(self) -> Shallow:
        """Return where history ends now.

        Cost: one read. A missing commit causes it, and so does whatever must not miss a prune.
        """
        return self.take_shallow(self._objects.kv.get(SHALLOW))

    def take_shallow(self, stored: bytes | None) -> Shallow:
        """Take in the record, read just now.

        Cost: a read for new pages, if there are any. Raises ``CorruptRefError``.
        """
        kv, before = self._objects.kv, self.shallow
        while stored != self.shallow.stored:
            shallow = read_shallow(stored, kv.get_many, before)
            if shallow is not None:
                self.shallow = shallow
                break
            # gc has replaced the pages since the record was read.
            again = kv.get(SHALLOW)
            if again == stored:
                raise CorruptRefError(SHALLOW, "a page of the record of shallow history is gone")
            stored = again
        return self.shallow

    def add_cuts(self, before: Shallow, made: Mapping[bytes, ShallowCommit]) -> bool:
        """Make commits shallow, if the record is as it was read, and return whether that was done. Cost: a write."""
        done = self._objects.kv.apply({SHALLOW: before.stored}, with_cuts(before, made))
        self.refresh_shallow()
        return done
