"""``Repository``: commits, branches and tags over one store, as users see them, in git's vocabulary. Layer: repository.

Each method calls the module that does the work; the ``Database`` beneath reads and publishes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from versioned_state.arguments import check_function, check_text, count, instance_of, integer, list_of, seconds
from versioned_state.errors import InvalidArgumentError
from versioned_state.lazy import made_once
from versioned_state.objects.keys import RefKind
from versioned_state.repository.committing import C, OnMovedOption, all_of_one_class
from versioned_state.repository.database import Database
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.refs.reflog import DEFAULT_EXPIRE, Position
from versioned_state.twins import Aio, awaitable, streamed
from versioned_state.values.paths.path import StatePath

if TYPE_CHECKING:  # loaded by the calls that need them: a commit needs no view and no maintenance
    from versioned_state.repository.history.signing import PublicKey, Signer, Verification
    from versioned_state.repository.inspect.bisect import Bisection
    from versioned_state.repository.inspect.log_filters import Filters
    from versioned_state.repository.inspect.stats import Stats
    from versioned_state.repository.maintenance.fsck_report import FsckReport
    from versioned_state.repository.maintenance.gc.collector import GcReport
    from versioned_state.repository.maintenance.gc.marking import Progress
    from versioned_state.repository.maintenance.prune import PruneReport
    from versioned_state.repository.maintenance.purge.purge import PurgeReport
    from versioned_state.repository.maintenance.purge.rewrite import Progress as PurgeProgress
    from versioned_state.repository.maintenance.upgrade import UpgradeReport
    from versioned_state.repository.merging.policies import Policy, PolicyName
    from versioned_state.repository.names.branches import Branches
    from versioned_state.repository.names.tags import Tags
    from versioned_state.repository.names.watching import Watch
    from versioned_state.repository.refs.named_records import Records
    from versioned_state.repository.refs.notes import Notes
    from versioned_state.repository.refs.stamps import StampSource
    from versioned_state.repository.views.diff import Diff
    from versioned_state.repository.views.lists import BlameList, History, Log, Matches
    from versioned_state.repository.views.reading import Reading
    from versioned_state.repository.views.snapshot import Snapshot
    from versioned_state.storage import KVStore
    from versioned_state.values.codec.pickles import PickleMode
    from versioned_state.values.codec.trust import TrustedModules

R = TypeVar("R")


def _no_store(given: Any) -> InvalidArgumentError:
    """Return the error for a value that is not a store."""
    if isinstance(given, str | os.PathLike):
        from versioned_state.storage.url import redact

        location = redact(os.fspath(given))
        hint = f"write versioned_state.open({location!r})" if "://" in location else f"write Disk({location!r})"
        return InvalidArgumentError(f"{location!r} is not a store", hint=hint)
    shown = f"the class {given.__name__}" if isinstance(given, type) else f"a value of type {type(given).__name__}"
    return InvalidArgumentError(f"{shown} is not a store", hint="for example Disk('./agent-state'), or Memory()")


class Repository:
    """Commits, branches and tags over one ``KVStore``. Safe for many threads.

    Args:
        store: where everything is kept; memory if there is none. An empty store is made a repository, in one small
            write.
        pickle, pickle_key: when values that are not data are pickled and unpickled: ``"own"``: if the store is private.
            See ``docs/reference.md``.
        classes: modules, or names or patterns of modules (``"langchain_core"``, ``"app.models.*"``), whose classes come
            back from the store as instances, as in a private store: their module is imported. Those of other modules
            are ``Tagged`` unless registered.
        author: the author of commits, unless a call names another.
        signer: signs every commit that is made through this repository; see ``signing``.
        clock: microseconds since 1970; for tests and imports.
        stamp: what makes the commits: as for ``Versioned``, for every state over this repository, also those of
            services.

    Attributes:
        branches, tags: mappings from name to commit, with ``create`` and ``delete``.
        notes: a mapping from a commit or revision to data attached to it.
        records: a mapping from a name to a dict of data beside the history.
        database: the plumbing beneath: reads by address, the records of refs, publishing.

    Raises:
        NotAStoreError, FormatError: the store is something else, or a newer release's. Nothing was changed.
        StoreNotFoundError: the store is empty, and open for reading only.
    """

    def __init__(
        self,
        store: KVStore | None = None,
        *,
        pickle: PickleMode = "own",
        pickle_key: bytes | None = None,
        classes: TrustedModules = (),
        author: str | None = None,
        signer: Signer | None = None,
        clock: Callable[[], int] | None = None,
        stamp: StampSource | None = None,
    ) -> None:
        check_text("author", author)
        if stamp is not None:
            from versioned_state.repository.refs.stamps import check_stamp

            check_stamp(stamp)
        if clock is not None:
            check_function("clock", clock)
        if signer is not None and not callable(getattr(signer, "sign", None)):
            raise InvalidArgumentError(f"signer must be a Signer, not {type(signer).__name__}")
        from versioned_state.storage.base import KVStore

        if store is None:
            from versioned_state.storage import Memory

            store = Memory()
        elif not isinstance(store, KVStore):
            raise _no_store(store)
        self.database: Database = Database(
            store,
            pickle=pickle,
            pickle_key=pickle_key,
            classes=classes,
            author=author,
            signer=signer,
            clock=clock,
            stamp=stamp,
        )

    @classmethod
    def over(cls, database: Database) -> Self:
        """Return the repository of a database that is open already."""
        repository = cls.__new__(cls)
        repository.database = database
        return repository

    @made_once
    def branches(self) -> Branches:
        """The branches, by name."""
        from versioned_state.repository.names.branches import Branches

        return Branches(self.database)

    @made_once
    def tags(self) -> Tags:
        """The tags, by name."""
        from versioned_state.repository.names.tags import Tags

        return Tags(self.database)

    @made_once
    def notes(self) -> Notes:
        """The notes, by commit or revision."""
        from versioned_state.repository.refs.notes import Notes

        return Notes(self.database)

    @made_once
    def records(self) -> Records:
        """The records beside the history, by name."""
        from versioned_state.repository.refs.named_records import Records

        return Records(self.database)

    @property
    def store(self) -> KVStore:
        """The store beneath."""
        return self.database.store

    @property
    def author(self) -> str | None:
        """The author of commits, unless a call names another."""
        return self.database.author

    @property
    def signer(self) -> Signer | None:
        """Signs every commit that is made through this repository."""
        return self.database.signer

    @signer.setter
    def signer(self, signer: Signer | None) -> None:
        self.database.signer = signer

    @property
    def current_branch(self) -> str | None:
        """The branch that ``HEAD`` means, or None if none was chosen: see ``default_branch``."""
        return self.database.current_branch

    @current_branch.setter
    def current_branch(self, name: str | None) -> None:
        self.database.current_branch = name

    @property
    def aio(self) -> RepositoryAio:
        """The calls that access the store, as coroutines that run off the event loop: ``await repository.aio.gc()``."""
        return RepositoryAio(self)

    # Commits

    def commit(self, rev: str | Commit, *, head: Commit | None = None, branch: str | None = None) -> Commit:
        """Return the commit of a revision. Cost: O(log n) reads, or for ``@{time}`` the moves since then.

        Args:
            rev: see ``names.syntax``; a commit is passed through.
            head, branch: what ``HEAD`` means: this commit, or the head of this branch; by default of
                ``default_branch()``.

        Raises:
            UnknownRevisionError: there is no such commit; ``near`` has similar refs and ids.
            AmbiguousRevisionError: several commits have this abbreviated id.
        """
        from versioned_state.repository.names.resolve import resolve

        return resolve(self.database, rev, head=head, branch=branch)

    def parents(self, commit: Commit) -> list[Commit]:
        """Return the parents of a commit that history still has. Cost: one read each."""
        return self.database.commits.parents(commit)

    def default_branch(self) -> str:
        """Return the current branch if one was chosen, else ``main``, or the only branch if there is no ``main``."""
        from versioned_state.repository.names.resolve import default_branch

        return default_branch(self.database)

    @staticmethod
    def commit_together(
        states: Iterable[C],
        message: str = "",
        *,
        author: str | None = None,
        meta: Mapping[str, Any] | None = None,
        on_moved: OnMovedOption = "merge",
        policies: Mapping[str, Policy] | None = None,
        tags: Iterable[str | None] = (),
    ) -> list[Commit]:
        """Commit the changes of several states of one store in one batch: all of them or none.

        Returns their heads, in order.

        A state without changes makes no commit. If one of the branches has moved, its changes are merged onto its new
        head as by ``commit``, and all commits are tried again. Cost: as for the commits, in one request.

        Args:
            states: states on different branches of one store. They must not be in a transaction.
            message, author, meta, on_moved, policies: as for ``Versioned.commit``, for each of the commits.
            tags: for each state the name of a tag for its commit, or None, in the order of the states. The tags are
                made in the same batch; for a state without changes, the head gets the tag after it.

        Raises:
            UnsupportedByStoreError: the store takes too few conditions a batch (S3).
            InvalidArgumentError: two states are on one branch, or in different stores; or there are not as many tags as
                states.
            RefExistsError: there is a tag of one of these names. MergeConflictError, BranchMovedError,
            CommitInDoubtError, StorageError, UnserializableValueError, and others: as ``commit``.

            After any of them no branch has moved, and the staged changes are still there. If the commits are in doubt,
            all or none of them are made, and the next call on each state finds out.
        """
        wanted = list(states)
        if not wanted:
            return []
        if not all_of_one_class(wanted):
            raise InvalidArgumentError("commit_together takes states: Versioned(store, branch=…)")
        names = list_of("tags", tags)
        if names and len(names) != len(wanted):
            raise InvalidArgumentError(
                f"{len(names)} tags were given for {len(wanted)} states", hint="None stands for no tag"
            )
        found = [name for name in names if name is not None]
        if len(set(found)) < len(found):
            raise InvalidArgumentError("two of the tags have one name")
        return wanted[0].__commit_together__(
            wanted, message, author, meta, on_moved, policies or {}, names or [None] * len(wanted)
        )

    # Log

    def log(
        self,
        rev: str | Commit = "HEAD",
        *,
        limit: int | None = None,
        deadline: float | None = None,
        first_parent: bool = False,
        include_root: bool = False,
        head: Commit | None = None,
        branch: str | None = None,
        **filters: Unpack[Filters],
    ) -> Log:
        """Return commits from a revision back, newest first, without the empty root commit.

        Cost: one read for each commit that is taken.

        A range ``A..B`` gives the commits that lead to B and not to A, as in git.

        Args:
            limit: at most this many commits.
            deadline: stop examining commits after this many seconds, counted from the first one. ``Log.complete`` says
                whether it, or the limit, has ended the log.
            first_parent: follow only the first parent of each commit.
            include_root: include the empty root commit.
            head, branch: what ``HEAD`` means; see ``commit``.
            filters: only commits by this ``author``, ``since`` this time, and so on; see ``Filters``. Cost: one read
                for each commit that is tested; ``path`` and ``changed`` also read the differences.

        Raises:
            InvalidArgumentError: a limit or a filter makes no sense.
        """
        from versioned_state.repository.names.syntax import split_range
        from versioned_state.repository.views.lists import Bound, Log

        bound = Bound(
            None if limit is None else count("limit", limit),
            None if deadline is None else seconds("deadline", deadline),
        )
        read = self.database.commits.read
        walk: Callable[[], Iterator[Commit]]
        ends = split_range(rev) if isinstance(rev, str) else None
        if ends is not None:
            since, until = (self.commit(end, head=head, branch=branch) for end in ends)
            walk = partial(graph.only_in, until, [since], read, first_parent=first_parent)
        else:
            start = self.commit(rev, head=head, branch=branch)
            walk = partial(graph.first_parents, start, read) if first_parent else partial(graph.walk, [start], read)

        if filters:
            from versioned_state.repository.inspect.log_filters import select

        def commits(bound: Bound) -> Iterator[Commit]:
            chosen = bound.examined(walk() if include_root else (commit for commit in walk() if commit.id != ROOT_ID))
            if filters:
                chosen = select(self.database, chosen, filters, first_parent=first_parent)
            return bound.taken(chosen)

        return Log(commits, bound)

    def stamp(self, rev: str | Commit = "HEAD") -> dict[str, Any]:
        """Return what a commit was made with: the ``stamp`` of the state that made it, or an empty dict.

        Cost: two reads.
        """
        from versioned_state.repository.refs.stamps import Stamps

        return Stamps(self.store).of(self.commit(rev))

    def watch(
        self,
        prefix: str = "",
        *,
        branches: Iterable[str] | None = None,
        after: str | None = None,
        interval: float = 0.5,
        timeout: float | None = None,
        lag: float = 60.0,
    ) -> Watch:
        """Return an iterator over the moves of branches from now on: which one, from which commit to which.

        It never ends, unless a timeout is given. Every head that stays for longer than an interval is reported, exactly
        once as long as the watch lives. A branch that moves several times between two polls is one move, from the head
        last seen to the newest: ``log(f"{move.before}..{move.id}")`` has the commits between. A new branch has no
        ``before``, a deleted one no ``head``, and a rename is both. The moves that one poll finds come by their times.
        A watch that continues at a cursor repeats the moves of the last ``lag`` seconds before it.

        Cost: a poll is three calls of the store, and reads the branches that moved within ``lag`` seconds before the
        last move, or twice within five minutes. On a store of one condition a batch (S3) it reads all branches with the
        prefix, and with ``branches`` those alone.

        Args:
            prefix: only branches whose name begins with it.
            branches: only these branches. They need not exist. Does not depend on clocks.
            after: the ``cursor`` of a move or of a watch, to continue there; ``""`` reports all branches first, the
                oldest change first.
            interval: seconds between two polls. After a poll that took long, it is nine times as long as that.
            timeout: seconds without a move after which the iteration ends; another one continues there. 0 is one poll.
            lag: by how many seconds a move may become visible later than its time says. It must be above the
                differences of the writers' clocks, and above the time that a commit takes to arrive. A move beyond it
                may be missed.

        Raises:
            InvalidArgumentError: an argument is not what it should be.
        """
        from versioned_state.repository.names.watching import Watch

        return Watch(self.database, prefix, branches=branches, after=after, interval=interval, timeout=timeout, lag=lag)

    def grep(
        self, pattern: str | re.Pattern[str], rev: str | Commit = "HEAD", *, path: str | StatePath = ""
    ) -> Matches:
        """Yield the lines of the strings of a state that a regular expression matches, by path. See ``grep.grep``."""
        from versioned_state.repository.inspect.grep import grep
        from versioned_state.repository.views.lists import Matches

        at = self.commit(rev)  # where the branch stands now, however often it is shown
        return Matches(lambda: grep(self.database, pattern, at, path=path))

    def bisect(self, good: str | Commit, bad: str | Commit, is_bad: Callable[[Snapshot], object]) -> Bisection:
        """Return the first bad commit between a good one and a bad one, found by asking O(log n) times.

        See ``bisect.bisect``.
        """
        instance_of("is_bad", is_bad, Callable)
        from versioned_state.repository.inspect.bisect import bisect

        return bisect(
            self.commit(good),
            self.commit(bad),
            is_bad,
            read=self.database.commits.read,
            snapshot=self.snapshot,
            diff=self.diff,
        )

    def blame(
        self,
        path: str | StatePath = "",
        rev: str | Commit = "HEAD",
        *,
        start: int | None = None,
        end: int | None = None,
        deadline: float | None = None,
    ) -> BlameList:
        """Return the commit that each element, entry or line of the value at a path comes from. See ``blame.blame``."""
        for name, number in (("start", start), ("end", end)):
            if number is not None:
                integer(name, number)
        from versioned_state.repository.inspect.blame import blame
        from versioned_state.repository.views.lists import BlameList

        within = None if deadline is None else seconds("deadline", deadline)
        objects, commits = self.database.objects, self.database.commits
        return BlameList(
            blame(self.commit(rev), path, objects=objects, commits=commits, start=start, end=end, deadline=within)
        )

    def history(self, path: str | StatePath, rev: str | Commit = "HEAD", *, deadline: float | None = None) -> History:
        """Yield the commits that changed the value at a path, newest first, with its values before and after.

        See ``PathLog``.
        """
        from versioned_state.repository.inspect.path_log import PathLog
        from versioned_state.repository.views.lists import History

        objects, commits, at = self.database.objects, self.database.commits, self.commit(rev)
        within = None if deadline is None else seconds("deadline", deadline)
        return History(lambda: PathLog(at, path, objects=objects, commits=commits, deadline=within))

    def merge_base(self, a: str | Commit, b: str | Commit) -> Commit:
        """Return a best common ancestor of two revisions, if nothing else the empty root commit.

        Raises:
            UnknownRevisionError: history was pruned and has no common ancestor any more.
        """
        return graph.merge_base(self.commit(a), self.commit(b), self.database.commits.read)

    @property
    def merge_policies(self) -> dict[str, PolicyName]:
        """The merge policies that the repository keeps, by path pattern.

        Changing the dict changes no policy. Cost: one read.
        """
        from versioned_state.repository.merging.policies import read_policies

        return read_policies(self.store)

    def set_merge_policy(self, pattern: str, policy: PolicyName | None) -> None:
        """Keep a merge policy for the paths that match a pattern, or remove it with None.

        The policy holds for everybody who opens the store.

        Raises:
            InvalidPathError, InvalidArgumentError: the pattern does not parse, or there is no such policy.
        """
        from versioned_state.repository.merging.policies import write_policy

        write_policy(self.store, pattern, policy)

    def diff(
        self,
        a: str | Commit,
        b: str | Commit,
        *,
        internal: bool = False,
        limit: int | None = None,
        deadline: float | None = None,
    ) -> Diff:
        """Return the changes from one revision to another, by path. Unpickles nothing. Cost: reading the differences.

        Args:
            internal: include the engine's own keys.
            limit: the most changes to find, the first by their paths, at the cost of these. ``Diff.more`` is true if
                there are others.
            deadline: stop looking for changes after this many seconds, counted from the first use of the diff.
                ``Diff.complete`` is false if there may be others then.
        """
        from versioned_state.repository.views.diff import Diff

        before, after = self.commit(a).tree, self.commit(b).tree
        return Diff(
            self.database.objects,
            before,
            after,
            internal=internal,
            cache=self.database.nodes,
            limit=limit,
            deadline=deadline,
        )

    def snapshot(self, rev: str | Commit = "HEAD", *, describe: bool = False) -> Snapshot:
        """Return a read-only view of a commit.

        Args:
            describe: show objects as ``ObjectInfo`` instead of unpickling them.
        """
        commit = self.commit(rev)
        from versioned_state.repository.views.snapshot import Snapshot

        return Snapshot(
            self.database.objects,
            commit.tree,
            self.database.policy,
            commit=commit,
            describe=describe,
            cache=self.database.nodes,
        )

    def read(self, name: str) -> Reading:
        """Return a branch or a tag with its commit, state, note and records. A branch wins over a tag.

        Cost: three calls of the store, and one more if there are records; one fewer on PostgreSQL then.

        Raises:
            UnknownRevisionError: there is no branch or tag of that name.
        """
        from versioned_state.repository.views.reading import read_all_of

        return read_all_of(self.database, name)

    def reflog(self, name: str, *, kind: RefKind = "branch") -> Iterator[Position]:
        """Yield the positions of a branch or tag, deleted ones too, newest first.

        Cost: one read for each that is taken.
        """
        return iter(self.database.reflog(self.database.ref(kind, name)))

    # Maintenance

    def prune(
        self,
        *,
        keep_last: int | None = None,
        older_than: timedelta | None = None,
        down_to: str | Commit | None = None,
        keep_tagged: bool = True,
        branches: str | Iterable[str] = "*",
        expire: timedelta | None = None,
        gc: bool = False,
        dry_run: bool = False,
    ) -> PruneReport:
        """End the history of branches before the commits to keep.

        See ``prune.prune``. Deletes nothing unless ``gc`` is true.
        """
        from versioned_state.repository.maintenance.prune import prune

        return prune(
            self.database,
            keep_last=keep_last,
            older_than=older_than,
            down_to=down_to,
            keep_tagged=keep_tagged,
            branches=branches,
            expire=expire,
            gc=gc,
            dry_run=dry_run,
        )

    def purge(
        self,
        *paths: str | StatePath,
        prefixes: Iterable[str] = (),
        branches: str | Iterable[str] = (),
        effects: str | Iterable[str] = (),
        replace: Mapping[str, str] | None = None,
        thorough: bool = False,
        dry_run: bool = False,
        progress: PurgeProgress | None = None,
    ) -> PurgeReport:
        """Rewrite history without the values at some paths, or some branches, and erase them. See ``purge.purge``."""
        from versioned_state.repository.maintenance.purge.purge import purge

        return purge(
            self.database,
            *paths,
            prefixes=prefixes,
            branches=branches,
            effects=effects,
            replace=replace,
            thorough=thorough,
            dry_run=dry_run,
            progress=progress,
        )

    def stats(self, rev: str | Commit = "HEAD", *, depth: int = 1, commits: int = 100, top: int = 20) -> Stats:
        """Return the sizes of branches, paths, kinds of object and commits in the store. See ``stats.stats``."""
        from versioned_state.repository.inspect.stats import stats

        return stats(self.database, rev, depth=depth, commits=commits, top=top)

    def gc(
        self,
        *,
        expire: timedelta = DEFAULT_EXPIRE,
        dry_run: bool = False,
        compact: bool = False,
        force: bool = False,
        time_limit: float | None = None,
        progress: Progress | None = None,
    ) -> GcReport:
        """Delete every object that no ref and no log entry younger than ``expire`` leads to.

        See ``collector.collect``.
        """
        from versioned_state.repository.maintenance.gc.collector import collect

        return collect(
            self.database,
            expire=expire,
            dry_run=dry_run,
            compact=compact,
            force=force,
            time_limit=time_limit,
            progress=progress,
        )

    def expire(self, *, dry_run: bool = False) -> list[str]:
        """Delete the branches whose time to live is over (``ttl_seconds=`` of a state), and return their names.

        Others may write meanwhile: a branch that is committed to at this moment stays, and a commit of a handle on one
        that was deleted brings it back. Its reflog keeps a deleted branch until gc. With ``dry_run`` nothing is
        written. Cost: that of what expires; a branch in use costs a write in its time to live. On a store of one
        condition a batch (S3) it reads all branches.

        Raises:
            StorageError: the store failed. What was deleted so far stays deleted; call it again.
        """
        from versioned_state.repository.maintenance.expire import expire

        return expire(self.database, self.branches, dry_run=dry_run)

    def index_meta(self, key: str) -> None:
        """Index branches and tags by the values of a key in the meta of their heads.

        From then on, ``where={key: …}`` costs what it finds. Call it once, or at each start of a program: if there is
        the index, it costs a read. It reads the heads of all branches and tags, while others may write; a call that was
        cut off continues when it is repeated. From then on each move of a ref to another value writes and deletes an
        empty key in its batch. Texts, ints, bools and None are in the index; ``where=`` with a value of another type
        reads all heads.

        Args:
            key: a key of meta: ``"run_id"``. A store has at most 16 indexes, and an index stays.

        Raises:
            UnsupportedByStoreError: the store takes one condition a batch (S3). Nothing was changed.
            LimitExceededError, InvalidArgumentError: there are 16 indexes; not a text. Nothing was changed.
            StorageError: the index may have been begun. Listings do not use it until the same call again has ended it.
        """
        from versioned_state.repository.maintenance.index_meta import index_meta

        index_meta(self.database, key)

    def fsck(self, *, progress: Progress | None = None) -> FsckReport:
        """Check every object, ref and record. See ``fsck.check``. Damage is reported, not raised."""
        from versioned_state.repository.maintenance.fsck import check

        return check(self.store, progress=progress)

    def upgrade(self, *, dry_run: bool = False, force: bool = False) -> UpgradeReport:
        """Bring the store to the newest format version that this release writes. See ``upgrade.upgrade``.

        Until then each release keeps the version that the store has.
        """
        from versioned_state.repository.maintenance.upgrade import upgrade

        return upgrade(self.database, dry_run=dry_run, force=force)

    def verify(
        self,
        rev: str | Commit = "HEAD",
        *,
        keys: Iterable[PublicKey],
        limit: int | None = None,
        since: str | Commit | None = None,
    ) -> Verification:
        """Check the signatures of a commit and all its ancestors against keys that you trust.

        See ``signing.verify``.
        """
        from versioned_state.repository.history.signing import verify

        database = self.database
        return verify(
            self.commit(rev), objects=database.objects, commits=database.commits, keys=keys, limit=limit, since=since
        )

    def close(self) -> None:
        """Close the store. Calls after it raise ``StoreClosedError``."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Repository over {self.store!r}>"

    def __dir__(self) -> list[str]:
        return sorted(set(super().__dir__()) - {"database", "over"})  # for the layers above


class RepositoryAio(Aio[Repository]):
    """The awaitable twins of a repository's calls, any number at once.

    ``run`` is for all others, and those of ``branches`` and ``notes``.

    ``log``, ``history``, ``grep`` and ``reflog`` are asynchronous iterators. ``bisect`` calls its function on a
    background thread.

    A cancelled call that has begun ends first, and raises ``CancelledError`` then. Each raises ``EventLoopError`` if
    asyncio runs no event loop here.
    """

    bisect: Final = awaitable(lambda: Repository.bisect)
    blame: Final = awaitable(lambda: Repository.blame)
    close: Final = awaitable(lambda: Repository.close)
    commit: Final = awaitable(lambda: Repository.commit)
    default_branch: Final = awaitable(lambda: Repository.default_branch)
    diff: Final = awaitable(lambda: Repository.diff, after=lambda diff: diff.read_all())
    expire: Final = awaitable(lambda: Repository.expire)
    fsck: Final = awaitable(lambda: Repository.fsck)
    gc: Final = awaitable(lambda: Repository.gc)
    grep: Final = streamed(lambda: Repository.grep)
    history: Final = streamed(lambda: Repository.history)
    index_meta: Final = awaitable(lambda: Repository.index_meta)
    log: Final = streamed(lambda: Repository.log)
    merge_base: Final = awaitable(lambda: Repository.merge_base)
    parents: Final = awaitable(lambda: Repository.parents)
    prune: Final = awaitable(lambda: Repository.prune)
    purge: Final = awaitable(lambda: Repository.purge)
    read: Final = awaitable(lambda: Repository.read)
    reflog: Final = streamed(lambda: Repository.reflog)
    snapshot: Final = awaitable(lambda: Repository.snapshot)
    stamp: Final = awaitable(lambda: Repository.stamp)
    stats: Final = awaitable(lambda: Repository.stats)
    upgrade: Final = awaitable(lambda: Repository.upgrade)
    verify: Final = awaitable(lambda: Repository.verify)
    watch: Final = awaitable(lambda: Repository.watch)

    async def run(self, function: Callable[[], R]) -> R:
        """Return the result of a function on the repository.

        Example: ``await repository.aio.run(lambda: list(repository.log(limit=20)))``.
        """
        return await super().run(function)

    async def commit_together(
        self,
        states: Iterable[C],
        message: str = "",
        *,
        author: str | None = None,
        meta: Mapping[str, Any] | None = None,
        on_moved: OnMovedOption = "merge",
        policies: Mapping[str, Policy] | None = None,
        tags: Iterable[str | None] = (),
    ) -> list[Commit]:
        """Do ``Repository.commit_together``.

        The commits have the values as they are when it is called, or when its turn comes.
        """
        wanted = list(states)
        call = partial(
            self.of.commit_together,
            wanted,
            message,
            author=author,
            meta=meta,
            on_moved=on_moved,
            policies=policies,
            tags=list_of("tags", tags),
        )
        if not wanted or not all_of_one_class(wanted):
            return await self.run(call)  # which raises, or does nothing
        return await wanted[0].__run_together__(wanted, call)
