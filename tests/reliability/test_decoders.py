"""Whatever bytes a decoder is fed: a value or a ``StateError``.

``tests/values/test_fuzz.py`` has those that were made to do harm.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.support.decoders import DECODERS, Decoder
from tests.support.processes import ROOT
from versioned_state import StateError

FUZZED_FOR_S = 3600
"""Each decoder, in the long run. VSTATE_FUZZ_S, in the environment of the tests, says otherwise."""

_edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), st.binary(max_size=12)), min_size=1, max_size=5)


@cache
def decoder(name: str) -> Decoder:
    return DECODERS[name]()


@pytest.mark.parametrize("name", DECODERS)
def test_samples_are_decoded(name):
    for data in decoder(name).samples:
        if name == "nodes":  # of each node, one shape is the right one
            with suppress(StateError):
                decoder(name).decode(data)
        else:
            decoder(name).decode(data)


@pytest.mark.parametrize("name", DECODERS)
def test_edited_samples_give_a_value_or_an_error_of_ours(name):
    @settings(suppress_health_check=list(HealthCheck), max_examples=settings().max_examples * 4)
    @given(st.sampled_from(decoder(name).samples), _edits)
    def feed(sample: bytes, edits: list[tuple[float, int, bytes]]) -> None:
        data = sample
        for where, length, put in edits:
            at = int(where * len(data))
            data = data[:at] + put + data[at + length :]
        with suppress(StateError):
            decoder(name).decode(data)

    feed()


@pytest.mark.parametrize("name", DECODERS)
def test_any_bytes_give_a_value_or_an_error_of_ours(name):
    @given(st.binary(max_size=200))
    def feed(data: bytes) -> None:
        with suppress(StateError):
            decoder(name).decode(data)

    feed()


@pytest.mark.long
@pytest.mark.parametrize("name", DECODERS)
def test_fuzzer_finds_nothing(name, tmp_path):
    """Fuzz with libFuzzer, which searches for inputs that take new branches.

    Its memory and the time of an input are limited.
    """
    seconds = os.environ.get("VSTATE_FUZZ_S", FUZZED_FOR_S)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    options = [
        f"-max_total_time={seconds}",
        "-rss_limit_mb=1024",
        "-timeout=20",
        "-max_len=4096",
        "-print_final_stats=1",
        "-seed=1",
    ]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.decoders", name, corpus, *options],
        cwd=tmp_path,  # where it would write what it found
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    report = ended.stdout + ended.stderr
    assert ended.returncode == 0, report[-5000:]
    assert "stat::number_of_executed_units" in report
