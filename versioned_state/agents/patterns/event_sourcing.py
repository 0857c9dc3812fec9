"""``EventSourced``: a value that is computed from a list of events.

Stored copies of it only save replaying. Layer: agents.

::

    events             e0 e1 e2 ── ... ── e97 e98 | e99        a list of the state, which grows at its end
    events.snapshot            the value after e98             made by each commit, or every 128 events if it is large
    value                                         + e99        replayed on access
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, cast
from weakref import ReferenceType, ref

from versioned_state.arguments import check_function, instance_of, integer
from versioned_state.errors import InvalidArgumentError, ReplayMismatchError, StateError
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.views.render import one_line
from versioned_state.repository.views.sequence import BATCH
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.state.aio.caller import ready
from versioned_state.state.branch import port
from versioned_state.state.branch.hooks import Hook
from versioned_state.state.live import Live
from versioned_state.state.versioned import Namespace, Versioned
from versioned_state.values.changes.diff import common_prefix
from versioned_state.values.containers import is_large
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.encode.inline import InlineEncoder
from versioned_state.values.encode.splices import elements_of
from versioned_state.values.keys import path_of, user_key
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.tree import Tree, find

if TYPE_CHECKING:
    from versioned_state.repository.merging.policies import Policy, PolicyName
    from versioned_state.state.branch.branch_handle import BranchHandle
    from versioned_state.values.codec.pickles import PicklePolicy
    from versioned_state.values.trees.nodes import Nodes

V = TypeVar("V")

_EVERY: Final = 128
"""Events after which a value that is a tree of its own is written again. A smaller one is written by every commit."""

_COMMITS: Final = 64
"""Commits in which a merge looks for a snapshot to begin with, before it replays all events."""


class Source(Generic[V]):
    """The definition of a value by events: the function, the value before the first event, and the keys.

    Attributes:
        version: the version of the function. A snapshot of another version is not used.
        prefix: the beginning of the root keys of the state.
        events_key, snapshot_key: root keys.
    """

    def __init__(self, apply: Callable[[V, Any], V], initial: V, version: int, prefix: bytes, key: str) -> None:
        self.apply = apply
        self.version = version
        self.key = key
        self.prefix = prefix
        self.events_key: Final = prefix + user_key(key)
        self.snapshot_key: Final = prefix + user_key(f"{key}.snapshot")
        self._initial = _copied(initial)

    def begin(self) -> Point[V]:
        """Return a copy of the value before the first event, because the function may change its arguments."""
        return Point(0, _copied(self._initial))

    def replay(self, point: Point[V], events: Iterable[Any]) -> Point[V]:
        """Return the value after more events.

        The function may change the value of ``point`` and the events: do not use them afterwards.
        """
        position, value = point
        for event in events:
            value = self.apply(value, event)
            position += 1
        return Point(position, value)

    @property
    def policies(self) -> tuple[tuple[bytes, PolicyName], ...]:
        """The merge policies of the events and the snapshot: all events are kept, and the value is computed again."""
        return (self.events_key, "append"), (self.snapshot_key, "theirs")

    def kept(self, point: Point[V]) -> dict[str, Any]:
        """Return a value in the form in which a commit keeps it."""
        return {"position": point.position, "version": self.version, "value": point.value}

    def stored(self, view: Snapshot) -> Point[V] | None:
        """Return the value that a commit keeps, or None if it has none of this version of the function."""
        kept = view.get(f"{self.key}.snapshot")
        if type(kept) is not dict or kept.keys() != {"position", "version", "value"} or kept["version"] != self.version:
            return None
        return Point(kept["position"], kept["value"]) if type(kept["position"]) is int else None


class Point(NamedTuple, Generic[V]):
    """A value, and the number of events that led to it."""

    position: int
    value: V


class EventSourced(Generic[V]):
    """A value that is computed from its events: ``append`` adds one, and replaying them computes the value.

    ::

        def apply(account, event):
            return {**account, "balance": account["balance"] + event["amount"]}

        account = EventSourced(state, apply, initial={"balance": 0})
        account.append({"amount": 10})
        account.value                       # {"balance": 10}
        state.commit("paid in")

    The events are the list ``state[key]``. Other code should not change it, and ``Bounded`` must not trim it. A commit
    also keeps the value, under ``key.snapshot``, so that replaying begins there. If two handles or branches append
    events, all are kept, those that were committed first come first, and the value is that of all of them.

    Args:
        state: a ``Versioned``, a namespace of one or a ``Live``.
        apply: a function of the value and an event that returns the next value. It must depend only on its arguments,
            and may change them.
        initial: the value before the first event.
        key: the key of the list of events.
        version: the version of ``apply``: increase it when the function changes, so that values of the old version are
            not used.

    Raises:
        InvalidArgumentError: an argument is of the wrong kind.
    """

    def __init__(
        self,
        state: Versioned | Namespace | Live,
        apply: Callable[[V, Any], V],
        *,
        initial: V = cast("V", None),  # noqa: B008 - None, whatever V is
        key: str = "events",
        version: int = 1,
    ) -> None:
        instance_of("state", state, Versioned | Namespace | Live)
        check_function("apply", apply)
        prefix = b"" if isinstance(state, Live) else port.prefix(state)
        self._state = state
        self._source: Source[V] = Source(apply, initial, integer("version", version), prefix, key)
        # the generation, the value, and the last event that led to it
        self._known: tuple[int, Point[V], Any] | None = None
        self._hook: SourceHook | None = None
        if not isinstance(state, Live):
            versioned = state.state if isinstance(state, Namespace) else state
            with ready(port.lock(versioned)):
                port.check_open(versioned)
                self._hook = source_hook(versioned)
                self._hook.add(self._source)

    @property
    def events(self) -> Sequence[Any]:
        """The events, to be read without loading them all. They must not be changed."""
        return self._state.sequence(self._source.key)

    @property
    def value(self) -> V:
        """A copy of the value after all events. Cost: the events since the last access or commit, and the copy."""
        with ready(port.lock(self._state)):
            port.check_open(self._state)
            value: V = _copied(self._now().value)
            return value

    def append(self, event: Any) -> None:
        """Append an event, as it is now. Cost: that of the event, and of ``apply``.

        Raises:
            Exception: the exception that ``apply`` raises, for example for a payment that is not covered. The event was
                not appended then.
        """
        own = _copied(event)
        with ready(port.lock(self._state)):
            port.check_open(self._state)
            now, self._known = self._now(), None  # the function may raise after half of its changes
            after = self._source.replay(now, [_copied(own)])
            self._state.sequence(self._source.key).append(own)
            self._known = self._generation, after, _copied(own)

    @property
    def _generation(self) -> int:
        return 0 if self._hook is None else self._hook.generation

    def _now(self) -> Point[V]:
        """Return the value after all events, which the caller must not pass on."""
        events = self.events
        count = len(events)
        known, self._known = self._known, None
        point = None
        if known is not None and known[0] == self._generation and known[1].position <= count:
            point = known[1]
            if point.position and not _same(events[point.position - 1], known[2]):
                point = None  # there are other events now: those that led to the value were undone
        if point is None:
            point = self._kept(count)
        if point.position < count:
            point = self._source.replay(point, _read(events, point.position, count))
        self._known = self._generation, point, _copied(events[count - 1]) if count else None
        return point

    def _kept(self, count: int) -> Point[V]:
        """Return the committed value if it is of at most ``count`` events, or else the value before the first event."""
        kept = None if self._hook is None else self._hook.kept(self._source)
        return kept if kept is not None and kept.position <= count else self._source.begin()

    def replay(self, until: int | str | Commit | datetime | None = None) -> V:
        """Return the value by replaying the events from the first one on.

        Args:
            until: only that many events, or those of a commit, a revision, or the last commit of the branch at a time.

        Raises:
            UnknownRevisionError: there is no such commit.
            InvalidArgumentError: there are fewer events, or a commit or a time was given for a ``Live`` state.
        """
        events, count = self._until(until)
        return self._source.replay(self._source.begin(), _read(events, 0, count)).value

    def _until(self, until: int | str | Commit | datetime | None) -> tuple[Sequence[Any], int]:
        if until is None or isinstance(until, int):
            events = self.events
            count = len(events) if until is None else integer("until", until)
            if not 0 <= count <= len(events):
                raise InvalidArgumentError(f"until={count}: there are {len(events)} events")
            return events, count
        if isinstance(self._state, Live):
            raise InvalidArgumentError("a Live state has no commits: until is a number of events")
        versioned = self._state.state if isinstance(self._state, Namespace) else self._state
        if isinstance(until, datetime):
            commit = next(versioned.log(first_parent=True, until=until, limit=1), None)
            if commit is None:
                return (), 0
            until = commit
        instance_of("until", until, int | str | Commit | datetime)
        found = versioned.checkout(until).commit
        assert found is not None, "it is a view of a commit"
        assert self._hook is not None, "the state has commits"
        view = self._hook.view(self._source, found)
        events = view.sequence(self._source.key)
        return events, len(events)

    def check(self) -> None:
        """Compare the value that was committed with that of replaying its events from the first one on.

        Cost: reading all events.

        Raises:
            ReplayMismatchError: they differ. It names the first event after which they differ, as far as the commits
                show.
        """
        with ready(port.lock(self._state)):
            port.check_open(self._state)
            kept = None if self._hook is None else self._hook.kept(self._source)
            count = len(self.events)
            if kept is None or self._hook is None:
                return
            if kept.position > count:
                reason = f"it was made of {kept.position} events, and there are {count}"
                raise ReplayMismatchError(
                    self._source.key, None, replayed=self.replay(), kept=kept.value, reason=reason
                )
            replayed = self.replay(kept.position)
            if not _same(replayed, kept.value):
                agreed = self._hook.agreed_events(self._source)
                first = next(
                    (at for at, (a, b) in enumerate(zip(agreed, self.events, strict=False)) if not _same(a, b)),
                    len(agreed),
                )
                index = first if first < kept.position else None  # the events are the same, but the kept value differs
                reason = f"{one_line(replayed)}, not {one_line(kept.value)}"
                raise ReplayMismatchError(self._source.key, index, replayed=replayed, kept=kept.value, reason=reason)

    def __repr__(self) -> str:
        try:
            return f"<EventSourced {self._source.key}: {len(self.events)} events>"
        except StateError:  # the state was closed, or its store fails
            return f"<EventSourced {self._source.key}>"


class SourceHook(Hook):
    """The hook that keeps the values of one handle's sources with its commits.

    Args:
        state: the state of the handle. A weak reference, so that the hook does not keep the state alive.

    Attributes:
        generation: a number that changes if events may have been removed or inserted.
    """

    def __init__(self, state: ReferenceType[Versioned]) -> None:
        self._state = state
        self.sources: dict[bytes, Source[Any]] = {}
        self.generation: int = 0
        self._commits_made = 0

    @property
    def _handle(self) -> BranchHandle:
        state = self._state()
        assert state is not None, "it makes the call"
        return port.handle(state)

    @property
    def _policy(self) -> PicklePolicy:
        return self._handle.repository.database.policy

    def add(self, source: Source[Any]) -> None:
        """Keep the values of a source. Replaces an earlier source of the same events."""
        self.sources[source.events_key] = source
        keys = [(key, policy) for each in self.sources.values() for key, policy in each.policies]
        self.policies: Mapping[str, Policy] = {str(path_of(key)): policy for key, policy in keys}
        self._commits_made = self._handle.commits_made

    def view(self, source: Source[Any], commit: Commit) -> Snapshot:
        """Return the keys around the events of a source at a commit."""
        database = self._handle.repository.database
        return Snapshot(
            database.objects, self._handle.root_of(commit), self._policy, prefix=source.prefix, cache=database.nodes
        )

    def kept(self, source: Source[V]) -> Point[V] | None:
        """Return the value that the head has, in a copy of its own. Cost: O(log n), and the value."""
        return source.stored(self.view(source, self._handle.head))

    def settle(self, nodes: Nodes, before: Tree, after: Tree) -> tuple[Tree, ...]:
        for source in self.sources.values():
            if find(nodes, before, source.events_key) != find(nodes, after, source.events_key):
                after = self._settled(source, nodes, before, after)
        return (after,)

    def _settled(self, source: Source[Any], nodes: Nodes, before: Tree, after: Tree) -> Tree:
        """Return the root with the value of the events in it."""
        view = Snapshot(nodes.reader, after, self._policy, prefix=source.prefix)
        events = elements_of(nodes, find(nodes, after, source.events_key))
        if events is None or not events.count:
            return edit_map(nodes, after, {source.snapshot_key: None})
        point, cell = self._nearest(source, nodes, before, events)
        if cell is None or events.count - point.position >= _EVERY or not is_large(nodes, cell):
            point = source.replay(point, _read(view.sequence(source.key), point.position, events.count))
            cell = Encoder(nodes, self._policy).encode(source.kept(point), None, source.snapshot_key)[0]
        return edit_map(nodes, after, {source.snapshot_key: cell})

    def _nearest(self, source: Source[V], nodes: Nodes, before: Tree, events: Tree) -> tuple[Point[V], bytes | None]:
        """Return the last known value of a prefix of these events, and its cell if the root before has it."""
        for number, root in enumerate(self._roots(before)):
            cell = find(nodes, root, source.snapshot_key)
            known = (
                None
                if cell is None
                else source.stored(Snapshot(nodes.reader, root, self._policy, prefix=source.prefix))
            )
            had = elements_of(nodes, find(nodes, root, source.events_key))
            if known is not None and had is not None and known.position <= common_prefix(nodes, had, events):
                return known, None if number else cell
        return source.begin(), None

    def _roots(self, before: Tree) -> Iterator[Tree]:
        """Iterate over the root before, and over those of the branch's last commits.

        A merge may insert events of others before some of ours.
        """
        yield before
        for commit in islice(self._line(), _COMMITS):
            yield self._handle.root_of(commit)

    def _line(self) -> Iterator[Commit]:
        """Iterate over the commits of the branch by first parents, newest first."""
        return graph.first_parents(self._handle.head, self._handle.repository.database.commits.read)

    def agreed_events(self, source: Source[Any]) -> Sequence[Any]:
        """Return the events of the last commit whose kept value is that of replaying its events, by binary search."""
        head, read = self._handle.head, self._handle.repository.database.commits.read
        agreed: Sequence[Any] = ()
        # the last commit that is known to agree, and one that does not agree, or the uncommitted changes
        low, high = 0, head.height + 1
        while high - low > 1:
            middle = (low + high) // 2
            view = self.view(source, graph.descend(head, middle, read))
            known = source.stored(view)
            events = () if known is None else view.sequence(source.key)[: known.position]
            if known is None or _same(source.replay(source.begin(), map(_copied, events)).value, known.value):
                low, agreed = middle, agreed if known is None else events
            else:
                high = middle
        return agreed

    def forked(self, fork: Versioned) -> None:
        for source in self.sources.values():
            source_hook(fork).add(source)

    def moved(self, before: Commit, after: Commit) -> None:
        made = self._handle.commits_made
        # otherwise it is a commit of only our events
        if made == self._commits_made or after.parent_addresses != (before.address,):
            self.generation += 1
        self._commits_made = made

    def discard(self) -> None:
        self.generation += 1

    def roll_back(self, saved: object) -> None:
        self.generation += 1


def source_hook(state: Versioned) -> SourceHook:
    """Return the hook of a state's sources, a new one if it has none."""
    return port.transactions(state).hook(SourceHook, lambda: SourceHook(ref(state)))


def _read(events: Sequence[Any], start: int, end: int) -> Iterator[Any]:
    """Return copies of some events, read in batches."""
    for first in range(start, end, BATCH):
        yield from map(_copied, events[first : min(first + BATCH, end)])


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - code of its class: a Live state holds any object
        return value


def _same(one: Any, other: Any) -> bool:
    """Return whether two values have the same stored form: 1 is not True.

    Objects that are not data are compared by ``==``.
    """
    try:
        return InlineEncoder().encode_inline(one, "a value") == InlineEncoder().encode_inline(other, "a value")
    except StateError:
        return bool(one == other)
