"""Tags: names that do not move, with or without an annotation. Layer: repository."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from versioned_state.errors import InvalidArgumentError, LimitExceededError, RefExistsError
from versioned_state.records import dataclass
from versioned_state.repository.history.commit import MAX_TEXT, Commit
from versioned_state.repository.names.listing import Listing, Order, RefInfo
from versioned_state.repository.names.mapping import Refs, check_conditions
from versioned_state.repository.refs.ref import BatchPart, Ref, batch_of, check_name
from versioned_state.repository.refs.reflog import LogEntry
from versioned_state.repository.refs.shared import write_shared

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

_ANNOTATED: Final = "tag: "
"""The beginning of the action in the log entry that created an annotated tag; the message follows."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """The annotation of a tag: its message, its author, and when it was made (microseconds since 1970, UTC)."""

    message: str
    author: str | None
    time: int


@dataclass(frozen=True, slots=True)
class TagInfo(RefInfo):
    """A tag in a listing: name, commit (``head``), when it was made, the meta of the commit, its annotation, if it has one."""

    annotation: Annotation | None


class CommitTag:
    """The tag that a commit brings along, in the batch that publishes the commit.

    Raises:
        InvalidArgumentError: it is not a name for a tag.
        UnsupportedByStoreError: the store takes too few conditions a batch.
    """

    def __init__(self, database: Database, name: str) -> None:
        check_name("tag", name)
        check_conditions(database, 2, "a commit with a tag")
        self.name = name
        self.is_made = False
        self._database = database
        # Most tags are new. Of one that was deleted, the record is read after the store has refused the first batch.
        self._ref = Ref("tag", name, None, None, None)

    def part(self, commit: Commit) -> BatchPart:
        """Return the tag's share of the batch that publishes a commit."""
        part = batch_of(self._ref, self._database.after_commit(self._ref, commit))
        # One that only migrates does not name the tag.
        return part if commit.tag == self.name else part.joined(BatchPart(puts=write_shared(commit.address, [self.name])))

    def settle(self, *, made: bool) -> None:
        """Note whether the batch was done. Raises ``RefExistsError`` if it was not, and the tag is the reason."""
        self.is_made = made
        if made:
            return
        self._ref = self._database.ref("tag", self.name)
        if self._ref.head is not None:
            raise RefExistsError("tag", self.name)


class Tags(Refs):
    """The tags of a repository: a mapping from name to commit. A tag does not move."""

    _kind = "tag"

    def create(self, name: str, at: str | Commit = "HEAD", *, message: str | None = None, author: str | None = None) -> Commit:
        """Create a tag at a revision, and return its commit.

        Args:
            message: makes it an annotated tag, with author and time.
            author: the author of the annotation, by default the repository's.

        Raises:
            RefExistsError: the tag exists; it was not moved.
            LimitExceededError: message or author is longer than 65,536 bytes.
            UnknownRevisionError, InvalidArgumentError: no such revision; not a name; an empty message. Nothing was changed.
        """
        for what, text in (("message", message), ("author", author)):
            if text is None:
                continue
            if type(text) is not str or (what == "message" and not text.strip()):
                raise InvalidArgumentError(f"the {what} of a tag must be a text; without a message there is no annotation")
            if len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT:
                raise LimitExceededError(f"the {what} of a tag of {len(text)} characters", limit=MAX_TEXT, remains="nothing was changed")
        return self._create(name, at, action="create" if message is None else _ANNOTATED + message, author=author)[1]

    def delete(self, name: str) -> Commit:
        """Delete a tag, and return the commit that it pointed to. The reflog of the tag keeps that commit as long as reflogs keep anything.

        Raises:
            UnknownRevisionError: there is no tag of that name.
        """
        return self._delete(name)

    def annotation(self, name: str) -> Annotation | None:
        """Return the annotation of a tag, or None if it has none. Cost: two reads. Raises ``UnknownRevisionError``.

        It is the tag's newest log entry, which gc keeps whatever its age.
        """
        return self._annotation(self._live(name))

    def _annotation(self, ref: Ref) -> Annotation | None:
        return _annotation_in(None if ref.log is None else self._database.read_log(ref.log))

    def iter_info(
        self,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
        by: Order = "name",
        reverse: bool = False,
        where: Mapping[str, Any] | None = None,
        like: str | Sequence[str] = (),
    ) -> Iterator[TagInfo]:
        """Yield tags with their commits and annotations, as ``Branches.iter_info`` yields branches. ``changed`` is when a tag was made.

        Cost: by name as there. By the last change all tags with the prefix are read.
        """
        listing = Listing("tag", prefix, after, limit, by, reverse, {} if where is None else where, like, logs=True)
        return (
            TagInfo(each.ref.name, each.head, each.changed, listing.cursor(each), _annotation_in(each.entry))
            for each in listing.run(self._database)
        )


def _annotation_in(entry: LogEntry | None) -> Annotation | None:
    if entry is None or not entry.action.startswith(_ANNOTATED):
        return None
    return Annotation(entry.action.removeprefix(_ANNOTATED), entry.author, entry.time)
