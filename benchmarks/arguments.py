"""The options that the benchmarks with a command line of their own share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def parser(
    name: str, description: str, *, quick: str = "", parts: Sequence[str] = (), turns: int = 0
) -> argparse.ArgumentParser:
    """The parser of ``python -m benchmarks NAME``.

    Args:
        quick: what ``--quick`` makes small. An empty text leaves the option out.
        parts: the choices of ``--part``. Without any, the option is left out.
        turns: the default of ``--turns``. With 0, the option is left out.
    """
    found = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=description)
    if quick:
        found.add_argument("--quick", action="store_true", help=f"{quick}: to see that it works, not to quote")
    if parts:
        found.add_argument("--part", choices=parts, help="one part only")
    if turns:
        found.add_argument("--turns", type=int, default=turns, metavar="COUNT", help=f"turns of each side ({turns})")
    return found


def words(text: str) -> list[str]:
    """The value of an option that takes several, with commas between them."""
    return text.split(",")


def numbers(text: str) -> list[int]:
    """The same, of numbers."""
    return [int(each) for each in words(text)]
