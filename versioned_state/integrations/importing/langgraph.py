"""Checkpoints of LangGraph, from the database of its ``SqliteSaver`` or ``PostgresSaver``. Layer: integrations.

A thread becomes the branches that ``VersionedSaver`` has for it, with a commit for each checkpoint: parents, forks, the
namespaces of subgraphs and pending writes too. No class is imported but those of LangGraph and LangChain that LangGraph
itself calls safe: an instance of another one stays as the bytes that it is in the source, and ``VersionedSaver`` reads
it as LangGraph's own savers do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import ormsgpack
from langgraph.checkpoint.base import CheckpointTuple, writes_sort_key
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.jsonplus import EXT_DELTA_SNAPSHOT, EXT_NUMPY_ARRAY, JsonPlusSerializer

from versioned_state.integrations.importing.database import text_ids
from versioned_state.integrations.importing.langgraph_tables import open_tables
from versioned_state.integrations.importing.source import (
    DamagedRowError,
    Importer,
    ImportMismatchError,
    PickledRowError,
    SourceFormatError,
    Thread,
    ThreadExistsError,
    is_same,
)
from versioned_state.integrations.langgraph import VersionedSaver
from versioned_state.integrations.langgraph.lines import Line, Lines
from versioned_state.integrations.langgraph.packed import Packed, Packing
from versioned_state.integrations.langgraph.writes import Writes
from versioned_state.repository.repository import Repository
from versioned_state.storage import KVStore
from versioned_state.storage.url import redact

_NEWEST: Final = 4
"""The newest known version of a checkpoint."""


@dataclass(frozen=True, slots=True)
class Write:
    """A pending write, with its place among those of its task."""

    task: str
    path: str
    index: int
    channel: str
    value: Any


@dataclass(frozen=True, slots=True)
class Step:
    """A checkpoint and its pending writes.

    It is None if the store has it, or if the source has nothing but its writes.
    """

    id: str
    parent: str | None
    checkpoint: dict[str, Any] | None
    metadata: dict[str, Any]
    writes: tuple[Write, ...]


class Reading:
    """Reads the bytes of a checkpoint, and runs nothing that they name."""

    def __init__(self, source: str, *, allow_pickle: bool) -> None:
        self._source = source
        self._allow_pickle = allow_pickle
        self._safe = JsonPlusSerializer(pickle_fallback=allow_pickle, allowed_msgpack_modules=None)
        self._serde = JsonPlusSerializer(allowed_msgpack_modules=None, __unpack_ext_hook__=self._extension)

    def value(self, where: str, format: object, content: object) -> Any:
        """Return the value of a row, in which what is not safe is ``Packed``.

        Raises ``DamagedRowError``, ``PickledRowError``.
        """
        if not isinstance(format, str) or not isinstance(content, bytes | str | None):
            raise DamagedRowError(self._source, where, "it is not bytes with the name of their format")
        raw = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content or b""
        if format == "pickle" and not self._allow_pickle:
            raise PickledRowError(self._source, where)
        if "+" in format:
            raise DamagedRowError(
                self._source, where, f"it is encrypted ({format})", hint="encrypted checkpoints are not imported"
            )
        try:
            return (self._serde if format == "msgpack" else self._safe).loads_typed((format, raw))
        except NotImplementedError as error:
            raise DamagedRowError(self._source, where, f"its format is unknown: {error}") from error
        except Exception as error:  # the bytes may hold anything
            raise DamagedRowError(self._source, where, f"its {format} does not read: {error}") from error

    def _extension(self, code: int, data: bytes) -> Any:
        raw = ormsgpack.packb(ormsgpack.Ext(code, data))
        return self._safe.loads_typed(("msgpack", raw)) if _is_safe(code, data) else Packed("msgpack", raw)


def _is_safe(code: int, data: bytes) -> bool:
    """Return whether an extension, and all that it holds, is of the classes that LangGraph always reads."""
    if code == EXT_NUMPY_ARRAY:
        return True
    inner: list[bool] = []
    value = ormsgpack.unpackb(
        data, ext_hook=lambda code, data: inner.append(_is_safe(code, data)), option=ormsgpack.OPT_NON_STR_KEYS
    )
    if not all(inner):
        return False
    if code == EXT_DELTA_SNAPSHOT:
        return True
    if not isinstance(value, list | tuple) or len(value) < 3:
        return False
    names = tuple(each for each in (value[0], value[1], *value[3:4]) if isinstance(each, str))
    return names[:2] in SAFE_MSGPACK_TYPES or names in SAFE_MSGPACK_METHODS


class _Bytes(JsonPlusSerializer):  # type: ignore[misc]
    """Leaves what is packed in the store as it is: reading back compares bytes, and makes no instance."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return Packed(*data)


class _Saver(VersionedSaver):
    def _use_serde(self) -> None:
        self.serde = _Bytes()
        super()._use_serde()


class LangGraphImporter(Importer):
    """The threads of a database, as those of ``VersionedSaver``."""

    framework: ClassVar[str] = "langgraph"

    def __init__(self, source: str, *, allow_pickle: bool = False) -> None:
        super().__init__(redact(source), allow_pickle=allow_pickle)
        self._reading = Reading(self.source, allow_pickle=allow_pickle)
        self._tables = open_tables(source, self._reading.value)
        self._saver: _Saver | None = None

    def into(self, store: KVStore) -> Repository:
        """Write to a store from now on."""
        self._saver = _Saver(store)
        repository = self._saver.repository
        self._lines = Lines(repository)
        serde = self._saver.serde
        self._packing = Packing(serde.dumps_typed, serde.loads_typed, repository.database.policy.classes, whole=False)
        self._writes = Writes(repository, self._packing)
        return repository

    def threads(self) -> list[Thread]:
        """Return the threads, with each namespace of a subgraph as one of its own."""
        found = []
        for thread, namespace, steps in self._tables.threads():
            ids = text_ids(self.source, "checkpoints", thread, namespace)
            name = f"thread {thread!r}" + (f", subgraph {namespace!r}" if namespace else "")
            found.append(Thread(name, Line(*ids).branch, steps, ids))
        return found

    def _steps(self, thread: Thread, known: Collection[str] = ()) -> Iterator[Step]:
        """Yield the steps of a thread, the oldest first.

        A checkpoint that is known is not read: its step is only its writes.
        """
        for row in self._tables.rows(*thread.ids):
            id, parent = text_ids(self.source, "checkpoints", row.id, row.parent or "")
            where = f"checkpoint {id!r} of {thread.name}"
            writes = self._writes_of(thread, id)
            if id in known:
                yield Step(id, None, None, {}, writes)
                continue
            checkpoint = row.checkpoint(where)
            if type(checkpoint) is not dict or not _has_values(checkpoint):
                raise DamagedRowError(self.source, where, "it has no id, or no values of channels")
            if checkpoint["id"] != id:
                raise DamagedRowError(self.source, where, f"its id is {checkpoint['id']!r:.80} in its content")
            version = checkpoint.get("v", 1)
            if type(version) is not int or version > _NEWEST:
                raise SourceFormatError(
                    self.source, f"{where} is of version {version!r:.80}; the newest known one is {_NEWEST}", remains=""
                )
            yield Step(id, parent or None, checkpoint, row.metadata(where), writes)
        for (id,) in self._tables.alone(*thread.ids):
            text_ids(self.source, "writes", id)
            yield Step(id, None, None, {}, self._writes_of(thread, id))

    def _writes_of(self, thread: Thread, id: str) -> tuple[Write, ...]:
        found = []
        for task, path, index, channel, format, content in self._tables.writes(*thread.ids, id):
            text_ids(self.source, "writes", task, path, channel)
            where = f"write {index!r} of task {task!r}, of checkpoint {id!r} of {thread.name}"
            if type(index) is not int:
                raise DamagedRowError(self.source, where, "its index is not a number")
            found.append(Write(task, path, index, channel, self._reading.value(where, format, content)))
        return tuple(found)

    def missing(self, thread: Thread) -> Iterator[Step]:
        """Yield the checkpoints that the store does not have, and writes that it lacks."""
        if self._saver is None:
            yield from self._steps(thread)
            return
        line = Line(*thread.ids)
        known = self._lines.known(line).all()
        ids = {id for (id,) in self._tables.ids(*thread.ids)}
        more = sorted(known.keys() - ids)
        if more:
            raise ThreadExistsError(
                self.source, thread.name, thread.branch, f"it has {len(more)} other checkpoints, such as {more[0]!r}"
            )
        for step in self._steps(thread, known):
            if step.checkpoint is not None or len(self._writes.of(line, step.id)) < len(step.writes):
                yield step

    def write(self, thread: Thread, step: Step) -> None:
        """Commit a checkpoint after its writes, so that every stored checkpoint has them."""
        assert self._saver is not None
        line = Line(*thread.ids)
        for task in dict.fromkeys(write.task for write in step.writes):
            of_task = [write for write in step.writes if write.task == task]
            indexed = [(write.index, write.channel, write.value) for write in of_task]
            self._writes.keep(line, step.id, indexed, task, of_task[0].path)
        if step.checkpoint is not None:
            thread_id, namespace = thread.ids
            parent = {} if step.parent is None else {"checkpoint_id": step.parent}
            config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, **parent}}
            checkpoint: Any = step.checkpoint
            metadata: Any = step.metadata
            updated = step.checkpoint.get("updated_channels")
            named = updated if type(updated) is list else list(step.checkpoint["channel_values"])
            self._saver.put(config, checkpoint, metadata, dict.fromkeys(filter(_is_text, named), 0))

    def check(self, thread: Thread) -> None:
        """Compare each checkpoint and each write with the source, and their number."""
        assert self._saver is not None
        thread_id, namespace = thread.ids
        line = Line(thread_id, namespace)
        count = 0
        for step in self._steps(thread):
            pending = [(write.task, write.channel, write.value) for write in sorted(step.writes, key=_order)]
            if step.checkpoint is None:
                held: Any = self._writes.of(line, step.id)
                if not self._are_same(pending, held):
                    raise self._mismatch(thread, f"the writes of checkpoint {step.id!r} differ")
                continue
            count += 1
            config: Any = {
                "configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": step.id}
            }
            found = self._saver.get_tuple(config)
            if found is None:
                raise self._mismatch(thread, f"checkpoint {step.id!r} is missing")
            if (part := self._difference(step, pending, found)) is not None:
                raise self._mismatch(thread, f"the {part} of checkpoint {step.id!r} differ")
        kept = len(self._lines.known(line).all())
        if kept != count:
            raise self._mismatch(thread, f"the store has {kept} checkpoints, and the source {count}")

    def _difference(self, step: Step, pending: list[Any], found: CheckpointTuple) -> str | None:
        """Return the part of a checkpoint that differs, if one does."""
        wanted, there = dict(step.checkpoint or {}), dict(found.checkpoint)
        values, held = wanted.pop("channel_values"), there.pop("channel_values")
        parent = None if found.parent_config is None else found.parent_config["configurable"]["checkpoint_id"]
        if parent != step.parent:
            return "parents"
        if not is_same(there, wanted):
            return "versions of channels"
        if not is_same(dict(found.metadata), step.metadata):
            return "metadata"
        if values.keys() != held.keys() or not all(
            self._are_same(value, held[channel]) for channel, value in values.items()
        ):
            return "values"
        return None if self._are_same(pending, [tuple(each) for each in found.pending_writes or ()]) else "writes"

    def _are_same(self, wanted: Any, held: Any) -> bool:
        if type(wanted) is list and wanted and type(wanted[0]) is tuple:  # writes
            return len(wanted) == len(held) and all(
                one[:2] == tuple(other[:2]) and self._are_same(one[2], other[2])
                for one, other in zip(wanted, held, strict=True)
            )
        # Each as it is kept: a part may be packed, or all of it.
        return is_same(self._packing.dump(wanted), held) or is_same(self._packing.dump_data(wanted), held)

    def _mismatch(self, thread: Thread, reason: str) -> ImportMismatchError:
        return ImportMismatchError(self.source, thread.name, thread.branch, reason)

    def close(self) -> None:
        """Close the database, and the handles on the store."""
        self._tables.close()
        if self._saver is not None:
            self._saver.close()
            self._lines.close()


def _order(write: Write) -> Any:
    return writes_sort_key(write.path, write.task, write.index)


def _has_values(checkpoint: dict[Any, Any]) -> bool:
    values = checkpoint.get("channel_values")
    return "id" in checkpoint and type(values) is dict and all(map(_is_text, values))


def _is_text(value: object) -> bool:
    return type(value) is str
