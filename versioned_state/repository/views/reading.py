"""``Reading``: a branch or a tag with all that belongs to it, read at once. Layer: repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from versioned_state.arguments import string
from versioned_state.errors import UnknownRevisionError
from versioned_state.objects.keys import RefKind, note_key, record_key
from versioned_state.records import dataclass
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.refs.named_records import Records, may_be_record, read_named
from versioned_state.repository.refs.notes import read_note
from versioned_state.repository.views.snapshot import Snapshot

if TYPE_CHECKING:
    from versioned_state.repository.database import Database


@dataclass(frozen=True, slots=True)
class Reading:
    """A branch or a tag, its commit, and what belongs to them.

    Attributes:
        name: the requested name.
        kind: ``"branch"`` or ``"tag"``.
        head: the commit that it points to.
        snapshot: the state of that commit. A value is read when it is used.
        note: the note of the commit, or None if it has none.
        records: by name, the records whose name is this one, or begins with it and a slash.
    """

    name: str
    kind: RefKind
    head: Commit
    snapshot: Snapshot
    note: dict[str, Any] | None
    records: dict[str, dict[str, Any]]


def read_all_of(database: Database, name: str) -> Reading:
    """Read a branch or a tag with all that belongs to it. See ``Repository.read``."""
    string("the name of a branch or tag", name, empty=False)

    def read() -> Reading:
        branch, tag = database.refs_named(name)
        ref = branch if branch.head is not None else tag
        if ref.head is None:
            raise UnknownRevisionError(name, reason="there is no branch or tag of that name")
        note, own = note_key(ref.head), record_key(name)
        beside = [note, own] if may_be_record(name) else [note]
        head, found = database.commits.read_beside(ref.head, beside)
        records = {name: read_named(own, found[own], database.policy)} if own in found else {}
        if len(beside) > 1:
            records.update(Records(database).iter_items(name + "/"))
        snapshot = Snapshot(database.objects, head.tree, database.policy, commit=head, cache=database.nodes)
        return Reading(name, ref.kind, head, snapshot, read_note(note, found[note]) if note in found else None, records)

    return database.unless_swept(read)
