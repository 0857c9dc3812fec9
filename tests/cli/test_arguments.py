"""``REV:PATH`` in every command beside the older forms, misplaced arguments, and the habits of users of git."""

from __future__ import annotations

import json

import pytest

from tests.support.command_line import Vstate, assert_error
from tests.support.examples import Trip
from versioned_state import Memory, Repository, Versioned
from versioned_state.cli.commands import catalog
from versioned_state.cli.shared.place import paths_below
from versioned_state.storage import Counting


@pytest.mark.parametrize(
    ("place", "apart"),
    [
        ("blame idea:budget", "blame budget idea"),
        ("blame merged:", "blame --json merged:"),
        ("history v1:budget.spent", "history budget.spent v1"),
        ("grep Lisbon main~3:notes", "grep Lisbon main~3 --path notes"),
        ("diff main~3:budget main:budget", "diff main~3 main --path budget"),
        ("diff main~3:budget", "diff main~3 HEAD --path budget"),
        ("diff main~3 main:budget", "diff main~3 main --path budget"),
        ("diff main~3..idea:budget", "diff main~3..idea --path budget"),
        ("show main~1:budget", "get main~1:budget"),
        ("show main~1:notes --json", "get main~1:notes --json"),
        ("log main:budget", "log main --path budget"),
        ("log v1..merged:budget --oneline", "log v1..merged --path budget --oneline"),
        ("export v1:prefs", "get v1:prefs --json"),
        ("keys main~3: m", "keys main~3 m"),
    ],
)
def test_a_path_in_a_revision_is_the_same_as_both_apart(place: str, apart: str, vstate: Vstate, trip: Trip):
    one, other = (vstate(*command.split(), store=trip.path) for command in (place, apart))
    assert one.code == other.code == 0, one.stderr
    assert one.stdout
    if "--json" not in f"{place} {apart}":
        assert one.stdout == other.stdout
    elif place.startswith("show"):
        assert json.loads(one.stdout) == json.loads(other.stdout)


def test_restore_takes_the_path_in_the_revision(vstate: Vstate, own_trip: Trip):
    assert vstate("restore", "main~3:notes", store=own_trip.path).code == 0
    assert vstate("get", "notes", store=own_trip.path).stdout == "Lisbon\nby train\nquiet\n"
    assert (
        "notes is the same in main~3: no commit"
        in vstate("restore", "notes", "--from", "main~3", store=own_trip.path).stderr
    )


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("keys prefs", ["prefs.people"]),
        ("keys v1:messages", ["messages[0]", "messages[1]", "messages[2]", "messages[3]"]),
        ("keys messages[0]", ["messages[0].role", "messages[0].content"]),
        ("keys main~2:prefs q", ["prefs.quiet"]),
        ("keys @worker", ["@worker.job"]),
        ("keys HEAD:@worker.job", ["@worker.job.id", "@worker.job.done"]),
        ("keys @worker.job.done", ["@worker.job.done[0]", "@worker.job.done[1]"]),
        ("keys main~3", ["budget", "messages", "notes", '["user/1"]']),
    ],
)
def test_keys_are_listed_inside_values(command: str, keys: list[str], vstate: Vstate, trip: Trip):
    assert vstate(*command.split(), store=trip.path).stdout.splitlines() == keys
    found = vstate(*command.split(), "--json", store=trip.path).objects
    assert [each["path"] for each in found] == keys


def test_keys_with_a_prefix_read_no_others():
    reads = []
    for count in (500, 8000):
        store = Counting(Memory())
        with Versioned(store) as state:
            state.update({f"key{number}": number for number in range(count)} | {"zz1": 1, "zz2": 2})
            state.commit()
            snapshot = Repository(store).snapshot("main")
            store.reset()
            assert [str(path) for path in paths_below(snapshot, "", "zz")] == ["zz1", "zz2"]
            reads.append(store.counts.objects_read)
    assert reads[1] <= reads[0] + 4


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("get main", ["main is a revision, not a path", "vstate get main:PATH"]),
        ("blame v1", ["v1 is a revision, not a path", "vstate blame v1:PATH"]),
        ("history idea", ["idea is a revision, not a path", "vstate history idea:PATH"]),
        ("restore main", ["REV:PATH"]),
        ("log budget", ["budget is a path, not a revision", "vstate log HEAD:budget"]),
        ("show budget", ["budget is a path, not a revision", "vstate show HEAD:budget"]),
        ("diff budget", ["budget is a path, not a revision", "vstate diff HEAD:budget"]),
        ("grep Lisbon notes", ["notes is a path, not a revision", "vstate grep REGEX HEAD:notes"]),
        ("export budget.limit", ["budget.limit is a path, not a revision", "vstate export HEAD:budget.limit"]),
        ("blame main:notes idea", ["'main:notes' names a revision, and 'idea' another one"]),
        ("diff main~3:notes main:budget", ["one path", "budget and notes"]),
        ("diff main~3:notes main --path budget", ["one path", "budget and notes"]),
        ("show main~1:notes --stat", ["error: REV:PATH shows", "--path PATH"]),
        ("policy notes ours -d", ["error: NAME and --delete"]),
        ("branch -d v1", ["v1 is a tag, not a branch", "vstate tag -d v1"]),
        ("tag -d idea", ["idea is a branch, not a tag", "vstate branch -d idea"]),
        ("get user-1", ["""written '["user-1"]'"""]),
        ("migrate nothere", ["nothere cannot be imported", "MODULE:NAME"]),
        ("restore --files nowhere", ["nothing at workspace", "--name"]),
        ("log main -- notes", ["--path notes", "REV:PATH"]),
        ("keys budget.limit", ["budget.limit is a single value", "vstate get budget.limit"]),
        ("show 00f", ["unknown revision '00f'", "an abbreviated id needs 4 digits or more"]),
        ("-b nothere log", ["there is no branch 'nothere'"]),
        ("-b v1 log", ["v1 is a tag, not a branch", "vstate switch -c NAME v1"]),
        ("-b mian show HEAD~1", ["there is no branch 'mian'", "did you mean main?"]),
    ],
)
def test_a_wrong_form_points_at_the_right_one(command: str, words: list[str], vstate: Vstate, trip: Trip):
    result = vstate(*command.split(), store=trip.path)
    assert_error(result, *words, code=result.code)
    assert result.code in (1, 2)
    assert "HEAD'" not in result.stderr


@pytest.mark.parametrize(
    ("habit", "ours"),
    [
        ("log -2", "log -n 2"),
        ("log main -1 --oneline", "log -n 1 main --oneline"),
        ("reflog -1", "reflog -n 1"),
        ("history budget -1", "history budget -n 1"),
        ("blame messages -1", "blame messages -n 1"),
        ("branch -a", "branch"),
        ("diff -p", "diff"),
        ("diff main...idea", "diff v1 idea"),
        ("diff ...idea", "diff v1 idea"),
    ],
)
def test_a_habit_of_git_works(habit: str, ours: str, vstate: Vstate, trip: Trip):
    one, other = (vstate(*command.split(), store=trip.path) for command in (habit, ours))
    assert (one.code, one.stdout) == (other.code, other.stdout) == (0, one.stdout)
    assert one.stdout


def test_a_number_that_is_the_value_of_an_option_stays(vstate: Vstate, trip: Trip):
    assert vstate("blame", "messages", "-L", "-1:", store=trip.path).stdout.count("\n") == 1
    assert vstate("log", "--grep", "-5", store=trip.path).stdout == ""


def test_log_and_show_limit_the_changes_to_a_path(vstate: Vstate, trip: Trip):
    log = vstate("log", "-p", "-1", "main~1:budget", store=trip.path).stdout
    assert log.splitlines()[-1] == "    ~ budget.spent = 0 -> 98"
    assert (
        vstate("log", "-p", "--json", "-1", "v1", store=trip.path).stdout
        == vstate("show", "v1", "--json", store=trip.path).stdout
    )
    show = vstate("show", "v1", "--path", "budget", store=trip.path).stdout
    assert show.splitlines()[-1] == "~ budget.spent = 0 -> 98"
    assert "notes" not in show
    assert (
        vstate("show", "v1", "--path", "when", "--stat", store=trip.path).stdout.splitlines()[-1]
        == " 0 keys: no changes"
    )


def test_reset_takes_hard_and_says_what_to_do_instead_of_soft(vstate: Vstate, own_trip: Trip):
    assert vstate("reset", "--hard", "v1", store=own_trip.path).code == 0
    assert_error(vstate("reset", "--soft", "main~1", store=own_trip.path), "vstate squash", code=2)


@pytest.mark.parametrize("command", ["checkout", "commit", "add", "stash", "cat", "ls", "put", "push", "pull", "clone"])
def test_a_command_that_only_git_or_a_shell_has_names_ours(command: str, vstate: Vstate):
    result = vstate(command, "x")
    assert_error(result, f"no such command '{command}'", code=2)
    assert "--help" not in result.stderr


@pytest.mark.parametrize("name", catalog.names())
def test_the_types_of_arguments_are_functions_or_those_of_click(name: str):
    """A class derived from ``click.ParamType[...]`` cannot be made with every click that pyproject.toml admits."""
    command = catalog.load(name)
    assert command is not None
    assert {type(param.type).__module__ for param in command.params} == {"click.types"}
