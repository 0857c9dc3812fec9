"""Messages of agent frameworks, in their real classes, come back as they were, and are read without the framework."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.support import processes
from tests.support.framework_messages import ANSWER, FRAMEWORKS, NEW_ANSWER, Framework, langchain, record
from versioned_state import Disk, Memory, Versioned

WITHOUT = """
import sys

class Refuse:
    '''Packages that are not there, as far as imports can tell, and those of them that were asked for.'''

    packages = sys.argv[1].split(",")
    asked = []

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.packages:
            self.asked.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
"""


# agentscope brings 300 MB, so it is not among the packages that the tests install; the others are.
HERE = {
    name: framework for name, framework in FRAMEWORKS.items() if name != "agentscope" or find_spec(name) is not None
}


@pytest.fixture(params=[pytest.param(framework, id=name) for name, framework in HERE.items()])
def framework(request: pytest.FixtureRequest) -> Framework:
    found: Framework = request.param
    return found


@pytest.fixture
def path(tmp_path: Path, framework: Framework) -> Path:
    """A store with two commits: the messages, and the same with another answer."""
    with Versioned(Disk(tmp_path / "store")) as state:
        state["messages"] = messages = framework.make()
        state.commit("asked")
        framework.answer(messages, NEW_ANSWER)
        state.commit("asked again")
    return tmp_path / "store"


def without(framework: Framework, program: str, *arguments: object) -> str:
    """The output of a program that runs where neither the framework nor pydantic is installed."""
    return processes.run(WITHOUT + dedent(program), ",".join((*framework.packages, "pydantic")), *arguments).stdout


def test_they_come_back_in_a_new_process_as_they_were(framework: Framework, path: Path):
    program = """
    import sys
    from tests.support.framework_messages import FRAMEWORKS, NEW_ANSWER, record
    from versioned_state import Disk, Versioned

    framework = next(each for each in FRAMEWORKS.values() if each.make.__name__ == sys.argv[2])
    state = Versioned(Disk(sys.argv[1]))
    for rev, change in (("HEAD~1", False), ("HEAD", True)):
        expected = framework.make()
        if change:
            framework.answer(expected, NEW_ANSWER)
        messages = state.checkout(rev)["messages"]
        assert messages == expected
        assert record(messages) == record(expected), (record(messages), record(expected))
    state["messages"]
    assert not state.status(), list(state.status())
    state["messages"] = expected
    assert not state.status(), list(state.status())
    """
    processes.run(program, path, framework.make.__name__)


def test_they_are_data(framework: Framework):
    # A store that would refuse to pickle anything.
    with Versioned(Memory(), pickle="refuse") as state:
        state["messages"] = framework.make()
        state.commit()


def test_a_change_of_one_field_shows_at_its_path(framework: Framework, path: Path):
    with Versioned(Disk(path)) as state:
        second, first = state.log()
        changes = state.diff(first, second)
        assert [(str(change.path), change.kind) for change in changes] == [(framework.path, "changed")]
        assert NEW_ANSWER in changes[0].new
        assert [entry.commit for entry in state.repository.blame(framework.path)] == [second]
        owner = framework.path.rpartition(".")[0]
        commits = {str(entry.path): entry.commit for entry in state.repository.blame(owner)}
        assert commits.pop(framework.path) == second
        assert set(commits.values()) == {first}
        assert [str(match.path) for match in state.repository.grep(NEW_ANSWER)] == [framework.path]
        assert [change.commit for change in state.repository.history(framework.path)] == [second, first]


def test_a_change_in_place_is_seen_and_taken_back(framework: Framework, path: Path):
    with Versioned(Disk(path)) as state:
        messages = state["messages"]
        before = record(messages)
        framework.answer(messages, "It snows.")
        assert [str(change.path) for change in state.status()] == [framework.path]
        state.discard()
        assert state["messages"] is messages
        assert record(messages) == before


def test_vstate_shows_them_where_the_framework_is_not_installed(framework: Framework, path: Path):
    program = """
    import json
    from contextlib import redirect_stdout
    from io import StringIO
    from versioned_state.cli.main import vstate

    shown = {}
    for line in json.loads(sys.argv[3]):
        try:
            with redirect_stdout(StringIO()) as out:
                vstate.main(["--store", sys.argv[2], *line.split()], prog_name="vstate")
        except SystemExit as end:
            assert not end.code, line
        shown[line] = out.getvalue()
    assert not Refuse.asked, Refuse.asked
    print(json.dumps(shown))
    """
    answer = f"get HEAD~1:{framework.path}"
    lines = ["show", "show --full HEAD~1", "diff", "get messages", "get messages --json", "keys messages[0]", answer]
    shown = json.loads(without(framework, program, path, json.dumps(lines)))
    for line in ("show", "diff"):
        assert framework.path in shown[line]
        assert NEW_ANSWER.split()[1] in shown[line]
    assert shown[answer] == ANSWER + "\n"
    for line in ("show --full HEAD~1", "get messages", "get messages --json"):
        assert "<object" not in shown[line]
        assert "weather" in shown[line] or "Rome" in shown[line]
    for name in framework.classes:
        assert name in shown["get messages"]
        assert name in shown["get messages --json"]
    assert json.loads(shown["get messages --json"])
    assert shown["keys messages[0]"]


def test_they_are_read_and_changed_where_the_framework_is_not_installed(framework: Framework, path: Path):
    program = """
    from versioned_state import Disk, Tagged, Versioned

    with Versioned(Disk(sys.argv[2])) as state:
        first = state.checkout("HEAD")
        messages = state["messages"]
        assert any(type(message) is Tagged for message in messages), messages
        assert not state.status(), list(state.status())
        assert first.at(sys.argv[3]) == sys.argv[4]
        messages.append("seen")
        state.commit("read elsewhere")
    """
    without(framework, program, path, framework.path, NEW_ANSWER)
    with Versioned(Disk(path)) as state:
        assert [str(change.path) for change in state.diff("HEAD~1", "HEAD")] == [f"messages[{len(framework.make())}]"]
        expected: list[Any] = framework.make()
        framework.answer(expected, NEW_ANSWER)
        assert record(state["messages"]) == record([*expected, "seen"])


def test_two_branches_that_change_different_fields_of_a_message_merge():
    with Versioned(Memory()) as state:
        state["messages"] = langchain()
        state.commit()
        other = state.fork("other")
        other["messages"][4].content = NEW_ANSWER
        other.commit()
        state["messages"][4].response_metadata["cost"] = 0.25
        state["messages"][4].name = "guide"
        state.commit()
        state.merge("other")
        message = state["messages"][4]
        assert (message.content, message.name, message.response_metadata["cost"]) == (NEW_ANSWER, "guide", 0.25)
        other.close()
