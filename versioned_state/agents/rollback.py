"""Rolling effects back: the effects behind a point of a branch, and the functions that take them back. Layer: agents.

The ledger has only the name of such a function. A name in a store is never imported: a function is called if this
process has passed it to ``effect(on_rollback=)``, or to ``roll_back_effects``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from versioned_state.agents.effects import FUNCTIONS, carry_out_once, name_of
from versioned_state.arguments import instance_of
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.inspect.effects_behind import effects_after, effects_behind
from versioned_state.repository.ledger import Entry, Facts, Ledger
from versioned_state.state.branch import port
from versioned_state.state.versioned import Namespace, Versioned


@dataclass(frozen=True, slots=True)
class RolledBack:
    """An effect that was rolled back.

    Attributes:
        key: its full key, under which the next call carries it out again.
        result: the result of the function that rolled it back.
    """

    key: str
    result: Any


def roll_back_effects(
    state: Versioned | Namespace,
    to: str | Commit | None = None,
    *,
    using: Iterable[Callable[..., Any]] = (),
    dry_run: bool = False,
) -> list[RolledBack]:
    """Roll back the effects behind a point, the newest first, by the functions that ``effect(on_rollback=)`` named.

    Each function is called with the result of its effect, and with a key if it has a parameter ``idempotency_key``.
    That call is an effect too, so it is carried out once, even after a crash. The ledger then forgets the effect, so
    that the next call with its key carries it out again. An effect without ``on_rollback`` stays as it is. Nothing is
    rolled back unless this is called, and the state does not move. Cost: reads the ledger.

    Args:
        to: an earlier commit of the state: the effects of the rounds after it. By default those that lie behind the
            head already.
        using: the functions, if this process has not passed them to ``effect`` itself.
        dry_run: return the effects, each with the result None, and call nothing.

    Raises:
        InvalidArgumentError: a function that is needed is not known here, or an effect to roll back is in doubt.
            Nothing was rolled back.
        UnknownRevisionError: there is no commit ``to``. Nothing was rolled back.
        EffectInDoubtError: the rollback of an effect was begun, and its outcome is not known. Those before it were
            rolled back.

        An exception of a function propagates. The effects before it were rolled back, and its own rollback is in doubt.
    """
    state = _versioned(state)
    for function in using:
        name_of(function)
    database = state.repository.database
    ref, head = port.handle(state).ref, state.head
    found = (
        effects_behind(database, ref, head)
        if to is None
        else effects_after(database, ref, head, port.resolve(state, to))
    )
    wanted = [entry for entry in reversed(found) if entry.facts.on_rollback is not None and entry.key is not None]
    for entry in wanted:
        _check(entry)
    if dry_run:
        return [RolledBack(entry.key or "", None) for entry in wanted]
    return [_roll_back(state, Ledger(database), entry) for entry in wanted]


def _versioned(state: object) -> Versioned:
    found = instance_of("state", state, Versioned | Namespace)
    return found.state if isinstance(found, Namespace) else found


def _check(entry: Entry) -> None:
    name = entry.facts.on_rollback or ""
    if not entry.done:
        raise InvalidArgumentError(
            f"effect {entry.key!r} is in doubt, so nobody knows whether there is something to roll back",
            remains="nothing was rolled back",
            hint="settle_effect() or forget_effect() ends that",
        )
    if name not in FUNCTIONS:
        raise InvalidArgumentError(
            f"effect {entry.key!r} is rolled back by {name}, which this process has not named",
            remains="nothing was rolled back",
            hint="pass it: using=[…]",
        )


def _roll_back(state: Versioned, ledger: Ledger, entry: Entry) -> RolledBack:
    key = entry.key or ""
    function = FUNCTIONS[entry.facts.on_rollback or ""]
    result = carry_out_once(
        ledger, f"@rollback/{entry.since}/{key}", function, ledger.result(entry), facts=Facts(branch=state.branch)
    )
    ledger.forget(key)
    return RolledBack(key, result)
