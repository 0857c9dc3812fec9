"""``Writes``: the pending writes of checkpoints, as named records beside the branch. Layer: integrations.

A task's writes are a record of their own, since they come before their checkpoint, and from several tasks at once. It
goes with the branch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from langgraph.checkpoint.base import WRITES_IDX_MAP, PendingWrite, writes_sort_key

from versioned_state.errors import PickleRefusedError, UnserializableValueError
from versioned_state.integrations.langgraph.lines import Line
from versioned_state.integrations.langgraph.packed import Packing
from versioned_state.repository.names.branch_name import branch_name, id_of
from versioned_state.repository.repository import Repository

_WRITES: Final = "writes"
_PATH: Final = "task_path"
_TASK: Final = "task_id"

_TASKS: Final = 2
"""Tasks a checkpoint that are read at once, for several checkpoints: more than most have."""


class Writes:
    """The writes of a repository. Safe for many threads and processes."""

    def __init__(self, repository: Repository, packing: Packing) -> None:
        self._records = repository.records
        self._packing = packing

    def put(self, line: Line, checkpoint: str, writes: Sequence[tuple[str, Any]], task: str, path: str) -> None:
        """Keep the writes of a task.

        An existing one stays, unless its channel is special, such as that of the error of the task.
        """
        indexed = [(WRITES_IDX_MAP.get(channel, at), channel, value) for at, (channel, value) in enumerate(writes)]
        self.keep(line, checkpoint, indexed, task, path)

    def keep(self, line: Line, checkpoint: str, writes: Sequence[tuple[int, str, Any]], task: str, path: str) -> None:
        """Do ``put`` with writes whose places among those of the task are given."""
        if not writes:
            return
        try:
            self._keep(
                line,
                checkpoint,
                [[at, channel, self._packing.dump(value)] for at, channel, value in writes],
                task,
                path,
            )
        except (PickleRefusedError, UnserializableValueError):
            self._keep(
                line,
                checkpoint,
                [[at, channel, self._packing.dump_data(value)] for at, channel, value in writes],
                task,
                path,
            )

    def _keep(self, line: Line, checkpoint: str, new: list[list[Any]], task: str, path: str) -> None:
        name = _name(line, checkpoint, task)
        record: dict[str, Any] = {_WRITES: new}
        if path:
            record[_PATH] = path
        if id_of(name.rpartition("/")[2]) is None:
            record[_TASK] = task  # it is long, and the name has only a hash of it

        def added(found: dict[str, Any] | None) -> dict[str, Any]:
            if found is None:
                return record
            there = {write[0]: write for write in found[_WRITES]}
            there.update((write[0], write) for write in new if write[0] < 0 or write[0] not in there)
            return {**found, _WRITES: list(there.values())}

        if not self._records.create(name, record):  # most often they are the first of their task
            self._records.edit(name, added)

    def of(self, line: Line, checkpoint: str) -> list[PendingWrite]:
        """Return the writes of a checkpoint, in the order in which a run applies them. Cost: one request."""
        return self._sorted(self._records.iter_items(_prefix(line, checkpoint)))

    def of_each(self, line: Line, checkpoints: Sequence[str]) -> dict[str, list[PendingWrite]]:
        """Return the writes of some checkpoints that follow each other, as ``of`` does.

        Cost: one request, unless they are many.
        """
        owned: dict[str, list[tuple[str, dict[str, Any]]]] = {_prefix(line, each): [] for each in checkpoints}
        after, last = min(owned), max(owned)
        size = _TASKS * len(owned)
        while True:
            count = 0
            for name, record in self._records.iter_items(_prefix(line), after=after, limit=size):
                count += 1
                after = name
                found = owned.get(name[: name.rindex("/") + 1])
                if found is not None:
                    found.append((name, record))
                elif name > last:
                    count = 0
                    break
            if count < size:
                return {each: self._sorted(owned[_prefix(line, each)]) for each in checkpoints}

    def _sorted(self, records: Iterable[tuple[str, dict[str, Any]]]) -> list[PendingWrite]:
        found = [
            (
                writes_sort_key(record.get(_PATH, ""), record.get(_TASK) or id_of(name.rpartition("/")[2]) or "", at),
                channel,
                value,
            )
            for name, record in records
            for at, channel, value in record[_WRITES]
        ]
        found.sort(key=lambda each: each[0])
        return [(key[1], channel, self._packing.load(value)) for key, channel, value in found]

    def delete(self, line: Line, checkpoints: Collection[str]) -> None:
        """Delete the writes of some checkpoints."""
        prefixes = tuple(_prefix(line, each) for each in checkpoints)
        if prefixes:
            self._records.delete_many(name for name in self._names(line) if name.startswith(prefixes))

    def copy(self, source: Line, target: Line) -> None:
        """Give a line the writes of another."""
        start = len(_prefix(source))
        self._records.update(
            {_prefix(target) + name[start:]: record for name, record in self._records.iter_items(_prefix(source))}
        )

    def _names(self, line: Line) -> Iterator[str]:
        return (name for name, _ in self._records.iter_items(_prefix(line)))


def _prefix(line: Line, checkpoint: str | None = None) -> str:
    # No id is escaped to "%w", so this is not the name of a subgraph's branch.
    prefix = f"{line.branch}/%w/"
    return prefix if checkpoint is None else f"{prefix}{branch_name(checkpoint)}/"


def _name(line: Line, checkpoint: str, task: str) -> str:
    return _prefix(line, checkpoint) + branch_name(task)
