"""The input of tests and benchmarks: real conversations, and long histories of messages made from their sentences.

There are 200 conversations of users with a tool-calling airline agent (tau-bench, MIT License). 40 of them lie in
``conversations/`` beside this file, with the license. The tests read these 40 everywhere, so that they test the same in
every checkout. The benchmarks read all 200 from the folder that ``VSTATE_DATA`` names, or from ``../shared/data``
beside the project, and fall back to the 40.
"""

from __future__ import annotations

import json
import lzma
import os
import random
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

Message = dict[str, Any]

FILE = "tau_airline.json.xz"
SAMPLE = Path(__file__).with_name("conversations") / "tau_airline_sample.json.xz"
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

        Each counts once however often it was said, so the 200 copies of the system prompt do not make up half of all
        text.
        """
        found: set[str] = set()
        for conversation in self.conversations:
            for message in conversation:
                for piece in re.split(r"(?<=[.!?:,])\s+|\n+", message.get("content") or ""):
                    if 20 <= len(piece) <= 300:
                        found.add(piece)
        return sorted(found)

    def messages(self, count: int, *, start: int = 0) -> list[Message]:
        """Messages ``start`` to ``start + count`` of an endless history: new objects, each a function of its index."""
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
    """All 200 conversations, or the sample if they cannot be found. For benchmarks."""
    folder = Path(os.environ["VSTATE_DATA"]) if "VSTATE_DATA" in os.environ else BESIDE_THE_PROJECT
    try:
        return _read(folder / FILE)
    except FileNotFoundError:
        found = sample()
    note = (
        f"{FILE} was not found (VSTATE_DATA names its folder): "
        f"{len(found.conversations)} conversations are read, so figures differ"
    )
    return replace(found, notes=(note,))


def sample() -> Data:
    """The 40 conversations that belong to the project. For tests."""
    return _read(SAMPLE)


def _read(file: Path) -> Data:
    with lzma.open(file) as stream:
        items = json.load(stream)
    return Data([item["traj"] for item in items], source=file.name)
