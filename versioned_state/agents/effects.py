"""Effects: calls into the outside world, each carried out once, even after a crash. Layer: agents.

The repository's ledger (``repository/ledger``) records effects. This module decides what to do if the ledger already
has an effect.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, ParamSpec, TypeVar, cast, overload

import msgpack
from blake3 import blake3

from versioned_state.agents.call import current_call, require_call
from versioned_state.agents.tasks.keyed import in_order
from versioned_state.agents.tasks.round import at_once
from versioned_state.arguments import instance_of, one_of
from versioned_state.errors import (
    EffectInDoubtError,
    ErasedResultError,
    IdempotencyConflictError,
    InvalidArgumentError,
    StateError,
    StorageError,
)
from versioned_state.repository.ledger import RUNNING, EffectRecord, Entry, Facts, Ledger, check_effect_key
from versioned_state.repository.maintenance.owner import Owner
from versioned_state.repository.repository import Repository
from versioned_state.state.branch import port
from versioned_state.state.live import Live
from versioned_state.state.state import State
from versioned_state.state.versioned import Namespace, Versioned
from versioned_state.values.encode.inline import InlineEncoder

P = ParamSpec("P")
T = TypeVar("T")

EffectScope = Literal["store", "branch", "call"]

_PREFIXES: Final = ("@branch/", "@call/", "@rollback/")
"""Beginnings of full keys that ``scope`` makes.

No key of the scope "store" begins so, and no two effects share a full key.
"""


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {}
"""The functions that this process has passed as ``on_rollback``, by their names.

A name in a store is never imported.
"""


@dataclass(frozen=True, slots=True)
class Happened:
    """The answer of ``check=`` for an effect that has happened, with its result."""

    result: Any = None


# A type checker checks the arguments of the function in a call without options, by the last of these, and those of a
# functools.partial.
@overload
def effect(
    key: str,
    function: Callable[..., T],
    /,
    *args: Any,
    state: State | Repository | None,
    check: Callable[..., object] | None = None,
    idempotent: bool = False,
    scope: EffectScope = "store",
    not_done_on: type[BaseException] | tuple[type[BaseException], ...] = (),
    arguments: Literal["same", "any"] = "same",
    on_rollback: Callable[..., object] | None = None,
    **kwargs: Any,
) -> T: ...
@overload
def effect(
    key: str, function: Callable[..., T], /, *args: Any, check: Callable[..., object] | None, **kwargs: Any
) -> T: ...
@overload
def effect(key: str, function: Callable[..., T], /, *args: Any, idempotent: bool, **kwargs: Any) -> T: ...
@overload
def effect(key: str, function: Callable[..., T], /, *args: Any, scope: EffectScope, **kwargs: Any) -> T: ...
@overload
def effect(
    key: str,
    function: Callable[..., T],
    /,
    *args: Any,
    not_done_on: type[BaseException] | tuple[type[BaseException], ...],
    **kwargs: Any,
) -> T: ...
@overload
def effect(
    key: str, function: Callable[..., T], /, *args: Any, arguments: Literal["same", "any"], **kwargs: Any
) -> T: ...
@overload
def effect(
    key: str, function: Callable[..., T], /, *args: Any, on_rollback: Callable[..., object] | None, **kwargs: Any
) -> T: ...
@overload
def effect(key: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
def effect(  # type: ignore[misc] # P may have a parameter of one of these names
    key: str,
    function: Callable[..., T],
    /,
    *args: Any,
    state: State | Repository | None = None,
    check: Callable[..., object] | None = None,
    idempotent: bool = False,
    scope: EffectScope = "store",
    not_done_on: type[BaseException] | tuple[type[BaseException], ...] = (),
    arguments: Literal["same", "any"] = "same",
    on_rollback: Callable[..., object] | None = None,
    **kwargs: Any,
) -> T:
    """Call a function that acts on the outside world, once for each key, even after a crash, and return its result.

    The ledger of the store records the key before the call, and the result after it. A later call with the same key,
    from any process, branch or version of the state, returns a copy of the recorded result and does not call the
    function. With other arguments it raises: it is another effect, which needs another key. The record has a hash of
    the arguments, of those that are data. For a coroutine function the result is awaitable. Cost: two small writes and
    one read, or one read for a recorded result.

    If the process dies in between, or the function raises, it is not known whether the effect happened: the effect is
    *in doubt*, until ``check`` or ``settle_effect`` decides, or ``forget_effect`` allows another try. While a call is
    at work, the effect is in doubt for other calls with its key too. These ignore ``check`` and ``idempotent`` if the
    process of the first call is known to run on this machine.

    Args:
        key: the permanent name of the effect: ``f"pay:{order.id}"``.
        function: called with the arguments. If it has a parameter ``idempotency_key`` that they leave out, it gets the
            full key.
        state: a state over the store whose ledger is used, by default that of the running task. The ledger of a
            ``Live`` lasts as long as the ``Live``. In a task without a state, the function is called each time.
        check: called for an effect in doubt with the full key and ``args``, those of a ``functools.partial`` before
            them, to find out whether it happened. False: it did not, and the function is called; True: it did, with the
            result None; ``Happened(result)``: it did, with this result. It may be a coroutine function if the function
            is one.
        idempotent: carry out an effect in doubt again, because the other side recognises a repetition.
        scope: "branch" and "call" put the name of the branch, or the key or id of the call of a task, before the key.
        arguments: "any" does not compare the arguments with those of the effect that has the key.
        on_rollback: a function of a module that takes the effect back, given its result: ``roll_back_effects`` calls
            it, and nothing else.
        not_done_on: exceptions of the function that mean that the effect did not happen: it is then as it was before
            the call.

    Raises:
        IdempotencyConflictError: the key has an effect with other arguments. The function was not called.
        EffectInDoubtError: the effect was begun, and its outcome is not known, or it happened, and its result cannot be
            recorded.
        ErasedResultError: the effect happened, and a purge erased its result.
        InvalidArgumentError: an argument is not valid. NoTaskError: no task runs, and no state was given. The function
            was not called.
        StorageError: the store failed before the function was called.
        PickleRefusedError: the recorded result is an object, and may not be unpickled.

        An exception of the function propagates, with a note if the effect is in doubt.
    """
    instance_of("the function of an effect", function, Callable)
    instance_of("check", check, Callable | None)
    forgets = False
    if state is None:
        running = require_call("effect()", otherwise="pass state=")
        state, forgets = running.state, running.steps is not None and not running.steps.is_kept
    place = _place(state)
    full = place.full_key(key, scope)
    whole = _without_partial(function, args, kwargs)
    compared = None if one_of("arguments", arguments, ("same", "any")) == "any" else _hash_of(*whole)
    facts = Facts(compared, place.branch, place.height, None if on_rollback is None else name_of(on_rollback))
    keyed = _with_key(function, args, kwargs, full)
    call = _Call(full, function, args, keyed, check, whole[0], idempotent, _exceptions(not_done_on), facts)
    is_awaited = _is_coroutine_function(function)
    if _is_coroutine_function(check) and not is_awaited:
        raise InvalidArgumentError("check is a coroutine function, and the function is not")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgumentError("a generator does nothing when it is called, so it cannot be an effect")
    if forgets:
        return function(*args, **call.kwargs)  # without a state, nothing would record the effect
    if is_awaited:
        return cast("T", _Effect(place.ledger, call, _off_loop, _awaited).carry_out())
    return cast("T", at_once(_Effect(place.ledger, call, _directly, _directly).carry_out()))


def name_of(function: Callable[..., object]) -> str:
    """Return a function's name for the ledger, ``module:function``, and keep the function for ``roll_back_effects``.

    Raises ``InvalidArgumentError`` if it has no name, or is a coroutine function.
    """
    instance_of("on_rollback", function, Callable)
    name, module = getattr(function, "__qualname__", ""), getattr(function, "__module__", None)
    if not module or not name or name.endswith("<lambda>"):
        raise InvalidArgumentError(
            f"{function!r:.80} has no name, so it cannot be found later", hint="define a function with def"
        )
    if _is_coroutine_function(function):
        raise InvalidArgumentError(f"on_rollback must be a plain function, and {name} is a coroutine function")
    FUNCTIONS[f"{module}:{name}"] = function
    return f"{module}:{name}"


def carry_out_once(ledger: Ledger, full_key: str, function: Callable[..., T], *args: Any, facts: Facts) -> T:
    """Carry out an effect under a full key. Returns its result, or a copy of the recorded one. Raises as ``effect``."""
    call = _Call(full_key, function, args, _with_key(function, args, {}, full_key), None, (), False, (), facts)
    return cast("T", at_once(_Effect(ledger, call, _directly, _directly).carry_out()))


def effects(state: State | Repository) -> list[EffectRecord]:
    """Return all effects in the ledger of a state's store, of all branches, oldest first. Cost: reads the ledger."""
    return _place(state).ledger.records()


def settle_effect(state: State | Repository, key: str, result: Any = None) -> None:
    """Record that an effect in doubt has happened, with this result. ``key`` is its full key.

    Raises:
        UnknownEffectError: there is no such effect. Nothing was changed.
        InvalidArgumentError: it has a result. Nothing was changed.
        UnserializableValueError: the result cannot be stored. Nothing was changed.
    """
    _place(state).ledger.settle(key, result)


def forget_effect(state: State | Repository, key: str) -> None:
    """Remove an effect from the ledger, done or in doubt, so that the next call carries it out.

    ``key`` is its full key.

    Raises:
        UnknownEffectError: there is no such effect. Nothing was changed.
        EffectInDoubtError: it is being carried out right now. Nothing was changed.
    """
    _place(state).ledger.forget(key)


# The ledger, and the full key


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of an effect: a ledger, and the names that a scope may add to a key (None if there is no such name)."""

    ledger: Ledger
    branch: str | None = None
    call: str | None = None
    height: int | None = None

    def full_key(self, key: str, scope: str) -> str:
        check_effect_key(key)
        if one_of("scope", scope, EffectScope) == "store":
            if key.startswith(_PREFIXES):
                begins = " or ".join(_PREFIXES)
                raise InvalidArgumentError(f"the key {key!r} begins with {begins}, as those of other scopes do")
            return key
        name = self.branch if scope == "branch" else self.call
        if name is None:
            missing = "the state has no branch" if scope == "branch" else "no task is running"
            raise InvalidArgumentError(f"scope={scope!r}: {missing}")
        quoted = name.replace("%", "%25").replace("/", "%2F")
        return f"@{scope}/{quoted}/{key}"


def _place(state: State | Repository) -> _Place:
    call = current_call()
    name = None if call is None else call.key or call.id
    if isinstance(state, Repository):
        return _Place(Ledger(state.database), None, name)
    if isinstance(state, Namespace):
        state = state.state
    if isinstance(state, Versioned):
        return _Place(Ledger(state.repository.database), state.branch, name, state.head.height)
    if isinstance(state, Live):
        return _Place(port.live_ledger(state), "", name)
    raise InvalidArgumentError(
        f"{type(state).__name__} has no ledger of effects", hint="use a Versioned, a Live or a Repository"
    )


# The call


@dataclass(frozen=True, slots=True)
class _Call:
    """The arguments of ``effect``.

    Attributes:
        asked: the arguments that ``check`` gets behind the key: ``args``, after those of a ``functools.partial``.
    """

    key: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    check: Callable[..., Any] | None
    asked: tuple[Any, ...]
    idempotent: bool
    not_done_on: tuple[type[BaseException], ...]
    facts: Facts


Run = Callable[..., Coroutine[Any, Any, Any]]
"""Calls a function with arguments, in its own way."""


class _Effect:
    """One try to carry out an effect.

    Args:
        ask_store: runs a call of the store, and does not return before the call has ended.
        ask_world: runs the function, or ``check``.
    """

    def __init__(self, ledger: Ledger, call: _Call, ask_store: Run, ask_world: Run) -> None:
        self._ledger = ledger
        self._call = call
        self._key = call.key
        self._store = ask_store
        self._world = ask_world

    async def carry_out(self) -> Any:
        owner = Owner()
        try:
            while True:
                found = await self._store(self._ledger.find, self._key)
                self._check_arguments(found)
                if found is not None and found.done:
                    return await self._recorded(found)
                before = found
                if found is not None:
                    happened = await self._find_out(found)
                    if happened is not None:
                        other = await self._store(self._ledger.record, self._key, found, happened.result)
                        return happened.result if other is None else await self._recorded(other)
                    before = None if self._call.check is not None else found
                # An effect that is repeated has been in doubt since its first try.
                draft = self._ledger.draft(
                    self._key, owner, since=None if before is None else before.since, facts=self._call.facts
                )
                if await self._begin(draft, found):
                    return await self._act(draft, before)
                # Another call was first.
        finally:
            owner.end()

    def _check_arguments(self, found: Entry | None) -> None:
        ours = self._call.facts.arguments
        if found is not None and ours is not None and found.facts.arguments not in (None, ours):
            raise IdempotencyConflictError(
                f"effect {self._key!r} was begun with other arguments",
                remains="the function was not called",
                hint='another effect needs another key; arguments="any" does not compare them',
            )

    async def _find_out(self, found: Entry) -> Happened | None:
        """Find out whether an effect in doubt has happened. Raises ``EffectInDoubtError`` if that is not known."""
        call = self._call
        if found.running:
            raise EffectInDoubtError(self._key, found.begun, reason=RUNNING)
        if call.check is not None:
            answer = await self._world(call.check, self._key, *call.asked)
            if isinstance(answer, Happened):
                return answer
            if not answer:
                return None
            if answer is True:
                return Happened()
            raise InvalidArgumentError(
                f"check of effect {self._key!r} returned {answer!r:.80}",
                remains="the effect is in doubt as before",
                hint="it must return False, True, or Happened(result)",
            )
        if call.idempotent:
            return None
        raise EffectInDoubtError(self._key, found.begun)

    async def _begin(self, draft: Entry, found: Entry | None) -> bool:
        try:
            begun: bool = await self._store(self._ledger.begin, self._key, draft, instead_of=found)
        except BaseException as error:
            # The function was not called. The record may have been written: a reply was lost, or an interrupt or a
            # cancellation came.
            with suppress(StorageError):
                await self._write(self._ledger.withdraw, self._key, draft, after=error, restore=found)
            raise
        return begun

    async def _act(self, draft: Entry, before: Entry | None) -> Any:
        call = self._call
        try:
            result = await self._world(call.function, *call.args, **call.kwargs)
        except BaseException as error:
            await self._failed(error, draft, before)
            raise
        if inspect.iscoroutine(result):
            result.close()  # it has not begun
            await self._write(self._ledger.withdraw, self._key, draft, restore=before)
            raise InvalidArgumentError(
                "the function returned a coroutine and is not a coroutine function",
                hint="pass that function itself",
            )
        try:
            other = await self._write(self._ledger.record, self._key, draft, result)
        except StateError as error:
            with suppress(StorageError):
                await self._write(self._ledger.leave, self._key, draft)
            raise EffectInDoubtError(
                self._key,
                draft.begun,
                reason=f"it happened, and its result could not be recorded: {error.what}",
                result=result,
            ) from error
        return result if other is None else await self._recorded(other)

    async def _failed(self, error: BaseException, draft: Entry, before: Entry | None) -> None:
        """Record the function's exception in the ledger, and add a note for the caller if the effect is in doubt."""
        surely = isinstance(error, self._call.not_done_on)
        try:
            if surely:
                await self._write(self._ledger.withdraw, self._key, draft, after=error, restore=before)
            else:
                await self._write(self._ledger.leave, self._key, draft, after=error)
        except StorageError as failure:
            error.add_note(f"effect {self._key!r}: the ledger could not be updated: {failure}")
        else:
            if surely and before is None:
                return
        error.add_note(
            f"effect {self._key!r} is in doubt: settle_effect() or forget_effect() ends that, or check= of the next try"
        )

    async def _write(
        self, work: Callable[..., Any], *args: Any, after: BaseException | None = None, **kwargs: Any
    ) -> Any:
        """Write the outcome of the effect to the ledger. After an interrupt, write it again, so that it is not lost.

        Each write has a condition, so repeating it does no harm. A coroutine that is being closed (``after``) must not
        wait.
        """
        store = _directly if isinstance(after, GeneratorExit) else self._store
        try:
            return await store(work, *args, **kwargs)
        except StateError:
            raise
        except BaseException:
            with suppress(StateError):
                await store(work, *args, **kwargs)
            raise

    async def _recorded(self, entry: Entry) -> Any:
        if entry.erased:
            raise ErasedResultError(self._key)
        return await self._store(self._ledger.result, entry)


async def _off_loop(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run work off the event loop.

    A cancellation waits until the work has ended, which may first have to wait for a thread.
    """
    from versioned_state.off_loop import off_loop, to_the_end  # loads asyncio

    return await to_the_end(off_loop(partial(work, *args, **kwargs)))


async def _directly(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return work(*args, **kwargs)


async def _awaited(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    result = work(*args, **kwargs)
    return await result if isinstance(result, Awaitable) else result


def _is_coroutine_function(function: object) -> bool:
    if isinstance(function, type):
        return False
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _without_partial(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with those held by ``functools.partial``: they are arguments of the effect too."""
    while isinstance(function, partial):
        args, kwargs, function = (*function.args, *args), {**function.keywords, **kwargs}, function.func
    return args, kwargs


def _hash_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Return a hash of arguments.

    Of an argument that is not data, such as a client of a service, it has the name of the class.
    """
    hashed = blake3()
    for name, value in (*((str(at), value) for at, value in enumerate(args)), *sorted(kwargs.items())):
        try:
            packed = InlineEncoder().encode_inline(in_order(value), name)
        except StateError:
            packed = type(value).__qualname__.encode("utf-8", "surrogatepass")
        hashed.update(msgpack.packb([name, packed], unicode_errors="surrogatepass"))
    return hashed.digest(16)


def _with_key(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the keyword arguments, with the full key if the function has a parameter for it that was left out.

    Raises:
        TypeError: the function cannot be called with these arguments.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:
        return kwargs  # a builtin without a signature
    parameter = signature.parameters.get("idempotency_key")
    if parameter is not None and parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
        bound = isinstance(function, partial) and "idempotency_key" in function.keywords
        if not bound and "idempotency_key" not in signature.bind_partial(*args, **kwargs).arguments:
            kwargs = {**kwargs, "idempotency_key": key}
    signature.bind(*args, **kwargs)  # a call that fails here must not leave an effect in doubt
    return kwargs


def _exceptions(given: Any) -> tuple[type[BaseException], ...]:
    types: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
    if not all(isinstance(each, type) and issubclass(each, BaseException) for each in types):
        raise InvalidArgumentError(f"not_done_on must be classes of exceptions, not {given!r:.80}")
    return types
