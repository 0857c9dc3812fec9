"""What clients of the services do, within one process or by way of a server that does each write once."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers

from tests.simulation import environment
from tests.simulation.model import Operation, Token
from tests.simulation.operations.agents import SHARED
from tests.simulation.operations.kinds import Dice, Kind, Refused, Unknown, table
from tests.simulation.scheduler import KilledError
from tests.simulation.store import raw_of
from versioned_state import Repository, Versioned
from versioned_state.errors import MissingObjectError, SessionNotFoundError, StateError, StorageError
from versioned_state.objects.keys import REFS, object_key, read_ref_key
from versioned_state.off_loop import off_loop
from versioned_state.repository.refs.ref import parse_ref
from versioned_state.repository.refs.reflog import read_entry
from versioned_state.server.answers import RefusalError, refusal_of
from versioned_state.server.app import Server, _written
from versioned_state.server.exactly_once import Request
from versioned_state.server.limits import Share
from versioned_state.server.operations import OPERATIONS, Call, Services
from versioned_state.server.run import services_over
from versioned_state.server.tokens import Tokens
from versioned_state.services.agent_state import VersionedStateService
from versioned_state.services.memory import VersionedMemoryService
from versioned_state.services.schemas.session import Session
from versioned_state.services.session import VersionedSessionService
from versioned_state.services.session.chat import ChatService
from versioned_state.services.session_history.session_history_service import VersionedSessionHistoryService

if TYPE_CHECKING:
    from tests.simulation.run import ActorPlan, Site, World

USER = "u"
SESSIONS = ("s0", "s1")
BEGUN = {"s0": (1, 2, 3), "s1": (1,)}
"""The rounds that sessions have before the run."""
OPERATION_OF = {each.name: each for each in OPERATIONS}
QUICK = timedelta(0)


class Client:
    """A client of services or of a server. It outlives the process, and repeats a request whose process was killed.

    Attributes:
        at: the number of its operation.
        memo: what it has decided for that operation.
    """

    def __init__(self, world: World, actor: ActorPlan) -> None:
        self.world, self.actor = world, actor
        self.model = world.model
        self.at = 0
        self.memo: dict[str, Any] = {}
        self.operation: Operation | None = None
        self.services: Services
        self.server: Server
        self.repository: Repository

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self.memo:
            self.memo[name] = make()
        return self.memo[name]

    async def run(self) -> None:
        from tests.simulation.run import Runner

        names = self.actor.operations
        kinds = SERVER if self.actor.kind == "server" else SERVICE
        runner = Runner(self.world, self.actor, self.world.site(self.actor.site))
        while self.at < len(names):
            if (self.actor.name, self.at) not in self.world.plan.dropped:
                name = names[self.at]
                rng = self.world.dice(f"{self.actor.name} {self.at}")
                if self.operation is None:
                    self.operation = runner.begin(name)
                operation = self.operation
                try:
                    await kinds[name].run(self, rng, operation)
                except (KilledError, GeneratorExit):
                    raise
                except BaseException as error:  # noqa: BLE001 - it is judged
                    runner.failed(operation, error)
                    if runner.site.process.is_dead:
                        raise KilledError from None
                else:
                    if operation.end == math.inf:
                        runner.end(operation, "done")
                    else:
                        operation.outcome = "done"
            self.at += 1
            self.memo, self.operation = {}, None

    def token(self, place: str) -> Token:
        word = self.world.word()
        token = self.model.tokens[word] = Token(word, place, self.world.scheduler.steps)
        return token


def serve(world: World, number: int, site: Site, actors: list[ActorPlan]) -> None:
    """The main fiber of a process with services: clients are coroutines of its loop."""
    clients = [world.clients.setdefault(actor.name, Client(world, actor)) for actor in actors]

    async def main() -> None:
        if actors[0].kind == "server":
            services = services_over(site.store)
            repository = services.state._place
        else:
            repository = Repository(site.store)
            limit = random.Random(f"{world.plan.seed} rounds {number}").choice((None, 3, 4))
            services = Services(
                state=VersionedStateService(repository, max_rounds=limit),
                history=VersionedSessionHistoryService(repository, create_missing=False),
                opening=VersionedSessionHistoryService(repository, create_missing=True, handles=0),
                memory=VersionedMemoryService(repository),
                sessions=VersionedSessionService(repository, create_missing=False),
                opening_sessions=ChatService(repository, create_missing=True, handles=0),
            )
        assert isinstance(repository, Repository)
        site.repository = repository
        for service in services._all:
            await service.start()
        site.services = services
        server = Server(services, Tokens({}))
        for client in clients:
            client.services, client.server, client.repository = services, server, repository
        await asyncio.gather(*(client.run() for client in clients))
        if server.under_way:
            await asyncio.wait(server.under_way)

    while True:
        try:
            environment.run_coroutine(main())
        except KilledError:
            break
        except (StorageError, KeyboardInterrupt) as error:
            if site.process.is_dead:
                break
            world.scheduler.note(f"*** the services did not start: {error}")
            site.services = None
            continue
        return
    following = world.site(number)
    following.services = None
    world.start(actors[0], 0)


# Services, called directly


def _state(rng: Dice, word: str) -> dict[str, Any]:
    state: dict[str, Any] = {"word": word}
    if rng.random() < 0.7:
        state["L"] = list(rng.place(SHARED[::-1]))
    return state


async def save(client: Client, rng: Dice, operation: Operation) -> None:
    session = rng.place(SESSIONS)
    place = f"state {session}"
    number = rng.choice((None, None, None, 1, 2))
    state = _state(rng, client.world.word())
    operation.detail = f"{session} {number} {state['word']}"
    client.model.rounds.setdefault((session, -1 if number is None else number), []).append(state)
    start = client.world.scheduler.steps
    saved = await client.services.state.save_state(USER, state, session, number)
    operation.detail += f" = {saved}"
    client.model.rounds.setdefault((session, saved), []).append(state)
    client.model.acked_rounds.append((place, saved, state, start))


async def export(client: Client, rng: Dice, operation: Operation) -> None:
    session = rng.place(SESSIONS)
    rounds = await client.services.state.list_rounds(USER, session)
    operation.detail = f"{session} {rounds}"
    await client.services.state.export_state(USER, session, rng.choice([None, *rounds]))


async def retain(client: Client, rng: Dice, operation: Operation) -> None:
    session = rng.place(SESSIONS)
    keep = rng.choice((1, 2, 3))
    operation.detail = f"{session} {keep}"
    client.model.undo(operation, [f"state {session}"])
    client.model.kept.setdefault(f"state {session}", []).append(keep)
    gone = await client.services.state.retain(USER, session, keep_last=keep, gc=rng.random() < 0.6)
    operation.detail += f" {gone} are gone"


async def delete_state(client: Client, rng: Dice, operation: Operation) -> None:
    session = rng.place(SESSIONS)
    operation.detail = session
    client.model.undo(operation, [f"state {session}"])
    await client.services.state.delete_state(USER, session, rng.choice((None, 1, 2)))


async def undo_session(client: Client, rng: Dice, operation: Operation) -> None:
    session = rng.place(SESSIONS)
    operation.detail = session
    branch = client.services.state.branch(USER, session)
    client.model.undo(operation, [f"state {session}"])

    def call() -> None:
        with Versioned(client.repository, branch=branch) as handle:
            handle.undo()

    await off_loop(call)


async def collect(client: Client, rng: Dice, operation: Operation) -> None:
    await off_loop(lambda: client.repository.gc(expire=QUICK, force=True))


async def delete_user(client: Client, rng: Dice, operation: Operation) -> None:
    client.model.undo(
        operation, [f"{kind} {session}" for session in SESSIONS for kind in ("state", "history", "memory")]
    )
    service = rng.choice((client.services.state, client.services.history, client.services.memory))
    await service.delete_user(USER)


async def create(client: Client, rng: Dice, operation: Operation) -> None:
    session = rng.place(SESSIONS)
    operation.detail = session
    await client.services.history.create_session(USER, session)


def _message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


async def append(client: Client, rng: Dice, operation: Operation) -> None:
    session = rng.place(SESSIONS)
    tokens = [client.token(f"history {session}") for _ in range(rng.choice((1, 1, 2)))]
    operation.detail = f"{session} {[token.word for token in tokens]}"
    messages = [_message(token.word) for token in tokens]
    await client.services.history.append_message(Session(id=session, user_id=USER), messages)
    for token in tokens:
        token.acked = True


async def get_session(client: Client, rng: Dice, operation: Operation) -> None:
    session = rng.place(SESSIONS)
    service = rng.choice((client.services.history, client.services.opening))
    found = await service.get_session(USER, session, rng.choice((None, 1)))
    operation.detail = f"{session} {None if found is None else len(found.messages)}"


async def delete_session(client: Client, rng: Dice, operation: Operation) -> None:
    session = rng.place(SESSIONS)
    operation.detail = session
    client.model.undo(operation, [f"history {session}"])
    await client.services.history.delete_session(USER, session)


async def remember(client: Client, rng: Dice, operation: Operation) -> None:
    session = rng.place(SESSIONS)
    token = client.token(f"memory {session}")
    operation.detail = f"{session} {token.word}"
    await client.services.memory.add_memory(USER, [_message(token.word)], session)
    token.acked = True


async def recall(client: Client, rng: Dice, operation: Operation) -> None:
    await client.services.memory.list_memory(USER, {"page_size": 50})
    await client.services.memory.search_memory(USER, [_message("w1")], {"top_k": 2})


async def forget(client: Client, rng: Dice, operation: Operation) -> None:
    session = rng.place(SESSIONS)
    operation.detail = session
    client.model.undo(operation, [f"memory {session}"])
    await client.services.memory.delete_memory(USER, session)


async def take_turn(client: Client, rng: Dice, operation: Operation) -> None:
    """A turn of a session of the session service: its state, messages and memory have the same words, or none has."""
    word = client.world.word()
    operation.detail = f"turn {word}"
    sessions = client.services.sessions
    try:
        async with sessions.turn("turns", rng.place(SESSIONS)) as turn:
            if rng.random() < 0.3:
                await asyncio.sleep(rng.choice((0.001, 0.05)))
            turn.append([_message(word), _message(f"answer to {word}")])
            turn.state[word] = word
            turn.remember(_message(word))
            if rng.random() < 0.2:
                raise AbandonedError
    except AbandonedError:
        await check_turns(client, rng, operation, without=word)
    else:
        assert turn.commit is not None
        await check_turns(client, rng, operation)


class AbandonedError(Exception):
    """A turn was given up within its block."""


async def check_turns(client: Client, rng: Dice, operation: Operation, without: str = "") -> None:
    """Each commit of a session has the same words in its state, its messages and its memory."""
    sessions = client.services.sessions
    for session in SESSIONS:
        for commit in (await sessions.log("turns", session))[:3]:

            def words(session: str = session, commit: Any = commit) -> list[list[str]]:
                snapshot = sessions.repository.snapshot(commit)
                messages = [each["content"][0]["text"] for each in snapshot.namespace("history").get("messages", [])]
                memory = snapshot.namespace("messages").namespace(session).copy().values()
                asked = [each for each in messages if not each.startswith("answer to ")]
                assert messages == [text for word in asked for text in (word, f"answer to {word}")]
                return [sorted(snapshot), sorted(asked), sorted(each["content"][0]["text"] for each in memory)]

            try:
                state, asked, remembered = await off_loop(words)
            except MissingObjectError:
                # Others may have pruned it since it was listed, or since this process last looked where history ends.
                await off_loop(sessions.repository.database.commits.refresh_shallow)
                if commit in await sessions.log("turns", session):
                    raise
                continue
            if not state == asked == remembered or without in state:
                client.model.fail(f"a turn is there in part: {session} {commit.short} {state} {asked} {remembered}")


async def undo_turn(client: Client, rng: Dice, operation: Operation) -> None:
    session = rng.place(SESSIONS)
    operation.detail = session
    await client.services.sessions.undo("turns", session)


def _other(rng: Dice) -> Dice:
    other = Dice(rng.random())
    other.hot, other.heat = rng.hot, rng.heat
    return other


async def several(client: Client, rng: Dice, operation: Operation) -> None:
    """Calls at once: those of one session wait in its lane, and are done together."""
    run = rng.choice((append, save, remember))
    calls = [run(client, _other(rng), operation) for _ in range(rng.choice((2, 3)))]
    for error in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(error, BaseException) and not isinstance(error, SessionNotFoundError):
            raise error


async def pause(client: Client, rng: Dice, operation: Operation) -> None:
    await asyncio.sleep(rng.choice((0.001, 0.05, 1.0)))


async def wait_long(client: Client, rng: Dice, operation: Operation) -> None:
    client.world.scheduler.now += rng.choice((1, 61, 4000)) * 1_000_000


SERVICE: dict[str, Kind] = table(
    (save, 6), export, (retain, 3), (delete_state, 1), undo_session, (collect, 2), delete_user, (create, 2),
    (append, 4), get_session, delete_session, (remember, 2), recall, forget, (several, 3), (take_turn, 4), check_turns,
    undo_turn, pause, wait_long,
    always=("save",),
)  # fmt: skip


# Requests to a server


async def _request(
    client: Client,
    rng: Dice,
    operation: Operation,
    name: str,
    session: str | None,
    *,
    key: str,
    body: Any = None,
    frozen: bool = False,
) -> tuple[str, Any]:
    """A request as a client sends it: again with its key, as long as nobody knows whether it was done.

    Returns "done", "refused" (certainly not done) or "unknown", and the answer. ``frozen``: the operation ends when a
    server has done it, also if the client does not learn of it: a repeated request must not do it once more.
    """
    scheduler = client.world.scheduler
    first = client.once(f"{key} first", lambda: scheduler.now)
    attempts = client.once(f"{key} attempts", lambda: [0, False])  # how many, and whether one may have been done
    chosen = OPERATION_OF[name]
    while attempts[0] < 6:
        age = None if not attempts[0] else int((scheduler.now - first) / 1_000_000) + 1
        attempts[0] += 1
        unknown, attempts[1] = (
            attempts[1],
            True,
        )  # until its outcome is known: the process may die at any request, without an exception here
        call = Call(client.services, USER, session, client.server.off_loop, {}, body, fingerprint=key)
        headers = {"idempotency-key": key} | ({} if age is None else {"idempotency-age": str(age)})
        share = Share(client.server.answers, USER)
        try:
            asked: Any = SimpleNamespace(headers=Headers(headers))
            request = _written(chosen, call, asked.headers)
            if frozen and operation.end < math.inf and not _has_deleted(client.world, request):
                operation.end = math.inf  # a gc with expire=0 has deleted the entry that names the request
            answer = await client.server._call(chosen, call, asked, share)
        except (StateError, RefusalError, KeyError, ValueError, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt):
                scheduler.note(f"*** {name} {key}: interrupted")
                continue
            refusal = refusal_of(error)
            scheduler.note(f"*** {name} {key} attempt {attempts[0]}: {refusal.status} {error!r:.150}")
            if refusal.status == 500:
                raise
            if refusal.status in (503, 504):
                if refusal.status == 503 and not client.world.faults.happened and "Busy" not in type(error).__name__:
                    raise
                attempts[1] = unknown or refusal.status == 504
                await asyncio.sleep(0.01 * attempts[0])
                continue
            attempts[1] = unknown
            return ("unknown" if unknown else "refused"), error
        finally:
            share.free()
        if frozen and operation.end == math.inf and _has_deleted(client.world, request):
            operation.end = scheduler.steps
        if rng.random() < 0.3:
            scheduler.note(f"*** {name} {key} was done, and its answer is lost")
            await asyncio.sleep(rng.choice((0.001, 0.02, 0.2, 1.0)))
            continue
        scheduler.note(f"*** {name} {key} was done")
        return "done", answer
    return "unknown", None


def _has_deleted(world: World, request: Request | None) -> bool:
    """Whether a request has deleted something: the log of a ref names it. A refused batch leaves its entry to nobody.

    A deletion that found nothing may be done by a later attempt, before its client goes on.
    """
    assert request is not None
    content = world.content
    for key, record in content.mutable.items():
        log = parse_ref(*read_ref_key(key), record).log if key.startswith(REFS) else None
        while log is not None and (stored := content.objects.get(object_key(log))) is not None:
            raw = raw_of(stored)
            if request.id.encode() in raw:
                return True
            log = read_entry(log, raw).previous
    return False


async def _write_words(
    client: Client, rng: Dice, operation: Operation, session: str, kind: str, key: str, *, deep: bool
) -> None:
    place = f"{kind} {session}"
    token = client.once(f"{key} token", lambda: client.token(place))
    message = _message(token.word)
    if deep:
        nested: Any = 1
        for _ in range(200):
            nested = [nested]
        message["metadata"] = {"deep": nested}
    name, body = ("append_message", message) if kind == "history" else ("add_memory", [message])
    outcome, _ = await _request(client, rng, operation, name, session, key=key, body=body)
    if outcome == "done":
        token.acked = True
        if deep:
            client.model.fail(f"{name} {key} was refused by its content, and then acknowledged")
    elif outcome == "refused":
        client.model.refused.add(token.word)


def _key(client: Client, name: str = "key") -> str:
    key: str = client.once(name, lambda: f"{client.actor.name}-{client.at}-{name}")
    return key


async def request_words(client: Client, rng: Dice, operation: Operation) -> None:
    session, kind = rng.place(SESSIONS), rng.choice(("history", "history", "memory"))
    key = _key(client)
    operation.detail = f"{kind} {session} {key}"
    await _write_words(client, rng, operation, session, kind, key, deep=rng.random() < 0.15)


async def request_burst(client: Client, rng: Dice, operation: Operation) -> None:
    session, kind = rng.place(SESSIONS), rng.choice(("history", "memory"))
    operation.detail = f"{kind} {session}"
    calls = []
    for number in range(rng.choice((2, 3, 4))):
        key = _key(client, f"key{number}")
        deep = rng.random() < 0.25
        calls.append(_write_words(client, _other(rng), operation, session, kind, key, deep=deep))
    for error in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(error, BaseException):
            raise error


async def request_create(client: Client, rng: Dice, operation: Operation) -> None:
    session = rng.place(SESSIONS)
    operation.detail = session
    await _request(client, rng, operation, "create_session", session, key=_key(client))


async def request_read(client: Client, rng: Dice, operation: Operation) -> None:
    session = rng.place(SESSIONS)
    name = rng.choice(("get_session", "list_rounds", "export_state", "list_sessions"))
    operation.detail = f"{name} {session}"
    call = Call(client.services, USER, session, client.server.off_loop)
    try:
        await OPERATION_OF[name].run(call)
    except RefusalError:
        raise Refused("absent") from None


async def request_deletion(client: Client, rng: Dice, operation: Operation) -> None:
    session = rng.place(SESSIONS)
    name, place = rng.choice((("delete_session", "history"), ("delete_state", "state"), ("delete_memory", "memory")))
    operation.detail = f"{place} {session}"
    client.once("undo", lambda: client.model.undo(operation, [f"{place} {session}"]))
    outcome, _ = await _request(client, rng, operation, name, session, key=_key(client), frozen=True)
    _settle(client, operation, outcome)


async def request_deletion_of_all(client: Client, rng: Dice, operation: Operation) -> None:
    client.once("undo", lambda: client.model.undo(operation, [f"history {session}" for session in SESSIONS]))
    outcome, _ = await _request(client, rng, operation, "delete_user_sessions", None, key=_key(client), frozen=True)
    _settle(client, operation, outcome)


def _settle(client: Client, operation: Operation, outcome: str) -> None:
    if outcome == "unknown" and operation.end == math.inf:
        raise Unknown
    if operation.end == math.inf:
        operation.end = client.world.scheduler.steps


async def request_save(client: Client, rng: Dice, operation: Operation) -> None:
    session = rng.place(SESSIONS)
    key = _key(client)
    state = client.once("state", lambda: _state(rng, client.world.word()))
    operation.detail = f"{session} {state['word']}"
    client.model.rounds.setdefault((session, -1), []).append(state)
    start = client.once("start", lambda: client.world.scheduler.steps)
    outcome, answer = await _request(client, rng, operation, "save_state", session, key=key, body=dict(state))
    if outcome == "done":
        saved = answer["round_id"]
        operation.detail += f" = {saved}"
        client.model.rounds.setdefault((session, saved), []).append(state)
        client.model.acked_rounds.append((f"state {session}", saved, state, start))


SERVER: dict[str, Kind] = table(
    (request_words, 4), (request_burst, 4), (request_create, 2), request_read, (request_deletion, 1),
    (request_deletion_of_all, 2), (request_save, 2), pause, wait_long,
    always=("request_create", "request_words"),
)  # fmt: skip

__all__ = ["SERVER", "SERVICE", "Client", "serve"]
