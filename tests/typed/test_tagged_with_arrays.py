"""Instances with arrays, as elements of a set: read without their class they are still different elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.support.registrations import forget
from versioned_state import Tagged, Versioned, register
from versioned_state.storage import Memory


@dataclass(eq=False)
class Vector:
    values: Any


@pytest.mark.parametrize("count", [3, 300])
def test_a_set_of_instances_with_arrays_is_read_without_their_class(count: int):
    store = Memory()
    register(Vector, name="a vector")
    with Versioned(store) as state:
        state["vectors"] = {Vector(np.arange(3) + number) for number in range(count)}
        state.commit("vectors")
    forget(Vector)
    with Versioned(store) as state:
        vectors = state["vectors"]
        assert {type(each) for each in vectors} == {Tagged}
        assert {int(each.fields["values"][0]) for each in vectors} == set(range(count))
