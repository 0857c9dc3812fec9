"""``Commits``: the round of a call on a ``Versioned``, or on a namespace of one: one commit for the outermost call.

Layer: agents.

::

    enter ── changes, checkpoints ──┬── committed
                                    └── rolled back to the last checkpoint or the start, and the failure is committed

A nested call on the same handle is a nested transaction. Events are pending entries of the handle, which a rollback
does not change.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal, cast

from versioned_state.agents.call import Call
from versioned_state.agents.events.classes import SuccessEvent, TaskStartEvent
from versioned_state.agents.events.entries import EVENTS, entry_cell, event_cell, name_of, space_of, start_cell
from versioned_state.agents.tasks.call_text import call_text
from versioned_state.agents.tasks.keyed import RESULTS, KeyedCall, Recorded
from versioned_state.agents.tasks.round import Kept, OnEvent, Outcome, Round, Way, event_of, outcome_of, shown
from versioned_state.errors import CommitInDoubtError, MergeConflictError, StateError, UnserializableValueError
from versioned_state.repository.committing import OnMoved
from versioned_state.repository.history.commit import Commit
from versioned_state.state.aio.caller import ready
from versioned_state.state.branch import port
from versioned_state.state.branch.commit_options import CommitOptions
from versioned_state.state.branch.merging import Resolving
from versioned_state.state.branch.publisher import again_if_moved
from versioned_state.state.branch.transactions import OpenTransaction, current_worker
from versioned_state.state.versioned import Namespace, Versioned
from versioned_state.state.worktree.entries import UNSTORABLE
from versioned_state.values.encode.inline import plain_cell

OnUnstorable = Literal["keep", "restore"]

_OPTIONS: Final = CommitOptions()
"""Those of the transaction of a call, whose commits have their own."""

_NO_RESULT: Final[tuple[dict[str, Any], bytes]] = (
    {"result": None},
    event_cell(SuccessEvent, plain_cell({"result": None}) or b""),
)
"""The fields and the cell of the event of a call that returns None, as most do that change a state."""


class _Repeated(Exception):  # noqa: N818 - caught here
    """Raised if another call has committed under the same key."""

    def __init__(self, recorded: Recorded) -> None:
        super().__init__()
        self.recorded = recorded


class Commits(Round):
    """The round of a call on a ``Versioned``.

    Args:
        on_unstorable: whether the changes stay or are rolled back if one of them cannot be stored.
        closes: whether to close the state at the end, because it was opened for this call.
        pauses: whether the caller runs between the steps of the call, as for a generator.
    """

    _entered: OpenTransaction | None = None
    _unstorable: StateError | None = None
    _keyed: KeyedCall | None = None
    _before_end: int | None = None  # how many of ``_added`` were there before that of the success

    def __init__(
        self,
        call: Call,
        on_event: OnEvent | None,
        *,
        on_unstorable: OnUnstorable,
        closes: bool = False,
        pauses: bool = False,
    ) -> None:
        assert call.versioned is not None
        self._state: Versioned = call.versioned
        super().__init__(call, on_event, is_kept=True, closes=self._state if closes else None)
        self._transactions = port.transactions(self._state)
        self._handle, self._lock = self._transactions.handle, self._transactions.lock
        self._on_unstorable = on_unstorable
        self._pauses = pauses
        self._prefix = b"" if call.state is call.versioned else port.prefix(cast("Namespace", call.state))
        self._space = space_of(self._prefix) if self._prefix else ""
        self._added: list[tuple[bytes, str]] = []  # the pending entries of this call and of its nested calls
        self._outer = None if call.parent is None else self._find_outer()

    def _find_outer(self) -> Commits | None:
        """Return the round of the enclosing call on the same handle."""
        call = self.call.parent
        while call is not None:
            if call.versioned is self._state and not call.is_over and isinstance(call.steps, Commits):
                return call.steps
            call = call.parent
        return None

    # The beginning

    def _prepare(self) -> None:
        # Encoded before the call enters, where its caller runs: while a coroutine enters, other tasks may change its
        # arguments.
        fields = self._start_fields()
        event = start_cell(**fields)
        self._prepared = self._cell_of(TaskStartEvent, fields) if event is None else (fields, event)

    def _enter(self) -> None:
        """Open the transaction of the call, unless an earlier call has committed under its key."""
        if self.call.key is not None:
            recorded = self._find_recorded()
            if recorded is not None:
                self.is_repeat, self.result = True, recorded.result
                return
        outer = self._outer
        # Other code may use the handle while the call runs: then not all changes since its start belong to the call.
        beside = self._pauses or (outer is not None and outer._open().worker != current_worker())
        with ready(self._lock):
            self._entered = self._transactions.enter(
                _OPTIONS, self.reference, self.call, space=self._prefix, limited=beside
            )
            fields, event = self._prepared
            self._start = (TaskStartEvent, fields, *self._add(event))

    def _is_open(self) -> bool:
        return self._entered is not None and self._entered in self._transactions.open

    def _cancel(self, error: object) -> None:
        if self._entered is not None:
            self._transactions.leave(self._entered, error)
            self._withdraw(0)

    def _find_recorded(self) -> Recorded | None:
        call = self.call
        assert call.key is not None, "the caller checks this"
        with ready(self._lock):
            port.check_open(self._state)
            self._keyed = KeyedCall(self._state, agent=call.agent, task=call.name, key=call.key, inputs=call.inputs)
            return self._keyed.find()

    # The end

    def _keep_success(self) -> Kept:
        """Record the success of the call: its event, and its result under a key."""
        self._before_end = len(self._added)
        fields, event = self._cell_of(SuccessEvent, {"result": self.result}) if self.result is not None else _NO_RESULT
        with ready(self._lock):
            kept: Kept = (SuccessEvent, fields, *self._add(event))
            if self._keyed is not None:
                result = self._keyed.entry(self.call.id, self.result)
                self._added.append((RESULTS, self._keyed.name))
                self._handle.pending.add(RESULTS, self._keyed.name, result)
        return kept

    def _stage_ahead(self) -> None:
        from versioned_state.state.aio.ahead import stage_ahead

        if self._outer is None:
            stage_ahead(self._state, lenient=False)

    def _finish(self) -> None:
        """End the transaction: commit the changes of the call, or leave that to the enclosing call."""
        if self._outer is not None:
            self._transactions.leave(self._open())
            self._outer._added += self._added
        elif self._keyed is None:
            self._commit(self._options("success"), ends=True)
        else:
            self._commit_once(self._keyed)

    async def _settle(self, error: BaseException, way: Way) -> bool:
        if isinstance(error, _Repeated):
            await way(self._state, partial(self._transactions.leave, self._open(), error))
            self._withdraw(0)
            self.result = error.recorded.result
            return True
        if self._has_ended():
            return False  # the interrupt came after the commit
        if self._before_end is not None:
            self._withdraw(self._before_end)
        # the next call on the state finds out whether it was a success or a failure
        if isinstance(error, CommitInDoubtError):
            error.remains = (
                "the next call on the state finds out, "
                "and rolls the changes of the task back if the commit was not made"
            )
            self._open().has_left = True
        else:
            await self._fail(error, way)
        return False

    def _has_ended(self) -> bool:
        """Return whether the call has committed, or its transaction has ended within the enclosing one."""
        if self._outer is not None:
            return not self._is_open()
        meta = self._handle.head.meta
        is_committed = meta.get("call") == self.call.id and meta.get("outcome") == "success"
        if is_committed and self._is_open():
            self._transactions.forget(self._open())
        return is_committed

    def _commit_once(self, keyed: KeyedCall) -> None:
        """Commit, unless another call has committed under the same key."""
        options = self._options("success")
        options.on_moved = OnMoved.REFUSE

        def behind(_: None) -> None:
            recorded = keyed.find(committed=True)
            if recorded is not None:
                raise _Repeated(recorded)
            self._handle.refresh(Resolving())

        with ready(self._lock):
            again_if_moved(lambda _: self._commit(options, ends=True), None, behind)

    async def _fail(self, error: BaseException, way: Way) -> None:
        try:
            await way(self._state, partial(self._restore, error))
        except StateError as failure:  # the next call on the state rolls it back
            error.add_note(f"the changes of task {self.call.name!r} could not be rolled back yet: {failure}")
        for series, name in self._added:
            if series == RESULTS:
                self._handle.pending.discard(series, name)
        cls, fields = event_of(error)
        fields, event = self._cell_of(cls, fields)
        with ready(self._lock):
            port.check_open(self._state)
            kept: Kept = (cls, fields, *self._add(event))
        if self._outer is None:
            try:
                await way(self._state, partial(self._record_failure, error))
            except StateError as failure:  # of the store, or because the event loop is closed
                error.add_note(
                    f"the failure of task {self.call.name!r} is not recorded yet, but by the next commit: {failure}"
                )
        else:
            self._outer._added += self._added
        self._deliver_own(kept)

    def _restore(self, error: BaseException) -> None:
        """End the transaction of a call that failed."""
        with ready(self._lock):
            with suppress(StateError):
                port.check_open(self._state)
            if error is self._unstorable and self._on_unstorable == "keep" and self._outer is None:
                self._transactions.forget(self._open())
            else:
                self._transactions.leave(self._open(), error)

    def _record_failure(self, error: BaseException) -> None:
        """Commit the events of a call that failed, and nothing else."""
        outcome = outcome_of(error)
        message = f"{call_text(self.call)}: {outcome}: {shown(error):.200}"
        meta = self._options(outcome).meta
        try:
            self._state.commit(message, meta=meta, allow_empty=True, keys=())
        except MergeConflictError:  # a conflict of changes that were staged before the call, which stay uncommitted
            self._commit_beside(message, meta)

    def _commit_beside(self, message: str, meta: Mapping[str, Any] | None) -> None:
        """Commit the pending entries through another handle on the branch."""
        pending = self._handle.pending.taken(())
        other = Versioned(self._state.repository, branch=self._state.branch, author=self._state.author)
        for series, entries in pending.items():
            for name, cell in entries.items():
                port.handle(other).pending.add(series, name, cell)
        other.commit(message, meta=meta, allow_empty=True)
        self._handle.pending.forget(pending)

    def _commit(self, options: CommitOptions, *, ends: bool = False) -> Commit:
        try:
            assert self._entered is not None, "the block was entered"
            return self._transactions.commit(self._entered, options, ends=ends)
        except UNSTORABLE as error:
            self._unstorable = error
            if isinstance(error, UnserializableValueError):
                error.task = self.call.name
            error.what = f"task {self.call.name!r}: {error.what}"
            if self._on_unstorable == "keep":
                error.remains = "nothing was committed, and the state is as the task left it"
            else:
                error.remains = "nothing was committed, and the changes of the task were rolled back"
            raise

    def _options(self, outcome: Outcome | None, message: str = "") -> CommitOptions:
        call = self.call
        seconds = int((time.perf_counter() - self._started) * 1e6) / 1e6  # round() takes as long as packing the meta
        meta: dict[str, Any] = {"task": call.name, "agent": call.agent, "call": call.id, "seconds": seconds}
        if outcome is not None:
            meta["outcome"] = outcome
        if call.key is not None:
            meta["key"] = call.key
        return CommitOptions(message, meta=meta, allow_empty=True, subject="" if message else call_text(call))

    def _open(self) -> OpenTransaction:
        assert self._entered is not None, "the block was entered"
        return self._entered

    # Events

    def checkpoint(self, message: str) -> Commit | None:
        """Commit everything that has changed on the handle."""
        return self._commit(self._options(None, message))

    def _cell_of(self, cls: type, fields: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Return the fields and the cell of an event, of which no instance is made.

        A part that cannot be stored becomes a description.
        """
        cell = plain_cell(fields)
        if cell is None:
            with ready(self._lock):
                try:
                    cell = self._encode(fields, cls.__name__)
                except UNSTORABLE:
                    fields = self._described(fields)
                    cell = self._encode(fields, cls.__name__)
        return fields, event_cell(cls, cell)

    def _described(self, fields: dict[str, Any]) -> dict[str, Any]:
        inputs = fields.get("inputs")
        if inputs is not None:
            return {
                **fields,
                "inputs": {name: value if self._can_store(value) else shown(value) for name, value in inputs.items()},
            }
        return {name: value if self._can_store(value) else shown(value) for name, value in fields.items()}

    def _can_store(self, value: Any) -> bool:
        try:
            self._encode(value, "an input")
        except UNSTORABLE:
            return False
        return True

    def _encode(self, value: Any, name: str) -> bytes:
        return self._handle.worktree.encode_inline(value, f"{name} (an event)")

    def _keep(self, event: Any) -> tuple[int, Commit | None]:
        with ready(self._lock):
            port.check_open(self._state)
            return self._add(self._encode(event, type(event).__name__))

    def _add(self, event: bytes) -> tuple[int, Commit]:
        """Keep an event by its cell, under the lock. Returns its time, and the head."""
        call, handle = self.call, self._handle
        head, pending = handle.position.head, handle.pending
        now = pending.next_time(handle.repository.database.now())
        name = name_of(now, call.id)
        self._added.append((EVENTS, name))  # first, so that an interrupt cannot leave an entry that is never withdrawn
        pending.add(EVENTS, name, entry_cell(event, head.address, call.namespace, call.agent, self._space))
        return now, head

    def _withdraw(self, start: int) -> None:
        """Remove the entries from this one on, whose events did not happen."""
        for series, name in self._added[start:]:
            self._handle.pending.discard(series, name)
        del self._added[start:]
