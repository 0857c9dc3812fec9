"""``Call``: one call of a task, and which one runs now. Layer: agents, beneath its other modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from versioned_state.errors import NoTaskError

if TYPE_CHECKING:
    from versioned_state.state.state import State
    from versioned_state.state.versioned import Versioned


class Call:
    """One call of a task: who was called with what, and the state that the call works on.

    Attributes:
        name: the name of the task.
        agent: the name of the agent, or an empty string.
        id: unique for each call.
        key: the caller's ``key=``, or None.
        inputs: the arguments by name, defaults filled in.
        state: what ``current_state()`` gives: a part of ``versioned``, or a ``Live``.
        versioned: the state whose branch the call commits to; None if nothing is committed.
        parent: the call that this one is nested in, or None.
        namespace: the names of the calls around this one and its own, outermost first.
        is_over: whether the call has ended.
    """

    __slots__ = ("agent", "id", "inputs", "is_over", "key", "name", "namespace", "parent", "state", "versioned")

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
        self.id = uuid4().hex
        self.key = key
        self.inputs = {} if inputs is None else dict(inputs)
        self.state = state
        self.versioned = versioned
        self.parent = parent
        own = agent or name
        self.namespace: str = own if parent is None else f"{parent.namespace}/{own}"
        self.is_over = False

    def __repr__(self) -> str:
        return f"<Call of {self.namespace} {self.id[:8]}>"


_current: Final[ContextVar[Call | None]] = ContextVar("versioned_state_call", default=None)


def current_call() -> Call | None:
    """The innermost call that runs in this thread and task, or None."""
    call = _current.get()
    while call is not None and call.is_over:  # an interrupt may have kept it from being unset
        call = call.parent
    return call


def require_call(what: str) -> Call:
    """The innermost call that runs here. Raises ``NoTaskError``, which says that ``what`` needs one."""
    call = current_call()
    if call is None:
        raise NoTaskError(f"{what} outside of a task", hint="call it in a function decorated with @task, in the thread that runs the task")
    return call


@contextmanager
def running(call: Call) -> Iterator[None]:
    """Make a call the current one for the block."""
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)
