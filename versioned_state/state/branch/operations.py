"""Git's operations on the history of a handle: commit, merge, cherry-pick, revert, rebase, squash, undo. Layer: state.

Each is all or nothing: it makes its commits, then moves the branch in one step, and live values follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from versioned_state.arguments import check_text
from versioned_state.errors import (
    BranchMovedError,
    InvalidArgumentError,
    MergeConflictError,
    MissingObjectError,
    RefExistsError,
    UnknownPathError,
    UnknownRevisionError,
)
from versioned_state.records import dataclass, replace
from versioned_state.repository.committing import OnMoved
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import Commit
from versioned_state.state.branch.branch_handle import GIVEN_UP, BranchHandle, head_address
from versioned_state.state.branch.commit_options import CommitOptions, check_meta
from versioned_state.state.branch.merging import Resolving, merge_roots, policies_of, replacing_root
from versioned_state.state.branch.publisher import (
    MovedError,
    Proposal,
    again_if_moved,
    again_if_swept,
    move_branch,
    publish,
    publish_anew,
    raise_if_moved,
    send,
)
from versioned_state.state.worktree.entries import UNSTORABLE, Staged
from versioned_state.state.worktree.unfinished import HandlePosition
from versioned_state.values.keys import path_of, user_key
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, same

if TYPE_CHECKING:
    from versioned_state.repository.names.tags import CommitTag
    from versioned_state.repository.refs.reflog import Position

_UNDO, _REDO = "undo", "redo"


@dataclass(frozen=True, slots=True)
class Description:
    """The message, author, meta and tag of a commit.

    Empty or None: the operation's own. Raises ``InvalidArgumentError``.
    """

    message: str = ""
    author: str | None = None
    meta: Mapping[str, Any] | None = None
    tag: str | None = None

    def __post_init__(self) -> None:
        check_text("message", self.message)
        check_text("author", self.author)
        check_meta(self.meta)


def commit(handle: BranchHandle, options: CommitOptions, resolving: Resolving) -> Commit:
    """Commit the changes since the head. Returns the new head. See ``Versioned.commit``."""
    if options.tag is not None:
        commit = _commit_tagged(handle, options, options.tag, resolving)
    else:
        commit = _commit(handle, options, resolving, landed=handle.resolve_doubt())
    note = options.note
    if note is not None and note.commit != commit.address:  # there was no change to commit, so the head gets the note
        handle.repository.notes.update(commit, note.values)
    return commit


def _commit_tagged(handle: BranchHandle, options: CommitOptions, name: str, resolving: Resolving) -> Commit:
    """Commit the changes and make a tag for the commit in one batch. Without changes, the tag is made for the head."""
    landed = handle.resolve_doubt()
    from versioned_state.repository.names.tags import CommitTag

    tag = CommitTag(handle.repository.database, name)
    try:
        commit = _commit(handle, options, resolving, landed=landed, tag=tag)
    except RefExistsError as error:
        error.remains = resolving.remains
        raise
    if tag.is_made or (landed and handle.repository.tags.get(name) == commit):
        return commit
    try:
        handle.repository.tags.create(name, at=commit)
    except MissingObjectError:  # the head was purged, or undone and collected; the branch has another head
        handle.recover(OnMoved.MERGE if options.on_moved is OnMoved.REPLACE else options.on_moved, resolving)
        commit = replace(handle.head, skipped=commit.skipped)
        handle.repository.tags.create(name, at=commit)
    return commit


def _commit(
    handle: BranchHandle, options: CommitOptions, resolving: Resolving, *, landed: bool, tag: CommitTag | None = None
) -> Commit:
    """Do as ``commit``, with no commit in doubt any more. ``landed`` says whether there was one that the branch has."""
    allow_empty = options.allow_empty and not landed
    if landed and options.parent is not None and handle.head.parent_addresses[:1] == (options.parent.address,):
        proposal, staged = propose(handle, replace(options, parent=None), resolving)
        if proposal is None:  # this very call made the commit before, without knowing it
            return _with_skipped(staged, handle.head)
    if options.keys is not None:
        return _commit_keys(handle, options, resolving, allow_empty=allow_empty, tag=tag)
    try:
        return _stage_and_commit(handle, options, resolving, allow_empty=allow_empty, flush=True, tag=tag)
    except MissingObjectError:
        handle.recover(options.on_moved, resolving)
        return _stage_and_commit(handle, options, resolving, allow_empty=allow_empty, flush=False, tag=tag)


def _commit_keys(
    handle: BranchHandle, options: CommitOptions, resolving: Resolving, *, allow_empty: bool, tag: CommitTag | None
) -> Commit:
    """Commit the changes of some keys.

    If the branch has moved, ``refresh`` first merges all changes onto its new head.
    """
    keys = frozenset(map(user_key, options.keys or ()))
    for key in keys:
        if key not in handle.worktree and handle.worktree.cell(key) is None and not handle.hooks.makes(key):
            raise UnknownPathError(
                str(path_of(key)), at="the state", hint="keys= must name keys of the state, or removed ones"
            )
    refusing = replace(options, on_moved=OnMoved.REFUSE) if options.on_moved is OnMoved.MERGE else options

    def attempt(_: object) -> Commit:
        return _stage_and_commit(handle, refusing, resolving, allow_empty=allow_empty, flush=False, keys=keys, tag=tag)

    def attempts() -> Commit:
        behind = (lambda _: handle.refresh(resolving)) if options.on_moved is OnMoved.MERGE else None
        return again_if_moved(attempt, handle.head, behind)

    try:
        return attempts()
    except MissingObjectError:
        handle.recover(options.on_moved, resolving)
        return attempts()


def _stage_and_commit(
    handle: BranchHandle,
    options: CommitOptions,
    resolving: Resolving,
    *,
    allow_empty: bool,
    flush: bool,
    keys: frozenset[bytes] | None = None,
    tag: CommitTag | None = None,
) -> Commit:
    proposal, staged = propose(handle, options, resolving, allow_empty=allow_empty, flush=flush, keys=keys, tag=tag)
    if proposal is None:
        commit = (
            handle.head if options.parent is None else _move_onto(handle, options.parent, options.on_moved, resolving)
        )
    else:
        commit = publish((proposal,), options.on_moved, resolving)
    return _with_skipped(staged, commit) if staged.failed else commit


def propose(
    handle: BranchHandle,
    options: CommitOptions,
    resolving: Resolving,
    *,
    allow_empty: bool = False,
    flush: bool = False,
    keys: frozenset[bytes] | None = None,
    tag: CommitTag | None = None,
) -> tuple[Proposal | None, Staged]:
    """Stage the changes of a handle, amended by its hooks. Returns the proposal to commit them, and the staged changes.

    Without changes the proposal is None, and the handle adopts the values that turned out equal.
    """
    worktree, hooks = handle.worktree, handle.hooks
    if hooks.all:
        hooks.before_commit(keys)
    try:
        pending = handle.pending.taken(keys) if handle.pending.entries else {}
        staged = worktree.stage(
            lenient=options.skip_unserializable, flush=flush, adopting=True, keys=keys, pending=pending
        )
    except UNSTORABLE as error:
        error.remains = resolving.remains
        raise
    amended = hooks.amend(Nodes(staged.staging, staging=staged.staging), staged.tree, keys) if hooks.all else None
    root = staged.tree if amended is None else amended
    onto = options.parent
    if onto is not None and onto != handle.head:
        if same(root, handle.root_of(onto)) and not allow_empty:
            return None, staged
    elif not (staged.changes or staged.series or allow_empty or handle.is_migrating) and same(root, staged.tree):
        worktree.adopt(staged, worktree.tree)
        return None, staged
    message = options.message
    if not message:
        from versioned_state.state.branch.summary import summarize

        message = summarize(worktree, staged, options.subject, amended if onto is None else root, onto)
    author = handle.author if options.author is None else options.author

    def write(tree: Tree, parent: Commit) -> Commit:
        if onto is not None:
            parent = onto
        if options.on_moved is OnMoved.REPLACE and parent != handle.head:
            tree = replacing_root(staged, tree, parent.tree)
        if handle.migrator is None and not handle.hooks.all:
            write_commit = handle.repository.database.write_commit
            meta = options.meta if handle.stamp is None else handle.stamp.on(options.meta)
            return write_commit(
                tree, (parent,), staging=staged.staging, message=message, author=author, meta=meta, tag=options.tag
            )
        description = Description(message, author, options.meta, options.tag)
        return _write_on(handle, staged, tree, parent, description, allow_empty=allow_empty)

    _, ref, head = handle.position
    return Proposal(handle, staged, write, ref, head, root, root, pending, tag, allow_empty, onto, options.note), staged


def _move_onto(handle: BranchHandle, target: Commit, on_moved: OnMoved, resolving: Resolving) -> Commit:
    """Move the branch to a commit that has just the content of the handle, so that no commit is needed.

    Returns that commit.
    """

    def attempt(_: None) -> Commit:
        ref, head = handle.read_head()
        if on_moved is OnMoved.REFUSE and head != handle.head:
            raise handle.moved_error(resolving)
        if head == target:
            return handle.follow(ref, head)
        try:
            move_branch(handle, target, f"commit onto {target.short}: no change", at=(ref, head))
        except BranchMovedError:
            raise MovedError from None
        return target

    return publish_anew(handle, attempt, resolving)


def _write_on(
    handle: BranchHandle,
    staged: Staged,
    tree: Tree,
    parent: Commit,
    description: Description,
    *,
    allow_empty: bool = False,
) -> Commit:
    """Stage a commit of a root on a parent, after the commits that migrations and hooks put before it.

    Returns the commit of the migration if nothing else has changed.
    """
    before = handle.migrated(parent, staged)
    if before is not parent and same(tree, before.tree) and not allow_empty:
        return before
    *firsts, last = _settled(handle, staged, handle.root_of(parent), tree)
    write_commit = partial(handle.repository.database.write_commit, staging=staged.staging, author=description.author)
    for first in firsts:
        before = write_commit(first, (before,), message=f"{description.message} (in full)")
    return write_commit(
        last, (before,), message=description.message, meta=handle.stamped(description.meta), tag=description.tag
    )


def _settled(handle: BranchHandle, staged: Staged, before: Tree, after: Tree) -> tuple[Tree, ...]:
    """Return the roots to commit instead of ``after``, according to the hooks.

    ``before`` is the root of the first parent.
    """
    return handle.hooks.settle(Nodes(staged.staging, staging=staged.staging), before, after)


def _with_skipped(staged: Staged, commit: Commit) -> Commit:
    """Return the commit with the paths that were left out of it."""
    if not staged.failed:
        return commit
    skipped = tuple(
        error.path for key, error in staged.failed.items() if error is not None and key not in staged.replaced
    )
    return replace(commit, skipped=skipped) if skipped else commit


def merge(
    handle: BranchHandle,
    theirs: Commit,
    description: Description,
    resolving: Resolving,
    *,
    fast_forward: bool,
    in_time: bool = True,
) -> Commit:
    """Merge a commit into the branch. Returns the new head. See ``Versioned.merge``.

    Args:
        in_time: elements that both sides appended come in the order of the commits' times; otherwise ours come first.
    """

    def attempt(_: None) -> Commit | None:
        staged = handle.clean("merge()")
        ref, ours = handle.read_head()  # perhaps not our head, which moves only after the merge
        bases = graph.merge_bases(ours, theirs, handle.repository.database.commits.read)
        base = next(bases)
        if base == theirs:
            return handle.follow(ref, ours)
        if base == ours and fast_forward:
            with suppress(BranchMovedError):
                move_branch(handle, theirs, f"merge {theirs.short}: fast-forward", at=(ref, ours))
                return theirs
            raise MovedError
        first = in_time and (theirs.time, theirs.id) < (ours.time, ours.id)
        roots = handle.root_of(ours), handle.root_of(theirs)
        all_bases = [base, *bases]
        virtual = len(all_bases) > 1
        base_root = _root_of_bases(handle, staged, all_bases, resolving) if virtual else handle.root_of(base)
        tree = merge_roots(
            handle, staged, base_root, *roots, resolving, theirs_first=first, virtual=virtual, on_top=False
        )
        message = description.message or f"merge {theirs.short} into {handle.branch}"

        def write(tree: Tree, ours: Commit) -> Commit:
            parents = handle.migrated(ours, staged), handle.migrated(theirs, staged)
            return _write(handle, staged, _settled(handle, staged, roots[0], tree)[-1], parents, description, message)

        return send([Proposal(handle, staged, write, ref, ours, tree, tree, allow_empty=True)], resolving.remains)

    return publish_anew(handle, attempt, resolving)


def _root_of_bases(handle: BranchHandle, staged: Staged, bases: Sequence[Commit], resolving: Resolving) -> Tree:
    from versioned_state.repository.merging.merge import root_of_bases

    nodes, policies = Nodes(staged.staging, staging=staged.staging), policies_of(handle, resolving)
    return root_of_bases(handle.repository.database, nodes, bases, policies=policies, root_of=handle.root_of)


def pick(
    handle: BranchHandle, commits: list[Commit], description: Description, resolving: Resolving, *, backwards: bool
) -> Commit:
    """Repeat the changes of some commits on top of the head, each as a commit, or commit the reverse.

    Returns the new head.
    """

    def attempt(_: None) -> Commit | None:
        staged = handle.clean("revert()" if backwards else "cherry_pick()")
        staged.staging.distrust()  # gc may collect these commits: perhaps no ref leads to them
        ref, ours = handle.read_head()
        head = migrated = handle.migrated(ours, staged)
        for commit in commits:
            parent = _first_parent(handle, commit)
            base, theirs = (commit, parent) if backwards else (parent, commit)
            head = _repeated(
                handle,
                staged,
                (base, theirs),
                head,
                commit,
                _described(commit, description, backwards=backwards),
                resolving,
            )
        if head == migrated:  # it has the changes already
            return handle.follow(ref, ours)
        return send(
            [Proposal(handle, staged, lambda *_: head, ref, ours, head.tree, head.tree, allow_empty=True)],
            resolving.remains,
        )

    return publish_anew(handle, attempt, resolving)


def rebase(handle: BranchHandle, onto: Commit, resolving: Resolving) -> Commit:
    """Repeat the branch's own commits on top of another commit. Returns the new head. See ``Versioned.rebase``."""
    staged = handle.clean("rebase()")
    base = handle.repository.merge_base(handle.head, onto)
    if base == onto:
        return handle.head
    head = handle.migrated(onto, staged)
    for commit in _beyond(handle, onto, handle.head):
        if len(commit.parents) > 1:
            continue  # the commits that the merge brought in are repeated themselves, or are there already
        parent = _first_parent(handle, commit)
        head = _repeated(handle, staged, (parent, commit), head, commit, _described(commit, Description()), resolving)
    move_branch(handle, head, f"rebase onto {onto.short}", staged=staged)
    return head


def squash(handle: BranchHandle, since: Commit, until: Commit, description: Description) -> Commit:
    """Combine the commits after ``since`` up to ``until`` into one, and repeat the later ones. Returns the new head."""
    staged = handle.clean("squash()")
    head = handle.head
    if since == until or not (_is_before(handle, since, until) and _is_before(handle, until, head)):
        found = f"there are no commits after {since.short} up to {until.short} on branch {handle.branch!r}"
        hint = "name the commit before the first one to combine, such as HEAD~3"
        raise InvalidArgumentError(found, hint=hint)
    squashed = _line(handle, since, until)
    message = description.message or "\n".join(dict.fromkeys(commit.message for commit in squashed))
    new = _write(handle, staged, until.tree, (since,), description, message)
    for commit in _line(handle, until, head):
        others = handle.repository.parents(commit)[1:]  # the other parents of a merge stay
        new = _write(handle, staged, commit.tree, (new, *others), _described(commit, Description()), "")
    move_branch(handle, new, f"squash {since.short}..{until.short}", staged=staged)
    return new


def undo(handle: BranchHandle, steps: int) -> Commit:
    """Move the branch back by ``steps`` moves, undone moves not counted, or forward again if it is negative.

    Returns the new head.
    """
    call = "undo()" if steps > 0 else "redo()"
    handle.clean(call)
    actual = head_address(handle.read_ref())
    if actual != handle.head.address:  # this handle has not read the last moves
        raise BranchMovedError(handle.branch, expected=handle.head.id, actual=actual.hex(), hint="refresh() first")
    return again_if_swept(handle, lambda: _undo(handle, steps))


def _undo(handle: BranchHandle, steps: int) -> Commit:
    undone, positions = _undone(handle)
    target = undone + steps
    found = next(islice(positions, target, None), None) if target >= 0 else None
    if found is None or found.commit is None:
        error = UnknownRevisionError(f"{handle.branch}@{{{max(target, 0)}}}")
        verb = "undo" if steps > 0 else "redo"
        error.what = (
            f"there is nothing to {verb}" if abs(steps) == 1 else f"there are not {abs(steps):,} moves to {verb}"
        )
        raise error
    # Logged even if the branch is there already: the entry says how many moves are undone.
    move_branch(handle, found.commit, f"{_UNDO if steps > 0 else _REDO} {abs(steps)}")
    return found.commit


def _undone(handle: BranchHandle) -> tuple[int, Iterator[Position]]:
    """Return the number of moves that are undone now, and the moves before the first undo, newest first."""
    moves = handle.repository.reflog(handle.branch)
    positions = (position for position in moves if position.action != GIVEN_UP)  # this did not move the branch
    undone = 0
    for position in positions:
        word, _, count = position.action.partition(" ")
        if word not in (_UNDO, _REDO) or not count.isdigit():
            break
        undone += int(count) if word == _UNDO else -int(count)
    else:
        return undone, iter(())
    return undone, chain((position,), positions)


def commits_of(handle: BranchHandle, rev: str | Commit | Sequence[str | Commit], resolve: Any) -> list[Commit]:
    """Return the commits of a revision, oldest first.

    These are one commit, or those of a list, or for ``A..B`` those after A up to B by first parents.
    """
    if isinstance(rev, list | tuple):
        commits = {commit.id: commit for commit in map(resolve, rev)}
        return sorted(commits.values(), key=lambda commit: (commit.generation, commit.time))
    from versioned_state.repository.names.syntax import split_range

    ends = split_range(rev) if type(rev) is str else None
    if ends is None:
        return [resolve(rev)]
    since, until = map(resolve, ends)
    if not _is_before(handle, since, until):
        raise InvalidArgumentError(f"{rev}: {since.short} does not come before {until.short} by first parents")
    return _line(handle, since, until)


def _is_before(handle: BranchHandle, old: Commit, new: Commit) -> bool:
    return old.height <= new.height and graph.descend(new, old.height, handle.repository.database.commits.read) == old


def _line(handle: BranchHandle, since: Commit, until: Commit) -> list[Commit]:
    """Return the commits up to ``until`` by first parents that ``since`` does not have, oldest first."""
    line = []
    for commit in graph.first_parents(until, handle.repository.database.commits.read):
        if commit.generation <= since.generation and graph.is_ancestor(
            commit, since, handle.repository.database.commits.read
        ):
            break
        line.append(commit)
    return line[::-1]


def _beyond(handle: BranchHandle, onto: Commit, head: Commit) -> list[Commit]:
    """Return the commits that lead to ``head`` but not to ``onto``, parents first and line by line, to repeat them."""
    read = handle.repository.database.commits.read
    left = {commit.id: commit for commit in graph.only_in(head, [onto], read)}
    made = []
    pending = [head.id]
    while pending:
        commit = left.get(pending[-1])
        before = [] if commit is None else [id for id in commit.parents if id in left]
        if before:
            pending += before[::-1]  # the first parent's line comes first
            continue
        pending.pop()
        if commit is not None:
            made.append(left.pop(commit.id))
    return made


def _first_parent(handle: BranchHandle, commit: Commit) -> Commit:
    """Return the parent that a commit's changes are relative to: its first."""
    parents = handle.repository.parents(commit)
    if not parents:
        raise InvalidArgumentError(f"{commit.short} has no parent in the store, so its changes are not known")
    return parents[0]


def _described(commit: Commit, description: Description, *, backwards: bool = False) -> Description:
    message = description.message or (f"revert {commit.short}: {commit.message}" if backwards else commit.message)
    meta = description.meta if description.meta is not None else None if backwards else commit.meta
    author = description.author or (None if backwards else commit.author)
    return Description(message, author, meta)


def _repeated(
    handle: BranchHandle,
    staged: Staged,
    change: tuple[Commit, Commit],
    head: Commit,
    commit: Commit,
    description: Description,
    resolving: Resolving,
) -> Commit:
    """Repeat the change between two commits on top of a migrated head.

    Returns the head if it has the change already.
    """
    base, theirs = map(handle.root_of, change)
    ours = head.tree
    try:
        tree = merge_roots(
            handle, staged, base, ours, theirs, resolving, theirs_first=False, counting=False, on_top=False
        )
    except MergeConflictError as error:
        error.add_note(f"while repeating {commit.short}: {commit.message}")
        raise
    tree = _settled(handle, staged, ours, tree)[-1]
    return head if same(tree, ours) else _write(handle, staged, tree, (head,), description, "")


def _write(
    handle: BranchHandle,
    staged: Staged,
    tree: Tree,
    parents: tuple[Commit, ...],
    description: Description,
    message: str,
) -> Commit:
    author = description.author or handle.author
    return handle.repository.database.write_commit(
        tree,
        parents,
        staging=staged.staging,
        message=description.message or message,
        author=author,
        meta=handle.stamped(description.meta),
    )


def switch(handle: BranchHandle, branch: str, *, create: bool) -> None:
    """Move to another branch.

    There are no uncommitted changes. Raises ``UnknownRevisionError`` if there is no such branch.
    """
    ref = handle.repository.database.ref("branch", branch)
    if ref.head is not None:
        head = handle.commit_of(ref)
        handle.root_of(head)
    elif not create:
        head = handle.repository.branches[branch]  # raises
    elif handle.ref.head is None:
        head = handle.head  # our branch has no commit yet, so the new branch also begins with its first commit
    else:
        try:
            ref, head = handle.repository.branches.begin(branch, handle.head, origin=handle.branch)
        except MissingObjectError as error:
            raise_if_moved(handle, error)
            raise
    handle.move_to(HandlePosition(branch, ref, head))
    handle.ttl = None  # it belonged to the other branch
