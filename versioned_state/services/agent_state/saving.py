"""Deletions of rounds, and saves with the files of sandboxes: commits of a handle that has the state loaded.

Layer: services.

::

    rounds of the head ── our content, and the next round ── commit ──┬── done
             ▲                                                        └── another process was first: take in its head
             └────────────────────────────────────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from versioned_state.errors import BranchMovedError, QuotaExceededError
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.services.agent_state.reading import commit_of, content_of, has_files, rounds_at
from versioned_state.services.agent_state.rounds import LARGEST, Rounds, RoundsHook
from versioned_state.services.agent_state.session_handle import Session, SessionGoneError, expire
from versioned_state.services.calls.heads import is_over
from versioned_state.services.session_hooks import FILES_KEY
from versioned_state.state.branch import port
from versioned_state.state.branch.publisher import MovedError, again_if_moved
from versioned_state.state.versioned import Versioned
from versioned_state.values.trees.nodes import Nodes

_Prepare = Callable[[Commit, Rounds], "tuple[Rounds, dict[str, Any]] | None"]
"""Changes the handle. Returns the rounds and the meta of the commit to make on a head with these rounds, or None."""


def rounds_hook(state: Versioned) -> RoundsHook:
    """Return the service's hook of the handle, which is added if there is none."""
    for hook in port.handle(state).hooks.all:
        if isinstance(hook, RoundsHook):
            return hook
    hook = RoundsHook()
    port.handle(state).hooks.add(hook, state.head)
    return hook


def save(
    state: Versioned, session: Session, content: Mapping[str, Any], number: int | None, *, max_rounds: int | None = None
) -> int:
    """Commit a dict as a round, by default the one after the highest, and return its number.

    The branch then has exactly the dict's keys.

    Raises:
        QuotaExceededError: the session has as many rounds as it may have.
        SessionGoneError: the session is gone. Nothing was saved.
        StorageError and others: as ``commit``.
    """

    def prepare(head: Commit, rounds: Rounds) -> tuple[Rounds, dict[str, Any]] | None:
        latest = rounds.latest
        chosen = number if number is not None else 1 if latest is None else latest + 1
        if chosen > LARGEST:
            raise QuotaExceededError("the number of a round", limit=LARGEST)
        if max_rounds is not None and len(rounds) >= max_rounds and chosen not in rounds:
            raise QuotaExceededError("the number of rounds of a session", limit=max_rounds)
        _assign(state, content)
        return rounds.settled(head.height).at(chosen, head.height + 1), session.meta(round=chosen)

    made = _commit(state, session, prepare)
    assert made is not None
    assert made.current is not None
    return made.current


def delete_round(state: Versioned, session: Session, number: int) -> None:
    """Commit the removal of a round from a session.

    If the branch stands on it, the content becomes that of the highest one left.
    """

    def prepare(head: Commit, rounds: Rounds) -> tuple[Rounds, dict[str, Any]] | None:
        return (
            (_without(state, head, rounds, [number]), session.meta(deleted_round=number)) if number in rounds else None
        )

    _commit(state, session, prepare)


def retain(
    state: Versioned, session: Session, *, keep_last: int | None, since: int | None
) -> tuple[int, Commit | None]:
    """Commit the removal of rounds from a session, except its last ones and those that are newer.

    Returns how many were removed, and the oldest commit that the others need: history before it may go, whatever others
    save meanwhile. It is None if that history has no other rounds, not even those of an earlier call that ended before
    history was pruned.

    Args:
        keep_last: how many of the highest rounds stay.
        since: rounds whose commit is not older than this time stay too, in microseconds.
    """
    gone: list[int] = []

    def prepare(head: Commit, rounds: Rounds) -> tuple[Rounds, dict[str, Any]] | None:
        numbers = list(rounds)
        last = max(keep_last or 0, 1)  # the latest round always stays
        gone[:] = [number for number in numbers[:-last] if since is None or _time_of(state, head, number) < since]
        if not gone:
            return None
        return _without(state, head, rounds, gone), session.meta(deleted_rounds=len(gone))

    database = state.repository.database
    made = _commit(state, session, prepare)
    head = state.head
    left = rounds_at(database, head) if made is None else made
    heights = (head.height if number == left.current else left.height(number) or 0 for number in left)
    oldest = graph.descend(head, min(heights, default=head.height), database.commits.read)
    if made is None:
        before = graph.descend(oldest, oldest.height - 1, database.commits.read)
        if before == oldest or all(number in left for number in rounds_at(database, before)):
            return 0, None
    return len(gone), oldest


def _time_of(state: Versioned, head: Commit, number: int) -> int:
    commit = commit_of(state.repository.database, head, number)
    return 0 if commit is None else commit.time


def _without(state: Versioned, head: Commit, rounds: Rounds, numbers: list[int]) -> Rounds:
    """Return the rounds without some, for a commit on the head.

    If the current one is among them, the handle gets the highest one left.

    Rounds that ``prune`` cut off, of which nothing is left, are removed too in that case.
    """
    left = rounds.settled(head.height).without(*numbers)
    if rounds.current in numbers:
        commit = None
        while (latest := left.latest) is not None:
            commit = commit_of(state.repository.database, head, latest)
            if commit is not None:
                break
            left = left.without(latest)
        _assign(state, {} if commit is None else content_of(state.repository, commit))
        left = left if latest is None else left.at(latest, head.height + 1)
    return left


def _commit(state: Versioned, session: Session, prepare: _Prepare) -> Rounds | None:
    """Commit the result of ``prepare`` for the head and its rounds, again for each new head.

    Returns None if ``prepare`` does.
    """
    hook = rounds_hook(state)
    database = state.repository.database

    def attempt(is_fresh: bool) -> Rounds | None:  # noqa: FBT001 - the argument of ``again_if_moved``
        head = state.head
        rounds = rounds_at(database, head)
        try:
            prepared = prepare(head, rounds)
        except QuotaExceededError:
            if is_fresh:
                raise
            raise MovedError from None  # perhaps: the handle's head may be old
        if prepared is None:
            if is_fresh:
                return None
            raise MovedError
        made, meta = prepared
        hook.rounds = made = session.named(made)
        hook.unless = None
        try:
            state.commit(meta=meta, allow_empty=True, on_moved="refuse")
        finally:
            hook.rounds = None
        return made

    def behind(_: bool) -> bool:  # noqa: FBT001
        _take_in(state)
        return True

    if _seems_over(state):
        _take_in(state)
    try:
        return again_if_moved(attempt, False, behind)
    except (MovedError, BranchMovedError):
        raise BranchMovedError(
            state.branch, expected=state.head.id, actual=None, remains="nothing was saved", hint="save again"
        ) from None


def _take_in(state: Versioned) -> None:
    """Drop our changes and move to the head of the branch. Raises ``SessionGoneError``."""
    port.handle(state).worktree.restore()  # the folders of workspaces are left alone
    try:
        state.refresh()
    except BranchMovedError:
        raise SessionGoneError from None
    expire(port.handle(state))


def _seems_over(state: Versioned) -> bool:
    """Return whether the branch's time to live is over by the last record that the handle read."""
    return state.head.id != ROOT_ID and is_over(state.repository.database, port.handle(state).ref, state.head)


def _assign(state: Versioned, content: Mapping[str, Any]) -> None:
    """Assign these keys and no others, except for the files of sandboxes.

    Loads the old values, so that only differences are stored.
    """
    keys = set(state)
    for key, value in content.items():
        if key in keys:
            state.get(key)
        state[key] = value
    for key in keys.difference(content):
        if key != FILES_KEY or not has_files(Nodes(port.handle(state).objects), port.handle(state).worktree.tree):
            del state[key]
