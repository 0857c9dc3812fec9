"""``events``: the events of a state, a namespace or a snapshot, as they are read. Layer: agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Any, ClassVar, TypeVar, overload

from versioned_state.agents.events.entries import EVENTS, Entry, first_name, read_entry, space_of
from versioned_state.agents.events.stamps import stamped, unstamped
from versioned_state.arguments import count, instance_of
from versioned_state.errors import InvalidArgumentError, MissingDependencyError, PickleRefusedError
from versioned_state.repository.names.times import When, instants
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.state.aio.caller import ready
from versioned_state.state.branch import port
from versioned_state.state.live import Live
from versioned_state.state.versioned import Namespace, Versioned
from versioned_state.values.series import Series

E_co = TypeVar("E_co", covariant=True)

Types = type | tuple[type, ...]

Walk = Callable[[bool], Iterator[Any]]
"""The events from the first one on, or from the last one back."""


class Events(Sequence[E_co]):
    """Events in order of time, each read on access. Also an iterator: ``next(events(...))`` returns them one by one.

    Cost: the events that are read. ``len()`` reads all, and a negative index reads from the end.
    """

    def __init__(self, walk: Walk, *, limit: int | None, reverse: bool) -> None:
        self._walk: Walk = walk
        self._limit = limit
        self._reverse = reverse
        self._taken = iter(self)

    def __iter__(self) -> Iterator[E_co]:
        yield from islice(self._walk(self._reverse), self._limit)

    def __next__(self) -> E_co:
        return next(self._taken)

    def __reversed__(self) -> Iterator[E_co]:
        yield from self._walk(not self._reverse) if self._limit is None else reversed(list(self))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None

    @overload
    def __getitem__(self, index: int) -> E_co: ...
    @overload
    def __getitem__(self, index: slice) -> list[E_co]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return list(self)[index]
        walk, steps = (iter(self), index) if index >= 0 else (reversed(self), -1 - index)
        for event in islice(walk, steps, None):
            return event
        raise IndexError("the index is beyond the events")

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, list | Events) else NotImplemented

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "<Events: iterate it for the events in order of time>"

    def _repr_html_(self) -> str:
        from versioned_state.repository.shown.notebook import table
        from versioned_state.repository.views.render import one_line

        shown: Iterator[Any] = iter(self)
        rows = (
            (
                f"{event.timestamp:%Y-%m-%d %H:%M:%S}",
                event.full_namespace,
                (event.commit_hash or "")[:12],
                one_line(unstamped(event)),
            )
            for event in shown
        )
        return table("events", ("time (UTC)", "by", "commit", "event"), rows)


@overload
def events(
    state: Versioned | Namespace | Live | Snapshot,
    *,
    types: type[E_co] | tuple[type[E_co], ...],
    namespace: str | None = None,
    since: When | None = None,
    limit: int | None = None,
    reverse: bool = False,
) -> Events[E_co]: ...
@overload
def events(
    state: Versioned | Namespace | Live | Snapshot,
    *,
    types: None = None,
    namespace: str | None = None,
    since: When | None = None,
    limit: int | None = None,
    reverse: bool = False,
) -> Events[Any]: ...
def events(
    state: Versioned | Namespace | Live | Snapshot,
    *,
    types: Types | None = None,
    namespace: str | None = None,
    since: When | None = None,
    limit: int | None = None,
    reverse: bool = False,
) -> Events[Any]:
    """Return the events that tasks emitted on a state, in order of time, including those of nested calls.

    For a snapshot, the events up to its commit. For a namespace, those of the calls that worked in it or below. Within
    a call, its own events are included. An event is an instance of its own class, equal to the emitted one, with the
    attributes of ``Event``. An event of a class that is not found here is ``Tagged``, and an object that may not be
    unpickled is an ``ObjectInfo``. Cost: the events that are read, and those that the filters leave out.

    Args:
        types: a class or a tuple of classes: only instances of these.
        namespace: only events whose ``full_namespace`` is this one. ``"a/**"`` is that of ``a`` and of all below,
            ``"**"`` of all.
        since: only events of this time or later.
        limit: at most this many, after the filters.
        reverse: newest first.

    Raises:
        InvalidArgumentError: an argument is of the wrong kind.
    """
    limit = None if limit is None else count("limit", limit)
    if types is not None and not all(
        isinstance(cls, type) for cls in (types if isinstance(types, tuple) else (types,))
    ):
        raise InvalidArgumentError(f"types must be a class or a tuple of classes, not {types!r:.80}")
    instance_of("namespace", namespace, str | None, hint="such as 'planner/worker' or 'planner/**'")
    start = "" if since is None else first_name(instants(since)[0])
    read, space = _source(state)
    fits = _filter(types, namespace, space)

    def walk(backwards: bool) -> Iterator[Any]:  # noqa: FBT001 - a Walk
        for entry in read(start, backwards):
            if fits(entry):
                event = stamped(entry.event, entry.stamp)
                yield event

    return Events(walk, limit=limit, reverse=reverse)


_Read = Callable[[str, bool], Iterator[Entry]]


def _source(state: Versioned | Namespace | Live | Snapshot) -> tuple[_Read, str]:
    """Return the function that reads a state's entries from a name on, and the namespace whose calls are wanted."""
    if isinstance(state, Live):
        return _live_entries(state), "\0".join(port.names(state))
    if isinstance(state, Snapshot):
        return _stored_entries(state, {}), space_of(port.prefix(state))
    if isinstance(state, Versioned | Namespace):
        versioned = state.state if isinstance(state, Namespace) else state
        with ready(port.lock(versioned)):
            port.check_open(versioned)
            handle = port.handle(versioned)
            return _stored_entries(handle.repository.snapshot(handle.head), handle.pending.of(EVENTS)), space_of(
                port.prefix(state)
            )
    raise InvalidArgumentError(
        f"events() reads a Versioned, a namespace, a Live or a Snapshot, not {type(state).__name__}",
        hint="open a store with versioned_state.open(url)",
    )


def _live_entries(state: Live) -> _Read:
    entries: dict[str, Entry] = port.live_events(port.root(state))

    def read(start: str, backwards: bool) -> Iterator[Entry]:  # noqa: FBT001 - a _Read
        for name in sorted((name for name in list(entries) if name >= start), reverse=backwards):
            yield entries[name]

    return read


def _stored_entries(snapshot: Snapshot, pending: dict[str, bytes]) -> _Read:
    def read(start: str, backwards: bool) -> Iterator[Entry]:  # noqa: FBT001 - a _Read
        series = snapshot.series(EVENTS)
        cells = series.iter_entries(start, reverse=backwards)
        if pending:
            new = sorted(((name, cell) for name, cell in pending.items() if name >= start), reverse=backwards)
            cells = _once(merge(cells, new, reverse=backwards))
        for name, cell in cells:
            yield read_entry(name, _decode(snapshot, series, cell))

    return read


def _once(cells: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Iterate over the entries without repeats: an entry that an interrupt left pending may be committed already."""
    last = None
    for name, cell in cells:
        if name != last:
            yield name, cell
        last = name


def _decode(snapshot: Snapshot, series: Series, cell: bytes) -> Any:
    try:
        return series.decode(cell)
    except (PickleRefusedError, MissingDependencyError):
        return snapshot.series(EVENTS, describe=True).decode(cell)


def _filter(types: Types | None, namespace: str | None, space: str) -> Callable[[Entry], bool]:
    below = None
    if namespace == "**":
        namespace = None
    if namespace is not None and namespace.endswith("/**"):
        namespace = namespace.removesuffix("/**")
        below = namespace + "/"

    def fits(entry: Entry) -> bool:
        if types is not None and not isinstance(entry.event, types):
            return False
        if namespace is not None:
            named = entry.stamp.full_namespace
            if named != namespace and (below is None or not named.startswith(below)):
                return False
        return not space or entry.space == space or entry.space.startswith(space + "\0")

    return fits
