"""Hypothesis machines over any store."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from versioned_state import KVStore


def run_model(machine: type[RuleBasedStateMachine], make: Callable[[], KVStore], examples: int, steps: int) -> None:
    """Run a machine whose `make` opens an empty store, of the kind that this one opens."""
    chosen = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(type("Model", (machine,), {"make": staticmethod(make)}), settings=chosen)
