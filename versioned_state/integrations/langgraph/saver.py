"""``VersionedSaver``: the checkpoints of LangGraph. Layer: integrations."""

from __future__ import annotations

import builtins
import random
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Final, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from versioned_state.arguments import one_of
from versioned_state.errors import LimitExceededError, MissingObjectError, PickleRefusedError, UnserializableValueError
from versioned_state.integrations.adapter import Adapter, Place, off_the_loop
from versioned_state.integrations.langgraph.filters import field_of
from versioned_state.integrations.langgraph.lines import (
    ID,
    LARGE,
    REST,
    SHADOWED,
    Content,
    Entry,
    Known,
    Line,
    Lines,
    checkpoint_id,
    facts_of,
)
from versioned_state.integrations.langgraph.packed import Packing
from versioned_state.integrations.langgraph.pages import Page
from versioned_state.integrations.langgraph.writes import Writes
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.streams import Stream
from versioned_state.values.codec.trust import TrustedModules
from versioned_state.values.encode.inline import InlineEncoder

T = TypeVar("T")

Found = tuple[str, Line, Commit, list[PendingWrite] | None]
"""A checkpoint in a listing: its id, line and commit, and its writes if they were read."""

CLASSES: Final = ("langchain_core", "langgraph")
"""The modules whose classes are read as what they are in any store."""

_PARENT: Final = "parent_checkpoint_id"
_OWN: Final = (ID, _PARENT, REST)
"""The keys of a commit's meta that are not of the checkpoint's metadata."""

_PAGE: Final = 512
"""Checkpoints that are looked at together."""

_SHOWN: Final = 5
"""Channels that the message of a commit names."""


class VersionedSaver(Adapter, BaseCheckpointSaver[Any]):  # type: ignore[misc]
    """Checkpoints of LangGraph's threads as commits: a thread is a branch, with log, diff, blame and grep of messages.

    To switch::

        from versioned_state.integrations.langgraph import VersionedSaver
        saver = VersionedSaver("./agent-state")  # instead of SqliteSaver(...); a folder, or redis://…, postgresql://…
        graph = builder.compile(checkpointer=saver)

    Values of channels are data by path, and so are messages of ``langchain_core``. Time travel, and two writers of one
    thread, make forks (see ``lines``): no checkpoint is lost, and none is mixed with another. Each call has its
    coroutine (``aput``, ``aget_tuple``), which runs off the event loop. Safe for many threads and processes.

    Args:
        place: a store or a ``Repository``, or the URL or path of a store.
        classes: modules of your own classes in channels. Only a store that others may write to needs them: it reads no
            others.
        serde: if given, it turns each value of a channel into bytes: for encryption, say. Then no value has paths.
    """

    def __init__(self, place: Place, *, classes: TrustedModules = (), serde: SerializerProtocol | None = None) -> None:
        Adapter.__init__(self, place, classes=classes, own=CLASSES)
        BaseCheckpointSaver.__init__(self, serde=serde)
        self._is_packed_whole = serde is not None
        self._lines = Lines(self.repository)
        self._use_serde()

    def _use_serde(self) -> None:
        """Make the parts that use the serializer."""
        serde, policy = self.serde, self._lines.database.policy
        self._packing = Packing(serde.dumps_typed, serde.loads_typed, policy.classes, whole=self._is_packed_whole)
        self._writes = Writes(self.repository, self._packing)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> VersionedSaver:
        """Return a saver over the same repository whose serializer makes these classes too.

        LangGraph calls this when it compiles.
        """
        clone = super().with_allowlist(extra_allowlist)
        assert isinstance(clone, VersionedSaver)
        if clone is not self:
            clone._use_serde()
        return clone

    def close(self) -> None:
        """Close the handles, and the store, if this object opened it."""
        self._lines.close()
        super().close()

    def branch(self, thread_id: str, checkpoint_ns: str = "") -> str:
        """Return the name of the branch of a thread, or of a subgraph in it: ``repository.log(saver.branch("42"))``."""
        return Line(str(thread_id), checkpoint_ns).branch

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, or the newest one of a thread, or None.

        Cost: three requests, and reads of the values.
        """
        line = _line(config)
        wanted = config["configurable"].get("checkpoint_id")

        def read() -> CheckpointTuple | None:
            commit = self._lines.find(line, wanted) if wanted else self._lines.newest(line)
            return None if commit is None else self._tuple(line, commit, config if wanted else None)

        return self._unless_swept(line, read)

    def _unless_swept(self, line: Line, read: Callable[[], T]) -> T:
        """Return the result of a call.

        If gc has taken a checkpoint that was deleted meanwhile, it is repeated without what was known.
        """

        def again() -> T:
            try:
                return read()
            except MissingObjectError:
                self._lines.forget(line)
                raise

        return self._lines.database.unless_swept(again)

    def _tuple(
        self,
        line: Line,
        commit: Commit,
        config: RunnableConfig | None = None,
        *,
        writes: builtins.list[PendingWrite] | None = None,
    ) -> CheckpointTuple:
        meta = commit.meta
        content = self._snapshot(commit)
        load = self._packing.load
        rest, metadata = self._parts(content, meta)
        checkpoint = {
            **rest,
            "id": meta[ID],
            "channel_values": {key: load(value) for key, value in content.copy().items()},
        }
        parent = meta.get(_PARENT)
        return CheckpointTuple(
            config or _config(line, meta[ID]),
            checkpoint,
            metadata,
            None if parent is None else _config(line, parent),
            self._writes.of(line, meta[ID]) if writes is None else writes,
        )

    def _snapshot(self, commit: Commit) -> Snapshot:
        database = self._lines.database
        return Snapshot(database.objects, commit.tree, database.policy, commit=commit, cache=database.nodes)

    def _parts(self, content: Snapshot, meta: dict[str, Any]) -> tuple[dict[str, Any], CheckpointMetadata]:
        """Return a checkpoint without its id and values, and its metadata."""
        if REST not in meta:
            rest, metadata = self._packing.load(content.namespace(LARGE)[REST])
            return rest, metadata
        metadata = _described(meta)
        meta[REST].pop(SHADOWED, None)
        return meta[REST], metadata

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the framework's
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, the newest first, as they are taken.

        Cost: the commits of the thread that this object has not seen and are not older than the last one, then what is
        yielded. A filter is compared with pages instead, and those that are missing are written: see ``pages``.
        """
        if limit is not None and limit <= 0:
            return
        wanted = None if config is None else config["configurable"].get("checkpoint_id")
        end = None if before is None else before["configurable"].get("checkpoint_id")
        fits = _Filter(filter, self._metadata) if filter else None
        lines = self._asked(config)
        at_once = 1 if limit is None or fits is not None or len(lines) > 1 else min(limit, _PAGE)
        streams = [self._descending(line, wanted, end, fits, at_once) for line in lines]
        found = merge(*streams, key=itemgetter(0), reverse=True) if len(streams) > 1 else chain(*streams)
        yield from islice(self._present(found), limit)
        for line in lines if fits is not None else ():
            self._lines.write_pages(line, _metadata_beside)

    def _asked(self, config: RunnableConfig | None) -> builtins.list[Line]:
        """Return the lines that a configuration is about."""
        if config is None:
            return self._lines.lines()
        namespace = config["configurable"].get("checkpoint_ns")
        thread = str(config["configurable"]["thread_id"])
        return self._lines.lines(thread) if namespace is None else [Line(thread, namespace)]

    def _descending(
        self, line: Line, wanted: str | None, end: str | None, fits: _Filter | None, at_once: int
    ) -> Iterator[Found]:
        """Yield the checkpoints of a line that fit, the newest first. ``at_once`` is how many to look at first."""
        if wanted:
            commit = self._unless_swept(line, lambda: self._lines.find(line, wanted))
            if commit is not None and (fits is None or fits.has(commit)) and (end is None or wanted < end):
                yield wanted, line, commit, None
            return
        known = self._lines.known(line)

        def looked_at() -> tuple[str, builtins.list[tuple[str, Commit]]] | None:
            """Return the id of the last checkpoint of a page, and those of the page that may fit."""
            nonlocal known
            try:
                page = known.before(end, at_once)
                found = page if fits is None else fits.among(page)
                commits = known.commits(found)
            except MissingObjectError:
                self._lines.forget(line)
                known = self._lines.known(line)
                raise
            return (page[-1][0], [(each[0], at) for each, at in zip(found, commits, strict=True)]) if page else None

        while seen := self._lines.database.unless_swept(looked_at):
            end, page = seen
            writes = self._writes.of_each(line, [id for id, _ in page]) if fits is None else {}
            for id, commit in page:
                if fits is None or fits.has(commit):
                    yield id, line, commit, writes.get(id)
            at_once = min(4 * at_once, _PAGE)

    def _present(self, found: Iterator[Found]) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints that were found, without those that others have pruned, and gc has taken, since."""
        renewed: dict[Line, Known | None] = {}  # the lines of which one was missing, as they are since

        def read(each: Found) -> CheckpointTuple | None:
            id, line, at, writes = each
            commit: Commit | None = at
            if line in renewed:
                known = renewed[line]
                if known is None:
                    known = renewed[line] = self._lines.known(line)
                commit = known.find(id)
            try:
                return None if commit is None else self._tuple(line, commit, writes=writes)
            except MissingObjectError:
                self._lines.forget(line)
                renewed[line] = None
                raise

        for each in found:
            made = self._lines.database.unless_swept(partial(read, each))
            if made is not None:
                yield made

    def _metadata(self, commit: Commit) -> Mapping[str, Any]:
        meta = commit.meta
        metadata: Mapping[str, Any] = _described(meta) if REST in meta else self._parts(self._snapshot(commit), meta)[1]
        return metadata

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what each channel was written on the way to a checkpoint, from the value that was last stored on.

        Cost: the commits on that way, and their writes.
        """
        line = _line(config)
        return self._unless_swept(line, lambda: self._delta_channel_history(line, config, channels))

    def _delta_channel_history(
        self, line: Line, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        writes: dict[str, builtins.list[PendingWrite]] = {channel: [] for channel in channels}
        seeds: dict[str, Any] = {}
        wanted = config["configurable"].get("checkpoint_id")
        target = self._lines.find(line, wanted) if wanted else self._lines.newest(line)
        for commit in self._ancestors(line, target):
            content = self._snapshot(commit)
            left = [channel for channel in writes if channel not in seeds]
            for write in reversed(self._writes.of(line, checkpoint_id(commit) or "")):
                if write[1] in left:
                    writes[write[1]].append(write)
            seeds.update((channel, self._packing.load(content[channel])) for channel in left if channel in content)
            if len(seeds) == len(writes):
                break
        return {
            channel: {"writes": found[::-1], "seed": seeds[channel]} if channel in seeds else {"writes": found[::-1]}
            for channel, found in writes.items()
        }

    def _ancestors(self, line: Line, commit: Commit | None) -> Iterator[Commit]:
        """Yield the checkpoints that lead to one, the nearest first.

        Each comes once: one that is put again may make a circle.
        """
        seen = set()
        while commit is not None and (parent := commit.meta.get(_PARENT)) and parent not in seen:
            seen.add(parent)
            commit = self._lines.find(line, parent)
            if commit is not None:
                yield commit

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Commit a checkpoint onto its parent, the checkpoint in the configuration.

        Returns the configuration that names it.
        """
        line = _line(config)
        parts: dict[str, Any] = {**checkpoint}
        values, id = parts.pop("channel_values"), parts.pop("id")
        parent = config["configurable"].get("checkpoint_id")
        described: dict[str, Any] = {**get_checkpoint_metadata(config, metadata)}
        message = _message(described, [channel for channel in new_versions if channel in values])
        ids = {ID: id} if parent is None else {ID: id, _PARENT: parent}
        meta = {**described, **ids, REST: parts}
        if not described.keys().isdisjoint(_OWN):
            meta[REST] = {**parts, SHADOWED: {key: value for key, value in described.items() if key in _OWN}}
        dump = self._packing.dump
        try:
            self._lines.put(
                line,
                id,
                parent,
                Content({key: dump(value) for key, value in values.items()}),
                message=message,
                meta=meta,
            )
        except (LimitExceededError, PickleRefusedError, UnserializableValueError):
            dump = self._packing.dump_data
            content = Content({key: dump(value) for key, value in values.items()}, large=dump([parts, described]))
            self._lines.put(line, id, parent, content, message=message, meta=ids)
        return _config(line, id)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Keep the writes of a task beside a checkpoint, which may come later."""
        self._writes.put(_line(config), config["configurable"]["checkpoint_id"], writes, task_id, task_path)

    # Deleting

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with its subgraphs and writes.

        ``repository.gc`` frees the space. ``repository.purge`` erases at once.
        """
        self._lines.delete(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of some runs, in all threads, with their writes. Cost: the commits of all threads."""
        runs = set(run_ids)
        if not runs:
            return
        fits = [_Filter({"run_id": run}, self._metadata) for run in runs]

        def others(commits: dict[str, Commit]) -> set[str]:
            entries: builtins.list[Entry] = [(id, facts_of(commit), commit) for id, commit in commits.items()]
            gone = {entry[0] for each in fits for entry in each.among(entries) if each.has(commits[entry[0]])}
            return commits.keys() - gone

        for line in self._lines.lines():
            self._writes.delete(line, self._lines.keep(line, others))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Give a thread all checkpoints and writes of another.

        Cost: a branch for each of the other's, and the writes.
        """
        for source in self._lines.lines(str(source_thread_id)):
            target = Line(str(target_thread_id), source.namespace)
            self._lines.copy(source, target)
            self._writes.copy(source, target)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete the checkpoints of some threads: all with ``"delete"``, else all but the newest one of each namespace.

        Those stay too from which the values of its delta channels are made.
        """
        one_of("strategy", strategy, ("keep_latest", "delete"))
        for thread in map(str, thread_ids):
            if strategy == "delete":
                self.delete_thread(thread)
                continue
            for line in self._lines.lines(thread):
                self._writes.delete(line, self._lines.keep(line, partial(self._latest, line)))

    def _latest(self, line: Line, commits: dict[str, Commit]) -> builtins.list[str]:
        """Return the ids of the newest of some checkpoints and of those that its delta channels' values come from."""
        if not commits:
            return []
        newest = max(commits)
        kept = [newest]
        content = self._snapshot(commits[newest])
        metadata: Any = self._parts(content, commits[newest].meta)[1]
        left = {channel for channel in metadata.get("counters_since_delta_snapshot", ()) if channel not in content}
        for commit in self._ancestors(line, commits[newest]) if left else ():
            kept.append(checkpoint_id(commit) or "")
            content = self._snapshot(commit)
            left = {channel for channel in left if channel not in content}
            if not left:
                break
        return kept

    # The same as coroutines

    aget_tuple = off_the_loop(get_tuple)
    aput = off_the_loop(put)
    aput_writes = off_the_loop(put_writes)
    adelete_thread = off_the_loop(delete_thread)
    adelete_for_runs = off_the_loop(delete_for_runs)
    acopy_thread = off_the_loop(copy_thread)
    aprune = off_the_loop(prune)
    aget_delta_channel_history = off_the_loop(get_delta_channel_history)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the framework's
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Do ``list`` off the event loop."""

        async def begin() -> Iterator[CheckpointTuple]:
            return self.list(config, filter=filter, before=before, limit=limit)

        async for each in Stream(begin):
            yield each

    # Versions of channels

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return a channel's next version: a number, or the text after another saver's, whose thread continues here."""
        if isinstance(current, str):
            return f"{int(current.partition('.')[0]) + 1:032}.{random.random():016}"  # noqa: S311 - to tell versions apart
        return 1 if current is None else int(current) + 1


class _Filter:
    """Metadata that a checkpoint must have.

    Args:
        wanted: the values, by key.
        metadata: returns the metadata of a checkpoint.
    """

    def __init__(self, wanted: Mapping[str, Any], metadata: Callable[[Commit], Mapping[str, Any]]) -> None:
        self._wanted = wanted
        self._metadata = metadata
        self._marks = [marks for key, value in wanted.items() if (marks := _marks(key, value))]

    def among(self, entries: Iterable[Entry]) -> builtins.list[Entry]:
        """Return the checkpoints that may fit. Most of the others are not even decoded."""
        found = []
        page, columns = None, []
        for entry in entries:
            _, facts, at = entry
            if isinstance(facts, Page):
                if facts is not page:
                    page, columns = facts, facts.columns(self._wanted)
                for column, value in columns:
                    if column[at] != value:  # type: ignore[index]
                        break
                else:
                    found.append(entry)
            elif not facts or self._is_marked(facts):
                found.append(entry)
        return found

    def _is_marked(self, facts: bytes) -> bool:
        for several in self._marks:
            for mark in several:
                if mark in facts:
                    break
            else:
                return False
        return True

    def has(self, commit: Commit) -> bool:
        """Return whether a checkpoint fits."""
        metadata = self._metadata(commit)
        return all(field_of(metadata, key) == value for key, value in self._wanted.items())


def _message(metadata: dict[str, Any], channels: builtins.list[str]) -> str:
    """Return the message of a checkpoint's commit: ``loop 3: messages, budget``, without LangGraph's own channels."""
    name = f"{metadata.get('source', 'checkpoint')} {metadata.get('step', '')}".rstrip()
    shown = ", ".join(channel for channel in channels[:_SHOWN] if not channel.startswith(("__", "branch:")))
    return f"{name}: {shown}" if shown else name


def _described(meta: dict[str, Any]) -> Any:
    """Return the metadata in a meta that has the rest of the checkpoint too."""
    return {key: value for key, value in meta.items() if key not in _OWN} | meta[REST].get(SHADOWED, {})


def _metadata_beside(commit: Commit) -> Mapping[str, Any] | None:
    """Return the metadata of a checkpoint, or None if they are not in the meta of the commit."""
    meta = commit.meta
    return _described(meta) if REST in meta else None


def _line(config: RunnableConfig) -> Line:
    configurable = config["configurable"]
    return Line(str(configurable["thread_id"]), configurable.get("checkpoint_ns") or "")


def _config(line: Line, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": line.thread, "checkpoint_ns": line.namespace, "checkpoint_id": id}}


def _marks(key: str, value: Any) -> list[bytes]:
    """Return the bytes, any of which a meta has that holds this value, or none if that cannot be said."""
    if "." in key:
        return []
    equal: list[Any] = [value] if type(value) is str else []
    for convert in (bool, int, float) if type(value) in (int, float, bool) else ():
        with suppress(ValueError, OverflowError):  # one that is infinite, no number, or too large
            if (each := convert(value)) == value:
                equal.append(each)
    encode = InlineEncoder().encode_inline
    return [encode(key, "filter") + encode(each, "filter") for each in equal]
