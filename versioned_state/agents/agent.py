"""``Agent``: a name for tasks, and a runner for tasks with an empty body. Layer: agents."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar, overload

from versioned_state.agents.tasks.commits import OnUnstorable
from versioned_state.agents.tasks.task import Runner, TakesState, Task, TaskDecorator, check_name
from versioned_state.arguments import instance_of

P = ParamSpec("P")
R = TypeVar("R")


class Agent:
    """A named agent, whose tasks carry its name in commits, events and namespaces.

    The agent's runner runs the tasks whose body is a docstring, ``pass`` or ``...``, usually by calling a model. The
    runner gets the ``Call``: ``name``, ``inputs``, ``types``, ``documentation``, ``state``, ``emit(event)`` and
    ``checkpoint(message)``. It returns the result of the task.

    Args:
        name: a string of one character or more, without ``/``.
        runner: a function, or a coroutine function: then the tasks that it runs are coroutines.

    Raises:
        InvalidArgumentError: the name or the runner is not valid.
    """

    def __init__(self, name: str, *, runner: Runner | None = None) -> None:
        instance_of("runner", runner, Callable | None)
        self._name = check_name("the name of an agent", name)
        self._runner = runner

    @property
    def name(self) -> str:
        """The name."""
        return self._name

    @property
    def runner(self) -> Runner | None:
        """The runner."""
        return self._runner

    @overload
    def task(self, function: TakesState[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, *, name: str | None = None, on_unstorable: OnUnstorable = "keep") -> TaskDecorator: ...
    def task(self, function: Any = None, /, *, name: str | None = None, on_unstorable: OnUnstorable = "keep") -> Any:
        """Make a function a task of this agent, as ``task`` does.

        A call raises ``TypeError`` if there is neither a body nor a runner.
        """
        make = partial(Task, name=name, on_unstorable=on_unstorable, agent=self._name, runner=self._runner)
        return make if function is None else make(function)

    def __repr__(self) -> str:
        return f"<Agent {self._name}>"
