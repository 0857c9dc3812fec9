"""Ctrl-C within an encoding leaves nothing behind that is taken for true of values that change afterwards."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from tests.support.codec import new_nodes
from tests.support.interrupts import Interrupt, Trace
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.encode.encoder import Encoder


def large() -> list[Any]:
    return [f"{number} " * 40 for number in range(60)]


@pytest.mark.parametrize("edited", [False, True])
def test_an_encoding_that_is_interrupted_while_it_forgets(edited: bool):  # noqa: FBT001 - a parameter
    """The parts that were encoded are known by their ids while they are encoded, and then change in place."""
    interrupted = 0
    for at in range(1, 40):
        nodes = new_nodes()
        encoder = Encoder(nodes)
        part = large()
        value = [part, part, {"within": part}]
        base = encoder.encode(value, None, "k")[1] if edited else None
        if edited:
            part.append("new")
        trace = _AtForgetting(at)
        with suppress(Interrupt):
            trace.run(lambda: encoder.encode(value, base, "k"))  # noqa: B023 - it is called at once
        interrupted += bool(trace.hit)
        part[3] = "changed"
        del part[10:20]
        cell, again = encoder.encode(value, None, "k")
        assert cell == Encoder(new_nodes()).encode(value, None, "k")[0], trace.hit
        assert Decoder(nodes).decode(cell) == value
        assert again is not None
        part[4] = "changed too"
        assert not encoder.fingerprinter.is_unchanged(value, again)
    assert interrupted


_FORGETTING = ("encode", "forget", "forget_found", "clear")


class _AtForgetting(Trace):
    """Interrupts at a line of the methods that forget what was kept."""

    def __call__(self, frame: Any, event: str, arg: object) -> Any:
        if frame.f_code.co_name not in _FORGETTING:
            return self if event == "call" else None
        return super().__call__(frame, event, arg)
