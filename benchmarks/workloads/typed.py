"""``typed``: lists of dataclasses with an Enum field and of pydantic models, beside lists of equal dicts and kvgit.

Each case runs in a process of its own, so that classes of ``__main__`` are measured too.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from benchmarks.results import Metric, Result, Target, Unit
from benchmarks.sides import OURS
from benchmarks.workloads.base import Context, Workload, in_child

DICTS = "ours (dicts)"
PEER = "kvgit"
WORKER = "benchmarks.typed_worker"
KINDS = ("dataclass", "pydantic model")
PLACES = {"importable": WORKER, "of __main__": "__main__"}  # a place, and the module that has the classes there

APPEND_TARGETS = [(OURS, Target(ratio=1, base=PEER)), (OURS, Target(ratio=3, base=DICTS))]
BYTES_TARGETS = [(OURS, Target(ratio=1.2, base=DICTS))]
STATUS_TARGETS = [(OURS, Target(ratio=3, base=DICTS))]


def run(context: Context, workload: Workload) -> Result:
    """Appends for each kind and place of class, then bytes and status."""
    result = Result(
        workload.name, "lists of instances beside lists of equal dicts, and beside kvgit, which pickles them"
    )
    quick = context.quick
    everyone = [OURS, DICTS, *context.only(PEER)]
    appends = {"length": 100 if quick else 1000, "turns": 2 if quick else 12, "batch": 2 if quick else 8}
    for kind, place in itertools.product(KINDS, PLACES):
        found = _measure(context, workload, "append", kind, place, everyone, appends)
        label = f"append 1 to {appends['length']:,}, {kind} {place}"
        result.metrics.append(Metric.of_samples(label, found["seconds"], APPEND_TARGETS))
        result.metrics.append(Metric("  bytes a round", Unit.BYTES, found["stored"]))
    for kind, length in itertools.product(KINDS, (10, 50) if quick else (1000, 5000)):
        found = _measure(context, workload, "size", kind, "importable", everyone, {"length": length})
        result.metrics.append(
            Metric(f"bytes of {length:,}, {kind}", Unit.BYTES, found["stored"], targets=BYTES_TARGETS)
        )
        result.metrics.append(Metric("  first commit", Unit.SECONDS, found["seconds"]))
    unchanged = {"length": 100 if quick else 10_000, "turns": 3 if quick else 15}
    for kind in KINDS:
        found = _measure(context, workload, "status", kind, "importable", [OURS, DICTS], unchanged)
        for form, seconds in found.items():
            words = {"list": "in a list", "keys": "a key each"}[form]
            result.metrics.append(
                Metric.of_samples(f"status of {unchanged['length']:,}, {kind}, {words}", seconds, STATUS_TARGETS)
            )
    return result


def _measure(
    context: Context, workload: Workload, case: str, kind: str, place: str, names: list[str], options: dict[str, int]
) -> Any:
    context.progress(f"{workload.name}: {case}, {kind} {place}, {options['length']:,}")
    return in_child(WORKER, case, kind, PLACES[place], context.fresh(case), json.dumps(options), ",".join(names))


WORKLOADS = (
    Workload("typed", "instances of dataclasses and pydantic models beside equal dicts", run, ours_alone=True),
)
