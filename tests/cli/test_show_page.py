"""``vstate show --html FILE``: a commit as one file that opens anywhere."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support.command_line import Vstate
from tests.support.examples import ESCAPES
from versioned_state import Disk, Versioned

HOSTILE = '<script>alert(1)</script><img src=x onerror=alert(2)> & "quoted" \ud800'


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Versioned(Disk(tmp_path / "s"), author=HOSTILE[:60], stamp={"model": "<b>large</b>"}) as state:
        state["plan"] = {"goal": "a"}
        state.commit("first")
        state["plan"]["goal"] = HOSTILE
        state["list"] = [f"number {n}" for n in range(2000)]
        state["long"] = "x" * 5000
        state[f"key {HOSTILE[:20]}"] = ESCAPES
        state.commit(f"{HOSTILE}\n\nmore <i>of</i> it", meta={"step": 1, "said": HOSTILE})
    return tmp_path / "s"


def test_a_page_shows_all_of_a_commit_and_runs_nothing(vstate: Vstate, store: Path, tmp_path: Path):
    told = vstate("show", "--html", str(tmp_path / "page.html"), store=store)
    assert (told.code, told.stdout, told.stderr) == (0, "", "")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = Tags()
    page.feed(text)
    assert page.tags == {"html", "head", "meta", "title", "style", "body", "h1", "pre", "span"}
    assert page.attributes == {"lang", "charset", "http-equiv", "content", "name", "class"}
    assert "default-src 'none'" in text
    assert "http:" not in text
    assert "https:" not in text
    own = ("~ plan.goal", "number 1999", "x" * 5000, "step=1", "model=<b>large</b>")
    for shown in ("<script>alert(1)</script>", "more <i>of</i> it", *own):
        assert shown in page.text, shown
    assert not set(page.text) & set(map(chr, range(32))) - {"\n"}, "control characters are escaped"


def test_a_path_and_an_older_commit(vstate: Vstate, store: Path, tmp_path: Path):
    assert vstate("show", "HEAD", "--path", "plan", "--html", str(tmp_path / "page.html"), store=store).code == 0
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "plan.goal" in text
    assert "number 1999" not in text
    assert vstate("show", "HEAD~1", "--html", str(tmp_path / "page.html"), store=store).code == 0
    assert "<h1>first</h1>" in (tmp_path / "page.html").read_text(encoding="utf-8"), "the older file is replaced"


def test_what_is_refused(vstate: Vstate, store: Path, tmp_path: Path):
    for arguments in (["HEAD:plan"], ["--json"], ["--stat"]):
        assert vstate("show", *arguments, "--html", str(tmp_path / "page.html"), store=store).code == 2
    told = vstate("show", "--html", str(tmp_path), store=store)
    assert told.code == 1
    assert told.stderr.startswith("error: ")
    assert vstate("show", "none", "--html", str(tmp_path / "page.html"), store=store).code == 1
    assert not (tmp_path / "page.html").exists()
