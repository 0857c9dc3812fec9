"""The accelerator in tests: switched on and off within one process, for the states that are opened meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from versioned_state.values import accelerator
from versioned_state.values.accelerator import Accelerator, load


def installed() -> Accelerator:
    """The accelerator, also if VERSIONED_STATE_FAST=0 keeps it from the tests. Skips the test if there is none."""
    if accelerator.fast is not None:
        return accelerator.fast
    wanted = os.environ.pop("VERSIONED_STATE_FAST", None)
    try:
        fast, status = load()
    finally:
        if wanted is not None:
            os.environ["VERSIONED_STATE_FAST"] = wanted
    if fast is None:
        pytest.skip(f"the accelerator is {status}; scripts/test builds it if there is a C compiler")
    return fast


@contextmanager
def switched(fast: Accelerator | None) -> Iterator[None]:
    """Let the states that are opened in a block use this accelerator, or none."""
    before = accelerator.fast
    accelerator.fast = fast
    try:
        yield
    finally:
        accelerator.fast = before
