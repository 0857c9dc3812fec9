"""The bytes that each of many like calls adds to a store, of small values and names of some 20 characters."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.sessions.sample import make, meta, name
from versioned_state import Disk, Repository, Versioned, branch_name


def rows(folder: Path, count: int) -> Iterator[list[str]]:
    """What each of many like calls adds to a store."""
    with Disk(folder) as store:
        repository = Repository(store)
        state = Versioned(repository, branch=branch_name("alice@example.com", "1"))
        state["messages"] = []
        state.commit()
        messages = state.sequence("messages")

        def first(number: int) -> None:
            one = make(repository, number)
            one.commit(meta=meta(number))
            one.close()

        def commit(number: int, *, tag: bool = False) -> None:
            state["turn"] = number
            state.commit(meta={"turn": number}, tag=f"checkpoint/{number:08}" if tag else None)

        def append(number: int) -> None:
            messages.append({"role": "user", "content": f"{number} " + uuid.uuid4().hex * 2})  # 100 bytes
            state.commit()

        commits = list(range(count))
        calls: dict[str, Callable[[int], object]] = {
            "a session's first commit": first,
            "a commit": commit,
            "a commit with a tag": partial(commit, tag=True),
            "100 bytes appended to a sequence, committed": append,
        }
        for title, call in calls.items():
            before = store.size()
            for number in commits:
                call(number)
            yield [title, f"{(store.size() - before) / count:,.0f}"]
        heads = list(repository.log(state.branch, limit=count))
        before = store.size()
        for head in heads:
            repository.notes.update(head, {"score": 0.5})
        yield ["a note of one number", f"{(store.size() - before) / len(heads):,.0f}"]
        before = store.size()
        for number in commits:
            repository.branches.delete(name(number), force=True)
        yield ["a session deleted, until gc", f"{(store.size() - before) / count:,.0f}"]
