"""A tool-calling agent with time travel.

    python examples/time_travel.py

The agent books a trip. Its model is a few lines of Python that speak the shape of chat completions, and its tool for
prices errs. What did it know when it booked? An event leads to the commit that it saw. And what if it had known better?
From there it goes on once more, on a branch of its own.
"""

from __future__ import annotations

import json
from typing import Any

from chat_completions import chat_runner, said

from versioned_state import ActionEvent, Agent, Versioned, current_state, events

PRICES = {"train": 980, "plane": 240}  # the train costs 98: the tool lost a point


def price(way: str) -> int:
    """The price of a way to travel, in EUR."""
    return PRICES[way]


def book(way: str, cost: int) -> str:
    """Book a way to travel."""
    state = current_state()
    state.setdefault("trips", []).append({"way": way, "cost": cost})
    state["budget"] -= cost
    return f"booked the {way}"


def model(messages: list[dict[str, Any]], **_: object) -> dict[str, Any]:
    """Ask for each price, book the cheapest way, and say so."""
    tools = [message for message in messages if message["role"] == "tool"]
    known = {message["tool_call_id"]: json.loads(message["content"]) for message in tools}
    if "book" in known:
        return said(f"I have {known['book']}.")
    for way in ("train", "plane"):
        if way not in known:
            answer = said(price={"way": way})
            answer["choices"][0]["message"]["tool_calls"][0]["id"] = way
            return answer
    way = min(("train", "plane"), key=lambda way: int(known[way]))
    return said(book={"way": way, "cost": known[way]})


traveller = Agent("traveller", runner=chat_runner(model, model="scripted", tools=[price, book]))


@traveller.task
def plan(city: str) -> str:  # type: ignore[empty-body]
    """Book the cheapest way to a city."""


@traveller.task
def go_on(hint: str) -> str:  # type: ignore[empty-body]
    """Go on."""


def main() -> None:
    state = Versioned()
    state["budget"] = 600
    state.commit("a budget")
    print(plan("Lisbon", state=state), state["trips"])

    print("\nEach action, and what the agent knew before it:")
    for event in events(state, types=ActionEvent):
        past = state.checkout(event.commit_hash)
        print(f"  {event.commit_hash[:12]}  {event.code:42}  {len(past['messages'])} messages, budget {past['budget']}")

    booking = next(event for event in events(state, types=ActionEvent, reverse=True) if event.code.startswith("book"))
    past = state.checkout(booking.commit_hash)
    wrong = next(message for message in past["messages"] if message.get("tool_call_id") == "train")
    print(f"\nIt took the plane, because it believed that the train costs {wrong['content']} EUR.")

    with state.fork("what-if", at=booking.commit_hash) as what_if:
        known = next(message for message in what_if["messages"] if message.get("tool_call_id") == "train")
        known["content"] = "98"
        what_if.commit("correct the price of the train")
        print("\nFrom there, with the right price:", go_on("the price was wrong", state=what_if), what_if["trips"])
        assert what_if["trips"] == [{"way": "train", "cost": 98}]
    assert state["trips"] == [{"way": "plane", "cost": 240}], "main is as it was"
    print(state.diff("HEAD", "what-if").under("trips"))


if __name__ == "__main__":
    main()
