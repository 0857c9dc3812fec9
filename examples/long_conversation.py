"""A long conversation under a budget of tokens: what leaves is summed up, and can be asked for in its history.

python examples/long_conversation.py
"""

from __future__ import annotations

from typing import Any

from versioned_state import Bounded, Versioned, current_state, task

BUDGET = 300
"""Tokens that the model of the agent takes."""

CITIES = ["Lisbon", "Rome", "Oslo", "Vienna", "Prague", "Porto", "Athens", "Bergen"]


def tokens(message: dict[str, Any]) -> int:
    """A tokenizer goes here; this one counts words."""
    return len(message["content"].split()) + 4


def summarize(removed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A model goes here; this one keeps the cities. What it returns takes the place of what leaves, and counts."""
    said = " ".join(message["content"] for message in removed)
    return [{"role": "system", "content": "So far: " + ", ".join(city for city in CITIES if city in said)}]


@task
def answer(question: str) -> str:
    """One round: a question, and an answer with the whole conversation in view."""
    messages = current_state().setdefault("messages", [])
    messages.append({"role": "user", "content": question})
    reply = (
        f"{question.rsplit(maxsplit=1)[-1].rstrip('?')} is worth a weekend, and here is why: "
        + "a long and thorough answer " * 6
    )
    messages.append({"role": "assistant", "content": reply})
    return reply


def main() -> None:
    bound = Bounded(max_tokens=BUDGET, keep=BUDGET // 2, on_overflow=summarize, count_tokens=tokens)
    state = Versioned(schema={"messages": bound, "messages.*.content": str})
    rounds = []
    for number in range(40):
        answer(f"question {number}: shall I go to {CITIES[number // 5]}?", state=state)
        rounds.append(state.head)
        assert sum(map(tokens, state["messages"])) <= BUDGET

    summary, *rest = state["messages"]
    print(
        f"{len(rounds)} rounds; in view: 1 summary and {len(rest)} messages, "
        f"{sum(map(tokens, state['messages']))} tokens"
    )
    print("summary:", summary["content"])
    assert summary["content"] == "So far: Lisbon, Rome, Oslo, Vienna, Prague, Porto, Athens, Bergen"

    # Nothing is lost: the commit of a round has what was said then, and history finds a message that left long ago.
    found = next(iter(state.grep("question 3:", rounds[3])))
    print("round 3 said:", found.line)
    assert state.checkout(rounds[3])["messages"][-2]["content"].startswith("question 3:")
    assert not any("question 3:" in message["content"] for message in rest)


if __name__ == "__main__":
    main()
