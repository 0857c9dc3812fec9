"""The tools that write, each only if the program allows it: set, mark, branch, merge, restore. Layer: integrations.

Their commits have an author and ``meta={"mcp": {...}}``: ``vstate log --meta mcp.tool=state_set`` lists what a model
did.
None deletes history: what is restored is a new commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from versioned_state.errors import (
    BranchMovedError,
    InvalidArgumentError,
    MergeConflictError,
    RefExistsError,
    StateError,
    UnknownPathError,
)
from versioned_state.integrations.tools.context import Context
from versioned_state.integrations.tools.reading import changes_in
from versioned_state.integrations.tools.scope import in_state
from versioned_state.integrations.tools.text import REDACTED, Page, ToolError, cut, heading
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.merging.policies import NAMES
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.diff import Diff
from versioned_state.state.edits.restore import put_at
from versioned_state.state.state import key_of, value_at
from versioned_state.state.versioned import Versioned
from versioned_state.storage.wrappers.overlay import Overlay
from versioned_state.values.paths.path import Index, Key, StatePath

_MOST: Final = 1 << 20
"""Bytes of the values of one call, as JSON."""


@contextmanager
def _writing(tools: Context, expected_head: str = "", *, dry_run: bool = False) -> Iterator[Versioned]:
    """Open a handle on the branch.

    With ``dry_run`` it writes into memory over the store, and its commits are gone afterwards.

    Raises ``ToolError`` if the branch's head is not the expected one.
    """
    repository = tools.scope.repository
    if dry_run:
        repository = Repository(Overlay(repository.store))
    state = Versioned(repository, branch=tools.scope.branch, author=tools.author)
    try:
        if expected_head and not _is(state.head, expected_head):
            raise ToolError(_moved(tools, state.head, expected_head))
        yield state
    except BranchMovedError:
        raise ToolError(_moved(tools, tools.scope.head(), expected_head)) from None
    finally:
        state.discard()
        state.close()


def _is(head: Commit, expected: str) -> bool:
    return len(expected) >= 7 and head.id.startswith(expected)


def _moved(tools: Context, head: Commit, expected: str) -> str:
    at = f"{tools.scope.branch} is at {head.short} by now, not at {cut(expected, 64)}"
    return f"{at}; nothing was changed: read it again, then repeat the call"


def _said(tools: Context, branch: str, commit: Commit, line: str) -> str:
    """Return an answer of one line."""
    page = Page(heading(branch, commit), tools.max_chars)
    page.add(line)
    return page.text()


def _committed(tools: Context, before: Commit, after: Commit) -> str:
    tools.refresh()
    if after == before:
        return _said(tools, tools.scope.branch, after, "no change, no commit")
    page = Page(heading(tools.scope.branch, after), tools.max_chars)
    page.add(f"committed {after.id}")
    return changes_in(tools, page, tools.scope.repository.diff(before, after))


def state_set(tools: Context, changes: list[Any], expected_head: str, message: str = "") -> str:
    """Commit changes to values, all or none."""
    if not changes:
        raise ToolError('changes must have an entry, such as {"path": "plan", "value": []}')
    _check_size(changes)
    with _writing(tools, expected_head) as state:
        before = state.head
        for change in changes:
            _apply(tools, state, change)
        meta = tools.meta("state_set")
        try:
            head = state.commit(message or _summary(changes), meta=meta, on_moved="refuse")
        except BranchMovedError:
            raise
        except StateError as error:
            raise ToolError(f"nothing was committed: {error.what}") from None
    return _committed(tools, before, head)


def _check_size(changes: list[Any]) -> None:
    if len(json.dumps(changes)) > _MOST:
        raise ToolError("the changes are more than 1 MiB; nothing was changed: send less at once")


def _summary(changes: list[Any]) -> str:
    paths = [str(change.get("path", "")) for change in changes if isinstance(change, dict)]
    return cut(f"set {', '.join(paths[:3])}{'…' if len(paths) > 3 else ''}", 120)


def _apply(tools: Context, state: Versioned, change: Any) -> None:
    """Make one change in the live state. Raises ``ToolError``."""
    if not isinstance(change, dict) or not isinstance(change.get("path"), str) or not change["path"]:
        raise ToolError("each change is an object with a path, and one of value, append or delete")
    given = [name for name in ("value", "append", "delete") if name in change]
    if len(given) != 1 or change.keys() - {"path", *given}:
        raise ToolError(f"the change of {change['path']} must have one of value, append or delete")
    path = tools.scope.path(change["path"])
    if tools.redaction.hides(path):
        raise ToolError(f"{path} is {REDACTED}, and cannot be set")
    try:
        if "delete" in change:
            _delete(state, path)
        elif "append" in change:
            _append(state, path, change["append"])
        else:
            _refuse_forms(change["value"], path)
            put_at(state, path, change["value"])
    except UnknownPathError:
        raise ToolError(
            f"there is nothing at {path}, or its container is missing; nothing was changed: see state_outline"
        ) from None
    except (InvalidArgumentError, TypeError) as error:
        text = error.what if isinstance(error, StateError) else "it is not possible there"
        raise ToolError(f"{path} was not set: {text}; nothing was changed") from None


def _append(state: Versioned, path: StatePath, values: Any) -> None:
    if not isinstance(values, list):
        raise InvalidArgumentError("append takes a list of elements")
    _refuse_forms(values, path)
    try:
        held = value_at(state, path)
    except UnknownPathError:
        put_at(state, path, list(values))
        return
    if type(held) is not list:
        raise InvalidArgumentError(f"a {type(held).__name__} is there, not a list")
    held.extend(values)


def _delete(state: Versioned, path: StatePath) -> None:
    container = value_at(state, StatePath(path.steps[:-1])) if len(path.steps) > 1 else state
    step = path.steps[-1]
    try:
        if isinstance(step, Index) and type(container) is list:
            del container[step.index]
        elif isinstance(step, Key) and type(container) is not list:
            del container[key_of(step)]
        else:
            raise UnknownPathError(str(path))
    except LookupError:
        raise UnknownPathError(str(path)) from None


def _refuse_forms(value: Any, path: StatePath) -> None:
    """Refuse the forms in which typed values are shown, such as ``{"$bytes": …}``: a model sends plain JSON."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            form = next((key for key in part if key.startswith("$")), None)
            if form is not None:
                raise InvalidArgumentError(f"{path} would get a key {form!r}, and keys must not begin with $")
            pending.extend(part.values())
        elif isinstance(part, list):
            pending.extend(part)


def state_mark(tools: Context, rev: str = "HEAD", label: str = "good", why: str = "") -> str:
    """Attach a label to a commit, as its note."""
    commit = tools.scope.commit(rev)
    if not label:
        raise ToolError("label must not be empty")
    note = {"label": label[:100], "why": why[:1000], "by": tools.author}
    tools.scope.repository.notes.update(commit, note)
    marked = f"{commit.short} is marked {json.dumps(label[:100], ensure_ascii=True)}"
    return _said(tools, tools.scope.branch, commit, marked)


def state_branch(tools: Context, name: str, at: str = "HEAD", switch: bool = False) -> str:  # noqa: FBT001, FBT002 - an argument of a tool
    """Make a branch, or continue on an existing one."""
    commit = tools.scope.commit(at)
    full = name if tools.scope.has(name) else tools.scope.prefix + name
    there = tools.scope.repository.branches.get(full) if switch and at == "HEAD" else None
    if there is not None:
        tools.switch(full)
        return _said(tools, full, there, f"on branch {json.dumps(full)} now, at {there.id}")
    if switch:
        tools.switch(tools.scope.branch)  # raises before anything is made
    try:
        tools.scope.repository.branches.create(full, at=commit)
    except RefExistsError:
        raise ToolError(f"there is a branch {full!r}; choose another name") from None
    except InvalidArgumentError as error:
        raise ToolError(error.what) from None
    if switch:
        tools.switch(full)
    here = ", and this is where state_set writes now" if switch else ""
    return _said(tools, full, commit, f"created {json.dumps(full)} at {commit.id}{here}")


def state_merge(tools: Context, rev: str, policy: str = "", dry_run: bool = True) -> str:  # noqa: FBT001, FBT002 - an argument of a tool
    """Merge a commit of the scope into the present branch."""
    theirs = tools.scope.commit(rev)
    if policy and policy not in NAMES:
        raise ToolError(f"there is no policy {cut(policy, 40)!r}; there are {', '.join(NAMES)}")
    policies: Any = {"**": policy} if policy else None

    def merge(state: Versioned) -> Commit:
        return state.merge(
            state.repository.commit(theirs.id),
            message=f"merge {cut(rev, 80)} into {tools.scope.branch}",
            policies=policies,
        )

    return _previewed(tools, merge, "merge", dry_run=dry_run)


def state_restore(tools: Context, rev: str, path: str = "", dry_run: bool = True, expected_head: str = "") -> str:  # noqa: FBT001, FBT002 - an argument of a tool
    """Commit the content of an earlier commit again."""
    source = tools.scope.commit(rev)
    if not dry_run and not expected_head:
        raise ToolError("restoring needs expected_head, the id of the head that you saw")
    where = tools.scope.path(path)

    def restore(state: Versioned) -> Commit:
        old = state.repository.snapshot(source.id, describe=True)
        if where.steps:
            state.restore(where, source.id)
        else:
            for key in sorted({*old, *state}):
                state.restore(StatePath((Key(key),)), source.id)
        message = f"restore {path or 'the state'} as of {source.short}"
        return state.commit(message, meta=tools.meta("state_restore"), on_moved="refuse")

    return _previewed(tools, restore, "restore", expected_head, dry_run=dry_run)


def _previewed(
    tools: Context, act: Callable[[Versioned], Commit], verb: str, expected_head: str = "", *, dry_run: bool
) -> str:
    """Return what an act changes, and do it unless ``dry_run``."""
    try:
        with _writing(tools, expected_head, dry_run=dry_run) as state:
            before = state.head
            after = act(state)
            if not dry_run:
                return _committed(tools, before, after)
            page = Page(heading(tools.scope.branch, before), tools.max_chars)
            page.add(f"a dry run: nothing was changed; dry_run=false to {verb}")
            database = state.repository.database
            diff = Diff(database.objects, before.tree, after.tree, cache=database.nodes)
            return changes_in(tools, page, diff)
    except MergeConflictError as error:
        return _conflicts(tools, error)
    except UnknownPathError:
        raise ToolError("there is nothing at that path on either side; nothing was changed") from None
    except StateError as error:
        if isinstance(error, BranchMovedError):
            raise
        raise ToolError(f"it was not possible: {error.what}; nothing was changed") from None


def _conflicts(tools: Context, error: MergeConflictError) -> str:
    page = Page(heading(tools.scope.branch, tools.scope.head()), tools.max_chars)
    page.add(
        "conflicts, and nothing was changed: repeat with policy ours, theirs, union, append, sum, max, min or text, "
        "or set the value first"
    )
    for conflict in error.conflicts:
        if in_state(conflict.path):
            hidden = tools.redaction.hides_part(conflict.path)
            sides = (REDACTED,) * 2 if hidden else (tools.shown(conflict.ours), tools.shown(conflict.theirs))
            if not page.add(f"{conflict.path}: ours {sides[0]}, theirs {sides[1]}"):
                break
    return page.text()
