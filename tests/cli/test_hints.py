"""The way out of an error, in the words of the command line.

That none of them is Python's, every test of a command checks.
"""

from __future__ import annotations

import ast
import shlex
from pathlib import Path

import pytest

import versioned_state
from tests.support.command_line import Vstate, assert_error, speaks_python
from tests.support.examples import Trip
from versioned_state import errors
from versioned_state.cli.shared.hints import _HINTS, hint_of, message_of


def test_what_was_deleted_is_brought_back_by_the_hint(vstate: Vstate, own_trip: Trip, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VSTATE_STORE", str(own_trip.path))
    assert vstate("branch", "it's").code == 0
    for kind, name in (("branch", "it's"), ("tag", "v1")):
        assert vstate(kind, "-d", name).code == 0
        result = vstate(kind, "-d", name)
        assert_error(result, f"there is no such {kind}; it was deleted", "brings it back")
        command = result.stderr.partition("hint: vstate ")[2].removesuffix(" brings it back\n")
        assert vstate(*shlex.split(command)).code == 0
        assert vstate("show", name).code == 0
    vstate("branch", "-D", "idea")
    assert_error(vstate("switch", "idea"), "vstate branch idea 'idea@{1}' brings it back")


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (["branch", "-d", "idea"], "vstate branch -D idea"),
        (["branch", "-d", "ideas"], "did you mean idea?"),
        (["branch", "-m", "mian", "x"], "did you mean main?"),
        (["switch", "mian"], "did you mean main?"),
        (["tag", "-d", "v11"], "did you mean v1?"),
        (["reflog", "mian"], "did you mean main?"),
        (["log", "main..mian"], "did you mean main?"),
        (["switch", "nothing"], "vstate switch -c nothing"),
        (["show", "main@{99}"], "vstate reflog main"),
        (["merge", "idea", "--set"], "vstate merge --help"),
        (["show", "main~99"], "vstate log"),
        (["show", "main..idea"], "take ranges"),
        (["log", "--grep", "("], "a backslash"),
        (["log", "--author", "["], "a backslash"),
        (["grep", "("], "-F"),
        (["verify", "--key", "x", "--since", "abc"], "vstate verify --help"),
        (["prune"], "vstate prune --help"),
        (["purge", "--yes"], "vstate purge --help"),
        (["branch", "idea"], "vstate switch idea"),
        (["tag", "v1"], "vstate tag -d v1"),
        (["keys", "nothere"], "vstate keys lists"),
    ],
)
def test_the_hint_names_a_command_or_an_option(command: list[str], hint: str, vstate: Vstate, own_trip: Trip):
    vstate("branch", "-D", "merged", store=own_trip.path)
    result = vstate(*command, store=own_trip.path)
    assert_error(result, code=result.code)
    assert result.code in (1, 2)
    assert hint in result.stderr.partition("hint: ")[2]


ERRORS: list[errors.StateError] = [
    errors.BranchMovedError("main", expected="a" * 48, actual="b" * 48),
    errors.BranchMovedError("main", expected="a" * 48, actual=None),
    errors.CommitInDoubtError("a" * 48),
    errors.PatchConflictError(["a"]),
    errors.UnmergedBranchError("it's", "a" * 48),
    errors.PickleRefusedError(
        "an object of type X would have to be unpickled, which is refused", policy="refuse", hint="pickle='allow'"
    ),
    errors.WrongKeyError("the store is encrypted with another key", hint="give it in old_keys"),
    errors.StoreBusyError("it is held by another writer", hint="try again, or open it with a longer timeout"),
    errors.StoreBusyError("all connections are in use", hint="raise max_connections"),
    errors.RefExistsError("branch", "it's"),
    errors.StorageFullError("the disk is full", hint="make room on the disk"),
    errors.StorageFullError("the store is at its size limit", limit=10, hint="open the store with a larger size_limit"),
    errors.UnsafeStoreError(
        "a network file system", hint="use a local folder; allow_network=True if one machine alone opens it"
    ),
    errors.ReadOnlyError("the store cannot be written", hint="open it with Disk(path, read_only=True)"),
    errors.UnserializableValueError("a", "X", "it is an object"),
    errors.UnknownRevisionError("b", deleted="branch"),
    errors.UnknownRevisionError("00f"),
    errors.UnknownRevisionError("HEAD", near=["main"]),
    errors.UnknownRevisionError("b"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{type(error).__name__}-{error}"[:60])
def test_what_is_said_in_a_terminal_is_no_python(error: errors.StateError):
    assert hint_of(error)
    assert not speaks_python(f"error: {message_of(error)}\nhint: {hint_of(error)}")
    assert "staged" not in message_of(error)
    assert "; " not in message_of(error)[-3:]


def test_a_full_disk_has_no_limit_to_raise():
    assert hint_of(errors.StorageFullError("the disk is full", hint="make room")) == "make room"


def test_what_has_no_way_out_in_python_has_none_in_a_terminal():
    assert hint_of(errors.PickleRefusedError("a patch carries data only", policy="refuse")) == ""


def test_python_is_told_from_what_is_typed():
    for said in (
        "create('b', at='b@{1}') brings it back",
        "refresh() first",
        "keep_last or older_than",
        "policies={'a': 'append'} keeps",
        "allow_network=True",
    ):
        assert speaks_python(f"hint: {said}"), said
    for said in (
        "vstate branch b 'b@{1}' brings it back",
        "--policy messages=append keeps what both appended",
        "(key): it is a text",
        "a, b(c)",
    ):
        assert not speaks_python(f"hint: {said}"), said


def test_hints_are_quoted_for_the_shell(tmp_path: Path):
    assert "'it'\"'\"'s'" in hint_of(errors.UnmergedBranchError("it's", "a" * 48))


# Hints of the engine that name calls or arguments, and cannot be met in a terminal, or are right there.
_FOR_PROGRAMS = {
    "vstate serve starts and stops its services itself": ["await service.start(), or use it in `async with service:`"],
    "a program must commit or discard; a command has nothing staged": ["commit() or discard() first"],
    "vstate log and grep put their own hint in its place": ["re.escape() searches for a text as it is"],
    "vstate apply checks the patch first": ["Diff.to_patch() gives one"],
    "vstate effects roll-back says it in its own words": [
        "pass it: using=[…]",
        "settle_effect() or forget_effect() ends that",
    ],
    "vstate calls no effect": ['another effect needs another key; arguments="any" does not compare them'],
    "only a program names records": ["1 to x bytes, without lone surrogates; branch_name() makes any text one"],
    "only a program registers": ["register() takes functions too"],
    "vstate checks the key file first": ["make one with secrets.token_bytes(x), and keep it apart from the store"],
    "vstate reads no value of a type of the user's": [
        "its class may be missing here or have changed since; register() types whose values must last",
        "from_data() must read whatever to_data() has ever written",
    ],
    "a program's own call": [
        "@runtime_checkable",
        "for example x=timedelta(days=30)",
        "state.diff(a, b) takes revisions",
        'partial(book, "Rome")',
        'executor="threads", or a Disk',
        "HEAD is the current commit; an event in a Live has no commit_hash",
        'save_session_state("one", agent=agent)',
        "JSONSession(save_dir=x) is all sessions of a folder",
        "allow_not_exist=True leaves the modules as they are",
        "Tiered(Memory(), Disk('./agent-state'))",
        "for example Disk('./agent-state'), or Memory()",
        "discard(), and do it again under a new lock; a longer ttl=, commits and renew() keep a lock",
        "apply() is not a function of value and event alone, has changed, or the events were edited",
    ],
    "an option of the store's URL": ["raise max_connections"],
    "vstate runs no event loop": [
        "under trio, run the synchronous call in a thread: await trio.to_thread.run_sync(state.commit)",
        "open a store with versioned_state.open(url)",
    ],
}


class _Hints(ast.NodeVisitor):
    """Collects the hints of a module, each with the name of its error, and with an x for each inserted value."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self._class = ""

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer, self._class = self._class, node.name
        self.generic_visit(node)
        self._class = outer

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else self._class  # super().__init__(…)
        self.found += [(name, literal(each.value)) for each in node.keywords if each.arg == "hint"]
        self.generic_visit(node)


def literal(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(literal, parts))
        case ast.FormattedValue():
            return "x"
        case _:
            return ""


def test_every_hint_of_the_engine_that_speaks_python_has_one_for_the_terminal():
    known = [each for hints in _FOR_PROGRAMS.values() for each in hints]
    package = Path(versioned_state.__file__).parent
    hints = _Hints()
    for file in package.rglob("*.py"):
        # only programs call the last three
        if file.relative_to(package).parts[0] not in ("cli", "sandbox", "services", "integrations"):
            hints.visit(ast.parse(file.read_text("utf-8")))
    assert len(hints.found) > 50
    left = set()
    for name, hint in hints.found:
        cls = getattr(errors, name, None)
        is_translated = isinstance(cls, type) and any(base in _HINTS for base in cls.__mro__)
        if speaks_python(f"hint: {hint}") and not is_translated and hint not in known:
            left.add((name, hint))
    assert left == set()


@pytest.mark.parametrize(
    "command", ["log", "show", "diff", "get x", "blame", "keys", "keys x", "undo", "grep x", "export", "tag v1"]
)
def test_a_store_without_commits_says_how_to_make_the_first(command: str, vstate: Vstate, tmp_path: Path):
    store = tmp_path / "new"
    assert vstate("init", str(store)).code == 0
    assert_error(vstate(*command.split(), store=store), "there are no commits yet", "vstate set PATH VALUE")


def test_a_file_that_is_no_patch_names_the_command_that_writes_one(vstate: Vstate, own_trip: Trip, tmp_path: Path):
    file = tmp_path / "patch.json"
    file.write_text('[{"role": "user"}]', encoding="utf-8")
    assert_error(vstate("apply", str(file), store=own_trip.path), "is not a change", "vstate diff A B --patch")


def test_a_prune_that_cuts_nothing_says_what_keeps_commits(vstate: Vstate, own_trip: Trip):
    result = vstate("prune", "--keep-last", "1000", store=own_trip.path)
    assert result.code == 0
    assert "0 branches" in result.stdout
    assert "--expire" in result.stderr
