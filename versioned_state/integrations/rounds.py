"""``RoundLog``: the steps of a program that is observed from outside, each a commit on the branch of its conversation.

Layer: integrations.

::

    messages                 of the outermost agent: all that its model has been given and has answered, oldest first
    system                   its instructions
    tools                    its tool calls: name, id, arguments, result or error
    @<agent>["messages"]     likewise of an agent that it called, and so on

A step whose content is not observed is a commit without changes: who was called, for how long, and how it ended.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from versioned_state.integrations.adapter import Adapter, Place
from versioned_state.repository.committing import OnMoved
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.branch_name import branch_name
from versioned_state.state.sequence import StateSequence
from versioned_state.state.state import State
from versioned_state.state.versioned import Versioned

MESSAGES: Final = "messages"
TOOLS: Final = "tools"
SYSTEM: Final = "system"
NAMESPACE: Final = "rounds"
"""The namespace of the rounds in the state of a program."""

_CONVERSATIONS: Final = 256
"""The conversations whose messages' digests are kept, so that a round need not read what it repeats."""

_NAME: Final = 1000
"""The longest message of a commit: programs choose the names of spans."""

Digests = dict[tuple[str, ...], list[bytes]]
"""Of the messages of each agent in a conversation."""


@dataclass(frozen=True, slots=True)
class Round:
    """One step: a call of a model, of a tool, or of an agent.

    Attributes:
        conversation: rounds of one conversation are on one branch.
        agents: the agents that were called by others, outermost first; empty for the outermost agent.
        name: the message of the commit.
        inputs: all messages that the model was given, or None if it is not a call of a model, or if they are not
            observed.
        outputs: the messages that it answered.
        system: its instructions, or None.
        tool: the record of a tool call, or None.
        meta: describes the step; the meta of the commit.
    """

    conversation: str
    name: str
    agents: tuple[str, ...] = ()
    inputs: Sequence[Any] | None = None
    outputs: Sequence[Any] = ()
    system: Any = None
    tool: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


class RoundLog:
    """Rounds of conversations.

    Safe for many threads and processes: a round whose branch has moved is made again on the new head.

    A model is given the whole conversation at each call; a round compares it with the messages before, and stores what
    is new.

    Args:
        place: a state, whose branch then gets all rounds, in its namespace ``rounds``; or as for ``Adapter``: each
            conversation gets a branch under ``prefix``.
    """

    def __init__(self, place: Versioned | Place, prefix: str) -> None:
        self._state = place if isinstance(place, Versioned) else None
        self._adapter = Adapter(place.repository if isinstance(place, Versioned) else place)
        self.repository: Final = self._adapter.repository
        self._prefix = prefix
        self._guard = Lock()
        # by branch, with the head that they are those of
        self._known: OrderedDict[str, tuple[str, Digests]] = OrderedDict()

    def branch(self, conversation: str) -> str:
        """Return the name of a conversation's branch."""
        return branch_name(self._prefix, conversation) if self._state is None else self._state.branch

    def record(self, step: Round) -> Commit:
        """Make the commit of a round.

        Cost: its new messages. Raises as ``Versioned.commit``, and records nothing then.
        """
        branch = self.branch(step.conversation)

        def commit(state: Versioned) -> Commit:
            digests = self._digests_at(branch, state.head.id)
            self._stage(state, step, digests)
            made = state.commit(step.name[:_NAME], meta=step.meta, allow_empty=True, on_moved=OnMoved.REFUSE)
            self._keep(branch, made.id, digests)
            return made

        return self._adapter.writers.write(branch, commit)

    def close(self) -> None:
        """Close the store, if it was opened here."""
        self._adapter.close()

    def _stage(self, state: Versioned, step: Round, digests: Digests) -> None:
        """Stage a round, and bring the digests up to date."""
        space: State = state if self._state is None else state.namespace(NAMESPACE)
        for agent in step.agents:
            space = space.namespace(agent)
        if step.system is not None and space.get(SYSTEM) != step.system:
            space[SYSTEM] = step.system
        if step.tool is not None:
            _list_in(space, TOOLS).append(dict(step.tool))
        if step.inputs is None and not step.outputs:
            return
        messages = _list_in(space, MESSAGES)
        before = digests.get(step.agents)
        if before is None:
            before = [_digest(each) for each in messages]
        if step.inputs is None:  # only the answers are observed
            given, now = list(step.outputs), [*before, *map(_digest, step.outputs)]
            same = len(before)
        else:
            given = [*step.inputs, *step.outputs]
            now = [_digest(each) for each in given]
            same = next(
                (at for at, (old, new) in enumerate(zip(before, now, strict=False)) if old != new),
                min(len(before), len(now)),
            )
            given = given[same:]
        if same < len(before):  # the program has shortened or rewritten what its model is given
            del messages[same:]
        messages.extend(given)
        digests[step.agents] = now

    def _digests_at(self, branch: str, head: str) -> Digests:
        with self._guard:
            commit, digests = self._known.pop(branch, ("", {}))
        return digests if commit == head else {}  # others have moved the branch

    def _keep(self, branch: str, head: str, digests: Digests) -> None:
        with self._guard:
            self._known[branch] = head, digests
            if len(self._known) > _CONVERSATIONS:
                self._known.popitem(last=False)


def _list_in(space: State, key: str) -> StateSequence:
    if key not in space:
        space[key] = []
    return space.sequence(key)


def _digest(message: Any) -> bytes:
    """Return the digest of a message without its finish reason, which an answer lacks when the model gets it again."""
    if isinstance(message, Mapping):
        message = {key: value for key, value in message.items() if key != "finish_reason"}
    return hashlib.blake2b(json.dumps(message, sort_keys=True, default=repr).encode(), digest_size=16).digest()
