"""The sessions and messages that are measured."""

from __future__ import annotations

import random
from functools import cache
from typing import Final

from versioned_state import Repository, Versioned, branch_name

PER_USER: Final = 10

MESSAGES: Final = 1_000
"""Messages of a session that a request goes on with."""

LONG: Final = 100_000
POPPED: Final = 10_000

_WORDS: Final = (
    "alpha",
    "beta",
    "gamma",
    "delta",
    "train",
    "Lisbon",
    "hotel",
    "price",
    "tool",
    "result",
    "because",
    "maybe",
)
_random = random.Random(1)


def name(number: int) -> str:
    return branch_name(f"u{number // PER_USER}", f"session-{number}")


def make(repository: Repository, number: int) -> Versioned:
    state = Versioned(repository, branch=name(number))
    state["messages"] = [{"role": "user", "content": f"hello {number}"}]
    return state


def status(number: int) -> str:
    return "open" if number % 100 else "closed"


def meta(number: int) -> dict[str, str]:
    return {"user": f"u{number // PER_USER}", "status": status(number)}


def messages(count: int) -> list[dict[str, str]]:
    """Messages of 65 bytes."""
    return [
        {"role": "user" if n % 2 else "assistant", "content": f"message {n} of a session, some words long"}
        for n in range(count)
    ]


@cache
def _texts() -> list[str]:
    """Made once: to make a text takes longer than to store it."""
    return [" ".join(_random.choices(_WORDS, k=160)) for _ in range(1_400)]


def long_messages(count: int) -> list[dict[str, str]]:
    """Messages of 1 KB, each of 160 words at random."""
    return [{"role": "user" if n % 2 else "assistant", "content": _random.choice(_texts())} for n in range(count)]
