"""``Seen``: the commits that a module was loaded from or saved in, so that a save can find later changes of others. Layer: agents."""

from __future__ import annotations

import os
import weakref
from threading import Lock
from typing import Any, Final

_KEPT: Final = 4
"""Commits for a module and a place. More than one, for a commit whose reply was lost, and for one branch name in several stores."""

Place = tuple[str, str]
"""A branch and the key of a module in it."""


class Seen:
    """The last commits by module and place. Does not keep modules alive."""

    def __init__(self) -> None:
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)  # another thread may hold the lock at a fork
        self._modules: dict[int, tuple[weakref.ref[Any], dict[Place, tuple[str, ...]]]] = {}

    def _begin(self) -> None:
        self._lock = Lock()

    def add(self, module: Any, place: Place, commit: str) -> None:
        """Remember that a module has the content of a commit."""
        number = id(module)
        with self._lock:
            found = self._modules.get(number)
            if found is None or found[0]() is not module:

                def forget(_: object, modules: dict[int, Any] = self._modules) -> None:
                    if (kept := modules.get(number)) is not None and kept[0]() is None:
                        modules.pop(number, None)

                try:
                    found = weakref.ref(module, forget), {}
                except TypeError:  # the class has __slots__ without __weakref__
                    return
                self._modules[number] = found
            places = found[1]
            places[place] = (commit, *(each for each in places.get(place, ()) if each != commit))[:_KEPT]

    def commits(self, module: Any, place: Place) -> tuple[str, ...]:
        """The ids of those commits, the last one first."""
        found = self._modules.get(id(module))
        return () if found is None or found[0]() is not module else found[1].get(place, ())
