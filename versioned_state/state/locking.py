"""One call at a time on a handle, and none after ``close()``. Layer: state."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from versioned_state.errors import StateError

P = ParamSpec("P")
R = TypeVar("R")


def locked(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A method of an object that has ``_lock`` and ``_check_open``."""

    @wraps(method)
    def wrapper(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            self._check_open()
            try:
                return method(self, *args, **kwargs)
            except BaseException:
                with suppress(StateError):
                    self._check_open()  # an interrupted call is ended before its exception goes on
                raise

    return cast("Callable[Concatenate[Any, P], R]", wrapper)
