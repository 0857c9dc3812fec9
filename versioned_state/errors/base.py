"""``StateError``, the base of every error, and how an error crosses processes."""

from __future__ import annotations

from typing import Final

UNCHANGED: Final = "nothing was changed"
"""The ``remains`` of most calls that failed."""

STAGED: Final = "nothing was committed, and the staged changes are still there"
"""The ``remains`` of a commit that failed."""


class StateError(Exception):
    """The base of every error of this library.

    Attributes:
        what: what went wrong.
        remains: what the failed call leaves behind, such as "nothing was changed"; may be empty. A class has its usual
            words.
        hint: the way out in one line; may be empty. A traceback shows it as a note.
    """

    remains: str = ""

    def __init_subclass__(cls, *, remains: str | None = None) -> None:
        if remains is not None:
            cls.remains = remains

    def __init__(self, what: str, *, remains: str | None = None, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        if remains is not None:
            self.remains = remains
        self._hint = ""
        self.hint = hint

    @property
    def hint(self) -> str:
        return self._hint

    @hint.setter
    def hint(self, hint: str) -> None:
        notes = getattr(self, "__notes__", [])
        if self._hint:
            notes.remove(f"hint: {self._hint}")
        self._hint = hint
        if hint:
            self.add_note(f"hint: {hint}")

    def __str__(self) -> str:
        # Not Exception's: a KeyError, which some subclasses are as well, shows the repr of its argument.
        return f"{self.what}; {self.remains}" if self.remains else self.what

    def __reduce__(self) -> tuple[object, ...]:
        # Not Exception's, which calls the class with args alone: an error crosses from a worker process to its parent.
        state = self.__dict__
        if isinstance(self, OSError):  # which keeps its errno elsewhere
            state = {**state, "errno": self.errno}
        return restore, (type(self), self.args), state


def restore(cls: type[StateError], args: tuple[object, ...]) -> StateError:
    """Return an error from a pickle, whose attributes are set after it is made."""
    error = cls.__new__(cls, *args)
    error.args = args  # which an OSError leaves out
    return error


def short(id: str | None) -> str:
    """Return an id as an error shows it."""
    return "nothing" if id is None else id[:12]
