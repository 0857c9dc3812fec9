"""The one store of a run, and each process's connection to it, which loses requests and replies.

A switch may come before and after each request, and within a listing.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from tests.simulation.scheduler import KilledError, Process, Scheduler
from versioned_state.errors import InvalidArgumentError, StateError, UnknownOutcomeError, UnreachableStoreError
from versioned_state.objects.envelope import unseal, unseal_segment
from versioned_state.storage.backend import check_batch
from versioned_state.storage.base import Batch, KVStore

Fault = Literal[
    "refused",
    "lost",
    "applied",
    "half",
    "late",
    "kill",
    "kill applied",
    "kill half",
    "kill late",
    "interrupt",
    "interrupted",
]
WRITE_FAULTS: tuple[Fault, ...] = (
    "refused", "lost", "applied", "half", "late", "kill", "kill applied", "kill half", "kill late", "interrupt",
    "interrupted",
)  # fmt: skip
READ_FAULTS: tuple[Fault, ...] = ("refused", "kill", "interrupt")


def raw_of(stored: bytes) -> bytes:
    """Return the content of an object, or of a segment of one, as it was before compression."""
    with suppress(ValueError):
        return bytes(unseal(stored))
    with suppress(ValueError):
        return unseal_segment(stored)
    return stored


class Content:
    """What the store has.

    Attributes:
        swept: the keys of the objects that were deleted at some time.
        came_late: the keys that were put by requests whose senders had given up waiting.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.swept: set[str] = set()
        self.came_late: set[str] = set()
        self.mutable: dict[str, bytes] = {}
        self.ordered: list[str] = []

    def get(self, key: str) -> bytes | None:
        return (self.objects if key[:2] == "o/" else self.mutable).get(key)

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        objects: Mapping[str, bytes] | None,
    ) -> bool:
        for key, value in (objects or {}).items():
            self.objects.setdefault(key, value)
        for key, wanted in expected.items():
            if self.mutable.get(key) != wanted:
                return False
        for key, value in puts.items():
            if key not in self.mutable:
                self.ordered.insert(bisect_left(self.ordered, key), key)
            self.mutable[key] = value
        for key in deletes:
            if key[:2] == "o/":
                self.objects.pop(key, None)
                self.swept.add(key)
            elif self.mutable.pop(key, None) is not None:
                del self.ordered[bisect_left(self.ordered, key)]
        return True


class Faults:
    """Which requests fail, and how.

    Args:
        rng: of its own, so that a run with fewer operations fails at the same requests as far as it can.
        kinds: those that happen in this run.
        rate: the probability at each request.
        most: how many happen.
    """

    def __init__(self, rng: random.Random, kinds: Sequence[Fault], rate: float, most: int) -> None:
        self.rng, self.kinds, self.rate, self.left = rng, kinds, rate, most
        self.happened = 0

    def at(self, possible: Sequence[Fault]) -> Fault | None:
        if self.left <= 0 or not self.kinds or self.rng.random() >= self.rate:
            return None
        kind = self.rng.choice(self.kinds)
        if kind not in possible:
            return None
        self.left -= 1
        self.happened += 1
        return kind


class Connection(KVStore):
    """A process's connection to the store."""

    private = True

    def __init__(
        self, content: Content, scheduler: Scheduler, process: Process, faults: Faults, *, together: bool = False
    ) -> None:
        self.content, self.scheduler, self.process, self.faults = content, scheduler, process, faults
        self.sends_together = together
        self.delay = 0.0  # the probability that a request or a reply is under way for long
        self.pauses = random.Random(0)

    def __repr__(self) -> str:
        return f"<Connection of {self.process.name}>"

    def _before(self, what: str) -> None:
        if self.process.is_dead:
            raise KilledError
        self.scheduler.point(what)
        self._pause()

    def _pause(self) -> None:
        if (
            self.delay
            and self.scheduler.current is not None
            and not self.scheduler.quiet
            and self.pauses.random() < self.delay
        ):
            seconds = self.pauses.choice((0.01, 0.05, 0.2, 0.5, 1.0))
            self.scheduler.note(f"    is under way for {seconds} s")
            self.scheduler.block(seconds)

    def _after(self, what: str) -> None:
        self.scheduler.point(what)
        self._pause()
        self.scheduler.replied()

    def _read(self, what: str) -> None:
        self._before(what)
        if self.scheduler.current is None:
            return
        fault = self._fault(READ_FAULTS)
        if fault is not None:
            self._fail(fault, what)

    def _fault(self, possible: Sequence[Fault]) -> Fault | None:
        # Ctrl-C comes to the main thread, and services ask the store on others.
        return self.faults.at(
            possible if self.process.is_interrupted else [each for each in possible if not each.startswith("interrupt")]
        )

    def _fail(self, fault: Fault, what: str) -> None:
        self.scheduler.note(f"--- {fault}: {what}")
        if fault.startswith("kill"):
            self.scheduler.kill(self.process)
            raise KilledError
        if fault.startswith("interrupt"):
            raise KeyboardInterrupt("injected")
        if fault == "refused":
            raise UnreachableStoreError("the store is away for a moment (injected)")
        raise UnknownOutcomeError("the reply was lost (injected)")

    def get(self, key: str) -> bytes | None:
        self._read(f"get {key[:60]}")
        found = self.content.get(key)
        self._after("got")
        return found

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = list(keys)
        self._read(f"get_many {len(wanted)} {[key[:40] for key in wanted[:2]]}")
        found = {}
        for key in wanted:
            value = self.content.get(key)
            if value is not None:
                found[key] = value
        self._after("got")
        return found

    def keys(self, prefix: str = "") -> Iterator[str]:
        self._read(f"keys {prefix}")
        ordered = self.content.ordered
        found = [key for key in ordered[bisect_left(ordered, prefix) :] if key.startswith(prefix)]
        if "o/".startswith(prefix) or prefix.startswith("o/"):
            found += [key for key in self.content.objects if key.startswith(prefix)]
        for number, key in enumerate(found):
            if number % 16 == 15:
                self._before("keys goes on")
            yield key

    def sizes(self, keys: Iterable[str]) -> dict[str, int]:
        return {key: len(value) for key, value in self.get_many(keys).items()}

    def page(self, prefix: str = "", *, after: str | None = None, limit: int, reverse: bool = False) -> list[str]:
        self._read(f"page {prefix} {after}")
        ordered = self.content.ordered
        found = [
            key
            for key in ordered[bisect_left(ordered, prefix) : bisect_right(ordered, prefix + "\U0010ffff")]
            if key.startswith(prefix)
        ]
        if reverse:
            found.reverse()
        if after is not None:
            found = [key for key in found if (key < after if reverse else key > after)]
        self._after("paged")
        return found[:limit]

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        what = _shown(expected, puts, deletes, objects)
        _check(expected, puts, deletes, objects)
        self._before(what)
        done = self._applied(what, expected, puts, tuple(deletes), objects)
        self._after("applied" if done else "a condition did not hold")
        return done

    def apply_each(self, batches: Sequence[Batch]) -> list[bool | StateError]:
        if not self.sends_together:
            return super().apply_each(batches)
        self._before(f"apply_each {len(batches)}")
        outcomes: list[bool | StateError] = []
        for each in batches:
            try:
                what = _shown(each.expected, each.puts, each.deletes, each.objects)
                _check(each.expected, each.puts, each.deletes, each.objects)
                outcomes.append(self._applied(what, each.expected, each.puts, tuple(each.deletes), each.objects))
            except StateError as error:
                outcomes.append(error)
        self._after("applied each")
        return outcomes

    def _applied(
        self,
        what: str,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        objects: Mapping[str, bytes] | None,
    ) -> bool:
        content, scheduler = self.content, self.scheduler
        fault = None if scheduler.current is None else self._fault(WRITE_FAULTS)
        if fault is None:
            return content.apply(expected, puts, deletes, objects)
        if fault in ("applied", "kill applied", "interrupted"):
            content.apply(expected, puts, deletes, objects)
        elif fault in ("half", "kill half"):
            half = dict(list((objects or {}).items())[: self.faults.rng.randrange(len(objects or {}) + 1)])
            content.apply({}, {}, (), half)
        elif fault in ("late", "kill late"):
            arguments: Any = (dict(expected), dict(puts), deletes, dict(objects or {}))

            def arrive() -> None:
                is_done = content.apply(*arguments)
                content.came_late.update(puts if is_done else ())
                scheduler.note(f"--- arrives late: {what}: {is_done}")

            scheduler.late.append((scheduler.steps + self.faults.rng.choice((1, 3, 10, 40, 200)), arrive))
        self._fail(fault, what)
        raise AssertionError

    def close(self) -> None:
        pass


def _check(
    expected: Mapping[str, bytes | None],
    puts: Mapping[str, bytes],
    deletes: Collection[str],
    objects: Mapping[str, bytes] | None,
) -> None:
    """Fail the run for a batch that every real store refuses."""
    try:
        check_batch(expected, puts, deletes, objects or {}, None)
    except InvalidArgumentError as error:
        raise AssertionError(str(error)) from error


def _shown(
    expected: Mapping[str, bytes | None],
    puts: Mapping[str, bytes],
    deletes: Collection[str],
    objects: Mapping[str, bytes] | None,
) -> str:
    parts = [f"if {[key[:40] for key in expected]}"] if expected else []
    parts += [f"put {[key[:40] for key in puts]}"] if puts else []
    parts += [f"delete {len(deletes)} {[key[:40] for key in deletes][:3]}"] if deletes else []
    parts += [f"{len(objects)} objects {[key[:10] for key in objects]}"] if objects else []
    return "apply " + ", ".join(parts)
