"""Tags: names that do not move, with or without an annotation. Layer: repository."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from versioned_state.arguments import list_of, string
from versioned_state.errors import (
    InvalidArgumentError,
    LimitExceededError,
    MissingObjectError,
    RefExistsError,
    StoreBusyError,
)
from versioned_state.objects.keys import ref_key
from versioned_state.records import dataclass
from versioned_state.repository.database import backoff
from versioned_state.repository.history.commit import MAX_TEXT, Commit
from versioned_state.repository.names.listing import Listing, Order, RefInfo
from versioned_state.repository.names.mapping import AT_ONCE, ATTEMPTS, Refs, check_conditions
from versioned_state.repository.refs.ref import BatchPart, Ref, batch_of, check_name, iter_refs
from versioned_state.repository.refs.reflog import CREATE, LogEntry
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
    """A tag in a listing: name, commit (``head``), when it was made, the meta of the commit, any annotation."""

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
        self.is_made: bool = False
        self._database = database
        # Most tags are new. Of one that was deleted, the record is read after the store has refused the first batch.
        self._ref = Ref("tag", name, None, None, None)

    def part(self, commit: Commit) -> BatchPart:
        """Return the tag's share of the batch that publishes a commit."""
        part = batch_of(self._ref, self._database.after_commit(self._ref, commit))
        # One that only migrates does not name the tag.
        return (
            part if commit.tag == self.name else part.joined(BatchPart(puts=write_shared(commit.address, [self.name])))
        )

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

    def create(
        self, name: str, at: str | Commit = "HEAD", *, message: str | None = None, author: str | None = None
    ) -> Commit:
        """Create a tag at a revision, and return its commit.

        Args:
            message: makes it an annotated tag, with author and time.
            author: the author of the annotation, by default the repository's.

        Raises:
            RefExistsError: the tag exists; it was not moved.
            LimitExceededError: message or author is longer than 65,536 bytes.
            UnknownRevisionError, InvalidArgumentError: no such revision; not a name; an empty message. Nothing was
                changed.
        """
        for what, text in (("message", message), ("author", author)):
            if text is None:
                continue
            if type(text) is not str or (what == "message" and not text.strip()):
                raise InvalidArgumentError(
                    f"the {what} of a tag must be a text; without a message there is no annotation"
                )
            if len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT:
                raise LimitExceededError(
                    f"the {what} of a tag of {len(text)} characters", limit=MAX_TEXT, remains="nothing was changed"
                )
        return self._create(name, at, action="create" if message is None else _ANNOTATED + message, author=author)[1]

    def delete(self, name: str) -> Commit:
        """Delete a tag, and return the commit that it pointed to.

        The reflog of the tag keeps that commit as long as reflogs keep anything.

        Raises:
            UnknownRevisionError: there is no tag of that name.
        """
        return self._delete(name)

    # Many at once

    def get_many(self, names: Iterable[str]) -> dict[str, Commit]:
        """Return the commits of those of some tags that exist, by name, in the given order.

        Cost: two calls of the store.
        """
        wanted = list_of("names", names)
        database = self._database

        def read() -> dict[str, Commit]:
            found = {ref.name: ref.head for ref in database.refs("tag", wanted) if ref.head is not None}
            commits = database.commits.read_many(found.values())
            return {name: commits[head] for name, head in found.items()}

        return database.unless_swept(read) if wanted else {}

    def delete_many(self, names: Iterable[str] = (), *, prefix: str | None = None) -> list[str]:
        """Delete the tags with these names, and those whose name begins with the prefix.

        Returns the names of those that existed.

        Up to 4,096 go in one batch, all or none. The reflogs of the tags keep the commits as ``delete`` says. Cost: a
        listing, a read, and a write for each batch; on a store of one condition a batch (S3), a batch for each tag.

        Raises:
            StorageError: some of the batches may have been done. The same call again deletes the rest.
        """
        wanted = dict.fromkeys(list_of("names", names))
        if prefix is not None:
            string("prefix", prefix)
            start = ref_key("tag", "")
            wanted.update((key.removeprefix(start), None) for key in self._database.store.keys(start + prefix))
        return self._delete_together(wanted)

    def copy(self, prefix: str, to: str) -> dict[str, Commit]:
        """Make a tag for each one whose name begins with a prefix: at the same commit, with ``to`` as its prefix.

        Returns the commits by the new names. All or none are made. Cost: a listing, three reads for each thousand tags,
        and one write.

        Raises:
            RefExistsError: one of the new tags exists. Nothing was changed.
            InvalidArgumentError: one of the new names is not a name for a tag. Nothing was changed.
            LimitExceededError: there are more than 4,096 tags. Nothing was changed.
            UnsupportedByStoreError: the store takes too few conditions a batch (S3). Nothing was changed.
        """
        string("prefix", prefix)
        string("to", to)
        database = self._database
        made: dict[str, Commit] = {}
        for attempt in range(ATTEMPTS):
            found = {to + each.name.removeprefix(prefix): each for each in iter_refs(database.store, "tag", prefix)}
            if len(found) > AT_ONCE:
                raise LimitExceededError(f"a copy of {len(found):,} tags", limit=AT_ONCE, remains="nothing was changed")
            for name in found:
                check_name("tag", name)
            check_conditions(database, len(found), "tags.copy")
            try:
                commits = database.commits.read_many(self._head(ref) for ref in found.values())
            except MissingObjectError:  # purge has moved them since they were listed
                if attempt == ATTEMPTS - 1:
                    raise
                database.fence.refresh()
                continue
            refs = database.refs("tag", found)
            taken = [ref.name for ref in refs if ref.head is not None]
            if (
                made
                and len(taken) == len(refs)
                and all(ref.head == made[ref.name].address for ref in refs if ref.name in made)
            ):
                return made  # the reply was lost
            if taken:
                raise RefExistsError("tag", taken[0])
            made = {name: commits[self._head(ref)] for name, ref in found.items()}
            origins = {name: (ref.name,) for name, ref in found.items()}
            if not refs or self._move_together([(ref, made[ref.name]) for ref in refs], action=CREATE, origins=origins):
                return made
            backoff(attempt)
        raise StoreBusyError("others keep changing these tags", hint="try again")

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
        """Yield tags with their commits and annotations, as ``Branches.iter_info`` yields branches.

        ``changed`` is when a tag was made.

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
