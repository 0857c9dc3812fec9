"""Classes change, and stores stay: old values are read as the class is now, and written again only if they change."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from versioned_state import Memory, Repository, Tagged, Versioned, register
from versioned_state.errors import StateError

pytestmark = pytest.mark.no_oracle("the classes of live values change within a test")

Release = Callable[[str], ModuleType]


@pytest.fixture
def release() -> Iterator[Release]:
    """Makes a module of source code, as the next release of an application has it."""

    def make(source: str, name: str = "an_application") -> ModuleType:
        module = ModuleType(name)
        sys.modules[name] = module
        exec(HEADER + textwrap.dedent(source), module.__dict__)
        return module

    yield make
    for name in ("an_application", "a_new_place"):
        sys.modules.pop(name, None)


HEADER = """
from __future__ import annotations
from dataclasses import dataclass, field
from typing import *
import enum, attrs, pydantic
"""
KINDS = {
    "dataclass": "@dataclass\nclass Note:\n{}",
    "slots": "@dataclass(slots=True)\nclass Note:\n{}",
    "frozen": "@dataclass(frozen=True)\nclass Note:\n{}",
    "attrs": "@attrs.define\nclass Note:\n{}",
    "pydantic": "class Note(pydantic.BaseModel):\n{}",
    "NamedTuple": "class Note(NamedTuple):\n{}",
}
FACTORY = {"attrs": "attrs.field(factory=list)", "pydantic": "[]", "NamedTuple": "()"}


def source(kind: str, *fields: str) -> str:
    return KINDS[kind].format("".join(f"    {each}\n" for each in fields))


def application(release: Release, kind: str, size: int = 1) -> tuple[Repository, ModuleType]:
    """A store with many notes of the first release."""
    module = release(source(kind, "text: str", "score: int = 0"))
    repository = Repository(Memory())
    state = Versioned(repository)
    state["notes"] = [
        module.Note(text=f"{n} " + "x" * (5000 if size > 1 and n == 7 else 10), score=n) for n in range(10 * size)
    ]
    state["one"] = module.Note(text="y" * (9000 if size > 1 else 1))
    state.commit("first release")
    return repository, module


@pytest.mark.parametrize("size", [1, 30])
@pytest.mark.parametrize("kind", KINDS)
def test_a_field_that_was_added_takes_its_default_and_is_written_with_the_next_change(release, kind, size):
    repository, _ = application(release, kind, size)
    before = _cells(repository)
    factory = FACTORY.get(kind, "field(default_factory=list)")
    module = release(source(kind, "text: str", "score: int = 0", f"tags: Any = {factory}", "mood: str = 'calm'"))
    state = Versioned(repository)
    notes = state["notes"]
    assert type(notes[0]) is module.Note
    assert all((note.tags, note.mood) in (([], "calm"), ((), "calm")) for note in (*notes, state["one"]))
    assert kind == "NamedTuple" or notes[0].tags is not notes[1].tags
    assert not state.status(), "nobody changed anything"
    assert state.commit() == state.head
    if kind in ("frozen", "NamedTuple"):
        values = {"text": "new", "score": notes[3].score, "tags": notes[3].tags, "mood": notes[3].mood}
        notes[3] = module.Note(**values)
    else:
        notes[3].text = "new"
    status = state.status()
    assert sorted(str(change.path) for change in status if not change.given) == [
        "notes[3].mood",
        "notes[3].tags",
        "notes[3].text",
    ]
    assert [str(change) for change in status if change.given] == (
        ["~ notes[3] was given only ['score', 'text']"] if kind == "pydantic" else []
    )
    state.commit("second release")
    after = _cells(repository)
    assert [index for index, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == [3], (
        "its neighbours keep their old form"
    )
    assert repository.snapshot("main~1").at("notes[3].text").startswith("3 ")
    again = Versioned(repository)
    assert (again["notes"][3].text, again["notes"][3].mood, again["notes"][4].mood) == ("new", "calm", "calm")
    assert not again.status()


def _cells(repository: Repository) -> list[Any]:
    """The notes as they are stored."""
    described = repository.snapshot("main", describe=True)["notes"]
    return [(each.name, sorted(each.fields), each.notes) for each in described]


@pytest.mark.parametrize("size", [1, 30])
@pytest.mark.parametrize("kind", KINDS)
def test_a_field_that_was_removed_stays_in_history_and_in_the_state_until_the_instance_changes(release, kind, size):
    repository, _ = application(release, kind, size)
    release(source(kind, "text: str"))
    state = Versioned(repository)
    notes = state["notes"]
    assert not hasattr(notes[0], "score")
    assert not state.status()
    notes.append({"more": 1})
    assert [str(change.path) for change in state.status()] == [f"notes[{10 * size}]"]
    state.commit()
    assert repository.snapshot("main", describe=True)["notes"][0].fields["score"] == 0
    assert repository.snapshot("main").at("notes[5].score") == 5
    if kind not in ("frozen", "NamedTuple"):
        notes[5].text = "new"
        assert {str(change.path) for change in state.status()} == {"notes[5].text", "notes[5].score"}
        state.commit()
        assert "score" not in repository.snapshot("main", describe=True)["notes"][5].fields
        assert repository.snapshot("main~1").at("notes[5].score") == 5


@pytest.mark.parametrize("kind", ["dataclass", "attrs", "pydantic"])
def test_a_field_that_was_renamed_is_upgraded(release, kind):
    repository, _ = application(release, kind)
    module = release(source(kind, "body: str", "score: float = 0.0"))

    def upgrade(fields: dict[str, Any], version: int) -> dict[str, Any]:
        assert version == 1
        fields["body"] = fields.pop("text")
        return {**fields, "score": fields["score"] / 10}

    register(module.Note, version=2, upgrade=upgrade)
    state = Versioned(repository)
    assert (state["notes"][5].body, state["notes"][5].score) == ("5 " + "x" * 10, 0.5)
    assert not state.status()
    state["notes"][5].body = "new"
    state.commit("second release")
    assert Versioned(repository)["notes"][5].body == "new"
    assert Versioned(repository)["notes"][5].score == 0.5, "not upgraded twice"
    assert Versioned(repository)["notes"][6].score == 0.6
    assert repository.snapshot("main~1")["notes"][5].body.startswith("5 "), "an old commit reads as the new class"
    assert repository.snapshot("main~1").at("notes[5].text").startswith("5 "), "and by path as it was"


def test_a_class_that_has_moved_is_found_by_the_name_that_it_had(release):
    repository, _ = application(release, "dataclass")
    moved = release(source("dataclass", "text: str", "score: int = 0").replace("Note", "Remark"), "a_new_place")
    sys.modules.pop("an_application")
    assert type(Versioned(repository)["one"]) is Tagged
    register(moved.Remark, "note", also=["an_application:Note"])
    state = Versioned(repository)
    assert type(state["one"]) is moved.Remark
    assert not state.status()
    state["notes"][2].score = 99
    state.commit()
    cells = [repository.snapshot("main").cell_at(f"notes[{n}]") for n in range(10)]
    assert [b"an_application:Note" in cell for cell in cells] == [n != 2 for n in range(10)], (
        "only that one has the new name"
    )
    assert Versioned(repository)["notes"][2].score == 99


def test_a_value_of_a_newer_version_than_the_class_is_read_and_kept(release):
    repository, module = application(release, "dataclass")
    register(module.Note, version=5)
    state = Versioned(repository)
    state["one"].text = "five"
    state.commit()
    module = release(source("dataclass", "text: str", "score: int = 0"))
    register(module.Note, version=2, upgrade=lambda fields, version: fields)
    older = Versioned(repository)
    assert older["one"].text == "five"
    assert not older.status()


CHANGES = [
    ("dataclass", "pydantic"),
    ("pydantic", "dataclass"),
    ("attrs", "dataclass"),
    ("NamedTuple", "dataclass"),
    ("dataclass", "slots"),
    ("slots", "frozen"),
    ("dataclass", "NamedTuple"),
    ("pydantic", "attrs"),
]


@pytest.mark.parametrize("size", [1, 30])
@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_a_class_of_another_kind_with_the_same_fields(release, old, new, size):
    repository, _ = application(release, old, size)
    module = release(source(new, "text: str", "score: int = 0"))
    state = Versioned(repository)
    assert type(state["notes"][4]) is module.Note
    assert (state["notes"][4].text[:2], state["notes"][4].score) == ("4 ", 4)
    assert not state.status()
    state["notes"].append(1)
    assert len(state.status()) == 1
    state.commit()
    assert not Versioned(repository).status()


@pytest.mark.parametrize("size", [1, 30])
def test_a_class_that_begins_to_say_how_it_is_pickled(release, size):
    repository, _ = application(release, "dataclass", size)
    release(source("dataclass", "text: str", "score: int = 0", "def __getstate__(self): return dict(self.__dict__)"))
    state = Versioned(repository)
    assert state["one"] == Tagged("an_application:Note", state["one"].fields), (
        "no code of the class runs because data names it"
    )
    assert state["notes"][3].fields["score"] == 3
    assert not state.status()
    state["one"].fields["score"] = 7
    assert [str(change.path) for change in state.status()] == ["one.score"]
    state.commit()
    module = release(source("dataclass", "text: str", "score: int = 0"))
    assert type(Versioned(repository)["one"]) is module.Note
    assert Versioned(repository)["one"].score == 7


def test_a_class_that_is_gone_reads_as_tagged_and_nothing_is_lost(release):
    repository, _ = application(release, "pydantic")
    sys.modules.pop("an_application")
    state = Versioned(repository)
    assert state["notes"][4] == Tagged("an_application:Note", {"text": "4 " + "x" * 10, "score": 4})
    assert not state.status()
    state["notes"][4].fields["score"] = 40
    assert [str(change.path) for change in state.status()] == ["notes[4].score"]
    state.commit()
    module = release(source("pydantic", "text: str", "score: int = 0"))
    assert Versioned(repository)["notes"][4] == module.Note(text="4 " + "x" * 10, score=40)


def test_a_member_of_an_enum_that_is_gone_reads_as_tagged(release):
    module = release("class Mood(enum.Enum):\n    CALM = 1\n    SAD = 2")
    repository = Repository(Memory())
    state = Versioned(repository)
    state["moods"] = [module.Mood.CALM, module.Mood.SAD]
    state.commit()
    module = release("class Mood(enum.Enum):\n    CALM = 'calm'")
    again = Versioned(repository)
    assert again["moods"] == [module.Mood.CALM, Tagged("an_application:Mood", "SAD")]
    assert not again.status()


def test_a_default_that_fails_says_so(release):
    repository, _ = application(release, "dataclass")
    release(source("dataclass", "text: str", "score: int = 0", "more: Any = field(default_factory=lambda: 1 / 0)"))
    with pytest.raises(StateError, match="an_application:Note"):
        Versioned(repository)["one"]


def test_a_cell_of_a_notebook_that_is_run_again(release):
    text = source("dataclass", "text: str", "score: int = 0")
    module = release(text)
    state = Versioned()
    state["note"] = held = module.Note("a")
    state.commit()
    module = release(text)
    assert not state.status()
    state["note"] = module.Note("a")
    assert not state.status(), "an equal instance of the class as it is now"
    state["note"].text = "b"
    state.commit()
    state.reset("HEAD~1")
    assert state["note"].text == "a"
    assert held.text == "a"
