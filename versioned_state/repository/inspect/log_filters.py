"""Filters of a log: by author, time, message, meta, changed path, or what was added or removed. Layer: repository."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypedDict

from versioned_state.arguments import instance_of
from versioned_state.errors import InvalidArgumentError
from versioned_state.objects.store import Staging
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.times import When, instants
from versioned_state.values.changes.diff import diff_maps
from versioned_state.values.changes.pickaxe import Needle, NeedleCounter
from versioned_state.values.changes.removal import target_of
from versioned_state.values.encode.compose import Composer
from versioned_state.values.paths.lookup import find_cell
from versioned_state.values.paths.path import StatePath
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.tree import Tree, empty, find

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

Test = Callable[[Commit], bool]


class Filters(TypedDict, total=False):
    """The filters of ``log``. A commit passes if all given ones hold.

    ``path`` and ``changed`` compare a commit with its parents, at the cost of what differs, and one of several parents
    must differ from it in this from every one of them. A shallow commit, before which history was pruned, has none, and
    is compared with the empty state.

    Attributes:
        author, message: a regular expression that is found in it.
        since, until: made at that time or later, or earlier; see ``When``.
        meta: values by key, which the meta of the commit has, in type too; ``a.b`` is the key ``b`` in the dict under
            ``a``. A function returns whether a value will do.
        stamp: values by key, as ``meta``, of the stamp that the commit was made with. Cost: a read for each stamp.
        path: what is there (a value, or a namespace such as ``@worker``) is not what it was.
        changed: occurs more or less often: a string within strings, keys of dicts included; any other value as a whole;
            or a ``Needle``.
    """

    author: str | re.Pattern[str]
    since: When
    until: When
    message: str | re.Pattern[str]
    meta: Mapping[str, Any]
    stamp: Mapping[str, Any]
    path: str | StatePath
    changed: Any


def select(
    database: Database, commits: Iterable[Commit], filters: Filters, *, first_parent: bool = False
) -> Iterator[Commit]:
    """Yield the commits that pass the filters, in their order. Lazy.

    Args:
        first_parent: compare with the first parent only.

    Raises:
        InvalidArgumentError, InvalidPathError: a bad filter; raised before anything is read.
    """
    unknown = filters.keys() - Filters.__annotations__.keys()
    if unknown:
        raise TypeError(f"log() got an unexpected argument {min(unknown)!r}")
    tests = list(_tests(database, filters, first_parent=first_parent))
    return (commit for commit in commits if all(test(commit) for test in tests))


def _tests(database: Database, filters: Filters, *, first_parent: bool) -> Iterator[Test]:
    """Yield the cheap ones first."""
    if "since" in filters:
        earliest, _ = instants(filters["since"], database.clock)
        yield lambda commit: commit.time >= earliest
    if "until" in filters:
        _, latest = instants(filters["until"], database.clock)
        yield lambda commit: commit.time <= latest
    if "author" in filters:
        by = compiled(filters["author"])
        yield lambda commit: commit.author is not None and by.search(commit.author) is not None
    if "message" in filters:
        says = compiled(filters["message"])
        yield lambda commit: says.search(commit.message) is not None
    if "meta" in filters:
        wanted = dict(filters["meta"])
        yield lambda commit: all(has_meta(commit.meta, key, value) for key, value in wanted.items())
    if "stamp" in filters:
        from versioned_state.repository.refs.stamps import Stamps

        stamps, made_with = Stamps(database.store), dict(filters["stamp"])
        yield lambda commit: all(has_meta(stamps.of(commit), key, value) for key, value in made_with.items())
    if "path" not in filters and "changed" not in filters:
        return
    staging = Staging(database.objects)  # for what is searched for; it is never stored
    composer = Composer(Nodes(staging, staging=staging))
    parents_of = _first_parent if first_parent else _parents
    if "path" in filters:
        touched = _differ_at(composer, filters["path"])
        yield lambda commit: all(touched(tree, commit.tree) for tree in parents_of(database, commit))
    if "changed" in filters:
        differ = NeedleCounter(composer, Needle.of(filters["changed"])).differ
        yield lambda commit: all(differ(tree, commit.tree) for tree in parents_of(database, commit))


def _parents(database: Database, commit: Commit) -> list[Tree]:
    return [parent.tree for parent in database.commits.parents(commit)] or [empty(Shape.MAP)]


def _first_parent(database: Database, commit: Commit) -> list[Tree]:
    parent = graph.first_parent_of(commit, database.commits.read)
    return [empty(Shape.MAP) if parent is None else parent.tree]


def _differ_at(composer: Composer, path: str | StatePath) -> Callable[[Tree, Tree], bool]:
    """Return whether two states differ at a path."""
    target = target_of(path)
    nodes = composer.nodes

    def has_changed(old: Tree, new: Tree) -> bool:
        if target.is_range:  # a namespace
            return any(target.start <= key < target.end for key, _, _ in diff_maps(nodes, old, new))
        a, b = (find(nodes, tree, target.start) for tree in (old, new))
        if a == b:
            return False
        return not composer.same(find_cell(nodes, a, target.steps), find_cell(nodes, b, target.steps))

    return has_changed


# What filters mean


def compiled(pattern: str | re.Pattern[str], flags: int = 0) -> re.Pattern[str]:
    """Return a regular expression. Raises ``InvalidArgumentError`` if it does not parse."""
    if isinstance(pattern, re.Pattern):
        instance_of("the pattern of a regular expression", pattern.pattern, str)
        return pattern
    instance_of("a regular expression", pattern, str | re.Pattern)
    try:
        return re.compile(pattern, flags)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidArgumentError(
            f"bad regular expression {pattern!r}: {error}", hint="re.escape() searches for a text as it is"
        ) from error


_NOTHING: Final = object()


def typed_value(text: str) -> Callable[[Any], bool]:
    """Return a function that returns whether a value equals the typed one, as a text or as JSON.

    So ``5`` is both the text and the number.
    """
    parsed: Any = text
    with suppress(ValueError, RecursionError):
        parsed = json.loads(text)
    return lambda value: any(type(value) is type(each) and value == each for each in (text, parsed))


def has_meta(meta: Mapping[str, Any], key: str, wanted: Any) -> bool:
    """Return whether meta has a value, or one for which a function returns true, at a dotted key."""
    found = _find(meta, key)
    if found is _NOTHING:
        return False
    return bool(wanted(found)) if callable(wanted) else type(found) is type(wanted) and bool(found == wanted)


def find_meta(meta: Any, key: str) -> Any:
    """Return the value at a dotted key, or None."""
    found = _find(meta, key)
    return None if found is _NOTHING else found


def _find(meta: Any, key: str) -> Any:
    """Return the value at a dotted key. A key that itself has dots goes before dicts within dicts."""
    if type(meta) is not dict:
        return _NOTHING
    if key in meta:
        return meta[key]
    for end in (index for index, char in enumerate(key) if char == "."):
        if key[:end] in meta and (found := _find(meta[key[:end]], key[end + 1 :])) is not _NOTHING:
            return found
    return _NOTHING
