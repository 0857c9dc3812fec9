"""docs/reference.md matches the signatures: its calls exist with those parameters, and it names every public one."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest

import versioned_state
from tests.support import costs
from versioned_state import (
    Change,
    Commit,
    Diff,
    EventSourced,
    Live,
    OnMoved,
    Repository,
    Snapshot,
    State,
    StateMachine,
    StateSequence,
    Versioned,
    Workspace,
    errors,
    integrations,
    sandbox,
    services,
    storage,
)
from versioned_state.agents import modules
from versioned_state.agents.tasks.task import Task
from versioned_state.cli.commands import catalog
from versioned_state.services import (
    agent_state,
    agentscope_runtime,
    memory,
    sandbox as sandbox_service,
    session as session_service,
    session_history,
)
from versioned_state.services.agent_state import VersionedStateService
from versioned_state.services.memory import VersionedMemoryService
from versioned_state.services.sandbox import SandboxService
from versioned_state.services.session import VersionedSessionService
from versioned_state.services.session_history import VersionedSessionHistoryService
from versioned_state.storage.wrappers.counting import Counts

pytestmark = pytest.mark.every_case

PAGE = (Path(__file__).parents[1] / "docs" / "reference.md").read_text(encoding="utf-8").partition("\n## vstate")[0]

OWNERS: dict[str, list[Any]] = {
    "Versioned": [Versioned],
    "StateSequence": [StateSequence, Versioned],
    "Snapshot": [Snapshot, Versioned, Repository],
    "Repository": [Repository],
    "Searching history": [Repository],
    "Diff": [Diff, Change],
    "Tasks and events": [Task],
    "Modules and sessions": [modules.StateModule, modules.VersionedSession, modules],
    "State machines": [StateMachine],
    "Event sourcing": [EventSourced],
    "Workspaces": [Workspace],
    "Services": [services, agentscope_runtime, VersionedStateService],
    "StateService": [VersionedStateService, agent_state],
    "SessionHistoryService": [VersionedSessionHistoryService, session_history],
    "MemoryService": [VersionedMemoryService, memory],
    "SessionService": [VersionedSessionService, session_service],
    "SandboxService": [sandbox, SandboxService, sandbox.BaseSandbox, sandbox_service],
}
"""Whose methods a section is about; elsewhere and after these, public names."""

_CALL = re.compile(r"(?:(?P<owner>[a-z_]+)\.)?(?P<name>[A-Za-z_]\w*)\((?P<parameters>.*)\)")
_DEFAULTS = {"OnMoved": OnMoved, "timedelta": timedelta}


def sections() -> Iterator[tuple[str, str]]:
    """Yield the parts of the page by title. A part without owners of its own has those of its section."""
    section = ""
    for part in re.split(r"^##(?=#? )", PAGE, flags=re.MULTILINE)[1:]:
        level, title, text = re.fullmatch(r"(#?) (.*?)\n(.*)", part, flags=re.DOTALL).groups()  # type: ignore[union-attr]
        if not level:
            section = title
        yield title if title in OWNERS else section, re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def calls() -> Iterator[tuple[str, str, str, str]]:
    """The calls in bold, and those in the first column of tables: the section's title, owner, name, parameters."""
    for title, text in sections():
        if title == "Frameworks":
            continue  # most are not installed here: the next test reads their source
        spans = [
            span
            for row in re.findall(r"^\| (.*?) \|", text, flags=re.MULTILINE)
            for span in re.findall(r"`([^`]+)`", row)
        ]
        spans += [re.sub(r"\s+", " ", span) for span in re.findall(r"\*\*`([^`]+)`\*\*", text)]
        for span in spans:
            if found := _CALL.fullmatch(span):
                yield title, found["owner"] or "", found["name"], found["parameters"]


def named(title: str, owner: str, name: str) -> Any:
    """What a call of the page means, or None."""
    if owner in {"branches", "tags"}:
        return getattr(getattr(Repository(), owner), name, None)
    for each in OWNERS.get(title, []):
        if hasattr(each, name):
            return getattr(each, name)
    return getattr(versioned_state, name, None) or getattr(storage, name, None)


def split(parameters: str) -> list[str]:
    parts = re.split(r",\s*(?![^()]*\))", parameters)
    return [part for part in parts if part]


CALLS = sorted(set(calls()))


def test_the_page_is_read():
    assert len(CALLS) > 60
    assert ("Versioned", "", "checkout", "rev, *, migrated=False") in CALLS


@pytest.mark.parametrize("call", CALLS, ids=lambda call: ".".join(filter(None, (call[0], call[1], call[2]))))
def test_a_call_of_the_page_exists_with_its_parameters(call):
    title, owner, name, parameters = call
    function = named(title, owner, name)
    assert function is not None, f"nothing is called {name} there"
    actual = inspect.signature(function).parameters
    order = [each for each in actual if each != "self"]
    at, only_by_keyword = 0, False
    for part in split(parameters):
        if part == "*":
            only_by_keyword = True
            continue
        if part == "…":
            return
        text, _, default = part.partition("=")
        if text.startswith("**"):
            assert name == "transaction" or text.removeprefix("**") in order
            continue
        parameter = actual.get(text.removeprefix("*"))
        assert parameter is not None, f"{name}() has no parameter {text}"
        assert order.index(parameter.name) >= at, f"{name}() takes {text} earlier"
        at = order.index(parameter.name)
        if text.startswith("*"):
            assert parameter.kind is parameter.VAR_POSITIONAL
            only_by_keyword = True
            continue
        assert (parameter.kind is parameter.KEYWORD_ONLY) == only_by_keyword, text
        if default:
            value = eval(default.replace(" MiB", " * 2**20").replace(" GiB", " * 2**30"), dict(_DEFAULTS))
            assert parameter.default == value, text
        elif not only_by_keyword:
            assert parameter.default is parameter.empty, f"{text} of {name}() has a default"


def test_the_adapters_of_the_page_are_those_that_there_are_with_their_parameters():
    told: dict[tuple[str, str], list[str]] = {}
    for module, name, parameters in re.findall(
        r"^\| `(\w+)\.(\w+)\((.*?)\)` \|", dict(sections())["Frameworks"], flags=re.MULTILINE
    ):
        told[module, name] = [part.partition("=")[0] for part in split(parameters) if part != "*"]
    folder = Path(integrations.__file__).parent
    found: dict[tuple[str, str], set[str]] = {}
    for framework in integrations.FRAMEWORKS:
        at = folder / framework.module
        files = at.glob("*.py") if at.is_dir() else [at.with_suffix(".py")]
        classes = [
            node
            for file in files
            for node in ast.parse(file.read_text(encoding="utf-8")).body
            if isinstance(node, ast.ClassDef)
        ]
        for each in classes:
            if re.match("Versioned|Round", each.name):
                inits = [
                    node for node in ast.walk(each) if isinstance(node, ast.FunctionDef) and node.name == "__init__"
                ]
                arguments = [argument for init in inits for argument in [*init.args.args, *init.args.kwonlyargs]]
                # that of its base
                found[framework.module, each.name] = {argument.arg for argument in arguments} or {"place"}
    assert found.keys() == told.keys()
    assert not {key: missing for key, names in told.items() if (missing := set(names) - found[key])}


@pytest.mark.parametrize(
    "cls",
    [Versioned, State, Live, StateSequence, Snapshot, Repository, Commit, Diff, Change],
    ids=lambda cls: cls.__name__,
)
def test_the_page_names_every_public_member(cls):
    internal = {
        "over",
        "database",
        "cell_at",
        "cells",
        "merge_height",
        "height",
        "generation",
        "tree",
        "jump",
        "jump_address",
        "meta_cell",
    }
    internal |= {
        "series",
        "address",
        "new_nodes",
        "parent_addresses",
        "parents_but_root",
        "is_root",
        "previews",
        "signature",
    }
    mapping = {"keys", "values", "items", "clear", "popitem", "setdefault", "index", "count"}  # a dict's, a list's
    members = {name for name in dir(cls) if not name.startswith("_")} - internal - mapping
    assert not {name for name in members if not re.search(rf"[`. (]{name}\b", PAGE)}


def test_the_page_names_every_public_name():
    names = {*versioned_state.__all__, *(name for name in vars(errors) if name.endswith("Error"))}
    assert not {name for name in names if not re.search(rf"\b{name}\b", PAGE)}


# Costs

_COST = re.compile(r"^\| \[(.+?)\]\(#.+?\) \| (.+?) \| (\w+) \| (\w+) \| ?(.*?) \|$", re.MULTILINE)

COSTS = {
    (section, call.replace("`", "")): (reads, writes, grows)
    for section, call, reads, writes, grows in _COST.findall(PAGE)
}
"""The rows of the table of costs: requests, and what they grow with."""

FEW = 20


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[dict[tuple[str, str], Counts]]:
    """What each call asks of a small store, and of one that has eight times as much of everything."""
    return [costs.measure(size, tmp_path_factory.mktemp("costs")) for size in (8, 64)]


def test_each_call_that_is_measured_has_its_cost_on_the_page_and_the_other_way_round():
    assert set(COSTS) == {(section, name) for section, calls in costs.CALLS.items() for name in calls}


@pytest.mark.parametrize("call", COSTS, ids=" ".join)
def test_the_costs_on_the_page_are_those_that_are_counted(call, measured):
    *requests, grows = COSTS[call]
    for kind, told in zip((reads, writes), requests, strict=True):
        found = [kind(counts[call]) for counts in measured]
        if told == "few":
            assert max(found) <= FEW
        elif told != "n":
            assert found == [int(told)] * 2
    small, large = (counts[call] for counts in measured)
    if "n" in requests or reads(small) != reads(large) or large.objects_read > 2 * small.objects_read + 4:
        assert grows, "the page says what it grows with"


def reads(counts: Counts) -> int:
    return counts.gets + counts.get_manys + counts.listings


def writes(counts: Counts) -> int:
    return counts.sets + counts.applies


TOLD_THERE = {
    "StateSequence",
    "Services",
    "StateService",
    "SessionHistoryService",
    "MemoryService",
    "SessionService",
    "SandboxService",
}
"""Sections that tell the costs of their calls themselves."""


def test_each_call_of_the_page_has_a_cost():
    told = {name.partition(",")[0].partition(" with ")[0] for _, name in COSTS}
    told |= set(re.findall(r"`(\w+)`", PAGE.partition("These make no request")[2].partition("\n## ")[0]))
    sequence = dict(sections())["StateSequence"]
    assert all(cost for cost in re.findall(r"^\| `.*? \|(.*) \|$", sequence, flags=re.MULTILINE))
    stores = {"Disk", "DiskCache", "Redis", "Postgres", "S3"}
    rest = {name if not owner else f"{owner}.{name}" for title, owner, name, _ in CALLS if title not in TOLD_THERE}
    assert rest - told - stores == {"open", "open_store", "versioned_state.open_async"}


# The command line

COMMANDS = (Path(__file__).parents[1] / "docs" / "reference.md").read_text(encoding="utf-8").partition("\n## vstate")[2]

ROWS = ["".join(row) for row in re.findall(r"^\| (`.*?) \|( .*) \|$", COMMANDS, flags=re.MULTILINE)]

IN_PROSE = {"help", "author", "policies", "ours", "theirs", "values", "literal"}
"""Options that the text below the table describes for all commands."""


def options_of(name: str) -> list[click.Option]:
    command = catalog.load(name)
    assert command is not None
    return [param for param in command.params if isinstance(param, click.Option)]


def flags_in(text: str) -> set[str]:
    return set(re.findall(r"(?<=[`\[ ])--?[A-Za-z][\w-]*(?=[` ])", text))


@pytest.mark.parametrize("name", catalog.names())
def test_the_page_names_every_command_and_option_of_the_terminal(name: str):
    rows = [row for row in ROWS if re.search(f"`{name}[ `]", row)]
    assert rows
    named = flags_in("".join(rows))
    missing = {option.name for option in options_of(name) if not option.hidden and named.isdisjoint(option.opts)}
    assert missing <= IN_PROSE


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[:20])
def test_the_options_on_the_page_are_those_of_a_command(row: str):
    commands = [name for name in catalog.names() if re.search(f"`{name}[ `]", row)]
    assert flags_in(row) <= {flag for name in commands for option in options_of(name) for flag in option.opts}
