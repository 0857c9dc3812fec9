"""Calls on one of many sessions, at several numbers of sessions."""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.measure import ms, timed
from benchmarks.servers import Servers
from benchmarks.sessions.requests import pop, request
from benchmarks.sessions.sample import LONG, MESSAGES, PER_USER, POPPED, make, messages, meta, name, status
from versioned_state import Disk, KVStore, Repository, Versioned, branch_name

SIZES: Final = {"disk": (10, 1_000, 100_000), "redis": (10, 1_000, 100_000), "postgres": (10, 1_000, 20_000)}
QUICK: Final = (10, 200)
FILTERED: Final = "u1"
"""The prefix of 11,110 of 100,000 sessions."""

TOGETHER: Final = 100
"""Sessions that are made in one batch."""

ALONE: Final = 50
"""Sessions that are made one by one, to see what that takes."""

AIMS: Final = {
    "request, 1,000 messages": "1/6 of the best other",
    "request, 100,000 messages": "as 1,000",
    "pop of 10,000, cold": "1 ms",
    "one user's sessions": "1 ms",
    "heads by meta": "100 ms for 10,000",
    "delete one": "10 ms",
    "delete one, checked": "10 ms",
    "prune one": "10 ms",
    "expire one": "10 ms",
    "purge one": "10 ms",
    "purge one user's": "10 ms each",
}


class Clock:
    """Sessions are made a minute apart, as they are in life."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def __call__(self) -> int:
        self.now += 60_000_000
        return self.now


def open_store(kind: str, folder: Path, servers: Servers) -> KVStore:
    """A new store of that kind."""
    if kind == "redis":
        from versioned_state.storage import Redis

        return Redis(servers.redis.url, prefix=folder.name)
    if kind == "postgres":
        from versioned_state.storage import Postgres

        return Postgres(servers.postgres.url, schema=folder.name.replace("-", "_"))
    return Disk(folder)


def rows(store: KVStore, size: int) -> Iterator[tuple[str, str]]:
    """The time of each call in a store with that number of sessions."""
    with store:
        repository = Repository(store, clock=Clock())
        before = store.size() if isinstance(store, Disk) else 0
        _fill(repository, range(size - ALONE))
        alone = range(max(size - ALONE, 0), size)
        yield (
            "make one",
            ms(timed(lambda: [make(repository, number).commit(meta=meta(number)) for number in alone]) / len(alone)),
        )
        if isinstance(store, Disk):
            yield "bytes of one", f"{(store.size() - before) / size:,.0f}"
        repository = Repository(store, clock=repository.database.clock)
        for branch, count in (("long", MESSAGES), ("longer", LONG), ("popped", POPPED)):
            state = Versioned(repository, branch=branch)
            state["messages"] = messages(count)
            state.commit()
            state.close()
        middle = branch_name(f"u{size // PER_USER // 2}")
        calls: dict[str, Callable[[], object]] = {
            "request, 1,000 messages": partial(request, repository, "long"),
            "request, 100,000 messages": partial(request, repository, "longer"),
            "pop of 10,000, cold": partial(pop, store),
            "one user's sessions": lambda: list(repository.branches.iter_info(prefix=middle + "/")),
            "page of 20": lambda: list(repository.branches.iter_info(after=middle, limit=20)),
            "newest 20": lambda: list(repository.branches.iter_info(by="changed", limit=20)),
            "one user's newest": lambda: list(
                repository.branches.iter_info(by="changed", prefix=middle + "/", limit=3)
            ),
            "default branch": repository.default_branch,
            "open and commit": partial(_commit, repository, size),
            "commit with a tag": partial(_commit, repository, size, tag=True),
            "note": lambda: repository.notes.update(repository.branches[name(0)], {"score": 1}),
            "nothing to expire": repository.expire,
        }
        yield "a get, for comparison", ms(statistics.median(timed(lambda: store.get("missing")) for _ in range(100)))
        for title, call in calls.items():
            yield title, ms(statistics.median(timed(call) for _ in range(15)))
        every = sum(1 for _ in repository.branches.iter_info(prefix=FILTERED))
        closed = partial(repository.branches.iter_info, prefix=FILTERED, where={"status": "closed"})
        yield "heads by meta", f"{ms(min(timed(lambda: list(closed())) for _ in range(3)))} for {every:,}"
        repeats = 5 if size >= min(QUICK[-1], 100) else 1
        once: dict[str, Callable[[int], object]] = {
            "delete one": lambda n: repository.branches.delete(name(n), force=True),
            "delete one, checked": lambda n: repository.branches.delete(f"fork/{n // 10}"),
            "prune one": lambda n: repository.prune(keep_last=1, branches=name(n)),
            "expire one": partial(_expire, repository),
        }
        for each in range(repeats):
            repository.branches.create(f"fork/{each}", name(2 + 10 * each))
            for _ in range(5):
                _commit(repository, 2 * (3 + 10 * each))
        for number, (title, act) in enumerate(once.items()):
            yield title, ms(statistics.median(timed(partial(act, number + 1 + 10 * each)) for each in range(repeats)))
        if store.max_expected is None:
            # The gc of the night; then a day of some sessions.
            yield "gc", ms(timed(repository.gc))
            for n in range(min(size // 2, 100)):
                _commit(repository, size - 2 * n)
            yield (
                "purge one",
                ms(
                    statistics.median(
                        timed(partial(repository.purge, branches=name(size // 3 + each))) for each in range(repeats)
                    )
                ),
            )
            users = [branch_name(f"u{size // PER_USER // 4 + each}") for each in range(repeats)]
            purges = [timed(partial(repository.purge, branches=f"{user}/*")) for user in users]
            yield "purge one user's", f"{ms(statistics.median(purges))} for {PER_USER}"


def _fill(repository: Repository, numbers: range) -> None:
    """Make sessions, many in a batch: the set-up is not what is measured."""
    for start in range(0, len(numbers), TOGETHER):
        some = numbers[start : start + TOGETHER]
        for wanted in ("closed", "open"):
            chosen = [number for number in some if status(number) == wanted]
            # A batch gives all of its commits one meta; the user is in the name.
            repository.commit_together(
                [make(repository, number) for number in chosen], meta={"user": "u", "status": wanted}
            )


def _commit(repository: Repository, size: int, *, tag: bool = False) -> None:
    state = Versioned(repository, branch=name(size // 2))
    state["turn"] = str(uuid.uuid4())
    state.commit(tag=f"checkpoint/{state['turn']}" if tag else None)


def _expire(repository: Repository, number: int) -> None:
    state = Versioned(repository, branch=name(number), ttl_seconds=1)
    state["last"] = True
    state.commit()
    assert name(number) in repository.expire()
