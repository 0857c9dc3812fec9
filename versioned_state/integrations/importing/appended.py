"""``Appended``: threads that are lists, of which each step appends an item to the list on the thread's branch.

Layer: integrations.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from versioned_state.integrations.importing.source import (
    Importer,
    ImportMismatchError,
    Thread,
    ThreadExistsError,
    is_same,
)
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.render import one_line
from versioned_state.state.versioned import Versioned
from versioned_state.storage import KVStore

IMPORTED: Final = "imported_from"
"""The key, in the meta of a commit of an import, of the framework."""

_SHOWN: Final = 72


@dataclass(frozen=True, slots=True)
class Step:
    """A commit: items that are appended, and all other keys of the state.

    Attributes:
        message, meta: of the commit.
    """

    items: tuple[Any, ...]
    message: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)


class Appended(Importer):
    """An importer of lists.

    After a step, the state has the items of all steps so far, and the other keys of that step.
    """

    key: ClassVar[str]
    """The key of the list."""

    _repository: Repository | None = None
    _state: Versioned | None = None

    @abstractmethod
    def steps(self, thread: Thread) -> Iterator[Step]:
        """Yield all steps of a thread."""

    def into(self, store: KVStore) -> Repository:
        """Write to a store from now on."""
        self._repository = Repository(store, pickle="refuse")
        return self._repository

    def missing(self, thread: Thread) -> Iterator[Step]:
        """Yield the steps that the branch does not have.

        It must have been made by an import, and have the first items.
        """
        steps = list(self.steps(thread))
        there = self._there(thread)
        if there is None:
            yield from steps
            return
        if is_same(there, self._end(steps)):
            return
        self._check_imported(thread)
        held = there.get(self.key, [])
        wanted = [item for step in steps for item in step.items]
        at = next(
            (at for at, (one, other) in enumerate(zip(held, wanted, strict=False)) if not is_same(one, other)), None
        )
        if at is not None or len(held) > len(wanted):
            raise self._exists(
                thread, f"its {self.key} differ from number {1 + (len(wanted) if at is None else at)} on"
            )
        count = 0
        for number, step in enumerate(steps):
            count += len(step.items)
            if count > len(held):
                yield step
            elif number == len(steps) - 1:
                yield Step((), step.message, step.keys, step.meta)  # nothing but other keys has changed

    def write(self, thread: Thread, step: Step) -> None:
        """Write a step, in one commit."""
        assert self._repository is not None
        if self._state is None or self._state.branch != thread.branch:
            self._leave()
            self._state = Versioned(self._repository, branch=thread.branch)
        state = self._state
        try:
            for gone in [name for name in state if name != self.key and name not in step.keys]:
                del state[gone]
            state.update(step.keys)
            if step.items:
                state.sequence(self.key).extend(step.items)
            state.commit(
                step.message, meta={IMPORTED: self.framework, **step.meta}, allow_empty=True, on_moved="refuse"
            )
        except BaseException:
            self._leave()
            raise

    def check(self, thread: Thread) -> None:
        """Compare the branch with the source."""
        wanted = self._end(list(self.steps(thread)))
        there = self._there(thread) or {}
        if not is_same(there, wanted):
            held = there.get(self.key, [])
            counts = f"{len(held)} of {len(wanted.get(self.key, []))} {self.key}"
            raise ImportMismatchError(
                self.source, thread.name, thread.branch, f"the store has {counts}, or other content"
            )

    def _end(self, steps: list[Step]) -> dict[str, Any]:
        """Return the state after some steps."""
        items = [item for step in steps for item in step.items]
        keys = dict(steps[-1].keys) if steps else {}
        return {**keys, self.key: items} if items else keys

    def _there(self, thread: Thread) -> dict[str, Any] | None:
        if self._repository is None or thread.branch not in self._repository.branches:
            return None
        return self._repository.snapshot(thread.branch).copy()

    def _check_imported(self, thread: Thread) -> None:
        """Raise ``ThreadExistsError`` if somebody else has committed to the branch."""
        assert self._repository is not None
        if self._repository.commit(thread.branch).meta.get(IMPORTED) != self.framework:
            raise self._exists(thread, "its newest commit is not of an import")

    def _exists(self, thread: Thread, reason: str) -> ThreadExistsError:
        return ThreadExistsError(self.source, thread.name, thread.branch, reason)

    def _leave(self) -> None:
        state, self._state = self._state, None
        if state is not None:
            state.close()

    def close(self) -> None:
        """Close the handle of the last branch."""
        self._leave()


def summary(item: Any) -> str:
    """Return the message of the commit of an item: who it is from, and the beginning of its text."""
    if not isinstance(item, dict):
        return one_line(item, width=_SHOWN, quote=False)
    who = next((item[key] for key in ("role", "author", "type") if isinstance(item.get(key), str)), "item")
    content = item.get("content", item.get("name", item.get("output", "")))
    content = content.get("parts", "") if isinstance(content, dict) else content
    if isinstance(content, list):
        content = " ".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    text = " ".join(content[: 4 * _SHOWN].split()) if isinstance(content, str) else ""
    return f"{one_line(who, width=_SHOWN, quote=False)}: {one_line(text, width=_SHOWN, quote=False)}".rstrip(": ")
