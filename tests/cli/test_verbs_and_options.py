"""The verbs ``rm``, ``merge-base`` and ``help``, and options of log, branch, grep, restore, import and events."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from tests.support.command_line import Vstate, assert_error
from tests.support.examples import ESCAPES, Bomb, Trip
from tests.support.forked_trips import state_of
from tests.support.terminal import until_ctrl_c
from versioned_state import Disk, Tagged, Versioned
from versioned_state.cli.main import vstate as group
from versioned_state.cli.shared.settings import Settings


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with five commits on main, and a branch that left it after the third."""
    monkeypatch.setenv("VSTATE_STORE", str(tmp_path / "steps"))
    with Versioned(Disk(tmp_path / "steps"), author="ana") as state:
        for step in range(5):
            state["step"], state["said"] = step, f"number {step}"
            state.commit(f"step {step}\n\nmore of it", meta={"step": step})
            if step == 2:
                with state.fork("idea") as idea:
                    idea["said"] = "an idea"
                    idea.commit("idea", meta={"step": 9})
    return tmp_path / "steps"


# rm


def test_rm_removes_keys_parts_and_namespaces(vstate: Vstate, tmp_path: Path):
    with Versioned(Disk(tmp_path / "s")) as state:
        state["a"], state["list"], state["deep"] = 1, [0, 1, 2, 3], {"x": {"y": 1, "z": 2}}
        state.namespace("w")["k"] = state.namespace("w").namespace("v")["k"] = 1
        state.commit()
    told = vstate("rm", "a", "list[1]", "list[-1]", "deep.x.y", "@w", store=tmp_path / "s")
    assert told.code == 0, told.stderr
    assert told.stdout.splitlines()[0].endswith("] remove a and 4 more")
    assert state_of(tmp_path / "s", describe=True) == {"list": [0, 2], "deep": {"x": {"z": 2}}}
    assert vstate("keys", store=tmp_path / "s").stdout.split() == ["deep", "list"]
    assert vstate("rm", "deep.x", "deep", "deep", "-m", "All", store=tmp_path / "s").code == 0
    assert vstate("log", "--oneline", "-1", store=tmp_path / "s").stdout.endswith("All\n")


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["notes", "nothing"], ["nothing at nothing"]),
        (["notes", "messages[9]"], ["messages[9]"]),
        (["budget.limi"], ["budget.limit"]),
        (["@nobody"], ["@nobody"]),
        (["main"], ["main is a revision, not a path"]),
        (["messages["], ["bad path"]),
        (["[0]"], ["[0]"]),
    ],
)
def test_rm_of_what_is_not_there_removes_nothing(paths: list[str], words: list[str], vstate: Vstate, own_trip: Trip):
    before = vstate("log", "--all", "--json", store=own_trip.path).stdout
    assert_error(vstate("rm", *paths, store=own_trip.path), *words)
    assert vstate("log", "--all", "--json", store=own_trip.path).stdout == before


def test_rm_leaves_the_fields_of_instances(vstate: Vstate, tmp_path: Path):
    with Versioned(Disk(tmp_path / "s")) as state:
        state["job"] = Tagged("app:Job", {"tags": [1, 2], "name": "a"})
        state.commit()
    assert_error(vstate("rm", "job.name", store=tmp_path / "s"), "field of a Job", "vstate set 'job.name' null")
    assert vstate("rm", "job.tags[0]", store=tmp_path / "s").code == 0
    assert state_of(tmp_path / "s", describe=True)["job"].fields == {"tags": [2], "name": "a"}


def test_rm_unpickles_nothing(vstate: Vstate, tmp_path: Path):
    target = tmp_path / "unpickled"
    with Versioned(Disk(tmp_path / "s"), pickle="allow") as state:
        state["bomb"], state["a"] = Bomb(target), ESCAPES
        state.commit()
    target.unlink(missing_ok=True)
    assert vstate("rm", "bomb", store=tmp_path / "s").code == 0
    assert list(state_of(tmp_path / "s", describe=True)) == ["a"]
    assert not target.exists()


# log


def test_log_in_another_order_and_by_a_template(vstate: Vstate, steps: Path):
    lines = vstate(
        "log", "--format", "{meta[step]:>2}|{author:<4}|{message}|{body}|{branches}{tags}|{{}}", "-n", "1"
    ).stdout
    assert lines == " 4|ana |step 4|step 4\n\nmore of it|main|{}\n"
    assert vstate("log", "--format", "{meta[step]}", "--reverse").stdout.split() == ["0", "1", "2", "3", "4"]
    assert (
        vstate("log", "--reverse", "-n", "2", "--format", r"{meta[none]}\t{note[score]}{meta}\n").stdout
        == "\tstep=3\n\n\tstep=4\n\n"
    )
    vstate("note", "main", "score", '{"$Decimal": "0.9"}')
    assert (
        vstate("log", "--format", "{note[score]} {note}", "-n", "1").stdout == "Decimal('0.9') score=Decimal('0.9')\n"
    )
    (line,) = vstate("log", "--format", "{id} {short} {root} {parents} {time}", "-n", "1").stdout.splitlines()
    shown = json.loads(vstate("log", "--json", "-n", "1").stdout)
    assert line.startswith(f"{shown['id']} {shown['id'][:12]} {shown['root']} {shown['parents'][0][:12]} 20")
    assert (
        vstate("log", "--format", "{message}", "--patch", "-n", "1").stdout.splitlines()[1].strip().startswith("~ said")
    )


@pytest.mark.parametrize(
    ("args", "words", "code"),
    [
        (["--format", "{shorts}"], ["{shorts}", "is not a field", "short"], 1),
        (["--format", "{author[x]}"], ["{author[x]}"], 1),
        (["--format", "{meta[}"], ["meta["], 1),
        (["--format", "{meta[]}"], ["{meta[]}"], 1),
        (["--format", "{"], ["is not a format"], 1),
        (["--format", "{id:q}"], ["is not a format"], 1),
        (["--format", "{id!r}"], ["is not a field"], 1),
        (["--format", "{id.__class__}"], ["is not a field"], 1),
        (["--format", "{id}", "--json"], ["--format and --json exclude each other"], 2),
        (["--format", "{id}", "--oneline"], ["exclude each other"], 2),
        (["--graph", "--reverse"], ["exclude each other"], 2),
        (["--graph", "--json"], ["exclude each other"], 2),
        (["-f", "--all"], ["exclude each other"], 2),
        (["-f", "main~2..main"], ["--follow takes a branch"], 2),
        (["-f", "main~2"], ["--follow takes a branch"], 1),
    ],
)
def test_a_log_that_makes_no_sense(args: list[str], words: list[str], code: int, vstate: Vstate, steps: Path):
    assert_error(vstate("log", *args), *words, code=code)


def test_log_says_on_which_branch_a_commit_was_found(vstate: Vstate, steps: Path):
    found = vstate("log", "--all", "--source", "-S", "an idea", "--oneline").stdout
    assert found.split()[1] == "idea"
    sources = {
        line.split()[0]: line.split()[1]
        for line in vstate("log", "--all", "--format", "{message} {source}", "--source").stdout.splitlines()
    }
    assert sources["idea"] == "idea"
    whole = vstate("log", "--all", "--source", "--json").objects
    assert {commit["source"] for commit in whole} == {"main", "idea"}
    assert len(whole) == 6
    assert vstate("log", "--source", "--oneline", "-n", "1").stdout.split()[1] == "main"
    assert vstate("log", "idea", "--source", "-n", "1").stdout.split()[1] == "idea"
    assert "source" not in json.loads(vstate("log", "-n", "1", "--json").stdout)


def test_meta_several_times(vstate: Vstate, steps: Path):
    def found(*args: str) -> list[str]:
        return vstate("log", "--all", *args, "--format", "{meta[step]}").stdout.split()

    assert sorted(found("--meta", "step=1", "--meta", "step=9")) == ["1", "9"]
    assert found("--meta", "step=1", "--meta", "nothing=9") == []


# Names


def test_branches_that_contain_a_commit(vstate: Vstate, steps: Path):
    assert vstate("branch", "--contains", ":/step 1").stdout.split() == ["idea", "*", "main"]
    assert vstate("branch", "--contains", "main@{step=3}").stdout.split() == ["*", "main"]
    assert vstate("branch", "--contains", "idea", "--prefix", "m").stdout == ""
    assert json.loads(vstate("branch", "--contains", "idea", "--json").stdout)["name"] == "idea"
    assert_error(vstate("branch", "--contains", "nothing"), "nothing")
    assert_error(vstate("branch", "-d", "idea", "--contains", "main"), "--contains", code=2)


def test_the_merge_base(vstate: Vstate, steps: Path):
    assert vstate("merge-base", "main", "idea").stdout.endswith("  step 2\n")
    id = vstate("merge-base", "idea", "main", "--id").stdout.strip()
    assert json.loads(vstate("merge-base", "main", "idea", "--json").stdout)["id"] == id
    assert json.loads(vstate("log", "main@{step=2}", "-n", "1", "--json").stdout)["id"] == id
    vstate("import", "-", "-b", "other", stdin=b'[{"role": "user", "content": "hi"}]')
    assert_error(vstate("merge-base", "main", "other"), "no commit in common")
    assert_error(vstate("merge-base", "main"), "B", code=2)
    assert_error(vstate("merge-base", "main", "idea", "--id", "--json"), "exclude", code=2)


def test_help(vstate: Vstate):
    assert vstate("help", "log").stdout == vstate("log", "--help").stdout
    assert vstate("help").stdout == vstate("--help").stdout
    assert_error(vstate("help", "lgo"), "no such command 'lgo'", "log", code=2)


# Values


def test_restore_takes_path_and_revision_in_either_order(vstate: Vstate, steps: Path):
    for args in (["said", "main~2"], ["main~4", "said"], ["said", ":/step 0"], ["said", "main@{step=4}"]):
        assert vstate("restore", *args).code == 0, args
    assert [vstate("get", f"main~{back}:said").stdout.strip() for back in range(4)] == [
        "number 4",
        "number 0",
        "number 1",
        "number 2",
    ]
    vstate("rm", "said")
    assert vstate("restore", "said", "main~1").code == 0  # a path that is not there now
    vstate("-b", "idea", "set", "--text", "main", "y")
    assert vstate("restore", "main", "idea").code == 0
    assert vstate("get", "main").stdout == "y\n"
    vstate("set", "--text", "idea", "x")
    assert_error(vstate("restore", "idea", "main"), "a path and a revision each", "vstate restore")
    assert_error(vstate("restore", "said", "nothing"), "nothing")
    assert_error(vstate("restore", "said", "main~1", "main~2"), "--files DIR", code=2)
    assert_error(vstate("restore", "main~1:said", "main~2"), "--files DIR", code=2)
    assert_error(vstate("restore", "said"), "REV:PATH", code=2)


def test_grep_in_all_branches(vstate: Vstate, steps: Path):
    assert vstate("grep", "number|idea", "--all").stdout == "idea:said: an idea\nmain:said: number 4\n"
    assert vstate("grep", "number|idea", "--prefix", "id").stdout == "idea:said: an idea\n"
    assert vstate("grep", ".", "--all", "--path", "said", "-l").stdout == "idea:said\nmain:said\n"
    assert vstate("grep", "n", "--all", "-c").stdout == "2 lines\n"
    assert [json.loads(line)["branch"] for line in vstate("grep", "n", "--all", "--json").stdout.splitlines()] == [
        "idea",
        "main",
    ]
    assert vstate("grep", "nothing", "--all").code == 1
    assert vstate("grep", ".", "--all", "--path", "nothing").code == 1
    assert_error(vstate("grep", "a", "main", "--all"), "--path PATH", code=2)


# Import


def test_several_files_are_imported(vstate: Vstate, tmp_path: Path):
    (tmp_path / "b").mkdir()
    message = {"role": "user", "content": "hi", "topic": "A greeting"}
    for name in ("a.json", "b/a.json", "c.json"):
        (tmp_path / name).write_text(json.dumps([message, {"role": "assistant", "content": "yes", "topic": 5}]))
    files = ["a.json", "b/a.json", "c.json"]
    told = vstate("import", *files, "--message-key", "topic")
    assert "imported 6 commits onto 3 branches, a to c" in told.stderr
    assert vstate("log", "a-2", "--format", "{message}").stdout == "5\nA greeting\n"
    again = vstate("import", *files, "--message-key", "topic")
    assert "imported 0 commits" in again.stderr
    assert "(6 were there already)" in again.stderr
    assert vstate("import", *files, "--branch-prefix", "chat").code == 0
    assert vstate("branch", "--prefix", "chat").stdout.split() == ["chat/a", "chat/a-2", "chat/c"]
    assert vstate("import", *files, "-b", "all", "--append").code == 0
    assert len(json.loads(vstate("get", "all:messages", "--json").stdout)) == 6
    assert vstate("import", "a.json", "c.json", "-b", "items", "--per-item", "--message-key", "topic").code == 0
    assert vstate("log", "items", "--format", "{message}").stdout.split("\n")[:2] == ["5", "A greeting"]


def test_several_files_of_which_one_is_wrong(vstate: Vstate, tmp_path: Path):
    (tmp_path / "a.json").write_text('[{"role": "user", "content": "hi"}]')
    (tmp_path / "wrong.json").write_text("{")
    assert_error(vstate("import", "a.json", "nothing.json"), "nothing.json")
    assert not (tmp_path / ".vstate").exists()
    result = vstate("import", "a.json", "wrong.json")
    assert "wrong.json, line 1" in result.stderr
    assert result.code == 1
    assert vstate("branch").stdout.split() == ["*", "a"]
    assert_error(vstate("import", "a.json", "a.json", "-b", "x"), "--branch names one branch", code=2)
    assert_error(vstate("import", "-", "-"), "once", code=2)
    assert_error(vstate("import"), "FILE", code=2)


# Following


@pytest.mark.parametrize("command", [["log", "-f", "--format", "{message}"], ["events", "-f"]])
def test_a_store_without_commits_is_followed(
    command: list[str], vstate: Vstate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from versioned_state.cli.shared import follow

    def sleep(_: float) -> None:
        rounds.append(1)
        if len(rounds) == 2:
            with Versioned(Disk(tmp_path / "s")) as state:
                state["a"] = 1
                state.commit("first")
        if len(rounds) == 4 and command[0] == "log":
            with Versioned(Disk(tmp_path / "s")) as state:
                for number in range(2):
                    state["a"] = number + 5
                    state.commit(f"later {number}")
        if len(rounds) == 6:
            raise KeyboardInterrupt

    rounds: list[int] = []
    vstate("init", "s")
    monkeypatch.setattr(time, "sleep", sleep)
    assert follow.PAUSE_S > 0
    result = vstate(*command, store=tmp_path / "s")
    assert result.code == 130
    assert "waiting for the first one" in result.stderr
    assert result.stdout == ("first\nlater 0\nlater 1\n" if command[0] == "log" else "")


def test_a_branch_is_followed_by_its_last_commits(vstate: Vstate, steps: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    assert vstate("log", "-f", "-n", "2", "--format", "{meta[step]}").stdout.split() == ["3", "4"]
    assert_error(vstate("log", "-f", "nothing"), "nothing")


def test_a_process_follows_a_branch_that_is_deleted_and_comes_back_until_ctrl_c(steps: Path, tmp_path: Path):
    command = ["--store", str(steps), "log", "--follow", "-n", "1", "--json", "HEAD"]
    with until_ctrl_c(*command, cwd=tmp_path) as (printed, told):
        with Versioned(Disk(steps)) as state:
            assert json.loads(printed.readline())["id"] == state.head.id
            state["n"] = "more"
            made = state.commit("more")
            assert json.loads(printed.readline())["id"] == made.id
            state.repository.branches.delete("main", force=True)
            assert "main was deleted" in told.readline()
            state.repository.branches.create("main", at=made)
        with Versioned(Disk(steps)) as state:
            state["n"] = "again"
            made = state.commit("again")
        assert json.loads(printed.readline())["id"] == made.id


# One file


def test_a_file_of_commits(vstate: Vstate, tmp_path: Path):
    with Versioned(Disk(tmp_path / "s")) as state:
        for number in range(3):
            state["n"] = number
            state.commit(f"step {number}")
    page = tmp_path / "page.html"
    shown = vstate("show", "HEAD~1", "--html", str(page), store=tmp_path / "s")
    assert (shown.stdout, shown.stderr) == ("", f"wrote {page}\n")
    assert "step 1" in (content := page.read_text())
    assert "step 2" not in content
    vstate("log", "--grep", "step [12]", "-n", "1", "--html", str(page), store=tmp_path / "s")
    assert "There are older commits" in (content := page.read_text())
    assert "step 2" in content
    assert vstate("log", "--json", "--html", str(page), store=tmp_path / "s").code == 2
    assert vstate("show", "HEAD:n", "--html", str(page), store=tmp_path / "s").code == 2
    assert_error(vstate("show", "--html", str(tmp_path / "no" / "x.html"), store=tmp_path / "s"), "cannot write")


# Completion


@pytest.mark.parametrize(
    ("words", "incomplete", "offered"),
    [
        (["help"], "merg", ["merge-base", "merge"]),
        (["help"], "nothing", []),
        (["merge-base"], "ma", ["main"]),
        (["merge-base", "main"], "id", ["idea"]),
        (["branch", "--contains"], "id", ["idea"]),
        (["grep", "x", "--prefix"], "id", ["idea"]),
        (["restore", "said"], "ma", ["main"]),
        (["rm"], "sa", ["said"]),
        (["log"], "--rev", ["--reverse"]),
        (["log", "--format", "{id}"], "--fo", ["--follow"]),
        (["get"], "--pl", ["--plain"]),
        (["set"], "--li", ["--literal"]),
        (["import"], "--message-", ["--message-key"]),
    ],
)
def test_completion(words: list[str], incomplete: str, offered: list[str], steps: Path):
    found = ShellComplete(group, {"obj": Settings()}, "vstate", "_VSTATE_COMPLETE").get_completions(words, incomplete)
    assert [item.value for item in found] == offered
