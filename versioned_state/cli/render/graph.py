r"""The graph of a log, drawn in characters as git does. Layer: cli.

::

    *   a merge: its second parent begins a lane of its own
    |\
    | * the merged commit
    * | the commit before the merge
    |/
    * what both came from

Every lane is a column that waits for a commit. Commits come children before parents.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence


class Graph:
    """Draws the lanes beside commits, one commit after the other."""

    def __init__(self) -> None:
        self._lanes: list[str] = []

    def draw(self, id: str, parents: Sequence[str]) -> tuple[list[str], str]:
        """Return the lanes left of a commit, equally wide: a row for each of its first lines, and one for others."""
        lanes = self._lanes
        if id not in lanes:
            lanes.append(id)
        lane = lanes.index(id)
        rows = [_row("*" if index == lane else "|" for index in range(len(lanes)))]
        rows += self._close(lane) if not parents else self._branch(lane, parents)
        rows += self._join()
        rest = _row("|" for _ in lanes)
        width = max(map(len, [*rows, rest]))
        return [row.ljust(width) for row in rows], rest.ljust(width)

    def _close(self, lane: int) -> Iterator[str]:
        """End a lane. Those right of it move to the left."""
        del self._lanes[lane]
        if lane < len(self._lanes):
            yield _row("|" for _ in range(lane)) + "".join(" /" for _ in self._lanes[lane:])

    def _branch(self, lane: int, parents: Sequence[str]) -> Iterator[str]:
        """Continue a commit's lane to its first parent, and give each other parent a lane."""
        lanes = self._lanes
        left = _row("|" for _ in lanes[:lane])
        right = lanes[lane + 1 :]
        others = list(parents)
        if len(others) > 1 and lane and lanes[lane - 1] in others:  # it has the lane beside this one
            others.remove(lanes[lane - 1])
            yield left[:-1] + "/|" + "".join(" |" for _ in right)
        if len(others) > 1 and right and right[0] in others:
            others.remove(right[0])
            yield left + "|\\" + _row("|" for _ in right)
        lanes[lane] = others[0]
        for parent in reversed(others[1:]):
            yield left + "|\\" + "".join(" \\" for _ in lanes[lane + 1 :])
            lanes.insert(lane + 1, parent)

    def _join(self) -> Iterator[str]:
        """Join lanes that wait for the same commit."""
        lanes = self._lanes
        while True:
            found = next((index for index, id in enumerate(lanes) if id in lanes[:index]), None)
            if found is None:
                return
            first = lanes.index(lanes[found])
            after = "".join(" /" for _ in lanes[found + 1 :])
            if first + 1 == found:
                yield _row("|" for _ in range(first)) + "|/" + after
            else:
                between = "".join("|_" for _ in range(first + 1, found - 1))
                yield _row("|" for _ in range(first + 1)) + between + "|/" + after
                yield _row("|" for _ in range(first)) + "|/" + _row("|" for _ in range(first + 1, len(lanes) - 1))
            del lanes[found]


def _row(marks: Iterable[str]) -> str:
    return "".join(f"{mark} " for mark in marks)


def beside(first: Sequence[str], rest: str, count: int) -> list[str]:
    """Return the lanes left of ``count`` lines of a commit, and of further rows if the drawing needs them."""
    return [*first, *[rest] * (count - len(first))]


def shown_parents(history: Sequence[tuple[str, Sequence[str]]], shown: Container[str]) -> dict[str, list[str]]:
    """Return the commits that each shown commit's lanes lead to: the nearest shown ancestors.

    Args:
        history: the ids of all commits and of their parents, children before parents.
        shown: the ids of those that are shown.
    """
    nearest: dict[str, list[str]] = {}
    connected: dict[str, list[str]] = {}
    for id, parents in reversed(history):
        below = list(dict.fromkeys(found for parent in parents for found in nearest.get(parent, ())))
        if id in shown:
            connected[id] = below
        nearest[id] = [id] if id in shown else below
    return connected
