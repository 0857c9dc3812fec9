"""The errors after which the caller retries, or merges: the call was good, and something else came first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from .bad_input import TransactionError
from .base import UNCHANGED, StateError, restore, short


class Conflict(Protocol):
    """A path that both sides changed: see ``repository.merging.merge.Conflict``."""

    both_appended: bool

    @property
    def path(self) -> Any:
        """The path, a ``StatePath``."""
        ...

    @property
    def base(self) -> Any:
        """The value in the merge base, or ``MISSING`` if it has none."""
        ...

    @property
    def ours(self) -> Any:
        """Our value."""
        ...

    @property
    def theirs(self) -> Any:
        """Their value."""
        ...


class Merge(Protocol):
    """A merge that stopped at conflicts: see ``repository.merging.merge.Merge``."""

    @property
    def conflicts(self) -> Sequence[Any]:
        """The conflicts that are left."""
        ...

    def resolve(self, path: Any, value: Any) -> None:
        """Decide on the value at the path of a conflict."""
        ...

    def commit(self) -> Any:
        """Make the call again, with the decisions. Returns the ``Commit``."""
        ...


class BranchMovedError(StateError, remains=UNCHANGED):
    """The branch was moved by another writer, and the call does not merge."""

    branch: str
    expected: str | None
    actual: str | None

    def __init__(
        self, branch: str, *, expected: str | None, actual: str | None, hint: str = "", remains: str | None = None
    ) -> None:
        super().__init__(
            f"branch {branch!r} has moved: expected {short(expected)}, found {short(actual)}",
            hint=hint or "refresh() takes the new head in; then do it again",
            remains=remains,
        )
        self.branch, self.expected, self.actual = branch, expected, actual


class MergeConflictError(StateError, remains=UNCHANGED):
    """Both sides changed the same path since their merge base. Nothing was changed.

    ``conflicts`` has the paths with their values in the base, in ours and in theirs, read at the first access.
    ``merge`` resolves them: ``merge.resolve(path, value)`` for each, then ``merge.commit()``.
    """

    def __init__(
        self, branch: str, conflicts: Sequence[Conflict], *, merge: Merge | None = None, remains: str | None = None
    ) -> None:
        paths = [str(conflict.path) for conflict in conflicts]
        shown = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
        appended = next((str(conflict.path) for conflict in conflicts if conflict.both_appended), None)
        way_out = (
            "resolve it: error.merge.resolve(path, value), then error.merge.commit()"
            if merge
            else "discard(), or resolve it in a commit()"
        )
        super().__init__(
            f"conflict on branch {branch!r} at {shown}: both sides changed it",
            hint=f"policies={{{appended!r}: 'append'}} keeps the elements of both sides; or {way_out}"
            if appended
            else way_out,
            remains=remains,
        )
        self.branch = branch
        self.conflicts: Final = tuple(conflicts)
        self._merge = merge

    def __reduce__(self) -> tuple[object, ...]:
        if self._merge is None:
            return super().__reduce__()
        # A merge belongs to a state of this process: the other side gets the conflicts, and cannot resolve them.
        error = MergeConflictError(self.branch, self.conflicts, remains=self.remains)
        for note in getattr(self, "__notes__", ()):
            if note != f"hint: {self.hint}":
                error.add_note(note)
        return error.__reduce__()

    @property
    def can_resolve(self) -> bool:
        """Whether ``merge`` can resolve the conflicts.

        It cannot after a transaction, which was rolled back, nor in another process.
        """
        return self._merge is not None

    @property
    def merge(self) -> Merge:
        """The merge that resolves the conflicts and makes the call again.

        Raises ``TransactionError`` if that is impossible; see ``hint``.
        """
        if self._merge is None:
            raise TransactionError("this call cannot be made again with resolutions", hint=self.hint)
        return self._merge


class FencedError(StateError):
    """A lock of a branch was taken over by another writer.

    Its time was over before it was renewed, or the branch was deleted. ``token`` is that of this holder, ``newest`` the
    newest one, None if there is none.
    """

    branch: str
    token: int
    newest: int | None

    def __init__(self, branch: str, token: int, newest: int | None, *, remains: str | None = None) -> None:
        super().__init__(
            f"the lock of branch {branch!r} with token {token} is lost"
            + ("" if newest is None else f": the newest token is {newest}" if newest != token else ""),
            remains=remains,
            hint="discard(), and do it again under a new lock; a longer ttl=, commits and renew() keep a lock",
        )
        self.branch, self.token, self.newest = branch, token, newest


class LockTimeoutError(StateError, TimeoutError, remains=UNCHANGED):
    """Others had the lock of a branch for longer than the caller would wait. ``token`` is that of the holder."""

    branch: str
    token: int
    wait: float

    def __init__(self, branch: str, token: int, wait: float) -> None:
        super().__init__(f"branch {branch!r} is locked, with token {token}, and was not free within {wait:g} s")
        self.branch, self.token, self.wait = branch, token, wait


class PatchConflictError(StateError, remains=UNCHANGED):
    """The old values of a patch are not there. Nothing was changed. ``paths`` are the places."""

    def __init__(self, paths: Sequence[str]) -> None:
        shown = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
        super().__init__(
            f"the patch does not fit at {shown}: its old values are not there",
            hint="cherry_pick() merges a commit of the same store by path, and aligns lists",
        )
        self.paths: tuple[str, ...] = tuple(paths)


class UncommittedChangesError(StateError, remains=UNCHANGED):
    """A call would move a state to another commit and lose its uncommitted changes. Nothing was changed."""

    def __init__(self, call: str, paths: Sequence[str]) -> None:
        shown = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
        super().__init__(f"{call} with uncommitted changes: {shown}", hint="commit() or discard() first")
        self.paths: tuple[str, ...] = tuple(paths)


class DirtyWorkspaceError(UncommittedChangesError):
    """A call would overwrite files of a workspace whose content no commit has.

    Nothing was changed. ``files`` are their relative paths.

    ``paths`` are their paths in the state, and those of other uncommitted changes that the call refuses to overwrite.
    """

    def __init__(self, what: str, files: Sequence[str], *, paths: Sequence[str] = (), hint: str = "") -> None:
        shown = ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")
        StateError.__init__(
            self,
            f"{what}: {shown}",
            hint=hint
            or "commit() keeps the changes, discard() drops them; "
            "restore(path, overwrite=True) drops those of one file",
        )
        self.files: Final = tuple(files)
        self.paths: tuple[str, ...] = tuple(paths) or self.files


class UnmergedBranchError(StateError):
    """The branch to delete has commits that no other branch or tag has. Nothing was changed."""

    branch: str
    head: str

    def __init__(self, branch: str, head: str) -> None:
        super().__init__(
            f"branch {branch!r} has commits that no other branch or tag leads to, up to {short(head)}",
            remains="it was not deleted",
            hint=f"merge it first, or delete({branch!r}, force=True): its reflog keeps them for a while",
        )
        self.branch, self.head = branch, head


class EffectInDoubtError(StateError):
    """An effect was begun, and the ledger has no record of its outcome.

    Every attempt raises this error until the effect is settled.

    ``key`` is its full key, ``since`` when it was begun, in UTC. ``result`` is the result of the function, if it
    returned and the ledger could not record the result (the cause says why); else None. A result that cannot be pickled
    stays behind in its process.
    """

    key: str
    since: datetime
    result: Any

    def __init__(self, key: str, since: datetime, *, reason: str = "", result: Any = None) -> None:
        super().__init__(
            f"effect {key!r} is in doubt since {since:%Y-%m-%d %H:%M:%S} UTC: "
            f"{reason or 'it was begun, and its outcome was not recorded'}",
            remains="it was not repeated" if result is None else "error.result has its result",
            hint="find out whether it happened; "
            "then settle_effect(state, key, result), or forget_effect(state, key) if it did not",
        )
        self.key, self.since, self.result = key, since, result

    def __reduce__(self) -> tuple[object, ...]:
        import pickle

        try:
            pickle.dumps(self.result)
        except Exception:  # noqa: BLE001 - whatever a result's own code raises: the error itself has to cross
            return restore, (type(self), self.args), {**self.__dict__, "result": None}
        return super().__reduce__()
