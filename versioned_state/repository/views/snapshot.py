"""A read-only view of a commit, or of any tree. Layer: repository."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import cached_property, partial
from itertools import islice
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar, overload

from versioned_state.arguments import count, instance_of
from versioned_state.errors import InvalidArgumentError, LimitExceededError, ReadOnlyError, UnknownPathError
from versioned_state.objects.store import Overlaid, Reader, Staging
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.views.render import WIDTH
from versioned_state.values.cells import decoded_text
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.containers import container_of, order_keys
from versioned_state.values.decode.decoder import Decoder, plain_values
from versioned_state.values.encode.splices import elements_of
from versioned_state.values.keys import USER, key_range, namespace_prefix, path_of, root_key_of, user_key
from versioned_state.values.paths.lookup import find_part
from versioned_state.values.paths.path import StatePath, as_path
from versioned_state.values.series import Series
from versioned_state.values.trees.nodes import Node, NodeCache, Nodes, Shape
from versioned_state.values.trees.tree import Tree, cells_at, find, items_between, iter_items, iter_items_back, rank

if TYPE_CHECKING:
    from versioned_state.repository.views.diff import Diff
    from versioned_state.repository.views.sequence import SnapshotSequence


M = TypeVar("M")


class Snapshot(Mapping[str, Any]):
    """A state as it was at a commit: a read-only mapping in the order of its keys. Safe for many threads.

    Every read decodes again, so a change to a returned value never shows in the next read. Opening a snapshot reads
    nothing; a key costs one path and its value.

    Attributes:
        tree: the tree of the whole state.
    """

    def __init__(
        self,
        reader: Reader,
        tree: Tree,
        policy: PicklePolicy,
        *,
        commit: Commit | None = None,
        describe: bool = False,
        prefix: bytes = b"",
        cache: NodeCache | None = None,
        spend: Callable[[int], None] | None = None,
    ) -> None:
        self.tree = tree
        self._reader = reader
        self._policy = policy
        self._describe = describe
        self._prefix = prefix
        self._nodes = Nodes(reader, cache=cache)
        self._cache = cache
        self._spend = spend
        self._lock = RLock()
        self._commit = commit

    @cached_property
    def _decoder(self) -> Decoder:
        return Decoder(self._nodes, None if self._describe else self._policy, spend=self._spend)

    @property
    def commit(self) -> Commit | None:
        """The commit that this is a view of."""
        return self._commit

    def __getitem__(self, key: str) -> Any:
        """Return a new copy of the value of a key.

        Raises ``KeyError``, and ``PickleRefusedError`` for an object that may not be unpickled.
        """
        with self._lock:
            cell = self._cell(key)
            if cell is None:
                raise KeyError(key)
            return self._decoder.decode(cell)

    def __contains__(self, key: object) -> bool:
        """Return whether there is a key. Reads no value. Cost: one path."""
        with self._lock:
            try:
                return type(key) is str and self._cell(key) is not None
            except LimitExceededError:
                return False  # no state has a key of that length

    def _cell(self, key: str) -> bytes | None:
        return find(self._nodes, self.tree, self._prefix + user_key(key))

    def __iter__(self) -> Iterator[str]:
        """Yield the keys, in order. No value is read."""
        return self.iter_keys()

    def __reversed__(self) -> Iterator[str]:
        """Yield the keys, from the last one back. No value is read."""
        return self.iter_keys(reverse=True)

    def _ipython_key_completions_(self) -> list[str]:
        """Return the keys that a notebook offers behind ``snapshot["``, at most a thousand."""
        return list(self.iter_keys(limit=1000))

    def iter_keys(
        self,
        prefix: str = "",
        *,
        start: str | None = None,
        end: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[str]:
        """Yield the keys that begin with ``prefix`` and lie in [start, end), in order.

        Cost: two paths, then the leaves with these keys.

        Args:
            start, end: whole keys, which need not be there; the range has the first and not the last.
            reverse: from the last key back.
            limit: the most keys to list.
        """
        low, high = key_range(prefix, start, end)
        most = None if limit is None else count("limit", limit)
        return self._keys(self._prefix + low, self._prefix + high, most, reverse=reverse)

    def _keys(self, start: bytes, end: bytes, limit: int | None, *, reverse: bool) -> Iterator[str]:
        skip = len(self._prefix) + 1
        top = self.tree.top
        if type(top) is Node and not top.level:  # a few keys, in memory
            keys = [key for key, _ in items_between(self._nodes, self.tree, start, end)]
            yield from [decoded_text(key[skip:]) for key in (keys[::-1] if reverse else keys)[:limit]]
            return
        with self._lock:
            low, high = rank(self._nodes, self.tree, start), rank(self._nodes, self.tree, end)
            if limit is not None and limit < high - low:
                low, high = (high - limit, high) if reverse else (low, low + limit)
            items = (iter_items_back if reverse else iter_items)(self._nodes, self.tree, low, high)
        while True:
            with self._lock:
                item = next(items, None)
            if item is None:
                return
            yield decoded_text(item[0][skip:])

    def __len__(self) -> int:
        """Return how many keys there are, without those of namespaces. Cost: two paths."""
        with self._lock:
            low = rank(self._nodes, self.tree, self._prefix + USER)
            high = rank(self._nodes, self.tree, self._prefix + bytes((USER[0] + 1,)))
            return high - low

    def namespace(self, name: str) -> Self:
        """Return the view of a namespace of the same commit."""
        part = copy(self)  # with the same nodes, and the lock that guards them
        part._prefix = self._prefix + namespace_prefix(name)
        return part

    def namespaces(self) -> list[str]:
        """Return the names of the namespaces directly below this one, in order. Empty ones do not exist."""
        names: list[str] = []
        start = self._prefix + b"n"
        with self._lock:
            while True:
                offset = rank(self._nodes, self.tree, start)
                found = next(iter_items(self._nodes, self.tree, offset, offset + 1), None)
                if found is None or not found[0].startswith(self._prefix + b"n"):
                    return names
                name = found[0][len(self._prefix) + 1 :].partition(b"\0")[0]
                names.append(decoded_text(name))
                start = self._prefix + b"n" + name + b"\x01"

    def at(self, path: str | StatePath) -> Any:
        """Return the value at a path, such as ``messages[17].content``.

        Cost: one path down each tree on the way, and the value.

        Raises:
            InvalidPathError: the path does not parse.
            UnknownPathError: nothing is there.
        """
        with self._lock:
            return self._decoder.decode(self.cell_at(path))

    def cell_at(self, path: str | StatePath) -> bytes:
        """Return the stored form of the value at a path. Raises the same."""
        path = as_path(path)
        with self._lock:
            root_key, rest = root_key_of(path)
            cell = find(self._nodes, self.tree, self._prefix + root_key)
            done = path_of(root_key)
            if cell is None:
                raise UnknownPathError(str(done), at=self._where(), hint=self._hint(root_key))
            for step in rest.steps:
                done = StatePath((*done.steps, step))
                part = find_part(self._nodes, cell, step)
                if part is None:
                    raise UnknownPathError(str(done), at=self._where(), hint=self._length(cell))
                cell = part
            return cell

    def _where(self) -> str:
        return self._commit.short if self._commit else ""

    def _hint(self, root_key: bytes) -> str:
        from difflib import get_close_matches

        near = get_close_matches(str(path_of(root_key)), list(islice(self, 1000)), n=3)
        return f"did you mean {', '.join(near)}?" if near else ""

    def _length(self, cell: bytes) -> str:
        """Return in words how long the list in a cell is, or "" for any other value."""
        opened = container_of(self._nodes, cell)
        if opened is None or opened.tree.shape is not Shape.SEQUENCE:
            return ""
        return f"the list has {opened.tree.count:,} element{'' if opened.tree.count == 1 else 's'}"

    def keys_at(self, path: str | StatePath) -> list[Any] | int | None:
        """Return the keys of the dict at a path, in their order, or the length of the list there.

        Returns None for any other value. Reads no value.
        """
        with self._lock:
            opened = container_of(self._nodes, self.cell_at(path))
            if opened is None:
                return None
            if opened.tree.shape is Shape.SEQUENCE:
                return opened.tree.count
            return [self._decoder.decode_key(key) for key in order_keys(self._nodes, opened)]

    @property
    def aio(self) -> SnapshotAio:
        """Reading off the event loop."""
        return SnapshotAio(self)

    def _keep(self, path: str | StatePath) -> Any:
        """Return the value at a path, as ``at`` gives it. What was read stays in memory, for later reads."""
        with self._lock:
            self._nodes.keep_objects()
            return self.at(path)

    def new_nodes(self) -> Nodes:
        """Return nodes of ``tree`` for one thread, for what is built on snapshots.

        Those of the snapshot itself are used under its lock.
        """
        return Nodes(self._reader, cache=self._cache)

    def series(self, key: bytes, *, describe: bool = False) -> Series:
        """Return the engine's series under an engine key, of the whole commit, for the layers above.

        Args:
            describe: show objects as ``ObjectInfo``, as a snapshot of that kind does anyway.
        """
        nodes = self.new_nodes()
        decoder = Decoder(nodes, None if describe or self._describe else self._policy)
        return Series(nodes, find(nodes, self.tree, key), decoder)

    def typed(self, model: type[M]) -> M:
        """Return the snapshot as an instance of a class, to a type checker, as ``State.typed`` does.

        Writing raises ``ReadOnlyError``.
        """
        from versioned_state.values.typed.view import typed_view

        return typed_view(self, model)

    def sequence(self, key: str) -> SnapshotSequence:
        """Return the list under a key, to read without loading it.

        A call costs O(log n) and the elements that it reads. A key that is not there is an empty list, as with
        ``state.sequence``. Raises ``TypeError`` if the key holds something else.
        """
        from versioned_state.repository.views.sequence import SnapshotSequence

        with self._lock:
            cell = self._cell(key)
            tree = elements_of(self._nodes, cell)
            if tree is not None:
                return SnapshotSequence(partial(self._elements, tree), tree.count)
            value = self[key]
            if type(value) is not list:
                raise TypeError(f"sequence() takes the key of a list, not of {type(value).__name__}")
            # A list that is stored as one object: something in it is at two places.
            return SnapshotSequence(lambda picked: self[key][picked.start : picked.stop : picked.step], len(value))

    def _elements(self, tree: Tree, picked: range) -> list[Any]:
        with self._lock:
            return self._decoder.decode_many(cells_at(self._nodes, tree, picked))

    def copy(self) -> dict[str, Any]:
        """Return all keys and values as a dict of your own. What several values need is read together."""
        start, end = self._prefix + USER, self._prefix + bytes((USER[0] + 1,))
        with self._lock:
            items = items_between(self._nodes, self.tree, start, end)
            cells = [cell for _, cell in items]
            # Plain values need no decoder, which takes longer to make than a small state to read.
            plain = plain_values(cells) if self._spend is None else None
            values = self._decoder.decode_many(cells) if plain is None else plain
        return {decoded_text(key[len(start) :]): value for (key, _), value in zip(items, values, strict=True)}

    def preview(self, key: str, *, width: int = WIDTH) -> str:
        """Return the beginning of a value on one line of about ``width`` characters.

        Cost: one path, and what is shown. Unpickles nothing.
        """
        with self._lock:
            cell = self._cell(key)
            if cell is None:
                raise KeyError(key)
            from versioned_state.repository.views.preview import Preview

            return Preview(self._nodes, Decoder(self._nodes)).one_line(cell, width=width)

    def diff(self, other: Snapshot) -> Diff:
        """Return the changes by path from this snapshot to another of the same store, over all keys and namespaces.

        Cost: what differs.

        Raises:
            InvalidArgumentError: ``other`` is not a snapshot, or both are of different stores.
        """
        instance_of("other", other, Snapshot, hint="state.diff(a, b) takes revisions")
        if _store_of(other._reader) is not _store_of(self._reader):
            raise InvalidArgumentError("the snapshots are of different repositories", hint="take both from one")
        from versioned_state.repository.views.diff import Diff

        # What only one of them has, such as a migrated root, is not in the store, and others use the cache.
        cache = self._cache if other._reader is self._reader else None
        return Diff(_both(self._reader, other._reader), self.tree, other.tree, cache=cache)

    def _repr_html_(self) -> str:
        from versioned_state.repository.shown import notebook_values

        return notebook_values.snapshot(f"snapshot {self._where()}", self)

    def __dir__(self) -> list[str]:
        return sorted(set(super().__dir__()) - {"cell_at", "series"})  # for the layers above

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise ReadOnlyError(
            "a snapshot is read-only",
            hint="reset() moves the branch back to it; a branch created at its commit continues there",
        )

    __setitem__: Final = _refuse
    __delitem__: Final = _refuse

    if not TYPE_CHECKING:  # a checker refuses them

        def __getattr__(self, name: str) -> Any:
            # The other methods of a dict say why they are not there. Completion does not offer them.
            if name in {"pop", "popitem", "clear", "update", "setdefault"}:
                return self._refuse
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<Snapshot {self._where() or 'of a state'}>"


def _store_of(reader: Reader) -> Reader:
    """Return the store beneath the objects that only one snapshot has, such as those of a migrated one."""
    return reader.store if isinstance(reader, Staging) else reader


def _both(a: Reader, b: Reader) -> Reader:
    """Return a reader of what two readers over one store have."""
    if a is b:
        return a
    return Overlaid(a, b) if isinstance(a, Staging) else _both(b, a) if isinstance(b, Staging) else a


class SnapshotAio:
    """``aio`` of a snapshot. Raises ``EventLoopError`` where asyncio runs no event loop."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @overload
    async def load(self, path: str | StatePath, /) -> Any: ...
    @overload
    async def load(self, *paths: str | StatePath) -> list[Any]: ...
    async def load(self, *paths: str | StatePath) -> Any:
        """Read the values at paths, and return the value of one path, or a list.

        Later reads of them take it from memory.

        Raises:
            UnknownPathError: nothing is at one of the paths.
        """
        from versioned_state.off_loop import off_loop  # with asyncio, which a program without it does not load

        snapshot = self._snapshot
        values = await off_loop(lambda: [snapshot._keep(path) for path in paths])
        return values[0] if len(paths) == 1 else values
