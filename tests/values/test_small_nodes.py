"""``small_nodes`` replaces the limits of nodes wherever the engine has bound them, and puts the real ones back."""

from __future__ import annotations

import ast
import sys
from types import ModuleType

import pytest

from tests.support import small_nodes as support
from tests.support.small_nodes import SMALL, WIDER, check_relations, small_nodes
from versioned_state import Memory, Versioned
from versioned_state.values.cells import ENTRY_INLINE
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.trees import chunker


def root() -> str:
    state = Versioned(Memory())
    state["list"] = [{"n": n} for n in range(500)]
    return state.commit().root


def default_limit() -> int:
    defaults = Encoder.encode.__kwdefaults__
    assert defaults is not None
    limit: int = defaults["limit"]
    return limit


def bound() -> dict[str, object]:
    """All globals of the engine's loaded modules that are numbers."""
    modules = {name: module for name, module in sys.modules.items() if name.startswith("versioned_state")}
    return {
        f"{name}.{key}": value
        for name, module in modules.items()
        for key, value in vars(module).items()
        if type(value) is int
    }


def test_the_real_limits_come_back():
    before = root(), chunker._PER_BYTE, default_limit()
    with small_nodes():
        small = root(), chunker._PER_BYTE, default_limit()
    with small_nodes(WIDER):
        wider = root()
    with pytest.raises(ZeroDivisionError), small_nodes():
        raise ZeroDivisionError
    assert before == (root(), chunker._PER_BYTE, default_limit())
    assert len({before[0], small[0], wider}) == 3
    assert before[2] == ENTRY_INLINE == 128
    assert small[2] == SMALL["values.cells"]["ENTRY_INLINE"]


def test_no_module_keeps_a_real_limit():
    with small_nodes():
        pass  # so that all modules that have one are loaded
    real = {
        key: value
        for key, value in bound().items()
        if key.rpartition(".")[2] in {name for names in SMALL.values() for name in names}
    }
    with small_nodes():
        small = bound()
    names = {f"versioned_state.{module}.{name}" for module, limits in SMALL.items() for name in limits}
    for key, value in real.items():
        if key in names or key.rpartition(".")[2] in (
            "ENTRY_INLINE",
            "ELEMENT_INLINE",
            "NODE_LEAST",
            "LEAF_LEAST",
            "GROUP_SIZE",
        ):
            assert small[key] != value, key


def test_the_relations_between_limits_hold_for_the_real_ones():
    check_relations()


@pytest.mark.parametrize(
    "source",
    [
        "class Reader:\n    limit = ELEMENT_INLINE",
        "def read(limit=ELEMENT_INLINE): ...",
        "@cached(ELEMENT_INLINE)\ndef read(): ...",
        "class Reader:\n    from versioned_state.values.cells import ENTRY_INLINE",
        "print(ELEMENT_INLINE)",
        "TABLE = {}\nTABLE['a'] = ELEMENT_INLINE",
    ],
)
def test_a_use_that_cannot_be_replaced_is_an_error(monkeypatch: pytest.MonkeyPatch, source: str):
    text = f"from versioned_state.values.cells import ELEMENT_INLINE\n{source}\n"
    monkeypatch.setattr(support, "_sources", lambda: {"versioned_state.values.newcomer": text})
    monkeypatch.setattr(support, "_parsed", lambda module: ast.parse(text))
    support._uses.cache_clear()
    try:
        with pytest.raises(AssertionError, match=r"newcomer"), small_nodes():
            pass
    finally:
        support._uses.cache_clear()


def test_a_module_that_computes_from_a_limit_is_found(monkeypatch: pytest.MonkeyPatch):
    text = (
        "from versioned_state.values.cells import ELEMENT_INLINE as most\n"
        "HALF: int = most // 2\ndef least(*, of=HALF): return of\n"
    )
    module = ModuleType("versioned_state.values.newcomer")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(text, vars(module))
    sources = {**support._sources(), module.__name__: text}
    monkeypatch.setattr(support, "_sources", lambda: sources)
    monkeypatch.setattr(support, "_parsed", lambda name: ast.parse(sources[name]))
    support._uses.cache_clear()
    try:
        with small_nodes():
            assert (module.HALF, module.least()) == (32, 32)
        assert (module.HALF, module.least()) == (2048, 2048)
    finally:
        support._uses.cache_clear()
