"""``VersionedStore``: LangGraph's long-term memory, items by namespace and key. Layer: integrations.

An item is a key of the state of one branch, so a batch of writes is one commit, and an item has a history::

    ["users.alice/prefs"] = {"value": {"theme": "dark"}, "created_at": ..., "updated_at": ...}

When an item expires is a record beside the branch, since each read renews it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    validate_op_namespace,
)

from versioned_state.arguments import instance_of
from versioned_state.integrations.adapter import Adapter, Place
from versioned_state.integrations.langgraph.filters import fits
from versioned_state.integrations.langgraph.index import Index, Vectors
from versioned_state.off_loop import off_loop
from versioned_state.repository.committing import OnMoved
from versioned_state.repository.names.branch_name import branch_name
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.state.versioned import Versioned
from versioned_state.values.codec.trust import TrustedModules

_VALUE: Final = "value"
_CREATED: Final = "created_at"
_UPDATED: Final = "updated_at"
_TTL: Final = "ttl_minutes"
_EXPIRES: Final = "expires_at"
_KEY: Final = "key"

_VECTORS: Final = "vectors"
"""The namespace of the state that has the vectors of items, by the same keys."""

_Name = tuple[tuple[str, ...], str]
"""The namespace and the key of an item."""


class VersionedStore(Adapter, BaseStore):  # type: ignore[misc]
    """LangGraph's store of items: a batch of writes is a commit, so items have log, diff, blame and undo.

    To switch::

        from versioned_state.integrations.langgraph import VersionedStore
        store = VersionedStore("./agent-state")  # instead of SqliteStore(...); a folder, or redis://…, postgresql://…
        graph = builder.compile(store=store)

    A store over the ``repository`` of a ``VersionedSaver`` shares its connections. Expired items are never returned;
    ``sweep_ttl`` deletes them. Each call has its coroutine (``aput``, ``asearch``), which runs off the event loop. Safe
    for many threads and processes: of two writers of one item the later one wins.

    Args:
        place: a store or a ``Repository``, or the URL or path of a store.
        branch: the branch that has the items.
        index: the embeddings for ``search(query=)``, as for LangGraph's own stores. Without it, a query is ignored.
        ttl: the default time to live of items, and whether a read renews it.
        classes: modules whose classes items may have in their values.
    """

    supports_ttl = True

    def __init__(
        self,
        place: Place,
        *,
        branch: str = "langgraph-store",
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        classes: TrustedModules = (),
    ) -> None:
        super().__init__(place, classes=classes)
        self.ttl_config = ttl
        self._branch = branch
        self._index = None if index is None else Index(index)

    def branch(self) -> str:
        """Return the name of the branch that has the items."""
        return self._branch

    # Calls

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do some operations: reads first, then all writes in one commit. Returns the result of each."""
        asked = _checked(ops)
        queries = [op.query for op in asked if isinstance(op, SearchOp) and op.query]
        found = self._read(asked, {} if self._index is None else self._index.embed_queries(queries))
        puts = _last_puts(asked)
        if puts:
            self._write(puts, {} if self._index is None else self._index.embed(puts))
        return found

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do ``batch`` off the event loop. Embeddings that are coroutines run on it."""
        asked = _checked(ops)
        queries = [op.query for op in asked if isinstance(op, SearchOp) and op.query]
        vectors = {} if self._index is None else await self._index.aembed_queries(queries)
        found = await off_loop(partial(self._read, asked, vectors))
        puts = _last_puts(asked)
        if puts:
            embedded = {} if self._index is None else await self._index.aembed(puts)
            await off_loop(partial(self._write, puts, embedded))
        return found

    def sweep_ttl(self) -> int:
        """Delete the expired items, and return how many there were.

        Cost: the records of all items with a time to live.
        """
        now = datetime.now(UTC)
        over = {
            record[_KEY]: name
            for name, record in self.repository.records.iter_items(self._branch + "/")
            if record[_EXPIRES] <= now
        }
        if over:
            self._commit(dict.fromkeys(over), {}, f"{len(over)} expired")
            self.repository.records.delete_many(over.values())
        return len(over)

    # Reading

    def _read(self, ops: Sequence[Op], queries: Mapping[str, Sequence[float]]) -> list[Result]:
        if all(isinstance(op, PutOp) for op in ops):
            return [None] * len(ops)
        return self.repository.database.unless_swept(lambda: self._read_at(self._snapshot(), ops, queries))

    def _read_at(
        self, snapshot: Snapshot | None, ops: Sequence[Op], queries: Mapping[str, Sequence[float]]
    ) -> list[Result]:
        results: list[Result] = []
        for op in ops:
            if snapshot is None:
                results.append([] if isinstance(op, SearchOp | ListNamespacesOp) else None)
            elif isinstance(op, GetOp):
                name = op.namespace, op.key
                results.append(self._live(snapshot, [name], renewing=op.refresh_ttl).get(name))
            elif isinstance(op, SearchOp):
                results.append(self._search(snapshot, op, queries))
            else:
                results.append(_list_namespaces(snapshot, op) if isinstance(op, ListNamespacesOp) else None)
        return results

    def _snapshot(self) -> Snapshot | None:
        head = self.repository.database.read_head("branch", self._branch)[1]
        return None if head is None else self.repository.snapshot(head)

    def _live(self, snapshot: Snapshot, names: Iterable[_Name], *, renewing: bool) -> dict[_Name, Item]:
        """Return those of some items that exist and have not expired.

        Cost: one request more if any has a time to live.
        """
        stored = {name: found for name in names if (found := snapshot.get(_key(*name))) is not None}
        expiring = {name: found[_TTL] for name, found in stored.items() if _TTL in found}
        if expiring:
            now = datetime.now(UTC)
            records = self.repository.records.get_many(map(self._record, expiring))
            renewed = []
            for name, minutes in expiring.items():
                record = records.get(self._record(name))
                # The record is written after the commit: without it, the item has just been written, or its writer was
                # killed.
                expires = stored[name][_UPDATED] + timedelta(minutes=minutes) if record is None else record[_EXPIRES]
                if expires <= now:
                    del stored[name]
                else:
                    renewed.append((name, minutes))
            if renewing:
                self._keep_expiry(renewed, now)
        return {name: _item(name, found) for name, found in stored.items()}

    def _search(self, snapshot: Snapshot, op: SearchOp, queries: Mapping[str, Sequence[float]]) -> list[SearchItem]:
        names = list(_names(snapshot, op.namespace_prefix))
        items = [item for item in self._live(snapshot, names, renewing=False).values() if fits(item.value, op.filter)]
        items.sort(key=lambda item: item.updated_at, reverse=True)
        scored: list[tuple[Item, float | None]] = [(item, None) for item in items]
        if op.query in queries:
            vectors = snapshot.namespace(_VECTORS)
            scored = Vectors(
                {(item.namespace, item.key): vectors.get(_key(item.namespace, item.key), {}) for item in items}
            ).ranked(items, queries[op.query])
        page = scored[op.offset : op.offset + op.limit]
        if op.refresh_ttl:
            self._live(snapshot, [(item.namespace, item.key) for item, _ in page], renewing=True)
        return [
            SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at, score)
            for item, score in page
        ]

    # Writing

    def _write(self, puts: Mapping[_Name, PutOp], vectors: Mapping[_Name, dict[str, bytes]]) -> None:
        now = datetime.now(UTC)
        new: dict[str, dict[str, Any] | None] = {}
        for name, op in puts.items():
            item: dict[str, Any] = {_VALUE: dict(op.value or {}), _CREATED: now, _UPDATED: now}
            if op.ttl is not None:
                item[_TTL] = op.ttl
            new[_key(*name)] = None if op.value is None else item
        self._commit(new, {_key(*name): found for name, found in vectors.items()}, _message(puts))
        living = [(name, op.ttl) for name, op in puts.items() if op.ttl is not None and op.value is not None]
        self._keep_expiry(living, now)
        gone = [self._record(name) for name in puts if name not in dict(living)]
        self.repository.records.delete_many(gone)

    def _commit(
        self, new: Mapping[str, dict[str, Any] | None], vectors: Mapping[str, dict[str, bytes]], message: str
    ) -> None:
        """Commit items by their keys in the state, where None deletes one.

        An existing item keeps the time of its creation.
        """

        def commit(state: Versioned) -> None:
            before = self.repository.snapshot(state.head)
            for key, item in new.items():
                _replace(state, before, key, item, vectors.get(key))
            # Refused and begun anew if another process was first: a merge would mix two values of one item.
            state.commit(message, on_moved=OnMoved.REFUSE)

        self.writers.write(self._branch, commit)

    def _keep_expiry(self, names: Iterable[tuple[_Name, float]], now: datetime) -> None:
        self.repository.records.update(
            {
                self._record(name): {_KEY: _key(*name), _EXPIRES: now + timedelta(minutes=minutes)}
                for name, minutes in names
            }
        )

    def _record(self, name: _Name) -> str:
        return f"{self._branch}/{branch_name(_key(*name))}"


def _replace(
    state: Versioned, before: Snapshot, key: str, item: dict[str, Any] | None, vectors: dict[str, bytes] | None
) -> None:
    old = before.get(key)
    if item is None:
        if old is not None:
            del state[key]
    else:
        state[key] = item if old is None else {**item, _CREATED: old[_CREATED]}
    space = state.namespace(_VECTORS)
    if vectors:
        space[key] = vectors
    elif key in space:
        del space[key]


def _checked(ops: Iterable[Op]) -> list[Op]:
    asked = list(ops)
    for op in asked:
        instance_of("an operation", op, GetOp | SearchOp | PutOp | ListNamespacesOp)
        validate_op_namespace(op)
    return asked


def _last_puts(ops: Iterable[Op]) -> dict[_Name, PutOp]:
    """Return the writes by the item that they write: of several for one item, the last one."""
    return {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}


def _message(puts: Mapping[_Name, PutOp]) -> str:
    shown = [f"{'delete' if op.value is None else 'put'} {_key(*name)}" for name, op in puts.items()]
    return shown[0] if len(shown) == 1 else f"{shown[0]} and {len(shown) - 1} more"


def _item(name: _Name, stored: Mapping[str, Any]) -> Item:
    namespace, key = name
    return Item(
        value=stored[_VALUE], key=key, namespace=namespace, created_at=stored[_CREATED], updated_at=stored[_UPDATED]
    )


# Names of items as keys of the state. No label has a dot.


def _key(namespace: Sequence[str], key: str) -> str:
    return f"{_text(namespace)}/{key}"


def _text(namespace: Sequence[str]) -> str:
    return ".".join(label.replace("%", "%25").replace("/", "%2F") for label in namespace)


def _labels(text: str) -> tuple[str, ...]:
    return tuple(label.replace("%2F", "/").replace("%25", "%") for label in text.split("."))


def _names(snapshot: Snapshot, prefix: Sequence[str]) -> Iterator[_Name]:
    """Yield the names of the items in a namespace and those below it."""
    text = _text(prefix)
    for end in ("",) if not prefix else ("/", "."):
        for key in snapshot.iter_keys(text + end):
            namespace, _, rest = key.partition("/")
            yield _labels(namespace), rest


def _list_namespaces(snapshot: Snapshot, op: ListNamespacesOp) -> list[tuple[str, ...]]:
    conditions = op.match_conditions or ()
    fixed = next((each.path for each in conditions if each.match_type == "prefix" and "*" not in each.path), ())
    found = {namespace for namespace, _ in _names(snapshot, fixed)}
    matching = {
        namespace[: op.max_depth] for namespace in found if all(_matches(each, namespace) for each in conditions)
    }
    return sorted(matching)[op.offset : op.offset + op.limit]


def _matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    wanted = tuple(condition.path)
    if len(wanted) > len(namespace):
        return False
    part = namespace[: len(wanted)] if condition.match_type == "prefix" else namespace[len(namespace) - len(wanted) :]
    return all(label in ("*", each) for label, each in zip(wanted, part, strict=True))
