"""The arguments of a task by name, apart from those that every task has. Layer: agents."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property
from inspect import Parameter, Signature
from types import CodeType
from typing import Any, Final, get_type_hints

_TAKEN: Final = ("key", "on_event")
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_SIMPLE: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


Bound = tuple[dict[str, Any], tuple[Any, ...], dict[str, Any]]
"""The arguments of one call: the inputs, then the positional and the keyword arguments of the function.

The inputs are the arguments by name, with defaults and without ``state`` and ``self``. The arguments of the function
are without ``state``. A plain tuple, because every call makes one.
"""


class TaskSignature:
    """The parameters of a function that is a task.

    Raises:
        TypeError: it has a parameter with the name of an argument that every task has.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        signature = inspect.signature(function)
        for name in _TAKEN:
            if name in signature.parameters:
                raise TypeError(
                    f"task {function.__name__!r} has a parameter {name!r}, "
                    "which every call of a task has already: rename it"
                )
        self.takes_state: Final = "state" in signature.parameters
        self._full = signature
        own = [parameter for name, parameter in signature.parameters.items() if name != "state"]
        self._own = signature.replace(parameters=own)
        self._is_simple = all(parameter.kind in _SIMPLE for parameter in own)
        self._names = [parameter.name for parameter in own]
        self._positional = [parameter.name for parameter in own if parameter.kind is not Parameter.KEYWORD_ONLY]
        self._defaults = {
            parameter.name: parameter.default for parameter in own if parameter.default is not Parameter.empty
        }
        # the position of ``state`` among the positional parameters, if it is one of them
        self._state_at: int | None = None
        if self.takes_state and signature.parameters["state"].kind in _POSITIONAL:
            self._state_at = list(signature.parameters).index("state")

    @property
    def public(self) -> Signature:
        """The signature of the task: that of the function, with the arguments that every task has."""
        more = [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in ("state", *_TAKEN)]
        parameters = list(self._own.parameters.values())
        rest = [parameter for parameter in parameters if parameter.kind is Parameter.VAR_KEYWORD]
        return self._own.replace(parameters=[*(each for each in parameters if each not in rest), *more, *rest])

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, skip: int) -> Bound:
        """Bind the arguments of a call, of which the first ``skip`` are not inputs.

        Raises ``TypeError`` as the function would.
        """
        inputs: dict[str, Any] | None = None
        if self._is_simple:
            # Most calls have all arguments by position.
            is_whole = not kwargs and len(args) == len(self._positional) == len(self._names)
            inputs = dict(zip(self._names, args, strict=True)) if is_whole else self._bind_simply(args, kwargs)
        if inputs is None:
            bound = self._bind(args, kwargs)
            bound.apply_defaults()
            inputs, args, kwargs = dict(bound.arguments), bound.args, bound.kwargs
        if skip:
            for name in self._names[:skip]:
                inputs.pop(name, None)
        return inputs, args, kwargs

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        try:
            return self._own.bind(*args, **kwargs)
        except TypeError as error:
            rule = "; the state must be passed by keyword: state=" if self.takes_state else ""
            raise TypeError(f"{self._function.__name__}(): {error}{rule}") from None

    def _bind_simply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
        """Return the inputs of most calls faster than ``_bind`` does, or None if ``Signature.bind`` must decide."""
        positional = self._positional
        if len(args) > len(positional):
            return None
        given = dict(zip(positional, args, strict=False))
        count = len(given) + len(kwargs)
        given.update(kwargs)
        if len(given) != count:
            return None
        inputs = {}
        for name in self._names:
            if name in given:
                inputs[name] = given.pop(name)
            elif name in self._defaults:
                inputs[name] = self._defaults[name]
            else:
                return None
        return None if given else inputs

    def call(self, bound: Bound, state: Any) -> Any:
        """Call the function with the arguments of a call and the state."""
        _, args, kwargs = bound
        if not self.takes_state:
            return self._function(*args, **kwargs)
        if self._is_simple:
            at = self._state_at
            if at is None or at > len(args):
                return self._function(*args, **kwargs, state=state)
            if not at:
                return self._function(state, *args, **kwargs)
            return self._function(*args[:at], state, *args[at:], **kwargs)
        own = self._own.bind(*args, **kwargs).arguments
        full = inspect.BoundArguments(self._full, OrderedDict())
        for name in self._full.parameters:
            if name == "state":
                full.arguments[name] = state
            elif name in own:
                full.arguments[name] = own[name]
        return self._function(*full.args, **full.kwargs)

    @cached_property
    def types(self) -> Mapping[str, Any]:
        """The annotated types of the parameters, and that of the result as ``return``."""
        try:
            hints = get_type_hints(self._function)
        except (NameError, TypeError, AttributeError, SyntaxError):
            hints = dict(getattr(self._function, "__annotations__", {}))
        return {name: hint for name, hint in hints.items() if name != "state"}

    @cached_property
    def is_empty(self) -> bool:
        """Whether the body of the function is a docstring, ``pass`` or ``...`` only."""
        code = self._function.__code__
        if code.co_names or len(code.co_code) > _EMPTY_CODE or code.co_name == "<lambda>":
            return False  # the body does something, so the source need not be read
        if not _gives_none(code):
            return False
        try:
            source = textwrap.dedent(inspect.getsource(self._function))
            definition = next(
                node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            )
        except (OSError, SyntaxError, StopIteration):
            return True
        return all(
            isinstance(line, ast.Pass) or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
            for line in definition.body
        )


def _gives_none(code: CodeType) -> bool:
    """Return whether code only returns None."""
    import dis

    nothing = _nothing_async if code.co_flags & inspect.CO_COROUTINE else _nothing
    ours, theirs = ([step for step in dis.get_instructions(each) if step.opname != "NOP"] for each in (code, nothing))
    constants = [step.argval for step in ours if step.opname in ("LOAD_CONST", "RETURN_CONST")]
    return [step.opname for step in ours] == [step.opname for step in theirs] and all(
        each is None for each in constants
    )


def _nothing() -> None:
    pass


async def _nothing_async() -> None:
    pass


_EMPTY_CODE: Final = 64
"""The most bytes of code of an empty function, which has about 30 if it is a coroutine function."""
