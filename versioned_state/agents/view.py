"""``view``: a state as text for people and prompts, within a budget of characters. Layer: agents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from typing import Any, Final, Literal, NamedTuple

from versioned_state.arguments import count, one_of
from versioned_state.errors import InvalidArgumentError, MissingObjectError
from versioned_state.repository.history.commit import Commit, read_commit
from versioned_state.repository.views.preview import Preview
from versioned_state.repository.views.render import escape, one_line
from versioned_state.repository.views.sequence import BATCH
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.state.aio.caller import ready
from versioned_state.state.branch import port
from versioned_state.state.live import Live
from versioned_state.state.versioned import Namespace, Versioned
from versioned_state.state.worktree.worktree import Worktree
from versioned_state.values.cells import Code, code_of, is_array
from versioned_state.values.changes.diff import diff_maps
from versioned_state.values.containers import sequence_of
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.keys import is_internal, path_of
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import iter_cells, iter_items, rank

Focus = Literal["recent", "full"]

_COMMITS: Final = 64
"""The number of commits that are searched for the last change of a key.

A key that none of them changed comes after the others.
"""

_LEAST: Final = 24
"""Characters below which the text of a value is of no use."""

_SHARE: Final = 8
"""With "recent", one value takes at most this part of the budget."""

_LAST: Final = b"\xff"

Text = Callable[[int], str]
"""The text of a value, cut to about the given number of characters."""


class _Part(NamedTuple):
    """A key: its path, and the text of its value."""

    path: str
    text: Text


def view(state: Versioned | Namespace | Live | Snapshot, focus: Focus = "recent", budget: int = 4000) -> str:
    """Return a state as text: a line with its branch and commit, then a line for each key, also of namespaces.

    Unpickles nothing.

    A list that does not fit shows its newest elements. Values that are left out are counted. Cost: the part that is
    shown, and with "recent" also the keys that the last 64 commits changed.

    Args:
        focus: "recent": the keys that changed last come first, and each value is short. "full": the keys in order, each
            value as a whole while the budget lasts.
        budget: the most characters of the text.

    Raises:
        InvalidArgumentError: an argument is of the wrong kind.
    """
    one_of("focus", focus, Focus)
    budget = count("budget", budget, least=1)
    if isinstance(state, Live):
        return _compose(repr(state)[1:-1], _live_parts(state, ""), focus, budget)
    if isinstance(state, Snapshot):
        return _compose(_heading(state.commit, "snapshot"), _snapshot_parts(state, focus), focus, budget)
    if isinstance(state, Versioned | Namespace):
        versioned = state.state if isinstance(state, Namespace) else state
        with ready(port.lock(versioned)):
            port.check_open(versioned)
            return _compose(
                _heading(versioned.head, versioned.branch),
                _handle_parts(versioned, port.prefix(state), focus),
                focus,
                budget,
            )
    raise InvalidArgumentError(
        f"view() shows a Versioned, a namespace, a Live or a Snapshot, not {type(state).__name__}"
    )


def _heading(commit: Commit | None, name: str) -> str:
    if commit is None:
        return name
    message = f", {one_line(commit.message, quote=False)}" if commit.message else ""
    return f"{name} at {commit.short}{message}"


def _compose(head: str, parts: Iterable[_Part], focus: Focus, budget: int) -> str:
    lines = [head]
    left = budget - len(head)
    share = budget if focus == "full" else max(budget // _SHARE, 2 * _LEAST)
    source = iter(parts)
    skipped = 0
    for part in source:
        rest = left - len(part.path) - len("\n = ") - len("\n… 1234567 more keys")
        if rest < _LEAST:
            skipped = 1 + sum(1 for _ in source)
            break
        width = min(share, rest)
        text = part.text(width)
        if len(text) > width:
            text = text[: width - 1] + "…"
        lines.append(f"{part.path} = {text}")
        left -= len(lines[-1]) + 1
    if skipped:
        lines.append(f"… {skipped} more key{'' if skipped == 1 else 's'}")
    elif len(lines) == 1:
        lines.append("no keys")
    text = "\n".join(lines)
    return text if len(text) <= budget else text[: budget - 1] + "…"


# Values


def _value_text(value: Any) -> Text:
    def text(width: int) -> str:
        if type(value) is not list:
            return one_line(value, width=width)
        return _newest((one_line(part, width=width) for part in reversed(value)), len(value), width)

    return text


def _cell_text(nodes: Nodes, cell: bytes) -> Text:
    preview = Preview(nodes, Decoder(nodes))

    def text(width: int) -> str:
        is_list = is_array(cell) or code_of(cell) == Code.LIST_TREE
        tree = sequence_of(nodes, cell) if is_list else None
        if tree is None:
            return preview.one_line(cell, width=width)
        cells = (next(iter_cells(nodes, tree, index, index + 1)) for index in range(tree.count - 1, -1, -1))
        return _newest((preview.one_line(each, width=width) for each in cells), tree.count, width)

    return text


def _newest(parts: Iterator[str], total: int, width: int) -> str:
    """Return the text of a list with as many of its last elements as fit.

    ``parts`` are their texts, the last one first.
    """
    shown: list[str] = []
    size = len("[… 1234567 before, ]")
    for part in parts:
        size += len(part) + 2
        if shown and size > width:
            break
        shown.append(part)
    rest = total - len(shown)
    return f"[{f'… {rest} before, ' if rest else ''}{', '.join(reversed(shown))}]"


# Keys


def _live_parts(state: Live, prefix: str) -> Iterator[_Part]:
    for key in state:
        yield _Part(prefix + escape(key), _value_text(state[key]))
    for name in state.namespaces():
        yield from _live_parts(state.namespace(name), f"{prefix}@{escape(name)}.")


def _snapshot_parts(snapshot: Snapshot, focus: Focus) -> Iterator[_Part]:
    nodes = snapshot.new_nodes()
    prefix = port.prefix(snapshot)
    start, end = (rank(nodes, snapshot.tree, bound) for bound in (prefix, prefix + _LAST))
    cells = {key: cell for key, cell in iter_items(nodes, snapshot.tree, start, end) if not is_internal(key)}
    keys: Iterable[bytes] = cells
    if focus == "recent" and snapshot.commit is not None:
        keys = _by_recency(nodes, snapshot.commit, [], cells)
    for key in keys:
        yield _Part(str(path_of(key[len(prefix) :])), _cell_text(nodes, cells[key]))


def _handle_parts(state: Versioned, prefix: bytes, focus: Focus) -> Iterator[_Part]:
    worktree = port.handle(state).worktree
    nodes = Nodes(state.repository.database.objects, cache=state.repository.database.nodes)
    keys: Iterable[bytes] = [key for key in worktree.keys.between(prefix, prefix + _LAST) if not is_internal(key)]
    if focus == "recent":
        keys = _by_recency(nodes, state.head, worktree.changed_keys(), dict.fromkeys(keys))
    for key in keys:
        if worktree.is_live(key):
            text = _value_text(worktree.get(key))
        elif (cell := worktree.cell(key)) is not None and not worktree.is_edited(key):
            text = _cell_text(nodes, cell)
        else:
            text = _edited_list_text(worktree, key)
        yield _Part(str(path_of(key[len(prefix) :])), text)


def _edited_list_text(worktree: Worktree, key: bytes) -> Text:
    return lambda width: _newest(
        (one_line(part, width=width) for part in _newest_first(worktree, key)), worktree.lists.length(key), width
    )


def _newest_first(worktree: Worktree, key: bytes) -> Iterator[Any]:
    """Iterate over the elements of a list that is not loaded, from the last one back."""
    for end in range(worktree.lists.length(key), 0, -BATCH):
        yield from reversed(worktree.lists.peek(key, max(end - BATCH, 0), end))


def _by_recency(nodes: Nodes, head: Commit, first: list[bytes], keys: Collection[bytes]) -> Iterator[bytes]:
    """Iterate over keys, most recently changed first: those in ``first``, then by commit, then the rest in order."""
    seen: set[bytes] = set()
    for key in chain(first, _changed(nodes, head), keys):
        if key in keys and key not in seen:
            seen.add(key)
            yield key


def _changed(nodes: Nodes, commit: Commit) -> Iterator[bytes]:
    """Iterate over the keys that a commit and the ones before it changed."""
    for _ in range(_COMMITS):
        if not commit.parent_addresses:
            return
        try:
            parent = read_commit(commit.parent_addresses[0], nodes.reader.read(commit.parent_addresses[0]))
        except MissingObjectError:  # history is pruned here
            return
        yield from (key for key, _, _ in diff_maps(nodes, parent.tree, commit.tree))
        commit = parent
