"""Each named workload costs what it did: function calls, requests and bytes, within 3 % above what was measured.

Times say more about the machine. If a change needs more, say so with the new figures; if it needs less, lower them, so
that the gain stays: ``python -m tests.support.workload_costs`` prints them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.workload_costs import WORKLOADS

MEASURED = {
    "a growing number": (270.2, 274.2, 1, 211),
    "append to 230 messages": (398.7, 399.2, 1, 481),
    "append to 300 small elements, one leaf": (402.5, 404.1, 1, 348),
    "append 2 messages to 1,000": (445.6, 464.4, 1, 648),
    "append 2 messages to 1,000 through a sequence": (494.7, 500.7, 1, 648),
    "replay, a round": (369.9, 439.6, 1.02, 504),
    "request of a stateless server": (860.7, 866.7, 3, 648),
    "save of a service": (549.7, 559.2, 1, 641),
    "open and read 1,000 messages": (743.6, 743.6, 4, 0),
    "status of 1,000 small dicts": (50.6, 50.6, 0, 0),
    "diff of scattered keys, a key": (88.8, 88.8, 0.08, 0),
    "commit together, two branches": (526.7, 526.7, 1, 314),
    "transaction": (296.4, 296.4, 1, 135),
    "task": (470.1, 477.3, 1, 906),
    "task with an event": (581.1, 589.0, 1, 1058),
    "task in a task": (626.6, 643.6, 1, 1175),
}
"""The costs of one round, by workload: calls with and without the accelerator, requests, and bytes written.

The calls are those of functions in Python and C, with CPython 3.11. The bytes of tasks are the most of some runs: they
vary by some percent, since the names of events decide where the leaves of their series end.
"""

ALLOWED = 1.03


@pytest.fixture(scope="module", params=["1", "0"], ids=["accelerated", "in Python"])
def found(request: pytest.FixtureRequest) -> tuple[bool, dict[str, list[float]]]:
    script = [sys.executable, "-m", "tests.support.workload_costs"]
    environment = {**os.environ, "VERSIONED_STATE_FAST": request.param}
    done = subprocess.run(script, check=True, capture_output=True, text=True, env=environment)
    return request.param == "1", dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", [each.name for each in WORKLOADS])
def test_a_workload_costs_no_more_than_it_did(found: tuple[bool, dict[str, list[float]]], name: str):
    is_fast, costs_of = found
    calls, calls_in_python, *others = MEASURED[name]
    allowed = dict(
        zip(("calls", "requests", "bytes written"), (calls if is_fast else calls_in_python, *others), strict=True)
    )
    costs = dict(zip(allowed, costs_of[name], strict=True))
    assert {what: cost for what, cost in costs.items() if cost > allowed[what] * ALLOWED} == {}, (
        f"{costs}, measured: {allowed}"
    )
