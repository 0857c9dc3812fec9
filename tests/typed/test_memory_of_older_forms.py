"""Instances stored before their class gained a field: a handle does not keep those that nobody uses any more."""

from __future__ import annotations

import gc
from types import ModuleType
from typing import Any

import pytest

from versioned_state import Versioned
from versioned_state.storage import Memory

FORMS = {
    "slotted": ("@dataclass(slots=True)\nclass Point:\n    x: int\n", "    y: int = 7\n"),
    "named tuple": ("class Point(NamedTuple):\n    x: int\n", "    y: int = 7\n"),
    "usual": ("@dataclass\nclass Point:\n    x: int\n", "    y: int = 7\n"),
}


def define(module: ModuleType, source: str) -> Any:
    exec("from dataclasses import dataclass\nfrom typing import NamedTuple\n" + source, vars(module))
    return module.Point


@pytest.mark.parametrize("form", FORMS)
def test_a_handle_that_reads_again_and_again_keeps_no_instances(form: str, monkeypatch: pytest.MonkeyPatch):
    module = ModuleType("evolving")
    monkeypatch.setitem(__import__("sys").modules, "evolving", module)
    source, gained = FORMS[form]
    store = Memory()
    with Versioned(store) as state:
        state["points"] = [define(module, source)(x) for x in range(300)]
        state.commit()
    cls = define(module, source + gained)
    state = Versioned(store)
    for _ in range(8):
        points = state["points"]
        assert points[5].y == 7
        assert not state.status()
        del points
        state.release("points")
    gc.collect()
    assert sum(type(each) is cls for each in gc.get_objects()) <= 4 * 300
    points = state["points"]
    points.append(cls(1, 2))
    assert [str(change.path) for change in state.status()] == ["points[300]"]
