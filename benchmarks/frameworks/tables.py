"""The tables of ``scripts/bench frameworks``: two sides by turns, and the texts that both store."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.measure import folder_bytes, median, ms

OURS: Final = "ours"
THEIRS: Final = "theirs"

Table = tuple[str, list[list[str]]]
"""The title of a table, and its rows."""

_SYLLABLES: Final = ("an", "be", "ce", "do", "er", "fi", "go", "la", "mi", "no", "re", "st", "ta", "un")


COLUMNS: Final = (OURS, THEIRS, "ours / theirs", "of the CPU", "aim")


def row(
    name: str, seconds: Mapping[str, list[float]], aim: str = "", cpu: Mapping[str, float] | None = None
) -> list[str]:
    """The row of a call: both sides' medians, their ratio, and the ratio of CPU time, which waits for no disk."""
    ours, theirs = median(seconds[OURS]), median(seconds[THEIRS])
    return [name, ms(ours), ms(theirs), f"{ours / theirs:.2f}", f"{cpu[OURS] / cpu[THEIRS]:.2f}" if cpu else "", aim]


def bytes_row(folder: Path, aim: str) -> list[str]:
    """The row of the bytes on the disk, after a clean close: each side has a folder in ``folder``."""
    ours, theirs = folder_bytes(folder / OURS), folder_bytes(folder / THEIRS)
    return ["bytes", f"{ours / 1e6:.2f} MB", f"{theirs / 1e6:.2f} MB", f"{ours / theirs:.3f}", "", aim]


def text(dice: random.Random, size: int) -> str:
    """Words of a small vocabulary: texts compress as real ones do, and differ."""
    found = ""
    while len(found) < size:
        found += "".join(dice.choices(_SYLLABLES, k=dice.randint(1, 4))) + " "
    return found[:size]
