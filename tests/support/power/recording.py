"""The library of ``recorder.c``, compiled once for a process."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path


@cache
def library() -> Path:
    """Return the compiled library. Needs a C compiler."""
    folder = Path(tempfile.mkdtemp(prefix="recorder"))
    built = folder / "recorder.so"
    source = Path(__file__).with_name("recorder.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", built, source, "-ldl", "-lpthread"], check=True)
    return built
