"""The code blocks of README.md and docs/ work as printed.

Each page runs from top to bottom in an empty folder, as one program: its ``python`` blocks share their names. In a
``console`` block each line ``$ vstate …`` or ``$ python …`` is run and must succeed; lines below it, where there are
any,
are its output, with ``...`` for what varies. ``<!-- skip: next -->`` above a block leaves it out. A page with
``<!-- needs: NAMES -->`` runs where these distributions are installed: see tests/integrations/test_framework_venvs.py.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from sybil import Document, Example
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser
from sybil.typing import Parser

from tests.support.framework_venv import missing, needed_by

pytestmark = pytest.mark.every_case

ROOT = Path(__file__).resolve().parents[1]
PAGES = [page for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))] if page.exists()]
RUNNABLE = [page for page in PAGES if not missing(needed_by(page))]


def run_console(example: Example) -> None:
    """Run the commands of one ``console`` block and compare their output."""
    for block in re.split(r"^(?=\$ )", example.parsed, flags=re.MULTILINE):
        if not block.strip():
            continue
        command, _, shown = block.removeprefix("$ ").partition("\n")
        assert command.startswith(("vstate ", "python ")), (
            f"not a command that this test runs: {command!r}; skip the block?"
        )
        done = subprocess.run(
            command, shell=True, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        if shown.strip():
            assert_output(command, tidy(shown), tidy(done.stdout))


def environment() -> dict[str, str]:
    """The environment of programs: this Python and vstate first, a plain terminal of 100 columns, no user settings."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {
        "PATH": path,
        "HOME": str(Path.cwd()),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "COLUMNS": "100",
        "TZ": "UTC",
    }


def assert_output(command: str, shown: str, got: str) -> None:
    same = doctest.OutputChecker().check_output(shown, got, doctest.ELLIPSIS | doctest.DONT_ACCEPT_BLANKLINE)
    assert same, f"$ {command}\n--- shown\n{shown}--- printed\n{got}"


def tidy(output: str) -> str:
    return "\n".join(line.rstrip() for line in output.strip("\n").splitlines()) + "\n"


def run(page: Path, monkeypatch: pytest.MonkeyPatch, *parsers: Parser) -> None:
    """Run a page as one program, its commands too, or only the blocks of some parsers."""
    both = (PythonCodeBlockParser(), CodeBlockParser("console", run_console))
    document = Document.parse(str(page), *(parsers or both), SkipParser())
    main = types.ModuleType("__main__")  # so that a class defined on a page is found where Python looks for it
    monkeypatch.setitem(sys.modules, "__main__", main)
    document.namespace = main.__dict__
    for example in document.examples():
        example.evaluate()


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_page_works_as_printed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run(page, monkeypatch)


def test_the_commands_of_the_tutorial_print_the_same_at_the_end_of_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    tutorial = ROOT / "docs" / "tutorial.md"
    run(tutorial, monkeypatch)
    for example in Document.parse(str(tutorial), CodeBlockParser("console", run_console), SkipParser()).examples():
        example.evaluate()


def test_the_program_of_the_readme_runs_twice_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        run(ROOT / "README.md", monkeypatch, PythonCodeBlockParser())


DOCUMENTS = sorted({*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"})


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path):
    links = re.findall(r"\]\((?!\w+:)([^)#]*)(?:#([^)]*))?\)", prose(page))
    targets = [((page.parent / path).resolve() if path else page, anchor) for path, anchor in links]
    assert not [
        target for target, anchor in targets if not target.exists() or (anchor and anchor not in anchors(target))
    ]


def prose(page: Path) -> str:
    """The text of a page without its code."""
    return re.sub(r"^```.*?^```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_modules_that_a_page_names_exist(page: Path):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`(?:\.\./)*([\w/]+/\w+\.py)`", text))
    there = [
        f"/{path.relative_to(ROOT)}"
        for folder in ("versioned_state", "tests", "examples")
        for path in (ROOT / folder).rglob("*.py")
    ]
    assert not [name for name in named if not any(path.endswith(f"/{name}") for path in there)]


def test_the_files_that_contributing_names_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = set(re.findall(r"(?<![\w./-])((?:tests|scripts|docs|versioned_state|\.ci)/[\w./-]*\w)", text))
    assert len(files) > 20
    assert not [file for file in files if not (ROOT / file).exists()]


def test_the_files_in_which_behaviours_are_found_exist():
    page = ROOT / "docs" / "design" / "032-finding-a-behaviour.md"
    files = set(re.findall(r"`([\w/]+\.py)`", page.read_text(encoding="utf-8"))) - {"tests/test_docs.py"}
    assert len(files) > 20
    assert not [file for file in files if not (ROOT / "versioned_state" / file).is_file()]


# This test notices what is wrong on a page.

GOOD = """
```python
import dataclasses
@dataclasses.dataclass
class Point:
    x: int
```
```python
assert Point(3).x == 3 and Point.__module__ == "__main__"
open("made", "w").close()
```
```console
$ python -c "import os; print('found', os.listdir()); print(1)"
found [...]
1
$ python -c "pass"
```
<!-- skip: next -->
```console
$ rm -r something
```
```text
not run
```
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD, ""),
        ("```python\nassert 1 == 2, 'not equal'\n```", "not equal"),
        ("```python\nprint(missing)\n```", "missing"),
        ("```console\n$ python -c 'raise SystemExit(3)'\n```", "SystemExit"),
        ("```console\n$ python -c 'print(1)'\n2\n```", "--- shown"),
        ("```console\n$ rm -r something\n```", "not a command"),
    ],
)
def test_a_page_that_does_not_work_fails(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(text)
    if message:
        with pytest.raises((AssertionError, NameError), match=message):
            run(page, monkeypatch)
    else:
        run(page, monkeypatch)
