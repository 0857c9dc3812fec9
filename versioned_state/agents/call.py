"""``Call``, one call of a task, and the current call. Layer: agents, beneath its other modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from os import urandom
from typing import TYPE_CHECKING, Any, Final, Protocol

from versioned_state.errors import NoTaskError

if TYPE_CHECKING:
    from weakref import ReferenceType

    from versioned_state.repository.history.commit import Commit
    from versioned_state.state.state import State
    from versioned_state.state.versioned import Versioned


class Steps(Protocol):
    """The operations of a running call on its state.

    Attributes:
        is_kept: whether the state outlives the call.
        listeners: functions that get each event.
        reference: dead as soon as the call can no longer end, or None if that is not known.
    """

    is_kept: bool
    listeners: tuple[Callable[[Any], object], ...]
    reference: ReferenceType[Any] | None

    def emit(self, event: Any) -> None:
        """Keep an event with the state."""
        ...

    def checkpoint(self, message: str) -> Commit | None:
        """Commit the changes so far. Returns None if the state has no commits."""
        ...


class Described(Protocol):
    """The description of a task, for its calls."""

    @property
    def types(self) -> Mapping[str, Any]:
        """The types of its parameters and of its result."""
        ...

    @property
    def documentation(self) -> str:
        """Its docstring, or an empty string."""
        ...

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        ...


class Call:
    """One call of a task: the task, its arguments, and the state that the call works on.

    A runner gets it as its argument.

    Attributes:
        name: the name of the task.
        agent: the name of the agent, or an empty string.
        id: unique for each call.
        key: the caller's ``key=``, or None.
        inputs: the arguments by name, defaults filled in.
        state: the result of ``current_state()``: a part of ``versioned``, or a ``Live``.
        versioned: the state whose branch the call commits to, or None if nothing is committed.
        parent: the call that this one is nested in, or None.
        namespace: the names of the calls around this one and its own, outermost first, joined with ``/``.
        is_paused: whether it is a generator's, and the caller runs until its next step.
        steps: carries out ``emit`` and ``checkpoint`` until the call ends. None if they do nothing.
        task: the task that was called, if it is known.
    """

    __slots__ = (
        *(
            "agent",
            "id",
            "has_ended",
            "inputs",
            "is_paused",
            "key",
            "name",
            "namespace",
            "parent",
            "state",
            "steps",
            "task",
            "versioned",
        ),
    )

    block = "a task"
    hint = "checkpoint() commits in the middle of a task, and its end commits the rest"
    way_out = "parallel() runs calls side by side, each on a fork, or use a handle of its own for each, from fork()"

    def __init__(
        self,
        name: str,
        state: State,
        *,
        agent: str = "",
        key: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        versioned: Versioned | None = None,
        parent: Call | None = None,
    ) -> None:
        self.name = name
        self.agent = agent
        self.id: Final = urandom(16).hex()
        self.key = key
        self.inputs: dict[str, Any] = {} if inputs is None else dict(inputs)
        self.state = state
        self.versioned = versioned
        self.parent = parent
        own = agent or name
        self.namespace: str = own if parent is None else f"{parent.namespace}/{own}"
        self.has_ended = False
        self.is_paused = False
        self.steps: Steps | None = None
        self.task: Described | None = None

    @property
    def types(self) -> Mapping[str, Any]:
        """The annotated types of the arguments by name, and the type of the result as ``return``."""
        return {} if self.task is None else self.task.types

    @property
    def documentation(self) -> str:
        """The docstring of the task, or an empty string."""
        return self.task.documentation if self.task is not None else ""

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return self.task.summary if self.task is not None else ""

    @property
    def is_over(self) -> bool:
        """Whether the call has ended, or an interrupt came before its body began, so that nothing will end it."""
        return self.has_ended or (
            self.steps is not None and self.steps.reference is not None and self.steps.reference() is None
        )

    def emit(self, event: Any) -> None:
        """Keep an event with the state, as ``emit`` does. Raises ``NoTaskError`` after the end of the call."""
        self._check_running("emit", "emit(event, state=state) keeps an event outside of a task")
        if self.steps is not None:
            self.steps.emit(event)

    def checkpoint(self, message: str = "") -> Commit | None:
        """Commit in the middle of the call, as ``checkpoint`` does. Raises ``NoTaskError`` after its end."""
        self._check_running("checkpoint", "state.commit() commits outside of a task")
        return None if self.steps is None else self.steps.checkpoint(message)

    def _check_running(self, what: str, hint: str) -> None:
        if self.has_ended:
            raise NoTaskError(f"{what}() after the end of task {self.name!r}", hint=hint)

    def end(self) -> None:
        """Mark the call as ended, and let go of its steps, which refer to the call: only the collector ends a cycle."""
        self.has_ended = True
        self.steps = None

    # The owner of a transaction: see ``state.branch.transactions.Owner``

    @property
    def elsewhere(self) -> str:
        """A description of the call for callers outside of it."""
        return f"a call of task {self.name!r} runs on this handle"

    def is_current(self) -> bool:
        """Return whether this call, or one that is nested in it, runs in this thread and task."""
        call = current_call()
        while call is not None and call is not self:
            call = call.parent
        return call is self

    def __repr__(self) -> str:
        return f"<Call of {self.namespace} {self.id[:8]}>"


_current: Final[ContextVar[Call | None]] = ContextVar("versioned_state_call", default=None)


def current_call() -> Call | None:
    """Return the innermost call that runs in this thread and task, or None."""
    call = _current.get()
    while call is not None and call.is_over:  # an interrupt may have left it set
        call = call.parent
    return call


def require_call(what: str, *, otherwise: str = "") -> Call:
    """Return the innermost call that runs here. Raises ``NoTaskError`` for ``what``, with ``otherwise`` as a hint."""
    call = current_call()
    if call is None:
        hint = "call it in a function decorated with @task, in the thread that runs the task"
        raise NoTaskError(f"{what} outside of a task", hint=f"{otherwise}, or {hint}" if otherwise else hint)
    return call


def enter_call(call: Call) -> Token[Call | None]:
    """Make a call the current one, until ``leave_call``."""
    return _current.set(call)


def leave_call(token: Token[Call | None]) -> None:
    """Make the call current that was current before ``enter_call``."""
    try:  # noqa: SIM105 - suppress() takes longer than the rest of this
        _current.reset(token)
    except ValueError:
        pass  # a coroutine may be closed in another context than it ran in, where the call was never set


@contextmanager
def running(call: Call) -> Iterator[None]:
    """Make a call the current one for the block."""
    token = enter_call(call)
    try:
        yield
    finally:
        leave_call(token)
