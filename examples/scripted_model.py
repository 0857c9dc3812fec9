"""A runner for a model that thinks and writes code; here the model is a script.

    python examples/scripted_model.py

The code works on the state: a variable that it assigns is a key of the state, and is there in the next round, and in
the next call. A variable that cannot be stored, such as a cursor, is dropped, and the model is told how to do without.
The code runs in this process, with all that this process may do: give a real model a sandbox.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing, redirect_stdout
from io import StringIO
from typing import Any

from versioned_state import ActionEvent, Agent, Call, ErrorEvent, OutputEvent, TaskFailed, Versioned, events
from versioned_state.errors import UnserializableValueError

Model = Callable[[str], tuple[str, str]]
"""Is told the task or the last output, and answers with its thoughts and with code."""


def script(*answers: tuple[str, str]) -> Model:
    """A model that gives these answers, whatever it is told."""
    left = iter(answers)
    return lambda _: next(left)


def code_runner(model: Model, *, rounds: int = 20) -> Callable[[Call], Any]:
    """A runner that carries out the code of a model until that calls ``finish(result)`` or ``fail(message)``."""

    def run(call: Call) -> Any:
        results: list[Any] = []

        def fail(message: str) -> None:
            raise TaskFailed(message)

        names = {**call.inputs, "finish": results.append, "fail": fail}
        told = f"{call.documentation}\n{call.inputs}"
        for _ in range(rounds):
            thinking, code = model(told)
            call.emit(ActionEvent(thinking=thinking, code=code))
            told = act(call, code, names)
            if results:
                return results[-1]
        raise TaskFailed(f"no result in {rounds} rounds")

    return run


def act(call: Call, code: str, names: dict[str, Any]) -> str:
    """Carry out code, and commit what it did. Returns what the model is to know."""
    printed = StringIO()
    try:
        with redirect_stdout(printed):
            exec(code, dict(names), call.state)
        call.checkpoint(f"{call.name}: {code.splitlines()[0]}")
    except UnserializableValueError as error:
        name = next(key for key in call.state if key in re.findall(r"\w+", error.path))
        del call.state[name]
        told = f"{name} cannot be kept: use it up in one expression, such as db.execute(…).fetchall()"
        call.emit(ErrorEvent(error=told, recoverable=True))
        return told
    except (ArithmeticError, LookupError, NameError, TypeError, ValueError) as error:
        # the model erred, and may try again
        call.emit(ErrorEvent(error=repr(error), recoverable=True))
        return repr(error)
    call.emit(OutputEvent(parts=[printed.getvalue()]))
    return printed.getvalue()


def main() -> None:
    model = script(
        ("I look at the table.", "cursor = db.execute('select * from sales')"),
        ("I must not keep the cursor.", "rows = db.execute('select city, amount from sales').fetchall()\nprint(rows)"),
        ("I add them up.", "total = sum(amount for city, amount in rows)\nfinish(total)"),
    )
    analyst = Agent("analyst", runner=code_runner(model))

    @analyst.task
    def total_sales(db: sqlite3.Connection) -> int:  # type: ignore[empty-body]
        """Add up the sales."""

    state = Versioned()
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(
            "create table sales (city, amount); insert into sales values ('Rome', 3), ('Oslo', 4), ('Rome', 5)"
        )
        assert total_sales(db, state=state) == 12
    assert dict(state) == {"rows": [("Rome", 3), ("Oslo", 4), ("Rome", 5)], "total": 12}
    for event in events(state):
        print(event.commit_hash[:12], event)


if __name__ == "__main__":
    main()
