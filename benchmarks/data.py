"""The input of the benchmarks: real conversations, and long histories of messages made from their sentences.

The real ones are 200 conversations of users with a tool-calling airline agent (tau-bench, MIT licence). They are not part of the
project: they are read from the folder that ``VSTATE_DATA`` names, or from ``../shared/data`` beside the project. Without them
conversations of the same shape are generated, and every run says so.
"""

from __future__ import annotations

import json
import lzma
import os
import random
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

Message = dict[str, Any]

FILE = "tau_airline.json.xz"
BESIDE_THE_PROJECT = Path(__file__).resolve().parents[2] / "shared" / "data"

# A message holds about 1 KB of text, evenly spread between these, so that 1,000 of them are 1.09 MB when packed.
SHORTEST, LONGEST = 640, 1520


@dataclass(frozen=True)
class Data:
    """Conversations and their source."""

    conversations: list[list[Message]]
    source: str
    notes: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        """How many messages there are in all: one commit each in a replay."""
        return sum(len(conversation) for conversation in self.conversations)

    @cached_property
    def sentences(self) -> list[str]:
        """Every different sentence of the conversations, sorted: what generated messages are made of.

        Each counts once however often it was said, so the 200 copies of the system prompt do not make up half of all text.
        """
        found: set[str] = set()
        for conversation in self.conversations:
            for message in conversation:
                for piece in re.split(r"(?<=[.!?:,])\s+|\n+", message.get("content") or ""):
                    if 20 <= len(piece) <= 300:
                        found.add(piece)
        return sorted(found)

    def messages(self, count: int, *, start: int = 0) -> list[Message]:
        """Messages ``start`` to ``start + count`` of one endless history: a function of the index alone, fresh objects each call."""
        return [self._message(index) for index in range(start, start + count)]

    def text(self, characters: int) -> str:
        """That many characters of text in lines; ASCII, so that a character is a byte in memory too."""
        draw = random.Random("text")
        sentences = [sentence for sentence in self.sentences if sentence.isascii()]
        lines: list[str] = []
        length = 0
        while length < characters:
            line = " ".join(draw.choices(sentences, k=3)) + "\n"
            lines.append(line)
            length += len(line)
        return "".join(lines)[:characters]

    def _message(self, index: int) -> Message:
        draw = random.Random(index)
        length = draw.randint(SHORTEST, LONGEST)
        sentences = self.sentences
        parts: list[str] = []
        have = 0
        while have < length:
            part = sentences[int(draw.random() * len(sentences))]
            parts.append(part)
            have += len(part) + 1
        return {"role": ("user", "assistant")[index % 2], "content": " ".join(parts)[:length]}


def load() -> Data:
    """The real conversations, or generated ones if those cannot be found."""
    folder = Path(os.environ["VSTATE_DATA"]) if "VSTATE_DATA" in os.environ else BESIDE_THE_PROJECT
    try:
        with lzma.open(folder / FILE) as file:
            items = json.load(file)
    except FileNotFoundError:
        return generated()
    return Data([item["traj"] for item in items], source=FILE)


def generated() -> Data:
    """200 conversations shaped like the real ones: a long system prompt, then turns of a user, an agent and its tools."""
    draw = random.Random(17)
    prompt = {"role": "system", "content": "\n\n".join(_generated_text(draw, 400) for _ in range(15))}
    conversations = [[prompt, *_generated_turns(draw, max(3, round(draw.gauss(25.5, 12))))] for _ in range(200)]
    note = f"{FILE} was not found (VSTATE_DATA names its folder): the conversations are generated, figures differ from those on real ones"
    return Data(conversations, source="generated data", notes=(note,))


def _generated_turns(draw: random.Random, count: int) -> list[Message]:
    messages: list[Message] = []
    for index in range(count):
        length = min(9000, round(draw.lognormvariate(5.2, 1.0)))
        match index % 4:
            case 0:
                messages.append({"role": "user", "content": _generated_text(draw, length)})
            case 1:
                function = {"name": "get_details", "arguments": json.dumps({"id": draw.randrange(10**6)})}
                call = {"id": f"call_{draw.randrange(10**12)}", "type": "function", "function": function}
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            case 2:
                row = {"reservation": draw.randrange(10**6), "status": "available", "notes": _generated_text(draw, length)}
                identifier = messages[-1]["tool_calls"][0]["id"]
                messages.append({"role": "tool", "tool_call_id": identifier, "name": "get_details", "content": json.dumps(row)})
            case _:
                messages.append({"role": "assistant", "content": _generated_text(draw, length)})
    return messages


# Enough words that three-word runs rarely repeat; a word list of a language would be a dependency for nothing.
_SYLLABLES = "ka re mi to lan ser vi na dor pel us qua ti fen gra sho lu bex an or".split()


def _generated_text(draw: random.Random, length: int) -> str:
    words: list[str] = []
    have = 0
    while have < length:
        word = "".join(draw.choices(_SYLLABLES, k=draw.randint(1, 4)))
        if draw.random() < 0.1:
            word += "."
        words.append(word)
        have += len(word) + 1
    return " ".join(words)[: max(length, 1)]
