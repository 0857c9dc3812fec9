"""What the golden tests of tables pin: the stored form of each kind of value of pandas, in hexadecimal digits.

``python -m tests.golden.tables`` writes ``tables.txt`` anew, with pandas 3: columns and labels of texts have another
type before. That is only right before a release has gone out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.tables import MIXED, tables
from versioned_state.values.encode.inline import InlineEncoder

FILE = Path(__file__).parent / "tables.txt"

VALUES: dict[str, Any] = {
    **{name: table for name, table in tables().items() if name not in ("many rows", "many columns")},
    **{f"{type(each).__name__} {each}": each for each in MIXED if type(each).__module__.startswith("pandas")},
}


def table() -> str:
    """Return a line for each value."""
    return "".join(f"{name}\t{InlineEncoder().encode_inline(value).hex()}\n" for name, value in VALUES.items())


if __name__ == "__main__":
    FILE.write_text(table(), "utf-8")
