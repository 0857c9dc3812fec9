"""``REV:PATH``, which names a value in a commit, and the way out of an error in one. Layer: cli."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from versioned_state.cli.render.text import plural
from versioned_state.errors import (
    InvalidArgumentError,
    InvalidPathError,
    StateError,
    UnknownPathError,
    UnknownRevisionError,
)
from versioned_state.values.paths.path import Namespace, StatePath

if TYPE_CHECKING:
    from versioned_state.repository.repository import Repository
    from versioned_state.repository.views.snapshot import Snapshot

# A revision holds a colon only between the braces of main@{2026-11-01T12:00}, and never [ " or {, with which keys are
# quoted.
_PLACE: Final = re.compile(r'(?P<rev>(?:@\{[^}]*\}|[^:\["{])+):(?P<path>.*)', re.DOTALL)

_NEAR: Final = 1000
"""Keys of a state that are searched for similar ones."""

NAMESPACES: Final = "$namespaces"
"""The key under which a whole state shows its namespaces."""

NOTE: Final = "$note"
"""The key under which an exported state has the note of its commit."""


def parse_place(text: str) -> tuple[str | None, str]:
    """Return the revision before the colon, or None without a colon, and the path, empty for the whole state."""
    match = _PLACE.fullmatch(text)
    return (match["rev"], match["path"]) if match else (None, text)


def path_in(text: str, rev: str | None = None) -> tuple[str, str]:
    """Return the revision and path of ``[REV:]PATH``, or of a path and a revision in two arguments.

    The revision is HEAD by default.
    """
    found, path = parse_place(text)
    if found is not None and rev is not None:
        raise click.UsageError(f"{text!r} names a revision, and {rev!r} another one")
    return found or rev or "HEAD", path


def revision_and_path(text: str, path: str | None = None) -> tuple[str, str]:
    """Return the revision and path of ``REV[:PATH]``, or of a revision and the option ``--path``.

    The path is empty by default.
    """
    rev, found = parse_place(text)
    if rev is None:
        return text, path or ""
    if path and found:
        raise click.UsageError(f"{text!r} names a path, and --path another one")
    return rev, found or path or ""


@contextmanager
def explained(repository: Repository, form: str, rev: str, path: str) -> Iterator[None]:
    """Point at the right form if a path was given for a revision or the other way round, and else at similar paths.

    Args:
        form: the command up to the place, such as ``vstate get``.
    """
    try:
        yield
    except UnknownRevisionError as error:
        if is_path(repository, error.revision):
            hint = f"{form} {quote('HEAD:' + error.revision)}"
            raise InvalidArgumentError(f"{error.revision} is a path, not a revision", hint=hint) from error
        raise
    except (InvalidPathError, UnknownPathError) as error:
        if is_revision(repository, path):
            raise InvalidArgumentError(
                f"{path} is a revision, not a path", hint=f"{form} {quote(path)}:PATH"
            ) from error
        if namespace_path(path) is None:
            error.hint = _hint(repository.snapshot(rev, describe=True), path, error) or error.hint
        raise


def is_path(repository: Repository, text: str, rev: str = "HEAD") -> bool:
    """Return whether a commit, by default the current head, has something at a path or a namespace of that name."""
    try:
        snapshot = repository.snapshot(rev, describe=True)
        if namespace_path(text) is not None:
            return next(paths_below(snapshot, text), None) is not None
        snapshot.cell_at(text)
    except StateError:
        return False
    return True


def is_revision(repository: Repository, text: str) -> bool:
    """Return whether a text names a commit."""
    try:
        repository.commit(text)
    except StateError:
        return False
    return True


def value_at(snapshot: Snapshot, path: str, convert: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return the value at a path, or the whole state for an empty one, as ``convert`` gives it. Nothing is unpickled.

    Raises:
        InvalidPathError: with the right spelling as its hint, if the text is a key of the state.
        UnknownPathError: there is nothing there.
    """
    return convert(snapshot.at(path)) if path else dict(entries(snapshot, convert))


def _hint(snapshot: Snapshot, path: str, error: InvalidPathError | UnknownPathError) -> str:
    """Return a hint: how the path is written, or the paths near it."""
    if isinstance(error, InvalidPathError):
        return f"the key {path!r} is written '{StatePath().key(path)}'" if path in snapshot else ""
    return _near(snapshot, StatePath.parse(error.path))


def _near(snapshot: Snapshot, missing: StatePath) -> str:
    from difflib import get_close_matches

    above = StatePath(missing.steps[:-1])
    if all(isinstance(step, Namespace) for step in above.steps):
        near = get_close_matches(str(missing), map(str, islice(paths_below(snapshot, str(above)), _NEAR)), n=3)
        return f"did you mean {', '.join(near)}?" if near else "vstate keys lists the keys"
    found = snapshot.keys_at(above)
    if isinstance(found, int):
        return f"{above} has {plural(found, 'element')}"
    keys = {str(above.key(key)): key for key in found or () if type(key) is str}
    near = get_close_matches(str(missing), keys, n=3) or list(islice(keys, 3))
    return f"there is {', '.join(near)}" if near else f"nothing is under {above}"


def near_path(repository: Repository, rev: str, path: str) -> str:
    """Return a hint with the paths near one at which a commit has nothing, or nothing if it has a value there."""
    if is_path(repository, path, rev):
        return ""
    try:
        snapshot = repository.snapshot(rev, describe=True)
        if namespace_path(path) is not None:
            return _near(snapshot, StatePath.parse(path))
        snapshot.cell_at(path)
    except UnknownPathError as error:
        return _hint(snapshot, path, error)
    except StateError:
        pass
    return ""


def entries(snapshot: Snapshot, convert: Callable[[Any], Any]) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a state with their values, each read on demand, and then the namespaces under one key."""
    for key in snapshot:
        yield key, convert(snapshot[key])
    names = snapshot.namespaces()
    if names:
        yield NAMESPACES, {name: dict(entries(snapshot.namespace(name), convert)) for name in names}


def paths_below(snapshot: Snapshot, path: str, prefix: str = "") -> Iterator[StatePath]:
    """Yield the keys of the state, of a namespace such as ``@worker``, or of a dict or list in it.

    Cost: these keys, and no values.

    Args:
        prefix: only keys that begin with it; of the state, others are not read.

    Raises:
        UnknownPathError: there is nothing at the path.
        InvalidArgumentError: the value has no keys.
    """
    if not path:
        yield from _keys_of(snapshot, StatePath(), prefix)
        return
    if (namespaces := namespace_path(path)) is not None:
        for step in namespaces.steps:
            assert isinstance(step, Namespace)
            snapshot = snapshot.namespace(step.name)
        yield from _keys_of(snapshot, namespaces, prefix)
        return
    above = StatePath.parse(path)
    found = snapshot.keys_at(above)
    if found is None and type(value := snapshot.at(above)) is tuple:
        found = len(value)
    if found is None:
        raise InvalidArgumentError(f"{path} is a single value, without keys", hint=f"vstate get {quote(path)} shows it")
    if isinstance(found, int):
        yield from (above.index(index) for index in range(found) if not prefix)
    else:
        yield from (above.key(key) for key in found if not prefix or (type(key) is str and key.startswith(prefix)))


def namespace_path(path: str) -> StatePath | None:
    """Return the path of a namespace, which ends without a key, or None for any other."""
    try:
        *steps, _ = StatePath.parse(f"{path}.key").steps if path.startswith("@") else ()
    except (InvalidPathError, ValueError):
        return None
    return StatePath(tuple(steps)) if all(isinstance(step, Namespace) for step in steps) else None


def _keys_of(snapshot: Snapshot, above: StatePath, prefix: str) -> Iterator[StatePath]:
    for key in snapshot.iter_keys(prefix):
        yield above.key(key)
    for name in snapshot.namespaces():
        yield from _keys_of(snapshot.namespace(name), above.namespace(name), prefix)
