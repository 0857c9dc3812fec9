"""``memory``: the peak memory of a commit of ours beside the size of the value that it touches.

Each case runs in a process of its own, and what counts is its resident memory, because the buffers of C libraries are
where a copy of a large value would be; Python's own tracing does not see them.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import resource
import sys
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.results import Result, Table, Unit
from benchmarks.workloads.base import Context, Workload, in_child

CASES = {"array": 8_000_000, "text": 64_000_000, "list": 100_000}
QUICK_CASES = {"array": 800_000, "text": 1_000_000, "list": 1000}
LIMIT = 3.0


def run(context: Context, workload: Workload) -> Result:
    """Ours alone; under 3 times the size of the value, the value itself counted in."""
    result = Result(
        workload.name, "peak memory of a commit, the value itself counted in, over the size of the value; below 3"
    )
    rows: list[list[str | tuple[float, Unit]]] = []
    for case, size in (QUICK_CASES if context.quick else CASES).items():
        context.progress(f"{workload.name}: {case} of {size}")
        found = in_child("benchmarks.workloads.memory", case, size, context.fresh(case))
        for commit in ("first", "change"):
            ratio = 1 + found[commit] / found["size"]
            rows.append(
                [
                    {"array": "array of float64", "text": "text", "list": f"list of {size:,} messages"}[case],
                    {"first": "first commit", "change": "small change in place, commit"}[commit],
                    (found["size"], Unit.BYTES),
                    (found[commit], Unit.BYTES),
                    (found[commit] / found["size"], Unit.RATIO),
                    (ratio, Unit.RATIO),
                    "yes" if ratio < LIMIT else "NO",
                ]
            )
    result.tables.append(
        Table(
            "resident memory",
            ["value", "commit", "size", "peak above it", "peak/size", "(size + peak)/size", "below 3x"],
            rows,
        )
    )
    return result


def _child(case: str, size: int, folder: str) -> None:
    """Build the value, commit it, change it a little, and commit again.

    Prints its size and what each commit added to resident memory.
    """
    from versioned_state import Disk, Versioned

    state = Versioned(Disk(Path(folder)))
    # What a first commit loads and allocates once (libraries, caches, the connection) is not the cost of the value.
    state["warm"] = [{"role": "user", "content": "hello"}]
    state.commit()
    value = _value(case, size)
    found: dict[str, float] = {"size": _size(value)}
    state["value"] = value
    found["first"] = peak_of(state.commit)
    match case:
        case "array":
            value[size // 16] += 1.0
        case "list":
            value[size // 2]["content"] += " and more"
        case _:
            # A text cannot be changed in place: the changed one is a new value, counted in by its own size.
            state["value"] = value[: size // 2] + "changed" + value[size // 2 :]
    found["change"] = peak_of(state.commit)
    state.close()
    print(json.dumps(found))


def _value(case: str, size: int) -> Any:
    match case:
        case "array":
            import numpy as np

            return np.random.default_rng(3).random(size // 8)
        case "text":
            return data.load().text(size)
        case _:
            return data.load().messages(size)


def _size(value: Any) -> int:
    """The bytes of a value in memory, its parts included, each once."""
    seen: set[int] = set()

    def walk(part: Any) -> int:
        if id(part) in seen:
            return 0
        seen.add(id(part))
        inner = [*part.keys(), *part.values()] if isinstance(part, dict) else part if isinstance(part, list) else []
        return sys.getsizeof(part) + sum(walk(each) for each in inner)

    return walk(value)


def peak_of(work: Any) -> int:
    """Bytes that ``work`` adds to the resident memory of this process at its peak."""
    gc.collect()
    # Memory that was freed but not given back would hide what the work takes, by being there already.
    with contextlib.suppress(OSError, AttributeError):  # a C library that is not glibc
        ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status")
    if status.exists():
        # Linux can forget an earlier peak (that of building the value), and counts this process alone; ru_maxrss can do
        # neither.
        Path("/proc/self/clear_refs").write_text("5")
        before = _status_bytes(status, "VmRSS")
        work()
        return max(0, _status_bytes(status, "VmHWM") - before)
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before


def _status_bytes(status: Path, name: str) -> int:
    for line in status.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{name} is not in {status}")


WORKLOADS = (Workload("memory", "peak memory of a commit beside the size of its value", run, ours_alone=True),)

if __name__ == "__main__":
    _child(sys.argv[1], int(sys.argv[2]), sys.argv[3])
