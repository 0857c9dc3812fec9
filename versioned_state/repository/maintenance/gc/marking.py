"""``Marking``, which marks every object that refs and their logs lead to, for a gc. Layer: repository."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from versioned_state.errors import CorruptObjectError, MissingObjectError
from versioned_state.objects.address import Address, Role
from versioned_state.objects.keys import REF_KINDS
from versioned_state.objects.store import read_objects
from versioned_state.repository.history import reach as reach_module
from versioned_state.repository.history.commit import ROOT_ADDRESS
from versioned_state.repository.history.keepers import EVERYONE, KeeperSet
from versioned_state.repository.history.reach import UNREAD, Reference, followed, references_of_ref, segments_of
from versioned_state.repository.maintenance.gc.marks import Pending
from versioned_state.repository.refs.ref import Ref, iter_refs
from versioned_state.storage.wrappers.cache import uncached

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

Progress = Callable[[int, int | None], None]
"""Called with the number of objects done, and their total if it is known."""


class Marking:
    """The marking of every reachable object.

    Attributes:
        seen: the marked objects, each with its keeper.
        expired: log entries before this time are not followed, and the records of refs that were deleted before it can
            go.
        refs: the number of refs.
        pending: the references that a stopped walk has yet to follow.
        beat: called before each read.
        check_time: raises if the time of the gc is over.
        drop: removes the records of deleted refs, and returns those that stay.
    """

    def __init__(self, database: Database, seen: KeeperSet, progress: Progress | None) -> None:
        self._database = database
        self.store: Final = database.store
        # A cache may have a node that was stored whole by an older release, then deleted, and stored again in segments.
        self._read_from = uncached(database.store)
        self.seen = seen
        self.progress = progress
        self.expired = 0
        self.refs: int = 0
        self.pending: Pending = []
        self.beat: Callable[[], None] = lambda: None
        self.check_time: Callable[[], None] = lambda: None
        self.drop: Callable[[list[Ref]], list[Ref]] = lambda _: []
        self._aside = self._has_read = False

    # A ``Reader``: marked objects are read through it, so that each read is a chance to beat

    def read(self, address: Address) -> bytes:
        return self.read_many([address])[address]

    def read_many(self, addresses: Iterable[Address]) -> dict[Address, bytes]:
        self.beat()
        if not self._aside and self._has_read:  # each slice marks something, however little time it has
            self.check_time()
        self._has_read = True
        raws = read_objects(self._read_from.get_many, addresses)
        if self.progress is not None:
            self.progress(len(self.seen), None)
        return raws

    def _mark(self, starts: Iterable[tuple[Reference, int]], pending: Pending) -> None:
        """Walk from some references, each with its keeper.

        ``pending`` always has the references that are still to be read.
        """
        shallow, reach = self._database.commits.shallow, self.seen.reach
        for start, keeper in starts:
            whose = reach(start.address, start.role, keeper)
            if whose is not None:
                pending.append((start, whose))
        while pending:
            batch = pending[-reach_module.BATCH :]
            raws = self.read_many({each.address for each, _ in batch})
            del pending[-reach_module.BATCH :]
            for each, keeper in batch:
                for segment in segments_of(raws[each.address]):
                    reach(segment, Role.SEGMENT, keeper)
                for found in followed(each, raws[each.address], shallow=shallow, expired=self.expired):
                    whose = reach(found.address, found.role, keeper)
                    if whose is not None and found.role not in UNREAD:
                        pending.append((found, whose))

    def mark_refs(self) -> None:
        """Mark from all present refs, and from deleted refs because of their reflogs.

        ``pending`` always has the remaining references.
        """
        self._database.commits.refresh_shallow()
        self._mark(list(self._roots()), self.pending)

    def _roots(self) -> Iterator[tuple[Reference, int]]:
        yield Reference(ROOT_ADDRESS, Role.COMMIT), EVERYONE
        for kind in REF_KINDS:
            gone: list[Ref] = []
            for ref in iter_refs(self._database.store, kind, deleted=True):
                self.refs += 1
                self.beat()
                if ref.head is None and self._has_expired(ref):
                    gone.append(ref)
                    continue
                yield from self._starts(ref)
            for ref in self.drop(gone):
                yield from self._starts(ref)

    def _starts(self, ref: Ref) -> Iterator[tuple[Reference, int]]:
        keeper = self.seen.keepers.number(f"{ref.kind}/{ref.name}")
        return ((each, keeper) for each in references_of_ref(ref))

    def _has_expired(self, ref: Ref) -> bool:
        """Return whether the reflog of a deleted ref has expired, and its record can go."""
        if ref.log is None:
            return True
        try:
            return self._database.read_log(ref.log).time < self.expired
        except MissingObjectError:
            return False  # the walk finds out why

    def mark_published(self, addresses: Iterable[Address]) -> None:
        """Mark from the addresses in the fence's record: commits and log entries, which differ by their kind alone."""
        new = [address for address in addresses if address not in self.seen]
        if new:
            # a purge moves refs to commits, and says in the same batch where their history ends
            self._database.commits.refresh_shallow()
            # What is left of this walk would be lost. A read in it beats, and a beat marks what was published
            # meanwhile: a walk within it.
            outer, self._aside = self._aside, True
            try:
                self._mark_new(new)
            finally:
                self._aside = outer

    def _mark_new(self, new: list[Address]) -> None:
        roles = {0x01: Role.COMMIT, 0x02: Role.LOG_ENTRY}
        raws = self.read_many(new)
        starts = []
        for address in new:
            role = roles.get(raws[address][0])
            if role is None:
                raise CorruptObjectError(address.hex(), "a ref was moved to it, and it is not a commit")
            starts.append((Reference(address, role), EVERYONE))
        self._mark(starts, [])
