"""``vstate`` shows the stamps of commits, and finds commits by them."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import Vstate
from versioned_state import Disk, Versioned


def test_in_the_terminal(vstate: Vstate, tmp_path: Path):
    with Disk(tmp_path / "s") as store:
        for n in range(4):
            with Versioned(store, stamp={"model": "large-2" if n > 1 else "large-1", "step": n}) as state:
                state["n"] = n
                state.commit(f"round {n}", meta={"round": n})
    shown = vstate("show", store=tmp_path / "s").stdout
    assert "meta    round=3\n" in shown
    assert "stamp   model=large-2 step=3\n" in shown
    assert '"stamp": {"model": "large-2", "step": 3}' in vstate("show", "--json", store=tmp_path / "s").stdout
    log = vstate("log", "--oneline", "--stamp", "model=large-1", store=tmp_path / "s").stdout
    assert [line.split("  ")[-1] for line in log.splitlines()] == ["round 1", "round 0"]
    assert vstate("log", "--stamp", "model=large-1", "--stamp", "step=3", store=tmp_path / "s").stdout == ""
    either = vstate("log", "--oneline", "--stamp", "step=1", "--stamp", "step=3", store=tmp_path / "s").stdout
    assert len(either.splitlines()) == 2
    formatted = vstate("log", "--format", "{message} {stamp[model]}", "-n", "1", store=tmp_path / "s").stdout
    assert formatted == "round 3 large-2\n"
    found = vstate("bisect", "HEAD~3", "--stamp", "model=large-2", store=tmp_path / "s")
    assert "first bad commit" in found.stdout
    assert "round 2" in found.stdout
    assert vstate("bisect", "HEAD~3", "--stamp", "model=large-2", "--empty", "n", store=tmp_path / "s").code == 2
