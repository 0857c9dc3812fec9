"""Values, keys, messages and names that would drive a terminal or run code: shown as they are, and never obeyed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.command_line import Vstate
from tests.support.crafted_stores import HOSTILE, craft_in
from tests.support.examples import ESCAPES, control_characters, make_hostile, plant
from versioned_state import Disk, Repository, Versioned
from versioned_state.cli.render.output import columns

KEY = '["key' + json.dumps(ESCAPES)[1:-1] + '"]'

COMMANDS: list[list[str]] = [
    *([name, *options] for name in ("log", "show") for options in ([], ["--stat"], ["--json"], ["HEAD~1"])),
    ["log", "--oneline"],
    ["log", "--all"],
    ["log", "--all", "--graph"],
    ["log", "--author", "author", "--grep", "again"],
    ["log", "-S", "owned\x07\x1b[2J"],
    ["log", "--path", KEY],
    ["log", "--author", f"({ESCAPES}".replace("\0", "")],
    ["log", "--since", ESCAPES.replace("\0", "")],
    *(["grep", *options, "second|changed|name|^key"] for options in ([], ["--json"], ["-l"], ["--path", KEY])),
    ["grep", "key", "--path", f'["{ESCAPES}"]'.replace("\0", "")],
    *(
        ["bisect", "HEAD~1", "HEAD", *options]
        for options in (["--missing", "nested"], ["--missing", "bomb", "--json"], ["--run", "false"])
    ),
    ["bisect", "HEAD~1", "HEAD", "--equals", KEY, ESCAPES.replace("\0", "")],
    ["show", "--full"],
    ["show", "HEAD~1", "--full"],
    *(
        ["diff", *options]
        for options in ([], ["--stat"], ["--json"], ["--full"], ["HEAD~2", "HEAD"], ["HEAD~2", "HEAD~1", "--json"])
    ),
    *(["diff", "--path", path] for path in (KEY, "bomb", "list[2]")),
    *(
        ["get", *options, place]
        for options in ([], ["--json"])
        for place in (KEY, "bomb", "list", "list[1]", "HEAD~1:nested", "HEAD:", "lone")
    ),
    ["get", "bomb.deeper"],
    *(
        ["blame", *options]
        for options in ([], ["--json"], [KEY, "HEAD"], ["list"], ["nested", "HEAD~1", "--json"], ["bomb"])
    ),
    *(
        ["history", path, *options]
        for path in (KEY, "bomb", "list", "nested")
        for options in ([], ["--json"], ["--full"])
    ),
    ["blame", f"key{ESCAPES}".replace("\0", "")],
    ["history", f'["{ESCAPES}"'.replace("\0", "")],
    ["keys"],
    ["keys", "--json"],
    ["status"],
    ["status", "--json"],
    ["export"],
    ["export", "--compact"],
    ["export", "HEAD:bomb"],
    # What is not there is shown in errors.
    ["get", f"key{ESCAPES}".replace("\0", "")],
    ["get", f'["{ESCAPES}"'.replace("\0", "")],
    ["log", f"branch{ESCAPES}".replace("\0", "")],
    [f"log{ESCAPES}".replace("\0", "")],
    ["log", f"--{ESCAPES}".replace("\0", "")],
]


@pytest.mark.parametrize("color", ["auto", "always"])
@pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda command: " ".join(command).encode("ascii", "backslashreplace").decode()
)
def test_nothing_drives_the_terminal_and_nothing_is_unpickled(
    color: str, command: list[str], vstate: Vstate, hostile: Path
):
    result = vstate("--color", color, *command, store=hostile)
    shown = result.stdout + result.stderr
    assert shown
    assert control_characters(without_colors(shown) if color == "always" else shown) == set()
    # And the fixture looks for the file that a pickle would make.


@pytest.mark.parametrize(
    ("command", "mark"),
    [
        *[(command, "  [0-9a-f]{12}  ") for command in ("branch -v", "tag", "status")],
        ("blame", "  (?='plain|1$)"),
        ("blame text", "  [1-5]  "),
        ("diff main~4 main --stat", "  [+~]1"),
    ],
)
def test_columns_are_those_of_what_is_shown(command: str, mark: str, vstate: Vstate, tmp_path: Path):
    names = ["plain", "x\x9b31mred", "\u202e", "名前名前", "é"]
    with Versioned(Disk(tmp_path / "store")) as state:
        for name in names:
            state[name] = 1
            state["text"] = state.get("text", "") + f"{name}\n"
            state.commit(name, author=name)
            for kind in ("branch", "tag"):
                plant(state.repository, kind, name)
    lines = vstate(*command.split(), store=tmp_path / "store").stdout.splitlines()
    ends = [columns(line[: found.end()]) for line in lines if (found := re.search(mark, line))]
    assert len(ends) >= len(names)
    assert len(set(ends)) == 1, lines


def without_colors(shown: str) -> str:
    """Without the colours that the command line itself sets, and nothing else of that kind."""
    for code in (0, 1, *range(30, 38), *range(90, 98)):
        shown = shown.replace(f"\x1b[{code}m", "")
    return shown


@pytest.mark.parametrize("command", [["get", KEY, "--json"], ["export", f"HEAD:{KEY}"]])
def test_json_gives_back_the_text_exactly(command: list[str], vstate: Vstate, hostile: Path):
    assert json.loads(vstate(*command, store=hostile).stdout) == f"value{ESCAPES}\nchanged{ESCAPES}"


def test_raw_gives_back_the_text_exactly(vstate: Vstate, hostile: Path):
    assert vstate("get", KEY, "--raw", store=hostile).stdout == f"value{ESCAPES}\nchanged{ESCAPES}"


def test_a_lone_surrogate_is_shown(vstate: Vstate, hostile: Path):
    assert vstate("get", "lone", store=hostile).stdout == "\\ud800\n"
    assert vstate("get", "lone", "--json", store=hostile).stdout == '"\\ud800"\n'


def test_an_object_shows_as_what_it_is(vstate: Vstate, hostile: Path):
    assert vstate("get", "list[1]", store=hostile).stdout.startswith("<object tests.support.examples.Bomb, ")
    shown = json.loads(vstate("get", "list[1]", "--json", store=hostile).stdout)
    assert shown["$object"]["type"] == "tests.support.examples.Bomb"
    assert shown["$object"]["imports"] == ["posix.system"]


def test_the_trap_is_armed(tmp_path: Path):
    make_hostile(tmp_path / "armed", tmp_path / "made")
    with Repository(Disk(tmp_path / "armed"), pickle="allow") as repository:
        repository.snapshot("main")["bomb"]
    assert (tmp_path / "made").exists()


def test_import_onto_a_branch_with_pickles_unpickles_nothing(vstate: Vstate, hostile: Path):
    message = b'[{"role": "user", "content": "hi"}]'
    result = vstate("import", "-", "--append", "--key", "bomb", store=hostile, stdin=message)
    assert result.code == 1
    assert "nothing was imported" in result.stderr
    assert "error: " in result.stderr
    assert vstate("import", "-", "--append", "--key", "fresh", store=hostile, stdin=message).code == 0
    with Repository(Disk(hostile, read_only=True), pickle="refuse") as repository:
        assert repository.snapshot("main")["fresh"] == [{"role": "user", "content": "hi"}]


CRAFTED = [
    "keys",
    "get a",
    "get a[5]",
    "grep zzz",
    "blame a",
    "stats --depth 2",
    "show",
    "diff --stat",
    "history a",
    "log --path a",
    "fsck",
]


@pytest.mark.parametrize("name", ["list", "map", "ordered dict", "text"])
def test_a_crafted_store_of_a_few_objects_ends_no_command_with_a_bug(name: str, vstate: Vstate, tmp_path: Path):
    """They count more elements than any machine could walk: each command ends, with a line that says what is wrong."""
    with Disk(tmp_path / "crafted") as store:
        craft_in(store, HOSTILE[name])
    for command in [*CRAFTED, f"export -o {tmp_path / 'out'}"]:
        result = vstate(*command.split(), store=tmp_path / "crafted")
        assert result.code in (0, 1), command
        assert "should not happen" not in result.stderr
        assert len(result.stderr.splitlines()) <= 4, command
        assert len(result.stdout) < 20_000, command
