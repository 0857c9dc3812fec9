"""An old state read by new code: the shape has changed twice, a branch was left behind, and both merge.

python examples/old_state_new_schema.py
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from versioned_state import Memory, Migrations, Schema, Versioned
from versioned_state.errors import SchemaError

# Version 1, as the first release of the agent wrote it: strings, and a name in two parts.


def first_release(store: Memory) -> None:
    state = Versioned(store)
    state.update(first="Ann", last="Lee", messages=["a weekend in Lisbon, please"], budget="600 EUR")
    state.commit("the first release")
    draft = state.fork("draft")
    draft["messages"].append("by train, if possible")
    draft["budget"] = "700 EUR"
    draft.commit("a draft that nobody merged")


# Version 3, as the code of today has it.


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: str
    content: str


class Trip(BaseModel):
    name: str
    messages: list[Message]
    budget: dict[str, int]


migrations = Migrations()


@migrations.to(2)
def one_name_and_a_number(state: Any) -> None:
    state["name"] = f"{state.pop('first')} {state.pop('last')}"
    amount, currency = state["budget"].split()
    state["budget"] = {currency: int(amount)}


@migrations.to(3)
def messages_have_roles(state: Any) -> None:
    state["messages"] = [{"role": "user", "content": text} for text in state["messages"]]


def main() -> None:
    store = Memory()
    first_release(store)

    state = Versioned(store, schema=Trip, migrations=migrations)
    print("read by new code:", dict(state))
    assert state.head.message == "the first release", "reading has written nothing"

    state["messages"].append({"role": "assistant", "content": "Gladly."})
    state.commit("the first round of today")
    print("history:", [commit.message for commit in state.log()])

    state.merge("draft", policies={"messages": "append"})  # the draft is migrated first
    print("with the draft:", dict(state))
    assert state["budget"] == {"EUR": 700}
    assert [message["role"] for message in state["messages"]] == ["user", "user", "assistant"]
    Schema(Trip).check(state)

    past = next(commit for commit in state.log() if commit.message == "the first release")
    assert state.checkout(past)["budget"] == "600 EUR", "a commit stays as it was made"
    assert state.checkout(past, migrated=True)["budget"] == {"EUR": 600}

    state["budget"]["USD"] = "a hundred"
    try:
        state.commit()
    except SchemaError as error:
        print("refused:", error.what)
    state.discard()


if __name__ == "__main__":
    main()
