"""Resolving a revision to a commit: an id or a name, and steps from there. Layer: repository.

``syntax`` has the grammar. An unknown name is answered with similar names, found without a scan of the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from versioned_state.errors import (
    AmbiguousRevisionError,
    InvalidArgumentError,
    MissingObjectError,
    UnknownRevisionError,
)
from versioned_state.objects.address import HEX_SIZE, Address
from versioned_state.objects.keys import RECENT, REF_KINDS, read_index_key
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.syntax import At, Back, Having, Moves, Parent, Saying, parse_revision
from versioned_state.repository.refs.ref import iter_refs
from versioned_state.values.cells import has_surrogate

if TYPE_CHECKING:
    from versioned_state.repository.database import Database
    from versioned_state.repository.refs.ref import Ref

_MIN_DIGITS: Final = 4
_MOST_SHOWN: Final = 8
_SAME_PREFIX: Final = 4096
_NEAR_REFS: Final = 1000
"""The number of refs searched for names similar to an unknown one: enough to help, without scanning a large store."""

_SAME_BEGINNING: Final = 100
"""The number of refs searched besides, wherever they are in the store, that begin as the unknown name does."""

_BEGINNING: Final = 64


def resolve(database: Database, rev: str | Commit, *, head: Commit | None = None, branch: str | None = None) -> Commit:
    """Return the commit of a revision. See ``Repository.commit``."""
    if isinstance(rev, Commit):
        # It may have become shallow since it was read.
        return database.commits.read(rev.address) if rev.address in database.commits.shallow else rev
    if type(rev) is not str:
        given: Any = rev
        hint = "such as HEAD~1, a branch, a tag or an id"
        if given is None:
            hint = "HEAD is the current commit; an event in a Live has no commit_hash"
        raise InvalidArgumentError(f"a revision must be a string or a Commit, not {type(given).__name__}", hint=hint)
    if not rev.isascii() and has_surrogate(rev):
        raise UnknownRevisionError(rev.encode("unicode_escape").decode(), reason="it has characters that no name has")
    # Between the read of a ref and that of its commit, others may take the ref back and collect the commit.
    return database.unless_swept(lambda: _resolve(database, rev, head, branch))


def _resolve(database: Database, rev: str, head: Commit | None, branch: str | None) -> Commit:
    whole = _by_full_id(database, rev)
    if whole is not None:
        return whole
    parsed = parse_revision(rev, database.clock)
    steps = list(parsed.steps)
    if steps and isinstance(steps[0], Moves | At):
        commit = _at_position(database, rev, parsed.base, steps[0], branch)
        del steps[0]
    elif parsed.base == "HEAD":
        commit = _head_of(database, rev, branch) if head is None else resolve(database, head)
    else:
        commit = (
            _by_full_id(database, parsed.base)
            or _by_name(database, parsed.base)
            or _by_prefix(database, rev, parsed.base)
        )
    for step in steps:
        if isinstance(step, Back):
            commit = _back(database, rev, commit, step.count)
        elif isinstance(step, Parent) and step.number:
            commit = _parent(database, rev, commit, step.number)
        elif isinstance(step, Having | Saying):
            commit = _newest(database, rev, commit, step)
    return commit


def default_branch(database: Database) -> str:
    """Return the current branch if one was chosen, else ``main``, or the only branch if there is no ``main``.

    Cost: two calls of the store.
    """
    if database.current_branch is not None:
        return database.current_branch
    if database.ref("branch", "main").head is not None:
        return "main"
    if database.fence.enabled:  # the index has no deleted branches
        names = [read_index_key(key)[1] for key in database.store.page(RECENT, limit=2)]
    else:
        names = list(islice(_names(database), 2))
    return names[0] if len(names) == 1 else "main"


def _names(database: Database) -> Iterator[str]:
    return (ref.name for ref in iter_refs(database.store, "branch"))


def _back(database: Database, rev: str, commit: Commit, count: int) -> Commit:
    if count > commit.height:
        are = "are" if commit.height > 1 else "is"
        raise UnknownRevisionError(rev, reason=f"there {are} {_only(commit.height, 'commit')} before {commit.short}")
    height = commit.height - count
    found = graph.descend(commit, height, database.commits.read)
    if found.height > height:
        raise UnknownRevisionError(rev, reason=graph.pruned_reason(found))
    return found


def _newest(database: Database, rev: str, start: Commit, step: Having | Saying) -> Commit:
    """Return the newest commit with a meta or a message, up to a start.

    Cost: one read for each commit that is looked at.
    """
    from versioned_state.repository.inspect.log_filters import has_meta, typed_value

    last = start
    is_typed = typed_value(step.value) if isinstance(step, Having) else None
    for last in graph.walk([start], database.commits.read):
        if step.text in last.message if isinstance(step, Saying) else has_meta(last.meta, step.key, is_typed):
            return last
    what = f"{step.text!r} in its message" if isinstance(step, Saying) else f"{step.key}={step.value} in its meta"
    pruned = f"; {graph.pruned_reason(last)}" if last.shallow else ""
    raise UnknownRevisionError(rev, reason=f"no commit up to {start.short} has {what}{pruned}")


def _only(number: int, what: str) -> str:
    """Return in words how few there are: ``no move``, ``only 1 move``, ``only 2 moves``."""
    return f"only {number} {what}{'' if number == 1 else 's'}" if number else f"no {what}"


def _parent(database: Database, rev: str, commit: Commit, number: int) -> Commit:
    parents = database.commits.parents(commit)
    if number > len(parents):
        reason = (
            graph.pruned_reason(commit) if commit.shallow else f"{commit.short} has {_only(len(parents), 'parent')}"
        )
        raise UnknownRevisionError(rev, reason=reason)
    return parents[number - 1]


def _head_of(database: Database, rev: str, branch: str | None) -> Commit:
    branch = branch or database.current_branch
    ref, head = database.read_head("branch", branch or "main")
    if head is None and branch is None:
        ref, head = database.read_head("branch", default_branch(database))
    if head is not None:
        return head
    near = tuple(islice(_names(database), _MOST_SHOWN))
    reason = f"there is no branch {ref.name!r}" if near else "there are no commits yet"
    raise UnknownRevisionError(rev, near=near, reason=reason, is_empty=not near)


def _by_name(database: Database, name: str) -> Commit | None:
    for kind in REF_KINDS:
        _, head = database.read_head(kind, name)
        if head is not None:
            return head
    return None


def _by_full_id(database: Database, base: str) -> Commit | None:
    """Return the commit of a full id, or None.

    As in git, an id goes before a ref of that name. Cost: one read, or none.
    """
    return database.commits.find(Address(bytes.fromhex(base))) if len(base) == HEX_SIZE and _is_hex(base) else None


def _by_prefix(database: Database, rev: str, prefix: str) -> Commit:
    digits = prefix.lower()
    if _MIN_DIGITS <= len(digits) <= HEX_SIZE and _is_hex(digits):
        found = _commits_by_prefix(database, digits)
        if len(found) == 1:
            return found[0]
        if found:
            raise AmbiguousRevisionError(rev, [commit.short for commit in found[:_MOST_SHOWN]])
    gone = next((ref for kind in REF_KINDS if (ref := database.ref(kind, prefix)).stored is not None), None)
    reason = f"the {gone.kind} {prefix!r} was deleted" if gone is not None else ""
    # The way back that the error shows is that of a name, without steps.
    deleted = gone.kind if gone is not None and rev == prefix and comes_back(database, gone) else ""
    raise UnknownRevisionError(rev, near=_near(database, prefix), reason=reason, deleted=deleted)


def comes_back(database: Database, deleted: Ref) -> bool:
    """Return whether ``name@{1}`` is the commit that a deleted ref pointed to.

    It is not if the ref was renamed to a name with an earlier reflog, as the names have swapped their reflogs then; nor
    if entries of the reflog have expired. Cost: a few reads.
    """
    try:
        position = database.reflog(deleted).at(1)
    except MissingObjectError:
        return False  # purge or gc erased the commit
    return position is not None and position.commit is not None


def _commits_by_prefix(database: Database, prefix: str) -> list[Commit]:
    """Return commits whose id has a prefix, one more than are shown at most.

    Cost: reads the objects with that prefix, up to a bound.
    """
    addresses = islice(database.objects.iter_addresses(prefix), _SAME_PREFIX)
    return list(islice((c for a in addresses if (c := database.commits.find(a)) is not None), _MOST_SHOWN + 1))


def _at_position(database: Database, rev: str, base: str, step: Moves | At, branch: str | None) -> Commit:
    """Return the commit that a ref pointed to, a number of moves ago or at a time."""
    name = (branch or default_branch(database)) if base == "HEAD" else base
    ref = database.ref("branch", name)
    if ref.head is None:
        # A live tag goes before a deleted branch.
        tag = database.ref("tag", name)
        ref = tag if tag.head is not None or ref.stored is None else ref
    if ref.stored is None:
        raise UnknownRevisionError(rev, near=_near(database, name), reason=f"there is no branch or tag {name!r}")
    reflog = database.reflog(ref)
    position = (
        reflog.at(step.count)
        if isinstance(step, Moves)
        else next((each for each in reflog if each.time <= step.time), None)
    )
    if position is None:
        # len() is without the entries that have expired
        reason = (
            f"its reflog has {_only(len(reflog) - 1, 'move')}" if isinstance(step, Moves) else "it did not exist then"
        )
        raise UnknownRevisionError(rev, reason=reason)
    if position.commit is None:
        raise UnknownRevisionError(rev, reason=f"{name!r} was deleted then")
    return position.commit


def _near(database: Database, name: str) -> list[str]:
    """Return names of refs, and short ids, similar to an unknown name."""
    near = similar_refs(database, name)
    if len(name) >= _MIN_DIGITS:
        head = name[: len(name) - 1].lower()
        if _is_hex(head):
            near += [commit.short for commit in _commits_by_prefix(database, head)]
    return near[:_MOST_SHOWN]


def similar_refs(database: Database, name: str) -> list[str]:
    """Return names of branches and tags similar to an unknown one, the most similar first.

    Cost: reads up to some 2,000 refs.
    """
    from difflib import get_close_matches

    beginning = name[: min(len(name) * 3 // 4, _BEGINNING)]
    names = {
        ref.name: None
        for kind in REF_KINDS
        for prefix, most in (("", _NEAR_REFS), (beginning, _SAME_BEGINNING))
        for ref in islice(iter_refs(database.store, kind, prefix), most)
    }
    return get_close_matches(name, names, n=4)


_is_hex: Final = frozenset("0123456789abcdef").issuperset
