"""One run: a plan made from a seed, carried out, and checked."""

from __future__ import annotations

import gc
import json
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tests.simulation import environment, invariants
from tests.simulation.model import Model, Operation
from tests.simulation.operations import AGENT, MAINTENANCE, SERVER, SERVICE, Dice, Refused, Unknown
from tests.simulation.scheduler import Hold, KilledError, Process, Scheduler, StuckError
from tests.simulation.store import WRITE_FAULTS, Connection, Content, Fault, Faults
from versioned_state import Cache, KVStore, Repository, Versioned
from versioned_state.errors import (
    CommitInDoubtError,
    CorruptObjectError,
    CorruptRefError,
    MissingObjectError,
    StateError,
    StorageError,
    StoreBusyError,
    UnfinishedPurgeError,
)
from versioned_state.repository.names.watching import Watch

KINDS = {"agent": AGENT, "maintenance": MAINTENANCE, "service": SERVICE, "server": SERVER}


@dataclass(frozen=True)
class ActorPlan:
    """An actor: its kind, the site (a process that is started again when it was killed) and its operations by name."""

    name: str
    kind: str
    site: int
    operations: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """All that a seed decides before the run."""

    seed: int
    actors: tuple[ActorPlan, ...]
    switch: float | None
    faults: tuple[Fault, ...]
    rate: float
    most: int
    cached: tuple[bool, ...]
    together: bool
    skew: bool
    delay: float
    hot: int
    heat: float
    schedule: int = 0
    slow: int = -1  # the process whose requests are under way for long; -1: all
    holds: tuple[Hold, ...] = ()
    dropped: frozenset[tuple[str, int]] = frozenset()

    def to_json(self) -> str:
        """The plan as a line of ``regressions.jsonl``: it stays the same plan when the generator changes."""
        actors = [
            [
                actor.name,
                actor.kind,
                actor.site,
                ["" if (actor.name, n) in self.dropped else name for n, name in enumerate(actor.operations)],
            ]
            for actor in self.actors
        ]
        apart = ("actors", "holds", "dropped")
        written = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in apart}
        holds = [[hold.fiber, hold.operation, hold.reply, hold.until] for hold in self.holds]
        return json.dumps(written | {"holds": holds, "actors": actors})

    @classmethod
    def from_json(cls, line: str) -> Plan:
        """The plan of such a line."""
        written = json.loads(line)
        written.pop("cause", None)
        actors = tuple(
            ActorPlan(name, kind, site, tuple(operations)) for name, kind, site, operations in written.pop("actors")
        )
        dropped = frozenset((actor.name, n) for actor in actors for n, name in enumerate(actor.operations) if not name)
        holds = tuple(
            Hold(fiber, operation, reply, tuple(until)) for fiber, operation, reply, until in written.pop("holds", ())
        )
        return cls(
            actors=actors,
            holds=holds,
            dropped=dropped,
            faults=tuple(written.pop("faults")),
            cached=tuple(written.pop("cached")),
            **written,
        )

    def describe(self) -> str:
        lines = [
            (
                f"seed {self.seed}: switch {self.switch}, faults {list(self.faults)} rate {self.rate} "
                f"at most {self.most}, delay {self.delay},"
            ),
            f"  hot {self.hot} {self.heat}, cached {list(self.cached)}, together {self.together}, skew {self.skew}",
        ]
        lines += [
            f"  {hold.fiber}: reply {hold.reply} of operation {hold.operation} waits for {' '.join(hold.until)}"
            for hold in self.holds
        ]
        for actor in self.actors:
            names = [name for number, name in enumerate(actor.operations) if (actor.name, number) not in self.dropped]
            lines.append(f"  {actor.name} ({actor.kind} in process {actor.site}): {' '.join(names)}")
        return "\n".join(lines)


_TOPICS: tuple[tuple[tuple[str, int, str, int], ...], ...] = (
    # Each actor: its kind, its process, the operations that it may have, and how many it has at most.
    (("service", 0, "save undo_session collect", 8), ("service", 1, "save retain", 3)),
    (("service", 0, "save undo_session collect", 12),),
    (("service", 0, "save save undo_session collect", 12),),
    (("service", 0, "save save retain several", 6), ("service", 1, "save save several", 8)),
    (("service", 0, "take_turn take_turn undo_turn collect", 8), ("service", 1, "take_turn check_turns", 6)),
    (
        ("agent", 0, "edit refresh commit commit other_handle", 12),
        ("agent", 1, "commit undo reset", 4),
        ("maintenance", 2, "gc prune", 3),
    ),
    (
        ("agent", 0, "fork fork_handle", 2),
        ("agent", 0, "commit other_handle", 4),
        ("maintenance", 1, "purge_branch purge_thoroughly", 1),
    ),
    (
        ("agent", 0, "read fork tag fork_handle", 6),
        ("agent", 0, "commit edit", 10),
        ("maintenance", 1, "purge_branch", 1),
    ),
    (
        ("agent", 0, "read fork tag", 5),
        ("agent", 0, "commit other_handle", 10),
        ("agent", 1, "reset undo commit", 3),
        ("maintenance", 1, "gc", 3),
    ),
    (
        ("agent", 0, "delete gone commit", 3),
        ("maintenance", 1, "gc_elsewhere gc", 3),
        ("maintenance", 2, "purge_path purge_thoroughly", 2),
    ),
    (("server", 0, "request_deletion_of_all request_words", 3), ("server", 0, "request_create request_words", 8)),
)
"""Few operations that meet at the same places: what takes five steps in one order is rare among all operations."""


def _topic(seed: int, rng: random.Random) -> Plan:
    topic = rng.choice(_TOPICS)
    actors = [
        ActorPlan(
            f"{kind}{site}{'abcd'[number]}",
            kind,
            site,
            tuple(rng.choice(names.split()) for _ in range(rng.randrange(1, most + 1))),
        )
        for number, (kind, site, names, most) in enumerate(topic)
    ]
    faults = tuple(kind for kind in WRITE_FAULTS if rng.random() < 0.3) if rng.random() < 0.3 else ()
    sites = len({actor.site for actor in actors})
    return Plan(
        seed, tuple(actors), rng.choice((None, 0.03, 0.1, 0.3)), faults, 0.03, 1, (False,) * sites, rng.random() < 0.5,
        False, rng.choice((0.0, 0.03, 0.1, 0.2)), rng.randrange(3), rng.choice((0.5, 0.8, 0.95)),
    )  # fmt: skip


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    plan = _plan_of(seed)
    return replace(plan, slow=(0, -1, 0, 1)[seed % 4], holds=_holds(plan, random.Random(f"{seed} holds")))


_LENGTHS = {"maintenance": (12, 60, 200), "other": (4, 12, 60)}
"""How many replies an operation gets: few, some, many."""


def _holds(plan: Plan, rng: random.Random) -> tuple[Hold, ...]:
    """Delay one reply until all others have ended, or two replies, of which the second then ends before the first."""
    lengths = {
        f"site{actor.site}" if actor.kind in ("service", "server") else actor.name: 1
        if actor.kind in ("service", "server")
        else len(actor.operations)
        for actor in plan.actors
    }
    fibers = list(lengths)
    rng.shuffle(fibers)
    count = min(rng.choice((0, 0, 1, 2)), len(fibers) - 1)
    return tuple(
        Hold(
            fiber,
            rng.randrange(lengths[fiber]),
            rng.randrange(rng.choice(_LENGTHS["maintenance" if fiber.startswith("maintenance") else "other"])),
            tuple(fibers[at + 1 :]),
        )
        for at, fiber in enumerate(fibers[:count])
    )


def _plan_of(seed: int) -> Plan:
    """The plan of a seed. Each enables some kinds of operation and of fault, and not the others (swarm testing)."""
    rng = random.Random(f"{seed} plan")
    if rng.random() < 0.4:
        return _topic(seed, rng)
    kinds = rng.choice(
        [
            ["agent", "agent"], ["agent", "agent", "maintenance"], ["agent", "agent", "maintenance"],
            ["agent", "maintenance"], ["agent", "maintenance"], ["agent", "agent", "agent"],
            ["agent", "maintenance", "maintenance"], ["agent", "agent", "maintenance", "maintenance"],
            ["service", "service"], ["service", "service"], ["service", "service", "maintenance"],
            ["service", "agent", "maintenance"], ["server"], ["server"], ["server", "server"], ["server", "service"],
            ["server", "maintenance"],
        ]
    )  # fmt: skip
    actors = []
    enabled: dict[str, list[str]] = {}
    for site, kind in enumerate(kinds):
        table = KINDS[kind]
        if kind not in enabled:
            names = sorted(table)
            share = rng.choice((0.15, 0.3, 0.6, 1.0))
            chosen = [name for name in names if rng.random() < share or table[name].always]
            enabled[kind] = [name for name in chosen for _ in range(table[name].weight * rng.choice((1, 1, 1, 4)))]
        names = enabled[kind]
        if not names:
            names = sorted(table)
        several = {"agent": (1, 2, 2), "maintenance": (1,), "service": (1, 2), "server": (2, 3)}[kind]
        length = {"agent": (4, 8, 14), "maintenance": (1, 2, 4), "service": (3, 6, 10), "server": (3, 5)}[kind]
        for number in range(rng.choice(several)):
            operations = tuple(rng.choice(names) for _ in range(rng.choice(length)))
            actors.append(ActorPlan(f"{kind}{site}{'abc'[number]}", kind, site, operations))
    faulty = rng.random() < 0.7
    kinds_of_fault = tuple(kind for kind in WRITE_FAULTS if rng.random() < 0.4)
    return Plan(
        seed,
        tuple(actors),
        rng.choice((None, None, 0.03, 0.1, 0.3, 0.6)),
        kinds_of_fault if faulty else (),
        rng.choice((0.01, 0.03, 0.1)),
        rng.choice((1, 2, 4)),
        tuple(rng.random() < 0.25 for _ in kinds),
        rng.random() < 0.5,
        rng.random() < 0.3,
        rng.choice((0.0, 0.01, 0.03, 0.1)),
        rng.randrange(3),
        rng.choice((0.0, 0.5, 0.9)),
    )


@dataclass(eq=False)
class Site:
    """A process as long as it lives, with what it has in memory."""

    process: Process
    store: KVStore
    repository: Repository | None = None
    handles: dict[tuple[str, str], Versioned] = field(default_factory=dict)
    pending: dict[int, list[str]] = field(default_factory=dict)
    services: Any = None
    watches: dict[str, Watch] = field(default_factory=dict)


class World:
    """A run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        seed = plan.seed if not plan.schedule else f"{plan.seed} {plan.schedule}"
        self.scheduler = Scheduler(random.Random(f"{seed} schedule"), plan.switch, plan.holds)
        self.content = Content()
        self.faults = Faults(random.Random(f"{seed} faults"), plan.faults, plan.rate, plan.most)
        self.model = Model()
        self.sites: dict[int, Site] = {}
        self.old: list[Site] = []
        self.words = 0
        self.clients: dict[str, Any] = {}

    def dice(self, name: str) -> Dice:
        """The random numbers of an operation, the same whatever other operations do."""
        dice = Dice(f"{self.plan.seed} {name}")
        dice.hot, dice.heat = self.plan.hot, self.plan.heat
        return dice

    def word(self) -> str:
        """A word that nobody has written before."""
        self.words += 1
        return f"w{self.words}"

    def site(self, number: int) -> Site:
        """The living process of a number. One that was killed starts again, with nothing in memory."""
        site = self.sites.get(number)
        if site is None or site.process.is_dead:
            if site is not None:
                self.old.append(site)
            skew = (
                random.Random(f"{self.plan.seed} skew {number}").choice((0, 5, -5)) * 1_000_000 if self.plan.skew else 0
            )
            process = Process(f"process {number}", skew)
            process.is_interrupted = all(
                each.kind not in ("service", "server") for each in self.plan.actors if each.site == number
            )
            connection = Connection(self.content, self.scheduler, process, self.faults, together=self.plan.together)
            store: KVStore = connection
            delay = self.plan.delay if self.plan.slow in (-1, number) else 0.0
            connection.delay, connection.pauses = (
                delay,
                random.Random(f"{self.plan.seed} {self.plan.schedule} delays {number} {len(self.old)}"),
            )
            if self.plan.cached[number]:
                store = Cache(connection, max_bytes=1 << 20)
            site = self.sites[number] = Site(process, store)
        return site

    def connection(self) -> Connection:
        """A connection that never fails and never switches, for the checks."""
        return Connection(self.content, self.scheduler, Process("check"), Faults(random.Random(0), (), 0, 0))

    def has_branch(self, branch: str) -> bool:
        """Whether the store has a branch now. No actor makes a request for that."""
        with self.scheduler.paused():
            return branch in Repository(self.connection()).branches

    @property
    def lag(self) -> float:
        """By how much a move may be late: by years, if a clock is set forward while commits are on their way."""
        return 10.0**9 if any("clock" in actor.operations for actor in self.plan.actors) else 60.0

    def is_whole(self) -> bool:
        """Whether nothing is damaged now."""
        with self.scheduler.paused():
            return Repository(self.connection()).fsck().ok

    def run(self) -> None:
        """Prepare, run and check. Failures are in the model."""
        with environment.world(self.scheduler, self.plan.seed):
            invariants.prepare(self)
            for actor in self.plan.actors:
                self.start(actor, 0)
            try:
                self.scheduler.run()
            except StuckError as error:
                self.scheduler.abandon()
                self.model.fail(f"stuck: {error}")
                return
            except BaseException as error:  # noqa: BLE001 - it is the result of the run
                self.model.fail("".join(traceback.format_exception(error)))
                return
            self.scheduler.arrive()
            self.faults.left = 0
            invariants.check(self)

    def start(self, actor: ActorPlan, at: int) -> None:
        """Begin an actor, or go on with it in a new process."""
        site = self.site(actor.site)
        if actor.kind in ("service", "server"):
            from tests.simulation.operations.services import serve

            if site.services is None:
                site.services = "starting"
                actors = [each for each in self.plan.actors if each.site == actor.site]
                self.scheduler.spawn(f"site{actor.site}", site.process, lambda: serve(self, actor.site, site, actors))
            return
        runner = Runner(self, actor, site)
        self.scheduler.spawn(actor.name, site.process, lambda: runner.run(at))


class Runner:
    """Carries out the operations of an actor, one after another."""

    def __init__(self, world: World, actor: ActorPlan, site: Site) -> None:
        self.world, self.actor, self.site = world, actor, site
        self.model = world.model
        self.closed: list[Versioned] = []  # handles that the operation has closed as it failed

    def run(self, at: int) -> None:
        for number in range(at, len(self.actor.operations)):
            if (self.actor.name, number) in self.world.plan.dropped:
                continue
            try:
                self.perform(number)
            except KilledError:
                self.world.start(self.actor, number + 1)
                raise

    def perform(self, number: int) -> None:
        name = self.actor.operations[number]
        self.world.scheduler.begin(self.actor.name, number)
        rng = self.world.dice(f"{self.actor.name} {number}")
        operation = self.begin(name)
        try:
            KINDS[self.actor.kind][name].run(self, rng, operation)
        except BaseException as error:
            self.failed(operation, error)
            if isinstance(error, KilledError):
                raise
        else:
            self.end(operation, "done")

    def begin(self, name: str) -> Operation:
        operation = Operation(self.actor.name, name, "", self.world.scheduler.steps)
        self.model.operations.append(operation)
        operation.outcome = "begun"
        self.closed = []
        self.world.scheduler.note(f"*** {name} begins")
        return operation

    def end(self, operation: Operation, outcome: str) -> None:
        operation.outcome = outcome
        operation.end = self.world.scheduler.steps
        self.world.scheduler.note(f"*** {operation.name} {operation.detail}: {outcome}")

    def failed(self, operation: Operation, error: BaseException) -> None:
        """Record an error, which is a failure of the run unless it may happen."""
        shown = f"{type(error).__name__}: {str(error)[:200]}"
        operation.outcome = shown
        self.world.scheduler.note(f"*** {operation.name} {operation.detail}: {shown}")
        if isinstance(error, (KilledError, Unknown)) or (
            isinstance(error, KeyboardInterrupt) and "injected" in str(error)
        ):
            return
        if self.site.process.is_dead:
            return
        if isinstance(error, BaseExceptionGroup):
            for each in error.exceptions:
                self.failed(operation, each)
            return
        if isinstance(error, MissingObjectError) and self._is_stale() and self.world.is_whole():
            # The state of a handle was taken back and collected meanwhile: the error says to refresh.
            operation.end = self.world.scheduler.steps
            return
        if isinstance(error, (MissingObjectError, CorruptObjectError, CorruptRefError)) or not isinstance(
            error, (StateError, Refused)
        ):
            text = "".join(traceback.format_exception(error)[-14:])
            self.model.fail(f"{operation.name} {operation.detail} of {self.actor.name} raised {shown}\n{text}")
            return
        if isinstance(error, UnfinishedPurgeError) and isinstance(error.__cause__, StoreBusyError):
            return
        if not isinstance(error, StorageError):
            operation.end = self.world.scheduler.steps  # it changed nothing, as its message says
        elif isinstance(error, CommitInDoubtError) or self.world.faults.happened:
            return
        elif "BusyError" not in type(error).__name__:
            self.model.fail(f"{operation.name} of {self.actor.name} raised {shown}, and no request failed")

    def _is_stale(self) -> bool:
        """Whether a handle of this actor is at an old commit of its branch."""
        handles = [
            *self.closed,
            *(handle for (actor, _), handle in self.site.handles.items() if actor == self.actor.name),
        ]
        with self.world.scheduler.paused():
            database = Repository(self.world.connection()).database
            return any(database.ref("branch", handle.branch).head != handle._handle.ref.head for handle in handles)

    # For operations

    @property
    def repository(self) -> Repository:
        site = self.site
        if site.repository is None:
            site.repository = Repository(site.store)
        return site.repository

    def handle(self, branch: str) -> Versioned:
        """This actor's handle on a branch, kept open from one operation to the next."""
        key = self.actor.name, branch
        handle = self.site.handles.get(key)
        if handle is None:
            handle = Versioned(self.repository, branch=branch)
            self.site.handles[key] = handle
        return handle


@dataclass
class Result:
    """The result of a run."""

    plan: Plan
    failures: list[str]
    trace: list[tuple[int, str, str]]
    steps: int
    operations: list[Operation]

    def show(self, steps: int | None = None) -> str:
        lines = [self.plan.describe()]
        shown = self.trace if steps is None else self.trace[-steps:]
        lines += [f"{number:5} {who:22} {what}" for number, who, what in shown]
        lines += ["", *self.failures]
        return "\n".join(lines)


def run(plan: Plan) -> Result:
    """Run a plan within ``environment.simulated()``."""
    world = World(plan)
    world.run()
    scheduler = world.scheduler
    result = Result(plan, world.model.failures, scheduler.trace, scheduler.steps, world.model.operations)
    for site in (*world.sites.values(), *world.old):
        site.process.is_dead = True
    return result


def run_seed(seed: int) -> Result:
    return run(plan_of(seed))


def shrink(plan: Plan, fails: Callable[[Result], bool] = lambda result: bool(result.failures)) -> Plan:
    """A plan with fewer operations and faults that fails too: operations are dropped while a schedule still fails."""

    def attempt(smaller: Plan) -> Plan | None:
        for schedule in (plan.schedule, *range(1, 4)):
            candidate = replace(smaller, schedule=schedule)
            if fails(run(candidate)):
                return candidate
            gc.collect()
        return None

    best = plan
    for hold in plan.holds:
        best = attempt(replace(best, holds=tuple(each for each in best.holds if each != hold))) or best
    for change in ({"faults": ()}, {"cached": tuple(False for _ in plan.cached)}, {"skew": False}, {"together": False}):
        best = attempt(replace(best, **change)) or best
    going = True
    while going:
        going = False
        left = [
            (actor.name, n)
            for actor in best.actors
            for n in range(len(actor.operations))
            if (actor.name, n) not in best.dropped
        ]
        groups = [{each for each in left if each[0] == actor.name} for actor in best.actors] + [{each} for each in left]
        for group in groups:
            if group and not group <= best.dropped:
                smaller = attempt(replace(best, dropped=best.dropped | group))
                if smaller is not None:
                    best, going = smaller, True
    return best
