"""``StateMachine``: a value of a state that changes only by declared transitions, each with an event. Layer: agents.

The event of a transition stays with the handle until a commit has the value. If two handles race for one machine, the
second commit fails unless its first transition begins in the state in which the first handle left the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import ReferenceType, ref

from versioned_state.agents.events.classes import TransitionEvent
from versioned_state.agents.events.entries import EVENTS, prefix_of, read_entry
from versioned_state.agents.events.keeping import keep_event
from versioned_state.arguments import instance_of
from versioned_state.errors import STAGED, InvalidArgumentError, InvalidTransitionError, PickleRefusedError, StateError
from versioned_state.errors.base import UNCHANGED
from versioned_state.state.aio.caller import ready
from versioned_state.state.branch import port
from versioned_state.state.branch.hooks import Hook
from versioned_state.state.live import Live
from versioned_state.state.versioned import Namespace, Versioned
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.keys import path_of, user_key
from versioned_state.values.series import Series, new_entries
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, find

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from versioned_state.repository.history.commit import Commit
    from versioned_state.repository.merging.policies import Policy
    from versioned_state.state.worktree.pending import PendingEntries
    from versioned_state.values.codec.pickles import PicklePolicy

_DROPPING: Final = ("reset()", "rollback()")
"""The moves that drop uncommitted changes."""


class StateMachine:
    """A machine whose state is the value of a key: ``state["order"]`` reads ``"paid"``.

    ::

        order = StateMachine(
            state, "order", initial="new", transitions={("new", "pay"): "paid", ("paid", "ship"): "shipped"}
        )
        order.transition("pay")     # "paid", and a TransitionEvent in events(state)
        order.transition("pay")     # ValueError: Invalid transition: paid + pay

    It works on a ``Versioned``, a namespace of one or a ``Live``, within tasks and outside of them. The value and the
    events of its transitions are committed together, and rolled back together. If another handle has moved the machine
    in the meantime, the commit, or the merge of two branches, raises ``InvalidTransitionError``: as long as only
    ``transition`` sets the key, no machine gets from one state to another but by a transition that was declared and is
    in the events.

    Args:
        state: the state that the machine is kept in.
        key: the key of its value.
        initial: its state while the key does not exist.
        transitions: the state that each event leads to, by state and event. States and events are strings, members of
            Enums or other values that are hashable and can be stored.

    Raises:
        InvalidArgumentError: an argument is of the wrong kind.
    """

    def __init__(
        self,
        state: Versioned | Namespace | Live,
        key: str,
        *,
        initial: Any,
        transitions: Mapping[tuple[Any, Any], Any],
    ) -> None:
        instance_of("state", state, Versioned | Namespace | Live)
        given: Any = transitions
        if not isinstance(given, Mapping) or any(not isinstance(pair, tuple) or len(pair) != 2 for pair in given):
            raise InvalidArgumentError(
                "transitions must be a dict from pairs of state and event to states", hint='{("new", "pay"): "paid"}'
            )
        try:
            hash((initial, *given.values()))
        except TypeError as error:
            raise InvalidArgumentError(f"the states of a machine must be hashable values: {error}") from error
        root_key = user_key(key)
        self._state = state
        self._rules = Rules(key, initial, dict(transitions))
        self._track: Track | None = None
        if not isinstance(state, Live):
            versioned = state.state if isinstance(state, Namespace) else state
            with ready(port.lock(versioned)):
                port.check_open(versioned)
                self._track = transition_hook(versioned).track(port.prefix(state) + root_key, self._rules)

    @property
    def current(self) -> Any:
        """The state that the machine is in: the value of the key, even if it was not declared."""
        return self._state.get(self._rules.key, self._rules.initial)

    @property
    def allowed(self) -> list[Any]:
        """The events that are possible now."""
        return self._rules.allowed(self.current)

    def transition(self, event: Any) -> Any:
        """Make a transition and return the new state. The event is kept, and committed with the value.

        Raises:
            InvalidTransitionError: also ``ValueError``. No transition leads from the current state by this event, or
                the value of the key is not a state of the machine. Nothing was changed.
            UnserializableValueError, PickleRefusedError, LimitExceededError: the event cannot be stored. Nothing was
                changed.
        """
        with ready(port.lock(self._state)):
            port.check_open(self._state)
            key, before = self._rules.key, self.current
            after = self._rules.target(before, event)
            record = TransitionEvent(machine=key, from_state=before, event=event, to_state=after)
            if self._track is None:
                kept = keep_event(self._state, record)
                self._state[key] = after
            else:
                if not self._track.is_at(before):
                    self._track.settle(before)
                # First, because an interrupt may come before the value is set. Then settle() withdraws the transition.
                kept = keep_event(self._state, record, of=self._track.root_key)
                self._track.chain.append(Transition(kept.name, before, event, after))
                self._state[key] = after
        kept.deliver(record)
        return after

    def __repr__(self) -> str:
        try:
            return f"<StateMachine {self._rules.key}: {self.current}>"
        except StateError:  # the state was closed, or its store fails
            return f"<StateMachine {self._rules.key}>"


@dataclass(frozen=True, slots=True)
class Rules:
    """The declaration of a machine: the key of its value, its initial state and its transitions."""

    key: str
    initial: Any
    transitions: dict[tuple[Any, Any], Any]

    def allowed(self, current: Any) -> list[Any]:
        """Return the events that are possible in a state."""
        return [event for source, event in self.transitions if source == current]

    def target(self, before: Any, event: Any) -> Any:
        """Return the state that an event leads to. Raises ``InvalidTransitionError``."""
        try:
            return self.transitions[before, event]
        except (KeyError, TypeError):  # a stored value, or an event, may not be hashable
            states = list(
                dict.fromkeys((self.initial, *(source for source, _ in self.transitions), *self.transitions.values()))
            )
            hint = ""
            if not any(before == each for each in states):
                hint = (
                    f"{before!r:.80} at {self.key!r} is not a state of this machine, "
                    f"whose states are {', '.join(map(str, states))}"
                )
            raise InvalidTransitionError(self.key, before, event, self.allowed(before), hint=hint) from None


class Transition(NamedTuple):
    """A transition that no commit has yet, with the name of the entry of its event."""

    name: str
    before: Any
    event: Any
    after: Any


class Track:
    """The transitions of one machine on one handle that no commit has yet, oldest first.

    Attributes:
        rules: the last declaration of the machine.
        root_key: the root key of the machine's value.
        chain: the transitions. Those at the beginning may have been committed; ``prune`` removes them.
    """

    def __init__(self, pending: PendingEntries, root_key: bytes, rules: Rules) -> None:
        self.rules = rules
        self.root_key = root_key
        self.chain: list[Transition] = []
        self._pending = pending

    def prune(self) -> None:
        """Forget the transitions that are no longer pending, because a commit has them."""
        self.chain = [each for each in self.chain if self._pending.has(EVENTS, each.name)]

    def withdraw(self, start: int = 0) -> None:
        """Withdraw the transitions from this one on, with their events."""
        for each in self.chain[start:]:
            self._pending.discard(EVENTS, each.name)
        del self.chain[start:]

    def is_at(self, current: Any) -> bool:
        """Return whether the last transition led to this value, and no commit has it.

        Avoids a walk over a long chain.
        """
        return bool(self.chain) and self.chain[-1].after == current and self._pending.has(EVENTS, self.chain[-1].name)

    def late(self, current: Any, remains: str) -> InvalidTransitionError:
        """Return the error for transitions that came too late: the machine is in another state by now."""
        first, rules = self.chain[0], self.rules
        hint = f"the machine is in {current} by now, not in {first.before}: discard(), refresh(), and decide again"
        return InvalidTransitionError(
            rules.key, current, first.event, rules.allowed(current), remains=remains, hint=hint
        )

    def settle(self, current: Any) -> None:
        """Withdraw transitions that the value does not reflect: it was reset, or an interrupt prevented its update."""
        known = {each.name for each in self.chain}
        for name in self._pending.names_of(self.root_key):
            if name not in known:  # an interrupt came right after the event was kept
                self._pending.discard(EVENTS, name)
        self.prune()
        for length in range(len(self.chain), 0, -1):
            if self.chain[length - 1].after == current:
                self.withdraw(length)
                return
        if self.chain and self.chain[0].before == current:
            self.withdraw()


class TransitionHook(Hook):
    """The hook that checks the machines of one handle.

    Args:
        state: the state of the handle. A weak reference, so that the hook does not keep the state alive.
    """

    def __init__(self, state: ReferenceType[Versioned]) -> None:
        self._state = state
        self.tracks: dict[bytes, Track] = {}
        self._keys: Collection[bytes] | None = None
        self._is_dropping = False

    @property
    def state(self) -> Versioned:
        """The state of the handle."""
        state = self._state()
        assert state is not None, "it makes the call"
        return state

    def track(self, root_key: bytes, rules: Rules) -> Track:
        """Return the track of a machine. Machines of one key share it."""
        track = self.tracks.get(root_key)
        if track is None:
            track = self.tracks[root_key] = Track(port.handle(self.state).pending, root_key, rules)
            # Both sides may have moved it: the transitions decide whether our value is kept, not the two values.
            self.policies: Mapping[str, Policy] = {**self.policies, str(path_of(root_key)): "theirs"}
        track.rules = rules
        return track

    @property
    def _policy(self) -> PicklePolicy:
        return port.handle(self.state).repository.database.policy

    def _current(self, track: Track) -> Any:
        worktree = port.handle(self.state).worktree
        return worktree.get(track.root_key) if track.root_key in worktree else track.rules.initial

    def _open(self) -> list[Track]:
        """Return the tracks with a transition that no commit has."""
        found = [track for track in self.tracks.values() if track.chain]
        for track in found:
            track.prune()
        return [track for track in found if track.chain]

    def before_commit(self, keys: Collection[bytes] | None) -> None:
        self._keys = keys
        self._is_dropping = False
        for key in port.handle(self.state).pending.described_keys():
            track = self.tracks.get(key)
            if track is not None:
                track.settle(self._current(track))

    def take_in(self, head: Commit) -> None:
        nodes = Nodes(port.handle(self.state).repository.database.objects)
        decoder = Decoder(nodes, self._policy)
        for track in self._open():
            current = self._value(track, decoder, nodes, port.handle(self.state).root_of(head))
            if current != track.chain[0].before:
                raise track.late(current, UNCHANGED)

    def check(self, nodes: Nodes, before: Tree, after: Tree) -> None:
        ours = self._open()
        for track in ours:
            if self._keys is None or track.root_key in self._keys:
                self._check(track, nodes, before, after)
        if len(ours) < len(self.tracks):
            self._check_merged(nodes, before, after)

    def _check_merged(self, nodes: Nodes, before: Tree, after: Tree) -> None:
        """Raise ``InvalidTransitionError`` if another branch's transitions do not begin where ours left the machine."""
        decoder = Decoder(nodes, self._policy)
        chains: dict[bytes, list[TransitionEvent]] = {}
        for name, cell in new_entries(nodes, find(nodes, before, EVENTS), find(nodes, after, EVENTS)):
            try:
                entry = read_entry(name, decoder.decode(cell))
            except PickleRefusedError:  # an event of another kind: states of a machine are rarely objects
                continue
            if isinstance(entry.event, TransitionEvent):
                chains.setdefault(prefix_of(entry.space) + user_key(entry.event.machine), []).append(entry.event)
        for root_key, chain in chains.items():
            track = self.tracks.get(root_key)
            if track is None or track.chain:
                continue
            rules, current = track.rules, self._value(track, decoder, nodes, before)
            hint = (
                f"both branches moved the machine: ours to {current}, "
                f"the other from {chain[0].from_state} to {chain[-1].to_state}"
            )
            for transition in chain:
                if transition.from_state != current:
                    allowed = rules.allowed(current)
                    raise InvalidTransitionError(rules.key, current, transition.event, allowed, hint=hint)
                current = transition.to_state

    def _check(self, track: Track, nodes: Nodes, before: Tree, after: Tree) -> None:
        """Raise ``InvalidTransitionError`` unless the transitions lead from one root's value to the other's."""
        decoder = Decoder(nodes, self._policy)
        rules, start, end = track.rules, *(self._value(track, decoder, nodes, root) for root in (before, after))
        if track.chain[0].before != start:
            # An interrupted commit may have made the first of them.
            log = Series(nodes, find(nodes, before, EVENTS), decoder)
            track.chain = [each for each in track.chain if log.find(each.name) is None]
            if not track.chain:
                return
        first, last = track.chain[0], track.chain[-1]
        if first.before != start:
            raise track.late(start, STAGED)
        if last.after != end:
            hint = (
                f"its transitions lead to {last.after}, and the value of the key is {end}: "
                "only transition() is to change it"
            )
            raise InvalidTransitionError(
                rules.key, last.before, last.event, rules.allowed(last.before), remains=STAGED, hint=hint
            )

    def _value(self, track: Track, decoder: Decoder, nodes: Nodes, root: Tree) -> Any:
        cell = find(nodes, root, track.root_key)
        return track.rules.initial if cell is None else decoder.decode(cell)

    def uncommitted(self) -> Iterable[str]:
        # A transition to another state is a change of the value, which is named anyway.
        return [str(path_of(track.root_key)) for track in self._open() if track.chain[0].before == self._current(track)]

    def refuse(self, call: str, paths: Sequence[str]) -> None:
        self._is_dropping = call in _DROPPING
        if not self._is_dropping:
            super().refuse(call, paths)

    def forked(self, fork: Versioned) -> None:
        for root_key, track in self.tracks.items():
            transition_hook(fork).track(root_key, track.rules)

    def moved(self, before: Commit, after: Commit) -> None:
        if self._is_dropping:
            self.discard()
        self._is_dropping = False
        for track in self.tracks.values():
            track.prune()

    def discard(self) -> None:
        for track in self._open():
            track.withdraw()

    def save(self) -> object:
        return {each.name for track in self._open() for each in track.chain}

    def roll_back(self, saved: object) -> None:
        names = saved if isinstance(saved, set) else set()
        for track in self._open():
            track.withdraw(sum(each.name in names for each in track.chain))


def transition_hook(state: Versioned) -> TransitionHook:
    """Return the hook of a state's machines, a new one if it has none."""
    return port.transactions(state).hook(TransitionHook, lambda: TransitionHook(ref(state)))
