"""The grammar of revisions. Layer: repository.

========================  ====================================================================
``3f9c``, a full id       the commit whose id begins with these digits; at least 4
``main``, ``v1``          the head of a branch, a tag; a branch wins over a tag, and a name over an id
``HEAD``, ``@``           the current head
``REV~3``                 the third ancestor by first parents
``REV^2``                 the second parent; ``^`` is the first
``BRANCH@{2}``            where the branch stood two moves ago
``BRANCH@{2026-11-01}``   where it stood at that date, or date and time; UTC unless it has an offset; ``yesterday``,
                          ``2 hours ago``
``REV@{step=5}``          the newest of its commits whose meta has that value
``:/text``                the newest commit of ``HEAD`` whose message has the text, which is the rest of the revision
========================  ====================================================================

A range ``A..B`` is the commits that lead to B and not to A; a side that is left out is ``HEAD``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from versioned_state.errors import InvalidArgumentError, UnknownRevisionError
from versioned_state.records import dataclass
from versioned_state.repository.history.commit import system_clock
from versioned_state.repository.names.times import instants

_DOTS: Final = ".."
_SAYING: Final = ":/"
_STEP: Final = re.compile(r"~(?P<back>[0-9]{0,9})|\^(?P<parent>[0-9]{0,9})|@\{(?P<position>[^}]*)\}")
_BASE: Final = re.compile(r"@(?!\{)|(?:(?!@\{)[^~^])*")


@dataclass(frozen=True, slots=True)
class Back:
    """``~n``: n first parents back."""

    count: int


@dataclass(frozen=True, slots=True)
class Parent:
    """``^n``: the n-th parent, counted from 1, or the commit itself for 0."""

    number: int


@dataclass(frozen=True, slots=True)
class Moves:
    """``@{n}``: n moves of the ref ago."""

    count: int


@dataclass(frozen=True, slots=True)
class At:
    """``@{time}``: the position of the ref at a time, in microseconds since 1970."""

    time: int


@dataclass(frozen=True, slots=True)
class Having:
    """``@{key=value}``: the newest commit whose meta has the value, as a text or as JSON, under the key."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Saying:
    """``:/text``: the newest commit whose message has the text."""

    text: str


Step = Back | Parent | Moves | At | Having | Saying


@dataclass(frozen=True, slots=True)
class Revision:
    """A parsed revision: a base, and steps from there."""

    base: str
    steps: tuple[Step, ...]


def split_range(text: str) -> tuple[str, str] | None:
    """Return the two revisions of ``A..B``, ``HEAD`` for a side that is left out, or None if the text is not a range.

    Raises:
        InvalidArgumentError: it is ``A...B``, or has several ranges.
    """
    since, dots, until = text.partition(_DOTS)
    if not dots or text.startswith(_SAYING):
        return None
    if until.startswith(".") or (_DOTS in until and not until.startswith(_SAYING)):
        raise InvalidArgumentError(
            f"{text!r} is not a range", hint="A..B is the commits that lead to B and not to A; A...B is not supported"
        )
    return since or "HEAD", until or "HEAD"


def parse_revision(text: str, clock: Callable[[], int] = system_clock) -> Revision:
    """Return the parts of a revision. Raises ``UnknownRevisionError`` for text that is not one.

    Args:
        clock: the present in microseconds since 1970, for ``main@{2 hours ago}``.
    """
    if text.startswith(_SAYING):
        if len(text) == len(_SAYING):
            raise UnknownRevisionError(text, reason="a text of the message belongs behind :/")
        return Revision("HEAD", (Saying(text.removeprefix(_SAYING)),))
    if _DOTS in text:
        raise UnknownRevisionError(text, reason="it is a range, not a commit")
    match = _BASE.match(text)
    base = match.group() if match else ""
    position = len(base)
    steps: list[Step] = []
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            raise UnknownRevisionError(text, reason=f"{text[position:]!r} is not a step; steps are ~n, ^n and @{{n}}")
        steps.append(_step(text, found, clock, first=not steps))
        position = found.end()
    if not base and not (steps and isinstance(steps[0], Moves | At | Having)):
        raise UnknownRevisionError(text, reason="it names nothing to start from")
    return Revision("HEAD" if base in ("", "@") else base, tuple(steps))


def _step(text: str, found: re.Match[str], clock: Callable[[], int], *, first: bool) -> Step:
    back, parent, position = found.group("back", "parent", "position")
    if back is not None:
        return Back(int(back or 1))
    if parent is not None:
        return Parent(int(parent or 1))
    key, equals, value = position.partition("=")
    if equals and key:
        return Having(key, value)
    if not first:
        raise UnknownRevisionError(
            text, reason="@{…} with a number or a date goes right behind the name of a branch or tag"
        )
    if re.fullmatch("[0-9]{1,9}", position):
        return Moves(int(position))
    try:
        return At(instants(position, clock)[0])
    except InvalidArgumentError:
        raise UnknownRevisionError(
            text, reason=f"{position!r} is neither a number, nor a time, nor KEY=VALUE"
        ) from None
