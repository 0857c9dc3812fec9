"""Diffs by word: both texts can be read off them, in a pipe and in a terminal."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, strategies as st

from tests.support.command_line import Vstate
from tests.support.terminal import run_in_terminal
from versioned_state import Disk, Versioned
from versioned_state.cli.render.output import Span
from versioned_state.cli.render.words import _parts, _text_lines


@given(st.text(alphabet="ab .\n", max_size=40), st.text(alphabet="ab .\n", max_size=40))
def test_words_hold_both_texts(old: str, new: str):
    def side(dropped: str) -> str:
        parts = _parts(old, new, full=True)
        return "".join(
            part if isinstance(part, str) else part.text[2:-2]
            for part in parts
            if not (isinstance(part, Span) and part.style == dropped)
        )

    assert side("added") == old
    assert side("removed") == new


@given(st.text(alphabet="ab \n", max_size=40), st.text(alphabet="ab \n", max_size=40))
def test_lines_of_words_hold_both_texts(old: str, new: str):
    lines = list(_text_lines(old, new, full=True))

    def side(dropped: str) -> str:
        shown = [
            "".join(p if isinstance(p, str) else p.text[2:-2] for p in line if isinstance(p, str) or p.style != dropped)
            for line in lines
        ]
        return "\n".join(shown)

    assert not any("\n" in (part if isinstance(part, str) else part.text) for line in lines for part in line)
    # A line break that one side does not have is one all the same.
    assert side("added").replace("\n", "") == old.replace("\n", "")
    assert side("removed").replace("\n", "") == new.replace("\n", "")


def test_a_long_text_shows_the_words_around_the_change(vstate: Vstate, tmp_path: Path):
    with Versioned(Disk(tmp_path / "long")) as state:
        state["text"] = "word " * 10_000 + "old" + " word" * 10_000
        state.commit()
        state["text"] = "word " * 10_000 + "new" + " word" * 10_000
        state.commit()
    shown = vstate("diff", "--word", store=tmp_path / "long").stdout
    assert "word [-old-]{+new+} word" in shown
    assert len(shown) < 200
    assert len(vstate("diff", "--word", "--full", store=tmp_path / "long").stdout) > 100_000


def test_words_have_colours_in_a_terminal(fork: Path, tmp_path: Path):
    shown = run_in_terminal(
        "--store", str(fork), "--no-pager", "diff", "what-if~1", "what-if", "--word", cwd=tmp_path
    ).text
    assert "\x1b[31m[-slow-]\x1b[0m\x1b[32m{+fast+}\x1b[0m" in shown
