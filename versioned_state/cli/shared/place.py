"""``[REV:]PATH``, which names a value in a commit. Layer: cli."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final

from versioned_state.cli.render.text import plural
from versioned_state.errors import InvalidPathError, UnknownPathError
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.values.paths.path import Namespace, StatePath

# A revision holds a colon only between the braces of main@{2026-11-01T12:00}, and never [ " or {, with which keys are quoted.
_PLACE: Final = re.compile(r'(?P<rev>(?:@\{[^}]*\}|[^:\["{])+):(?P<path>.*)', re.DOTALL)

NAMESPACES: Final = "$namespaces"
"""The key under which a whole state shows its namespaces."""


def split_place(text: str) -> tuple[str, str]:
    """The revision, ``HEAD`` where none is given, and the path, which is empty for the whole state."""
    match = _PLACE.fullmatch(text)
    return (match["rev"], match["path"]) if match else ("HEAD", text)


def value_at(snapshot: Snapshot, path: str, convert: Callable[[Any], Any] = lambda value: value) -> Any:
    """The value at a path, or the whole state for an empty one, as ``convert`` gives it. Nothing is unpickled.

    Raises:
        InvalidPathError: with the right spelling as its hint, where the text is a key of the state.
        UnknownPathError: there is nothing there.
    """
    if not path:
        return dict(entries(snapshot, convert))
    try:
        return convert(snapshot.at(path))
    except InvalidPathError as error:
        if path in snapshot:
            error.hint = f"the key {path!r} is written '{StatePath().key(path)}'"
        raise
    except UnknownPathError as error:
        error.hint = error.hint or _near(snapshot, StatePath.parse(error.path))
        raise


def _near(snapshot: Snapshot, missing: StatePath) -> str:
    """What there is beside a path that leads nowhere."""
    *parent, _ = missing.steps
    if all(isinstance(step, Namespace) for step in parent):
        return "vstate keys lists the keys"
    above = StatePath(tuple(parent))
    found = snapshot.keys_at(above)
    if isinstance(found, int):
        return f"{above} has {plural(found, 'element')}"
    keys = {str(above.key(key)): key for key in found or () if type(key) is str}
    near = get_close_matches(str(missing), keys, n=3) or list(islice(keys, 3))
    return f"there is {', '.join(near)}" if near else f"nothing is under {above}"


def entries(snapshot: Snapshot, convert: Callable[[Any], Any]) -> Iterator[tuple[str, Any]]:
    """The keys of a state with their values, each read when it is taken; at the end the namespaces under a key of their own."""
    for key in snapshot:
        yield key, convert(snapshot[key])
    names = snapshot.namespaces()
    if names:
        yield NAMESPACES, {name: dict(entries(snapshot.namespace(name), convert)) for name in names}
