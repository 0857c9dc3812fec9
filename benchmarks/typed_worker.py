"""The worker of ``typed``: runs one case on one kind of class and prints its figures, for ``workloads/typed.py``.

Every case is a process of its own, which runs this module as a script: there the classes of ``__main__`` are those that
it defines, and the importable ones are those of the same module, imported under its name.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel

from benchmarks import sides
from benchmarks.measure import Step, alternate, timed
from benchmarks.sides import OURS, Session, Side
from benchmarks.workloads.base import measure_rounds, require_equal, sessions_of, stored_bytes
from benchmarks.workloads.typed import DICTS, PEER
from versioned_state import Versioned


class Role(str, Enum):  # noqa: UP042 - as agents' authors write it
    """The speaker of a message."""

    USER = "user"
    ASSISTANT = "assistant"


@dataclass
class Message:
    """A message as a dataclass."""

    role: Role
    content: str
    step: int
    score: float = 0.0


class MessageModel(BaseModel):
    """A message as a pydantic model."""

    role: Role
    content: str
    step: int
    score: float = 0.0


Make = Callable[[int], Any]
"""Makes the element with a number."""


def makers(kind: str, module: ModuleType) -> dict[str, Make]:
    """How each side's elements are made: equal content in all."""

    def fields(number: int) -> dict[str, Any]:
        role = module.Role.ASSISTANT if number % 2 else module.Role.USER
        return {
            "role": role,
            "content": f"message {number}: see you at {number % 24} o'clock",
            "step": number,
            "score": number / 8,
        }

    def as_dict(number: int) -> dict[str, Any]:
        found = fields(number)
        return {**found, "role": found["role"].value}

    def instance(number: int) -> Any:
        cls = module.Message if kind == "dataclass" else module.MessageModel
        return cls(**fields(number))

    return {OURS: instance, DICTS: as_dict, PEER: instance}


# Cases, each in a process of its own.


def append(
    folders: Mapping[str, Path], make: dict[str, Make], chosen: Mapping[str, type[Side]], options: dict[str, int]
) -> Any:
    """Append one element to a list and commit; seconds a round by turn, and stored bytes a round."""
    length, turns, batch = options["length"], options["turns"], options["batch"]

    def once(name: str, session: Session, number: int) -> float:
        new = [make[name](length + 1 + number)]

        def work() -> None:
            session.extend("messages", new)
            session.commit()

        return timed(work)

    def check(name: str, session: Session) -> None:
        expected = [make[name](number) for number in range(length + turns * batch + 1)]
        require_equal(session.get("messages"), expected, name)

    found = measure_rounds(
        chosen,
        folders,
        lambda name, session: session.put("messages", [make[name](number) for number in range(length)]),
        once,
        check,
        turns=turns,
        batch=batch,
    )
    return {"seconds": found.seconds, "stored": found.stored}


def size(
    folders: Mapping[str, Path], make: dict[str, Make], chosen: Mapping[str, type[Side]], options: dict[str, int]
) -> Any:
    """The bytes of a store that holds a list of ``length`` elements, and the seconds of its first commit."""
    seconds: dict[str, float] = {}
    for name, side in chosen.items():
        with sessions_of({name: side}, folders) as sessions:
            sessions[name].put("messages", [make[name](number) for number in range(options["length"])])
            seconds[name] = timed(sessions[name].commit)
    return {"seconds": seconds, "stored": {name: stored_bytes(side, folders[name]) for name, side in chosen.items()}}


def status(
    folders: Mapping[str, Path], make: dict[str, Make], chosen: Mapping[str, type[Side]], options: dict[str, int]
) -> Any:
    """``status()`` with ``length`` unchanged elements, as one list and as a key each; seconds by turn."""
    from benchmarks.sides.ours import OurSession

    found: dict[str, Any] = {}
    for form in ("list", "keys"):
        places = {name: folder / form for name, folder in folders.items()}
        for place in places.values():
            place.mkdir()
        with sessions_of(chosen, places) as sessions:
            steps: dict[str, Step] = {}
            for name, session in sessions.items():
                elements = [make[name](number) for number in range(options["length"])]
                if form == "list":
                    session.put("messages", elements)
                else:
                    session.put_many({f"message-{number:06}": element for number, element in enumerate(elements)})
                session.commit()
                assert isinstance(session, OurSession)
                require_equal(len(session.state.status()), 0, name)
                steps[name] = partial(_status, session.state)
            found[form] = alternate(steps, options["turns"])
    return found


def _status(state: Versioned, _number: int) -> float:
    return timed(state.status)


CASES: dict[str, Callable[..., Any]] = {"append": append, "size": size, "status": status}


def _child(case: str, kind: str, module: str, folder: str, options: str, names: str) -> None:
    """Run one case on the classes of ``module``, and print its figures."""
    wanted = names.split(",")
    found, _ = sides.load(name for name in wanted if name != DICTS)
    if DICTS in wanted:
        found[DICTS] = found[OURS]
    chosen = {name: found[name] for name in wanted}
    folders = {}
    for number, name in enumerate(chosen):
        folders[name] = Path(folder) / str(number)
        folders[name].mkdir()
    figures = CASES[case](folders, makers(kind, import_module(module)), chosen, json.loads(options))
    print(json.dumps(figures))


if __name__ == "__main__":
    _child(*sys.argv[1:])
