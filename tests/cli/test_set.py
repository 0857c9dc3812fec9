"""``vstate set`` and ``vstate init`` make a store and its values from a terminal. Also: how a store is found."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command_line import Vstate, assert_error
from tests.support.examples import ESCAPES, Bomb, Trip
from tests.support.forked_trips import state_of
from versioned_state import Disk, Versioned
from versioned_state.cli.shared import store
from versioned_state.errors import StoreNotFoundError

# Set


def test_a_store_is_made_and_filled_from_the_terminal(vstate: Vstate, tmp_path: Path):
    assert vstate("init").stdout == "created the store ./.vstate\n"
    for path, value in (
        ("plan", "[]"),
        ("prefs", '{"theme": "light"}'),
        ("prefs.theme", '"dark"'),
        ("plan[0]", "1.0"),
        ("plan[-1]", "true"),
    ):
        assert vstate("set", path, value, "--author", "Ana").code == 0
    assert vstate("set", "--text", "notes", "[not JSON]", "-m", "Take notes").code == 0
    assert vstate("set", "raw", "-", stdin=b'{"a": [1, null]}\n').code == 0
    assert vstate("set", "raw.text", "-", "--text", stdin="naïve\n".encode()).code == 0
    assert state_of(tmp_path / ".vstate") == {
        "plan": [True],
        "prefs": {"theme": "dark"},
        "notes": "[not JSON]",
        "raw": {"a": [1, None], "text": "naïve\n"},
    }
    log = vstate("log", "--json").objects
    assert [commit["message"] for commit in log[:3]] == ["set raw.text", "set raw", "Take notes"]
    assert {commit["author"] for commit in log[3:]} == {"Ana"}


def test_what_is_set_is_told_and_the_same_value_makes_no_commit(vstate: Vstate, own_trip: Trip):
    told = vstate("set", "budget.limit", "700", store=own_trip.path)
    assert told.stdout.splitlines()[0].endswith("] set budget.limit")
    assert told.stdout.splitlines()[1] == " budget ~1"
    again = vstate("set", "budget.limit", "700", store=own_trip.path)
    assert (again.stdout, again.stderr, again.code) == ("", "budget.limit has that value already: no commit\n", 0)
    assert vstate("-b", "idea", "set", "@worker.job", "null", store=own_trip.path).code == 0
    assert vstate("get", "idea:@worker.job", store=own_trip.path).stdout == "None\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["budget.limit", "dark"], ["'dark' is not JSON", "nothing was changed", "vstate set --text budget.limit"]),
        (["budget.limit", "[" * 100_000], ["is not JSON"]),
        (["a", "1" * 10_000], ["is not JSON"]),
        (["nothing.limit", "1"], ["nothing at nothing", "vstate set nothing '{}'"]),
        (["messages[9]", "1"], ["nothing at messages[9]", "messages has 4 elements; messages[4] appends one"]),
        (["messages[9].role", "1"], ["nothing at messages[9]", "messages has 4 elements"]),
        (["messages.role", "1"], ["a value of type list", "a key cannot be set"]),
        (["budget[0]", "1"], ["a value of type dict", "an index cannot be set"]),
        (["notes.x", "1"], ["a value of type str"]),
        (["@worker", "1"], ["a key must follow a namespace"]),
        (["[0]", "1"], ["a state has keys"]),
        (["messages[", "1"], ["bad path"]),
        (["", "1"], ["bad path"]),
    ],
)
def test_what_cannot_be_set_changes_nothing(args: list[str], words: list[str], vstate: Vstate, own_trip: Trip):
    before = vstate("log", "--all", "--json", store=own_trip.path).stdout
    result = vstate("set", *args, store=own_trip.path)
    assert_error(result, *words)
    assert len(result.stderr) < 1000
    assert vstate("log", "--all", "--json", store=own_trip.path).stdout == before


class Role(enum.Enum):
    USER = "user"
    ASSISTANT = "assistant"


@dataclass
class Message:
    role: Role
    content: str


@dataclass(frozen=True)
class Prefs:
    limit: int
    names: Names


class Names(list[str]):
    pass


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    with Versioned(Disk(tmp_path / "chat")) as state:
        state["messages"], state["prefs"] = [Message(Role.USER, "hi")], Prefs(100, Names(["a"]))
        state["role"] = Role.USER
        state.commit()
    return tmp_path / "chat"


def test_a_field_is_set_like_a_key_and_the_instance_keeps_its_class(vstate: Vstate, chat: Path):
    for args in (
        ["messages[0].content", '"hello"'],
        ["messages[0].role", "ASSISTANT", "--text"],
        ["prefs.limit", "50"],
        ["prefs.names[0]", '"b"'],
        ["prefs.names[1]", '"c"'],
        ["role", '"ASSISTANT"'],
    ):
        assert vstate("set", *args, store=chat).code == 0, args
    with Versioned(Disk(chat)) as state:
        assert state["messages"] == [Message(Role.ASSISTANT, "hello")]
        assert state["prefs"] == Prefs(50, Names(["b", "c"]))
        assert type(state["prefs"].names) is Names
        assert state["role"] is Role.ASSISTANT


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("prefs.limits", ["nothing at prefs.limits", "prefs is of type Prefs, with limit, names"]),
        ("prefs.limits.x", ["nothing at prefs.limits", "prefs is of type Prefs, with limit, names"]),
        ("prefs[0]", ["prefs is a value of type Prefs, in which an index cannot be set"]),
        ("prefs.names.x", ["prefs.names is a value of type Names, in which a key cannot be set"]),
        ("prefs.names[5]", ["prefs.names has 1 element; prefs.names[1] appends one"]),
        ("messages[0].role.value", ["messages[0].role is a value of type Role"]),
    ],
)
def test_what_is_no_part_of_an_instance_is_not_set(path: str, words: list[str], vstate: Vstate, chat: Path):
    assert_error(vstate("set", path, "1", store=chat), *words)
    assert vstate("log", "--oneline", store=chat).stdout.count("\n") == 1


def test_standard_input_must_be_text(vstate: Vstate, own_trip: Trip):
    assert_error(vstate("set", "a", "-", "--text", store=own_trip.path, stdin=b"\xff"), "not text in UTF-8")


def test_setting_unpickles_nothing(vstate: Vstate, tmp_path: Path):
    target = tmp_path / "unpickled"
    with Versioned(Disk(tmp_path / "store"), pickle="allow") as state:
        state["bomb"], state["deep"] = Bomb(target), {"bomb": Bomb(target), "text": ESCAPES}
        state.commit()
    target.unlink(missing_ok=True)
    assert vstate("set", "other", "1", store=tmp_path / "store").code == 0
    assert_error(
        vstate("set", "deep.text", "1", store=tmp_path / "store"), "would have to be unpickled, which vstate never does"
    )
    assert vstate("set", "bomb", "1", store=tmp_path / "store").code == 0
    assert not target.exists()


def test_a_branch_that_does_not_exist_is_not_begun(vstate: Vstate, own_trip: Trip):
    assert_error(vstate("-b", "nothere", "set", "a", "1", store=own_trip.path), "there is no branch 'nothere'")
    assert "nothere" not in vstate("branch", store=own_trip.path).stdout


# Init, and the stores that commands find


def test_init_leaves_a_store_as_it_is(vstate: Vstate, own_trip: Trip):
    before = vstate("log", "--all", "--json", store=own_trip.path).stdout
    result = vstate("init", str(own_trip.path))
    assert (result.code, result.stdout) == (0, f"there is a store already: {own_trip.path}\n")
    assert vstate("log", "--all", "--json", store=own_trip.path).stdout == before


def test_init_makes_the_store_that_is_named(vstate: Vstate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for args in (["init", "one"], ["--store", "two", "init"]):
        assert vstate(*args).code == 0
    monkeypatch.setenv("VSTATE_STORE", "disk:three")
    assert vstate("init").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "three", "two"]
    monkeypatch.delenv("VSTATE_STORE")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    assert_error(vstate("init", "other"), "hint: ")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["file"]


def test_init_makes_an_encrypted_store(vstate: Vstate, tmp_path: Path):
    (tmp_path / "key").write_bytes(os.urandom(32))
    assert vstate("init", "secret", "--key-file", "key").code == 0
    assert vstate("set", "a", "1", "--key-file", "key", store=tmp_path / "secret").code == 0
    assert_error(vstate("get", "a", store=tmp_path / "secret"), "--key-file")


@pytest.mark.parametrize("below", ["sub/deep", ".vstate", ".vstate/inner"])
def test_a_store_is_found_upwards(below: str, vstate: Vstate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    vstate("init")
    vstate("set", "a", "1")
    (tmp_path / below).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path / below)
    assert vstate("get", "a").stdout == "1\n"
    assert vstate("set", "a", "2").code == 0
    assert vstate("switch", "-c", "other").code == 0
    monkeypatch.chdir(tmp_path)
    assert vstate("get", "a").stdout == "2\n"
    assert "* other" in vstate("branch").stdout  # the choice is that of one store, wherever one stands


def test_a_store_of_any_name_is_found_from_within(vstate: Vstate, own_trip: Trip, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(own_trip.path)
    assert vstate("log", "--oneline").stdout == vstate("log", "--oneline", store=own_trip.path).stdout


def test_the_nearest_store_wins_and_an_import_goes_there(
    vstate: Vstate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    vstate("init")
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "sub" / "deep")
    assert vstate("import", "-", stdin=b'[{"role": "user", "content": "hi"}]').code == 0
    assert not list((tmp_path / "sub").rglob(".vstate"))
    monkeypatch.chdir(tmp_path / "sub")
    assert vstate("init").code == 0
    monkeypatch.chdir(tmp_path / "sub" / "deep")
    assert_error(vstate("log"), "there are no commits yet")


def test_a_store_of_another_user_above_is_not_taken(vstate: Vstate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In a shared folder such as /tmp, anybody could put a store above ours, and be given what we import."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    vstate("init")
    os.chown(tmp_path / ".vstate", 12345, 12345)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert_error(vstate("log"), "no store was named")


def test_a_deleted_folder_has_no_store(vstate: Vstate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(StoreNotFoundError):
        store.locate(None)
    os.chdir(tmp_path)
