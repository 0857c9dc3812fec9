"""Conversations and states as commits. Layer: cli."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Final

from versioned_state.cli.importing.conversations import Conversation, fields_in, summarize
from versioned_state.cli.shared.place import NAMESPACES, NOTE
from versioned_state.cli.shared.values import read_forms
from versioned_state.errors import RefExistsError, StateError
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.json_form import json_value
from versioned_state.repository.views.render import one_line
from versioned_state.state.state import State
from versioned_state.state.versioned import Versioned

_NOTHING: Final = object()


class Writer:
    """Writes branches and counts commits. Every counted commit is complete in the store, whatever happens next.

    Args:
        key: the key of the state for the messages.
        append: add to a branch that exists. Without it, a branch that holds the beginning of its conversation gets the
            rest (an import was interrupted, or the file has grown), and any other is refused.
        told: called after every commit.
        message_key: the field of an item that is the message of its commit, if it has it; by default a summary is.
    """

    def __init__(
        self,
        repository: Repository,
        *,
        key: str,
        author: str | None,
        append: bool,
        told: Callable[[], None],
        message_key: str | None = None,
    ) -> None:
        self._repository = repository
        self._key = key
        self._author = author
        self._append = append
        self._told = told
        self._message_key = message_key
        self.branches: list[str] = []
        self.commits: int = 0
        self.skipped: int = 0  # messages that the branch had already
        self.complete: bool = True  # the last branch has its whole conversation
        self._began = 0, 0  # commits written, and height of the last branch, before it

    def check_free(self, branch: str, conversation: Conversation | None = None) -> None:
        """Raise ``RefExistsError`` if a branch exists and is neither appended to nor the conversation's beginning.

        A conversation that comes as a stream, once, is compared when it is written.
        """
        if self._append or branch not in self._repository.branches:
            return
        if conversation is not None and (
            not isinstance(conversation.messages, list)
            or self._skip(branch, conversation, iter(conversation.messages)) is not None
        ):
            return
        raise self._exists(branch)

    def _exists(self, branch: str) -> RefExistsError:
        error = RefExistsError("branch", branch)
        error.hint = (
            "it is not the beginning of this conversation; --append adds to it; "
            "--branch or --branch-prefix names another"
        )
        return error

    def _skip(self, branch: str, conversation: Conversation, messages: Iterator[Any]) -> int | None:
        """Skip the messages that a branch has already, or return None if it is not the beginning of this conversation.

        Cost: reads the branch.
        """
        found = self._repository.snapshot(branch, describe=True).copy()
        held = found.pop(self._key, None)
        fields = _keys_of(conversation.fields, self._key)
        # Keys of a state have an order of their own, so they are compared one by one.
        if (
            type(held) is not list
            or found.keys() != fields.keys()
            or not all(_is_same(found[key], fields[key]) for key in fields)
        ):
            return None
        for message in held:
            if not _is_same(message, next(messages, _NOTHING)):
                return None
        # An empty list may be the beginning of anything.
        return len(held) if held or next(messages, _NOTHING) is _NOTHING else None

    def write_conversation(self, branch: str, conversation: Conversation) -> None:
        """Commit each message, the first one together with the other fields.

        Cost of a commit: the size of its message.
        """
        incoming = iter(conversation.messages)
        skipped = None
        if not self._append and branch in self._repository.branches:
            skipped = self._skip(branch, conversation, incoming)
            if skipped is None:
                raise self._exists(branch)
        with self._begin(branch) as state:
            for _ in range(skipped or 0):
                self.skipped += 1
                self._told()
            key = self._key
            messages = state.setdefault(key, [])
            if not isinstance(messages, list):
                raise StateError(f"the key {key!r} of branch {branch!r} holds a {type(messages).__name__}, not a list")
            if skipped is None:
                state.update(_keys_of(conversation.fields, key))
            is_empty = skipped is None
            for message in incoming:
                is_empty = False
                messages.append(message)
                self._commit(state, self._message(message, summarize(message)))
            if is_empty:
                self._commit(state, "a conversation without messages")
            self.complete = True

    def write_states(self, branch: str, values: Iterable[Any], key: str | None) -> None:
        """Commit each value under ``key``, or without one an object as the whole state and others under ``value``."""
        self.check_free(branch)
        before = WholeState({})
        with self._begin(branch) as state:
            for number, value in enumerate(values):
                whole = (
                    value
                    if type(value) is WholeState
                    else WholeState(value)
                    if key is None and isinstance(value, dict)
                    else None
                )
                if whole is None:
                    state[key or "value"] = value
                else:
                    _put_state(state, whole, before)
                    before = whole
                self._commit(state, self._message(value.keys if type(value) is WholeState else value, f"item {number}"))
                if whole is not None and whole.note:
                    self._repository.notes.update(state.head, whole.note)
            self.complete = True

    def _begin(self, branch: str) -> Versioned:
        """Return the state of a branch, which the caller must close.

        A Ctrl-C that comes while an open state is collected would be lost.
        """
        state = Versioned(self._repository, branch=branch, author=self._author)
        self.branches.append(branch)
        self.complete = False
        self._began = self.commits, state.head.height
        return state

    def recount(self) -> None:
        """Count again from the store: an interrupt may come after a commit is written, and before it is counted."""
        if self.branches:
            commits, height = self._began
            head = self._repository.branches.get(self.branches[-1])
            self.commits = commits + (0 if head is None else head.height - height)
            if head is None:
                self.branches.pop()

    def _message(self, item: Any, summary: str) -> str:
        found = (fields_in(item) or {}).get(self._message_key) if self._message_key else None
        return summary if found in (None, "") else found if type(found) is str else one_line(found)

    def _commit(self, state: Versioned, message: str) -> None:
        # An item that equals the previous one is a commit too.
        state.commit(message, allow_empty=True)
        self.commits += 1
        self._told()


def _is_same(a: Any, b: Any) -> bool:
    """Return whether two values are the same JSON. 1, 1.0 and True are different."""
    try:
        return json.dumps(a) == json.dumps(b)
    except (TypeError, ValueError, RecursionError):
        with suppress(TypeError, ValueError, RecursionError):
            return json.dumps(json_value(a)) == json.dumps(json_value(b))
        return False


@dataclass(frozen=True, slots=True)
class WholeState:
    """The keys of a state, its namespaces by name, and the note of its commit."""

    keys: dict[str, Any]
    namespaces: dict[str, WholeState] = field(default_factory=dict)
    note: dict[str, Any] = field(default_factory=dict)


def _put_state(state: State, whole: WholeState, before: WholeState) -> None:
    """Make a state hold these keys and no others, and these namespaces instead of those of the item before."""
    for gone in [name for name in state if name not in whole.keys]:
        del state[gone]
    state.update(whole.keys)
    for name in whole.namespaces.keys() | before.namespaces.keys():
        nothing = WholeState({})
        _put_state(state.namespace(name), whole.namespaces.get(name, nothing), before.namespaces.get(name, nothing))


def state_from_json(value: Any) -> Any:
    """Return the value that JSON stands for: a whole state as ``vstate export`` writes it, or any other value.

    A state may have keys that begin with ``$``.
    """
    if type(value) is not dict or (len(value) == 1 and next(iter(value)) not in (NAMESPACES, NOTE)):
        return read_forms(value)
    return _whole_state(value)


def _whole_state(value: Any) -> WholeState:
    if type(value) is not dict:
        raise StateError(f"{NAMESPACES} does not hold namespaces by name", hint="--literal takes it as it stands")
    keys = {key: read_forms(part) for key, part in value.items() if key not in (NAMESPACES, NOTE)}
    namespaces, note = value.get(NAMESPACES, {}), read_forms(value.get(NOTE, {}))
    if type(namespaces) is not dict or type(note) is not dict:
        raise StateError(f"{NAMESPACES} and {NOTE} hold objects", hint="--literal takes them as they stand")
    return WholeState(keys, {name: _whole_state(part) for name, part in namespaces.items()}, note)


def _keys_of(fields: dict[str, Any], taken: str) -> dict[str, Any]:
    """Return the fields by keys of the state: one with the key of the messages gets a name that no other field has."""
    if taken not in fields:
        return fields
    free = f"{taken}_field"
    while free in fields:
        free += "_field"
    return {free if name == taken else name: value for name, value in fields.items()}


class BranchNames:
    """Names for branches, all different: a prefix, then a number or the value of a field."""

    def __init__(self, prefix: str, *, name_key: str | None, expected: int | None) -> None:
        stem = clean(prefix.rstrip("-_/"))
        self._prefix = stem and stem + (prefix[-1] if prefix[-1] in "-_" else "/")
        self._name_key = name_key
        self._digits = 6 if expected is None else max(3, len(str(expected)))
        self._given: set[str] = set()

    def name(self, index: int, conversation: Conversation) -> str:
        """Return the name of the index-th conversation, counted from 0.

        Raises:
            StateError: the field is missing, or is not text or a number.
        """
        if self._name_key is None:
            return f"{self._prefix}{index + 1:0{self._digits}}"
        value = conversation.fields.get(self._name_key)
        if not isinstance(value, str | int) or not clean(str(value)):
            raise StateError(
                f"{conversation.where} has no text or number under {self._name_key!r} to name its branch by"
            )
        name = self._prefix + clean(str(value))
        candidates = chain([name], (f"{name}-{again}" for again in count(2)))
        name = next(each for each in candidates if each not in self._given)
        self._given.add(name)
        return name


def clean(text: str) -> str:
    """Return a text as the name of a branch: forbidden characters become hyphens, and a long text is shortened."""
    named = re.sub(r"[^\w./+=,()-]+|\.{2,}|/{2,}", "-", text)
    return named.encode()[:120].decode(errors="ignore").strip("-/.")
