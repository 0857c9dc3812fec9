"""What is left out in a narrow terminal, and what never is: rows, wrapped lines, changes, runs of changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.support.command_line import Vstate
from tests.support.terminal import run_in_terminal
from versioned_state import Disk, Versioned
from versioned_state.cli.render.changes import change_lines
from versioned_state.cli.render.output import Span, columns, join, wrap
from versioned_state.cli.render.rows import fit_rows

COLOR = re.compile(r"\x1b\[[0-9;]*m")
AUTHOR = "A Very Long Author Name, of the Department"


def shown(items: list[tuple[str, str, str]], width: int | None) -> list[str]:
    variants = [lambda item: item, lambda item: (item[0], "", item[2])]
    return [join(line, color=False).rstrip() for line in fit_rows(items, variants, width)]


def test_rows_give_up_columns_before_the_last_cell():
    items = [("id-1", "an author", "value"), ("id-22", "another author", "a longer value")]
    assert shown(items, None) == ["id-1   an author       value", "id-22  another author  a longer value"]
    assert shown(items, 60) == shown(items, None)
    assert shown(items, 30) == ["id-1   value", "id-22  a longer value"]
    assert shown(items, 18) == ["id-1", "    value", "id-22", "    a longer value"]
    assert shown([], 30) == []


def test_a_row_may_be_shorter_than_the_others():
    assert shown([("id-1", "an author", "value")], None) == ["id-1  an author  value"]
    rows = list(fit_rows([("a", "b", "c"), ("longer", "d")], [lambda item: item], None))
    assert [join(row, color=False) for row in rows] == ["a       b  c", "longer  d"]


@given(st.lists(st.text("ab cé日", max_size=20), max_size=6), st.integers(10, 60), st.integers(0, 8))
def test_a_wrapped_line_keeps_its_words(parts: list[str], width: int, indent: int):
    spans = [Span(part, "id") if index % 2 else part for index, part in enumerate(parts)]
    lines = [join(line, color=False) for line in wrap(spans, width, indent)]
    assert " ".join(lines).split() == "".join(parts).split()
    for line in lines:
        assert columns(line) <= width or len(line.split()) == 1


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose authors, paths, values and messages are wider than a narrow terminal."""
    path = tmp_path_factory.mktemp("wide") / "store"
    with Versioned(Disk(path), author=AUTHOR) as state:
        state["messages"] = [{"role": "user", "content": "A weekend in Lisbon, please. " * 5} for _ in range(30)]
        state["deep"] = {"a" * 20: {"b" * 20: {"c" * 20: "a value that is long enough to be cut"}}}
        state.commit(
            "The first message of a conversation, which is long enough to be wrapped",
            meta={"tool": "book a train", "cost": 98.5},
        )
        state["messages"][3]["content"] = "Changed. " * 30
        state["deep"]["a" * 20]["b" * 20]["c" * 20] = "another value that is long enough to be cut"
        state.commit("second")
        state["messages"].clear()
        state.commit("clear")
        state.repository.branches.create("a-branch-with-quite-a-long-name")
    return path


@pytest.mark.parametrize(
    "command", ["blame main~1:messages -n 2", "branch -v", "show main~1", "diff main~2 main~1", "log", "reflog"]
)
def test_a_narrow_terminal_keeps_paths_and_values(command: str, wide: Path, tmp_path: Path):
    screen = run_in_terminal("--store", str(wide), "--no-pager", *command.split(), cwd=tmp_path, columns=60)
    lines = [COLOR.sub("", line) for line in screen.lines]
    path = f"deep.{'a' * 20}.{'b' * 20}.{'c' * 20}"
    assert {line for line in lines if len(line) > 60} <= {f"~ {path}"}  # a path is never cut
    text = "\n".join(lines)
    match command.split(maxsplit=1)[0]:
        case "blame":
            assert re.fullmatch(r"(\w{12}  messages\[\d\d\]  \{'role': 'user', .*…\n?){2}", text)
        case "branch":
            assert text.count("clear") == 2
            assert "ago" not in text
        case "show" | "diff":
            assert f"~ {path}\n    - 'a value that is long enough to be cut'\n    + 'another value" in text
        case "log":
            assert "    The first message of a conversation, which is long\n    enough to be wrapped" in text
            assert AUTHOR in " ".join(text.split())
        case "reflog":
            assert "main@{0}  commit: clear" in text


def test_a_change_fits_any_width(wide: Path):
    with Versioned(Disk(wide)) as state:
        for change in state.repository.diff("main~2", "main~1"):
            assert [join(line, color=False) for line in change_lines(change)] == str(change).split("\n")
            for width in (20, 40, 60, 80, 120):
                for line in change_lines(change, width):
                    assert columns(join(line, color=False)) <= max(width, len(f"~ {change.path}"))


def test_many_changes_begin_with_their_number_and_a_run_is_one_line(wide: Path, vstate: Vstate):
    for command in (["show"], ["diff"], ["log", "-p", "-1"]):
        lines = [line.strip() for line in vstate(*command, store=wide).stdout.splitlines()]
        assert lines[-4:] == ["messages  -30", "1 key: 30 removed", "", "- messages[0…29]: 30 elements"]
        full = vstate(*command, "--full", store=wide).stdout
        assert full.count("- messages[") == 30
        assert "1 key" not in full
    assert "1 key" not in vstate("show", "main~1", store=wide).stdout
