"""``task``: the decorator that makes the calls of a function rounds of a state. Layer: agents."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator
from functools import lru_cache, partial, update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, Never, ParamSpec, Protocol, TypeVar, overload

from versioned_state.agents.call import Call, current_call, require_call
from versioned_state.agents.events.keeping import as_event, keep_event
from versioned_state.agents.tasks.commits import Commits, OnUnstorable
from versioned_state.agents.tasks.generators import awaited, kind_of, run, to_end
from versioned_state.agents.tasks.round import OnEvent, Round
from versioned_state.agents.tasks.signature import Bound, TaskSignature
from versioned_state.arguments import check_function, instance_of, one_of, string
from versioned_state.errors import InvalidArgumentError, ReadOnlyError
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.state.live import Live
from versioned_state.state.state import State
from versioned_state.state.versioned import Namespace, Versioned
from versioned_state.storage import KVStore

if TYPE_CHECKING:
    from versioned_state.repository.history.commit import Commit

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")

Runner = Callable[[Call], Any]
"""Runs a task whose body is empty, such as by a model. It may be a coroutine function."""

StateArgument = Versioned | Namespace | Live | str
"""The argument ``state=`` of a call: a state, a namespace of one, or the URL of a store."""

_STATES: Final = frozenset({Versioned, Namespace, Live, str})


_Awaited = Coroutine[Any, Any, Any] | AsyncIterator[Any]
"""The result types of coroutine functions and async generators."""


class TakesState(Protocol[P, R_co]):
    """For type checkers: a function whose first parameter is ``state``, which a task fills in."""

    def __call__(self, state: Any, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class Calls(Generic[P, R_co]):
    """Calls of a task with the arguments of its function and, by keyword, those of every task.

    A type checker checks a call without the latter, and one through ``on``: types cannot say that a function has
    further keywords.
    """

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], state: Any, key: Any, on_event: Any) -> Any:
        raise NotImplementedError

    def _stream(self, args: tuple[Any, ...], kwargs: dict[str, Any], state: Any, key: Any, on_event: Any) -> Any:
        raise NotImplementedError

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(
        self,
        *args: Any,
        state: StateArgument | None,
        key: str | None = None,
        on_event: OnEvent | None = None,
        **kwargs: Any,
    ) -> R_co: ...
    @overload
    def __call__(self, *args: Any, key: str | None, on_event: OnEvent | None = None, **kwargs: Any) -> R_co: ...
    @overload
    def __call__(self, *args: Any, on_event: OnEvent | None, **kwargs: Any) -> R_co: ...
    def __call__(  # type: ignore[misc] # P may have a parameter of one of these names
        self,
        *args: Any,
        state: StateArgument | None = None,
        key: str | None = None,
        on_event: OnEvent | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call the task. One call is one commit on ``state``, as ``task`` describes."""
        return self._call(args, kwargs, state, key, on_event)

    @overload
    def stream(self: Calls[P, Never], *args: Any, **kwargs: Any) -> Any: ...  # of a function without annotations
    @overload
    def stream(
        self: Calls[P, _Awaited],
        *args: Any,
        state: StateArgument | None = None,
        key: str | None = None,
        on_event: OnEvent | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[Any, None]: ...
    @overload
    def stream(
        self,
        *args: Any,
        state: StateArgument | None = None,
        key: str | None = None,
        on_event: OnEvent | None = None,
        **kwargs: Any,
    ) -> Generator[Any, None, None]: ...
    def stream(
        self,
        *args: Any,
        state: StateArgument | None = None,
        key: str | None = None,
        on_event: OnEvent | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call the task, and iterate over its events as they happen, asynchronously for a coroutine.

        Values of a generator are left out.

        The last event is that of the end, after the commit. An exception of the call is raised after it. A reader that
        stops early closes the call, or cancels the coroutine: its changes are rolled back.
        """
        return self._stream(args, kwargs, state, key, on_event)

    def on(self, state: StateArgument, *, key: str | None = None, on_event: OnEvent | None = None) -> CallsOn[P, R_co]:
        """Return the task with every task's arguments: ``book.on(state)("Rome")`` is ``book("Rome", state=state)``.

        A type checker checks the arguments of such a call. Cost: nothing of the store.
        """
        return CallsOn(self, state, key, on_event)


class CallsOn(Generic[P, R_co]):
    """Calls of a task on one state, as ``on`` makes them. They take the arguments of the function alone."""

    def __init__(self, task: Calls[P, R_co], state: StateArgument, key: str | None, on_event: OnEvent | None) -> None:
        self.__func__: Final = task
        self._given: Final = (state, key, on_event)
        _look_like(self, task)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the task, as ``task`` describes."""
        result: R_co = self.__func__._call(args, kwargs, *self._given)
        return result

    @overload
    def stream(self: CallsOn[P, Never], *args: P.args, **kwargs: P.kwargs) -> Any: ...
    @overload
    def stream(  # type: ignore[overload-overlap] # see Calls.stream
        self: CallsOn[P, _Awaited], *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[Any, None]: ...
    @overload
    def stream(self, *args: P.args, **kwargs: P.kwargs) -> Generator[Any, None, None]: ...
    def stream(self, *args: Any, **kwargs: Any) -> Any:
        """Call the task, and iterate over its events as they happen, as ``Calls.stream`` does."""
        return self.__func__._stream(args, kwargs, *self._given)

    def __repr__(self) -> str:
        return f"<{self.__func__!r} on {self._given[0]!r}>"


def _look_like(calls: Any, task: Any) -> None:
    """Give calls the name, documentation and code of their task, so that inspect treats them like the function."""
    update_wrapper(calls, task, updated=())
    calls.__code__ = task.__code__


class Task(Calls[P, R_co]):
    """A function whose calls are rounds of a state.

    Called like the function, with ``state=``, ``key=`` and ``on_event=`` in addition.

    The decorators ``task`` and ``Agent.task`` make and describe it.
    """

    __code__: Any
    __defaults__: Any
    __kwdefaults__: Any

    __name__: str
    __qualname__: str

    def __init__(
        self,
        function: Callable[P, R_co],
        *,
        name: str | None = None,
        on_unstorable: OnUnstorable = "keep",
        agent: str = "",
        runner: Runner | None = None,
    ) -> None:
        one_of("on_unstorable", on_unstorable, OnUnstorable)
        wrapped: Any = function.__func__ if isinstance(function, classmethod | staticmethod) else function
        if not hasattr(wrapped, "__code__"):
            raise TypeError(f"a task must be a function, not {type(wrapped).__name__}")
        update_wrapper(self, wrapped)
        self._is_static: Final = isinstance(function, staticmethod)
        self._is_of_class: Final = isinstance(function, classmethod)
        self._on_unstorable: Final[OnUnstorable] = on_unstorable
        self._agent: Final = agent
        self._runner: Runner | None = runner
        self._signature: Final = TaskSignature(wrapped)
        self.task_name: Final = check_name("the name of a task", name or wrapped.__name__)
        self._kind: Final = "coroutine" if self._is_run and inspect.iscoroutinefunction(runner) else kind_of(wrapped)
        # inspect then treats the task like its function, for example as a coroutine function.
        self.__code__, self.__defaults__, self.__kwdefaults__ = (
            wrapped.__code__,
            wrapped.__defaults__,
            wrapped.__kwdefaults__,
        )
        self.__signature__: Final = self._signature.public

    @property
    def _is_run(self) -> bool:
        """Whether a runner runs the task."""
        return self._runner is not None and self._signature.is_empty

    def _stream(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        state: Any,
        key: Any,
        on_event: OnEvent | None,
        skip: int = 0,
    ) -> Any:
        from versioned_state.agents.tasks.streams import stream, stream_async

        def call(listener: OnEvent) -> Any:
            return to_end(self._kind, self._call(args, kwargs, state, key, listener, skip))

        return stream(call, on_event) if self._kind in ("function", "generator") else stream_async(call, on_event)

    @overload
    def __get__(self, instance: None, cls: type) -> Task[P, R_co]: ...
    @overload
    def __get__(self: Task[Concatenate[S, Q], R_co], instance: S, cls: type | None = None) -> BoundTask[Q, R_co]: ...
    def __get__(self, instance: object, cls: type | None = None) -> Any:
        if self._is_of_class:
            return BoundTask(self, cls)
        return self if self._is_static or instance is None else BoundTask(self, instance)

    def _call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], state: Any, key: Any, on_event: Any, skip: int = 0
    ) -> Any:
        bound = self._signature.bind(args, kwargs, skip=skip)
        if key is not None and (not isinstance(key, str) or not key or "\0" in key):
            raise InvalidArgumentError(f"key must be a string of one character or more, without NUL, not {key!r:.80}")
        if on_event is not None:
            check_function("on_event", on_event)
        if self._signature.is_empty and not self._is_run:
            raise TypeError(
                f"task {self.task_name!r} has no body, and no runner: "
                "write one, or make it a task of an Agent with a runner"
            )
        if state is not None and type(state) not in _STATES:
            check_state(state)
        if self._kind == "function":
            this = self._begin(bound, state, key, on_event)
            with this as call:
                if not this.is_repeat:
                    this.result = (
                        self._signature.call(bound, call.state) if self._runner is None else self._body(bound, call)
                    )
            return this.result
        running = run(self._kind, partial(self._begin, bound, state, key, on_event), partial(self._body, bound))
        running.__name__, running.__qualname__ = self.__name__, self.__qualname__  # for warnings and tracebacks
        return running

    def _body(self, bound: Bound, call: Call) -> Any:
        if self._runner is None or not self._is_run:
            return self._signature.call(bound, call.state)
        result = self._runner(call)
        return awaited(result) if self._kind == "coroutine" else result

    def _begin(self, bound: Bound, state: Any, key: str | None, on_event: OnEvent | None) -> Round:
        """Return the round of a call that begins now."""
        parent = current_call()
        is_kept, closes = True, False
        if state is None:
            is_kept = parent is not None and parent.steps is not None and parent.steps.is_kept
            state = Live() if parent is None else parent.state.namespace(self._agent or self.task_name)
        elif isinstance(state, str):
            from versioned_state.state.open import open as open_state

            state, closes = open_state(state), True
        versioned = state if isinstance(state, Versioned) else state.state if isinstance(state, Namespace) else None
        call = Call(
            self.task_name, state, agent=self._agent, key=key, inputs=bound[0], versioned=versioned, parent=parent
        )
        call.task = self
        if versioned is None:
            if key is not None:
                raise InvalidArgumentError(
                    "key= needs a state with commits", remains="the task did not run", hint="state=Versioned(store)"
                )
            return Round(call, on_event, is_kept=is_kept)
        pauses = self._kind in ("generator", "async generator")
        return Commits(call, on_event, on_unstorable=self._on_unstorable, closes=closes, pauses=pauses)

    @property
    def documentation(self) -> str:
        """The docstring, or an empty string."""
        return inspect.cleandoc(self.__doc__) if self.__doc__ else ""

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return _first_line(self.__doc__) if self.__doc__ else ""

    @property
    def types(self) -> Any:
        """The types of the parameters, and that of the result as ``return``."""
        return self._signature.types

    def __reduce__(self) -> str:
        return self.__qualname__  # pickled by name, as a function is

    def __repr__(self) -> str:
        return f"<task {self.__qualname__}>"


class BoundTask(Calls[P, R_co]):
    """A task that is a method, of one instance."""

    def __init__(self, task: Task[Any, R_co], instance: object) -> None:
        self.__func__: Final = task
        self.__self__: Final = instance
        _look_like(self, task)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], state: Any, key: Any, on_event: Any) -> Any:
        return self.__func__._call((self.__self__, *args), kwargs, state, key, on_event, 1)

    def _stream(self, args: tuple[Any, ...], kwargs: dict[str, Any], state: Any, key: Any, on_event: Any) -> Any:
        return self.__func__._stream((self.__self__, *args), kwargs, state, key, on_event, 1)

    def __repr__(self) -> str:
        return f"<task {self.__func__.__qualname__} of {self.__self__!r}>"


class TaskDecorator(Protocol):
    """For type checkers: a decorator that makes a function a task."""

    @overload
    def __call__(self, function: TakesState[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(function: TakesState[P, R], /) -> Task[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(*, name: str | None = None, on_unstorable: OnUnstorable = "keep") -> TaskDecorator: ...
def task(function: Any = None, /, *, name: str | None = None, on_unstorable: OnUnstorable = "keep") -> Any:
    """Make a function, method, coroutine function or generator a task: each call is a round of a state, and one commit.

    A call has the argument ``state=`` besides those of the function: a ``Versioned``, a namespace of one, a ``Live``,
    or the URL of a store, which the call opens and closes. Without it nothing is kept. The function gets the state by
    ``current_state()``, or as its parameter ``state`` if it has one. Uncommitted changes from before the call are
    committed with it.

    - A call that ends well makes one commit, and one more for each ``checkpoint()``. Its meta has ``task``, ``agent``,
      ``call``, ``seconds`` and ``outcome``.
    - A call that raises leaves the state as it was at its last checkpoint, or else before the call, references
      included. The exception propagates, and a commit with only the call's events records it. A ``Live`` is not
      restored.
    - A nested call works in a namespace of its name, and is committed with the outermost call. A nested call with a
      state of its own commits there. If a nested generator fails or is closed early, only its own namespace is
      restored, because its caller runs between its steps. The same holds for a coroutine in an asyncio task of its own.
    - ``key=`` makes a call idempotent: if a call with the same key has committed on the branch, its result is returned
      and nothing runs.
    - ``on_event=`` gets every event of the call and of its nested calls when it happens, and the last event after the
      commit.

    Args:
        name: the name of the task in commits and events, by default that of the function.
        on_unstorable: if a change of a call cannot be stored, "keep" leaves the state as the call left it, to be
            repaired and committed, and "restore" rolls it back.

    Raises:
        TypeError: the function has a parameter ``key`` or ``on_event``, or it is not a function.
        InvalidArgumentError: another argument is of the wrong kind.

        A call raises also:
            TransactionError: another call runs on this handle, in another thread or task, or a transaction is open on
                it.
            IdempotencyConflictError: ``key`` was used with other arguments.
            UnserializableValueError: a value in the state cannot be stored. The error names the task and the path.
            CommitInDoubtError: it is not known whether the store has the commit. The next call on the state finds out,
                and rolls the changes back if it does not. Until then the call is recorded neither as a success nor as a
                failure.
            StateError: as ``Versioned.commit``. The changes of the call were rolled back.
    """
    if function is None:
        return partial(Task, name=name, on_unstorable=on_unstorable)
    return Task(function, name=name, on_unstorable=on_unstorable)


def current_state() -> State:
    """Return the state that the running task works on, a temporary one in a call without a state.

    Raises ``NoTaskError``.
    """
    return require_call("current_state()").state


def checkpoint(message: str = "") -> Commit | None:
    """Commit in the middle of a task: everything that has changed on its state.

    Returns None if the state has no commits.

    A later failure of the task, or of an enclosing one, restores the state to this point. This waits for the store. In
    a coroutine, ``await state.aio.run(checkpoint)`` waits off the event loop.

    Raises:
        NoTaskError: no task runs here.
        TransactionError: a transaction is open in the task.
        StateError: as ``Versioned.commit``. The changes are still there.
    """
    return require_call("checkpoint()").checkpoint(message)


def emit(event: Any, *, state: Versioned | Namespace | Live | None = None) -> None:
    """Keep an event with the running task's state: an instance of any dataclass, pydantic model or class of your own.

    It is kept with its present content, and committed with the next commit, even if the task fails. In a call without a
    state nothing is kept. Cost: the event.

    Args:
        state: keep the event with this state, also outside of a task. ``discard`` does not take it back: it has
            happened.

    Raises:
        NoTaskError: no task runs here, and no state is given.
        InvalidArgumentError: it is a string, a dict or another value that is built in; or ``state`` is not a state.
        HandleClosedError: the state is closed.
        UnserializableValueError, PickleRefusedError, LimitExceededError: it cannot be stored.
    """
    if state is None:
        require_call("emit()", otherwise="pass the state as state=").emit(event)
    else:
        event = as_event(event)
        keep_event(instance_of("state", state, Versioned | Namespace | Live), event).deliver(event)


@lru_cache(256)
def _first_line(docstring: str) -> str:
    return inspect.cleandoc(docstring).partition("\n")[0]


def check_state(state: object) -> None:
    """Raise ``InvalidArgumentError`` or ``ReadOnlyError`` unless a task can work on a state."""
    if isinstance(state, Snapshot):
        raise ReadOnlyError(
            "a task cannot work on a snapshot", hint="state.fork(name, at=commit) is a state that begins there"
        )
    if not isinstance(state, Versioned | Namespace | Live | str):
        raise InvalidArgumentError(
            f"state= must be a Versioned, a namespace of one, a Live or the URL of a store, not {type(state).__name__}",
            remains="the task did not run",
            hint="Versioned(store)" if isinstance(state, KVStore | Repository) else "",
        )


def check_name(what: str, name: object) -> str:
    """Return the name of a task or an agent. Raises ``InvalidArgumentError``."""
    return string(what, name, empty=False, without="/\0")
