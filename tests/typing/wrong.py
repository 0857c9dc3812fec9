"""Wrong calls: mypy and pyright find each, with the error that its line expects.

An expectation that is not met is an error too.
"""

from __future__ import annotations

from functools import partial

from tests.typing.right import App, Keys, Model, Planner, book, note, pay, think
from versioned_state import ActionEvent, Agent, Versioned, effect, events, parallel, task


def calls(state: Versioned) -> None:
    book(3)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    book()  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
    book("Rome", night=2)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
    book("Rome", state=3)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    book("Rome", state=state.checkout("HEAD"))  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    book("Rome", state=state, key=3)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType, reportCallIssue]
    book.on(state)(3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    book.on(state)()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    book.on(state)("Rome", night=2)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    book.on()("Rome")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    book.on(3)("Rome")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    book.on(state, key=3)("Rome")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    book.on(state, "key")("Rome")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    book.on(state)("Rome", state=state)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    note.on(state)(state, "hi")  # type: ignore[call-arg, arg-type] # pyright: ignore[reportCallIssue]
    length: int = book("Rome")  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    Planner().plan(3)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    Planner().plan.on(state)(3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    task(on_unstorable="drop")  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    Agent("guide").task(3)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType, reportCallIssue]
    del length


def streams(state: Versioned) -> None:
    book.on(state).stream(3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    for _ in think.on(state).stream("Rome"):  # type: ignore[attr-defined] # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        pass


def read(state: Versioned) -> None:
    events(state, types=ActionEvent)[0].city()  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    events(state, types="ActionEvent")  # type: ignore[call-overload] # pyright: ignore[reportArgumentType, reportCallIssue]


def outcomes(state: Versioned) -> None:
    done = parallel(state, [partial(book, "Rome")])
    done[0].value.upper()  # type: ignore[union-attr] # pyright: ignore[reportOptionalMemberAccess]
    done[0].valeu()  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    parallel(state, [partial(book, "Rome")], on_failure="skip")  # type: ignore[call-overload] # pyright: ignore[reportArgumentType, reportCallIssue]
    parallel(state, [partial(book.on(state), 3)])  # type: ignore[arg-type, unused-coroutine] # pyright: ignore[reportArgumentType]


async def awaited(state: Versioned) -> None:
    length: str = await think("Rome", state=state)  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    done = await parallel(state, [partial(think, "Rome")])
    first: str = done[0].value  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    del length, first


def acts(state: Versioned) -> None:
    effect("pay:1", pay, "o1")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
    effect("pay:1", pay, "o1", "40")  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    effect("pay:1", pay, "o1", 40, scope="brnch")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    effect("pay:1", pay, "o1", 40, state=state, chek=None).oder()  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    effect("pay:1", partial(pay, "o1", "40"), state=state)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    effect(1, pay, "o1", 40, state=state)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType, reportCallIssue]


def views(state: Versioned) -> None:
    app = state.typed(App)
    app.gaol = "Rome"  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
    app.steps = "book"  # type: ignore[assignment] # pyright: ignore[reportAttributeAccessIssue]
    state.typed(Model).score = "high"  # type: ignore[assignment] # pyright: ignore[reportAttributeAccessIssue]
    state.typed(Keys)["gaol"]  # type: ignore[typeddict-item] # pyright: ignore[reportGeneralTypeIssues]
    state.typed(App("x"))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
