"""The errors after which the caller corrects the input."""

from __future__ import annotations

import errno as _errno
from collections.abc import Sequence
from typing import Any, Final, Self

from .base import UNCHANGED, StateError, short


class InvalidArgumentError(StateError, ValueError, remains=UNCHANGED):
    """A bad argument: a name, URL or option."""


class InvalidPathError(InvalidArgumentError, remains=""):
    """A path that does not parse. ``position`` is the offset of the first bad character."""

    text: str
    position: int

    def __init__(self, text: str, position: int, reason: str) -> None:
        hint = 'for example: messages[17].content, prefs["a.b"]'
        if text.isprintable() and text and not set(text) & set(""".[]{}@:"'\\"""):
            hint = f"""a key that is not an identifier is written '["{text}"]'"""
        super().__init__(f"bad path {text!r} at {position}: {reason}", hint=hint)
        self.text, self.position = text, position


class InvalidTransitionError(StateError, ValueError, remains=UNCHANGED):
    """A state machine has no transition from its state by that event.

    ``machine`` is the key of the machine, ``state`` and ``event`` are those of the refused transition; ``allowed`` has
    the possible events.
    """

    machine: str
    state: Any
    event: Any
    allowed: tuple[Any, ...]

    def __init__(
        self,
        machine: str,
        state: Any,
        event: Any,
        allowed: Sequence[Any],
        *,
        hint: str = "",
        remains: str | None = None,
    ) -> None:
        possible = f"allowed are {', '.join(map(str, allowed))}" if allowed else f"nothing leads out of {state}"
        super().__init__(f"Invalid transition: {state} + {event}", remains=remains, hint=hint or possible)
        self.machine, self.state, self.event, self.allowed = machine, state, event, tuple(allowed)


class ReplayMismatchError(StateError, remains=UNCHANGED):
    """The events of an ``EventSourced`` value, replayed from the first one, do not lead to the value that was kept.

    ``index`` is that of the first event at which they are known to differ, None if the kept value alone is known to be
    wrong; ``replayed`` and ``kept`` are the two values.
    """

    key: str
    index: int | None
    replayed: Any
    kept: Any

    def __init__(self, key: str, index: int | None, *, replayed: Any, kept: Any, reason: str) -> None:
        place = f"from event {index} on" if index is not None else "at its end"
        super().__init__(
            f"the events under {key!r}, replayed, differ {place} from the value that was kept: {reason}",
            hint="apply() is not a function of value and event alone, has changed, or the events were edited",
        )
        self.key, self.index, self.replayed, self.kept = key, index, replayed, kept


class UnserializableValueError(StateError, TypeError, remains=UNCHANGED):
    """A value that cannot be stored. ``task`` names the task that would have committed it, if there was one."""

    path: str
    type_name: str
    reason: str

    task = ""

    def __init__(self, path: str, type_name: str, reason: str, *, remains: str | None = None) -> None:
        super().__init__(
            f"cannot store {path} of type {type_name}: {reason}",
            hint="keep what it was made from instead, register() its type, or commit(skip_unserializable=True)",
            remains=remains,
        )
        self.path, self.type_name, self.reason = path, type_name, reason


class LimitExceededError(StateError, ValueError):
    """A value or a stored object beyond a limit of the format: depth, size or count."""

    def __init__(self, what: str, *, limit: int, path: str = "", remains: str | None = None, hint: str = "") -> None:
        where = f" at {path}" if path else ""
        super().__init__(f"{what}{where} is beyond the limit of {limit}", remains=remains, hint=hint)
        self.measured = what
        self.limit = limit
        self.path = path


class QuotaExceededError(LimitExceededError, remains="nothing was saved"):
    """A call that a user's quota of a service does not allow."""


class PickleRefusedError(StateError):
    """The ``pickle=`` policy refuses to write or to read a value that needs pickling."""

    def __init__(
        self, what: str, *, policy: str, path: str = "", type_name: str = "", remains: str | None = None, hint: str = ""
    ) -> None:
        super().__init__(what, remains=remains, hint=hint)
        self.policy = policy
        self.path = path
        self.type_name = type_name


class SchemaError(StateError, ValueError):
    """A value that breaks the schema of its state. ``path`` is its place, and ``rule`` the rule that it breaks."""

    path: str
    rule: str
    reason: str

    def __init__(self, path: str, rule: str, reason: str, *, remains: str | None = None) -> None:
        super().__init__(f"{path or 'the state'} breaks the schema ({rule}): {reason}", remains=remains)
        self.path, self.rule, self.reason = path, rule, reason


class MigrationError(StateError, remains=UNCHANGED):
    """A migration failed. ``version`` is the version that it leads to. The migration's own error is the cause."""

    def __init__(self, version: int, reason: str) -> None:
        super().__init__(f"the migration to version {version} failed: {reason}")
        self.version = version


class NewerVersionError(StateError, remains=UNCHANGED):
    """A state at a newer version than its reader's migrations lead to."""

    version: int
    known: int

    def __init__(self, version: int, known: int) -> None:
        super().__init__(
            f"the state is at version {version}, and the migrations lead to version {known}",
            hint="newer code wrote it: read it with that code, or open it without migrations= to see it as it is",
        )
        self.version, self.known = version, known


class ReadOnlyError(StateError, TypeError):
    """A write to a snapshot, or to a store that was opened for reading."""


class HandleClosedError(StateError):
    """A call on a state, snapshot or repository after its ``close()``."""


class TransactionError(StateError, remains=UNCHANGED):
    """A call within a transaction that the transaction could not undo. Nothing was changed."""


class NoTaskError(StateError, RuntimeError):
    """A call that needs a running task, outside of any."""


class EmbedderError(StateError, remains="no vector was kept"):
    """An embedder failed, or did not return a vector of its dimension for each text. ``embedder`` is its name."""

    def __init__(self, embedder: str, reason: str) -> None:
        super().__init__(f"the embedder {embedder!r} failed: {reason}")
        self.embedder = embedder


class ServiceNotStartedError(StateError, RuntimeError, remains=UNCHANGED):
    """A call on a service before ``start()``, or after ``stop()``."""

    def __init__(self, service: str, *, stopped: bool) -> None:
        super().__init__(
            f"the {service} {'was stopped' if stopped else 'is not started'}",
            hint="await service.start(), or use it in `async with service:`",
        )
        self.service = service


class SandboxError(StateError):
    """A sandbox cannot be started, or its folder cannot be used."""


class SandboxFileError(SandboxError, OSError, remains=UNCHANGED):
    """A file of a sandbox cannot be read or written.

    ``path`` is its path there, and ``errno`` the system's reason, if there is one.
    """

    def __init__(
        self, what: str, *, path: str, errno: int | None = None, remains: str | None = None, hint: str = ""
    ) -> None:
        super().__init__(what, remains=remains, hint=hint)
        self.path = path
        self.errno = errno

    @classmethod
    def of(cls, error: OSError, path: str) -> Self:
        """Return the error for one of the system at a path."""
        reason = "a link is in the way" if error.errno in (_errno.ELOOP, _errno.ENOTDIR) else error.strerror
        return cls(f"{path}: {reason}", path=path, errno=error.errno)


class SessionNotFoundError(StateError, KeyError, remains=UNCHANGED):
    """A session that was deleted or never created. ``session_id`` is empty where the error must not name it."""

    def __init__(self, session_id: str = "", *, remains: str | None = None) -> None:
        super().__init__(
            f"there is no session {session_id!r}" if session_id else "there is no such session", remains=remains
        )
        self.session_id = session_id


class AccessDeniedError(StateError, remains=UNCHANGED):
    """The token of a request is unknown to the server, or does not allow the request."""


class IdempotencyConflictError(StateError):
    """A task's ``key=``, or an ``Idempotency-Key``, that was used before for something else.

    A call with other arguments has committed under the ``key=``, or another request has used the ``Idempotency-Key``.
    It is raised too if an ``Idempotency-Key`` is repeated after ``prune`` has deleted the history that would tell
    whether the request was done.
    """


class EventLoopError(StateError, RuntimeError):
    """A call of ``aio`` where no event loop of asyncio runs, or whose event loop stopped before the call ended."""


class UnknownRevisionError(StateError, KeyError):
    """No commit has that name. ``near`` holds similar refs and ids.

    ``deleted`` is ``"branch"`` or ``"tag"`` if one of that name was deleted, which its reflog can bring back; otherwise
    it is empty. ``is_empty`` says whether the repository has no commits at all.
    """

    def __init__(
        self, revision: str, *, near: Sequence[str] = (), reason: str = "", deleted: str = "", is_empty: bool = False
    ) -> None:
        way_back = f"create({revision!r}, at={revision + '@{1}'!r}) brings it back" if deleted else ""
        super().__init__(
            f"unknown revision {revision!r}" + (f": {reason}" if reason else ""),
            hint=way_back or ("did you mean " + ", ".join(near) + "?" if near else ""),
        )
        self.revision = revision
        self.near: tuple[str, ...] = tuple(near)
        self.deleted = deleted
        self.is_empty = is_empty


class AmbiguousRevisionError(StateError, KeyError):
    """An abbreviated id that several objects share. ``candidates`` holds up to 8 of them."""

    def __init__(self, revision: str, candidates: Sequence[str]) -> None:
        super().__init__(
            f"revision {revision!r} is ambiguous: {', '.join(candidates)}",
            hint="give more digits of the id",
        )
        self.revision = revision
        self.candidates: Final = tuple(candidates)


class UnknownPathError(StateError, KeyError):
    """Nothing at that path in that revision."""

    def __init__(self, path: str, *, at: str = "", hint: str = "") -> None:
        super().__init__(f"nothing at {path}" + (f" in {at}" if at else ""), hint=hint)
        self.path = path


class WorkspaceError(StateError, remains=UNCHANGED):
    """The folder of a workspace cannot be read or written, or would hold a file that it must not have.

    ``files`` names the files.

    An error of the operating system is its cause.
    """

    def __init__(self, what: str, files: Sequence[str] = (), *, remains: str | None = None, hint: str = "") -> None:
        super().__init__(what, remains=remains, hint=hint)
        self.files: Final = tuple(files)


class UnknownEffectError(StateError, KeyError, remains=UNCHANGED):
    """The ledger has no effect under that key. Nothing was changed."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there is no effect {key!r}", hint="effects(state) lists the keys")
        self.key = key


class UnknownNoteError(StateError, KeyError, remains=UNCHANGED):
    """The commit has no note, or its note does not have ``key``. Nothing was changed."""

    def __init__(self, commit: str, key: str | None = None) -> None:
        what = "has no note" if key is None else f"has a note without {key!r}"
        super().__init__(f"commit {short(commit)} {what}")
        self.commit = commit
        self.key = key


class UnknownRecordError(StateError, KeyError, remains=UNCHANGED):
    """There is no record of that name. Nothing was changed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no record {name!r}")
        self.name = name


class ErasedResultError(StateError):
    """The effect happened, and a purge erased its result. It was not repeated."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"effect {key!r} happened, and a purge erased its result",
            remains="it was not repeated",
            hint="settle_effect(state, key, result) records another result; "
            "forget_effect(state, key) lets it happen again",
        )
        self.key = key


class RefExistsError(StateError):
    """The branch or tag to create exists already. It was not moved."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} exists already", remains="it was not changed")
        self.kind = kind
        self.name = name


class UnsupportedByStoreError(StateError, remains=UNCHANGED):
    """A call that needs more than this kind of store can do, such as several conditions in one batch."""


class MissingDependencyError(StateError, ImportError):
    """A package that an optional part needs is not installed.

    ``extra`` is the extra of this library that installs it.
    """

    def __init__(self, what: str, *, extra: str) -> None:
        super().__init__(
            f"{what} needs a package that is not installed", hint=f"pip install 'versioned-state[{extra}]'"
        )
        self.extra = extra
