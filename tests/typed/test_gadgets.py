"""A hostile store names what it likes: nothing of it runs, and if the store is not trusted nothing is even imported."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support import gadgets
from tests.support.long_runs import first
from tests.support.processes import run
from tests.support.stores import SharedMemory
from versioned_state import Memory, Repository, Tagged, Versioned
from versioned_state.errors import StateError

pytestmark = pytest.mark.no_oracle("classes whose code must not run, and data that nobody but an attacker writes")

NAMES = [
    *(
        f"tests.support.gadgets:{name}"
        for name in ["Outer", "Outer.Inner", *(type.__getattribute__(cls, "__name__") for cls in gadgets.GADGETS)]
    ),
    *(
        "os:system",
        "os:_wrap_close",
        "subprocess:Popen",
        "builtins:eval",
        "builtins:exec",
        "builtins:type",
        "builtins:object",
        "builtins:open",
    ),
    *(
        "tests.support.gadgets:nothing",
        "tests.support.gadgets:ran",
        "tests.support.gadgets:Init.__init__",
        "tests.support.gadgets:os.system",
    ),
    *(
        "functools:partial",
        "operator:attrgetter",
        "types:CodeType",
        "types:FunctionType",
        "weakref:finalize",
        "logging:Logger",
        "io:FileIO",
    ),
    *(
        "zipfile:ZipFile",
        "tempfile:TemporaryDirectory",
        "threading:Thread",
        "ctypes:CDLL",
        "pathlib:Path",
        "builtins:memoryview",
        "socket:socket",
    ),
    *("builtins:SystemExit", "builtins:KeyboardInterrupt", "builtins:BaseExceptionGroup", "sys:exit", "no:Such"),
    *(
        ":",
        "x",
        "a:",
        ":b",
        "os.path:..",
        "os:system:x",
        "..os:system",
        "tests.support.gadgets:__dict__",
        "os:environ",
        "\x00:a",
        "a b:c",
    ),
]
DATA: list[Any] = [
    {},
    {"field": 1, "a": 2, "__class__": 1, "__dict__": {"x": 1}, "args": ("x",), "__slots__": ("y",), "__cause__": 5},
    {"args": ("echo ran",), "__init__": 1, "__del__": 2, "__getattribute__": 3},
    ["echo ran"],
    ["echo ran", {"shell": True}],
    "A",
    "B",
    ("A", "B"),
    64,
    -1,
    None,
    b"x",
    {1: 2},
    {"x"},
]
NOTES: list[dict[str, Any] | None] = [
    None,
    {"fields": {"field": 1, "__class__": 2}},
    {
        "set": frozenset({"field"}),
        "extra": frozenset({"field", "a"}),
        "more": frozenset({"__class__", "field"}),
        "unset": frozenset({"a"}),
    },
    {"factory": "eval", "maxlen": -5, "tuple": True, "version": "x"},
    {"set": 5, "version": -1},
    {"version": 10**30},
]


AT_WORK = {"str __hash__"}
"""A key has to be hashed."""


@pytest.fixture(autouse=True)
def _nothing_runs() -> Iterator[None]:
    gadgets.RAN.clear()
    yield
    assert set(gadgets.RAN) - AT_WORK == set()


def hostile(store: Memory, name: str, *, large: bool = False) -> None:
    """A store that holds values under a name with whatever data and notes."""
    writer = Versioned(Repository(store, pickle="refuse"))
    cases = itertools.product(DATA[:6], NOTES[:3]) if large else itertools.product(DATA, NOTES)
    for number, (data, notes) in enumerate(cases):
        if large:
            data = {**data, "large": "x" * 9000} if type(data) is dict and 1 not in data else [data, "x" * 9000]  # noqa: PLW2901
        writer[f"v{number:03}"] = {"in": [Tagged(name, data, notes)]}
    writer["as key"] = {Tagged(name, 1): {Tagged(name, "A")}}
    writer.commit()


def _cases() -> list[tuple[str, bool]]:
    """Return every name, and the names of gadgets in large instances too, of which everyday runs take every third."""
    large = [(name, True) for name in NAMES if "gadgets" in name]
    return [*((name, False) for name in NAMES), *large[::3], *first(0, large[1::3] + large[2::3])]


@pytest.mark.parametrize(("name", "large"), _cases())
def test_nothing_of_it_runs(name: str, large: bool, capfd: pytest.CaptureFixture[str]):  # noqa: FBT001 - a parameter of the test
    for store in (Memory(), SharedMemory()):
        hostile(store, name, large=large)
        repository = Repository(store)
        state = Versioned(repository)
        snapshot, described = repository.snapshot("main"), repository.snapshot("main", describe=True)
        for key in list(state):
            _read(snapshot, key)
            _read(described, key)
            if _read(state, key) is not None and not store.private:
                assert type(_read(state, key)) is Tagged or name.startswith("builtins:")
        _compare(state)
    assert capfd.readouterr().out == ""


def _read(view: Any, key: str) -> Any:
    with suppress(StateError):
        value = view[key]
        return value["in"][0] if "in" in value else None
    return None


def _compare(state: Versioned) -> None:
    """Status, a commit, and a move of the head, over all that could be read."""
    state.status()
    state["beside"] = 1
    state.commit("beside", skip_unserializable=True)
    str(state.diff("HEAD~1"))
    list(state.grep("nothing at all"))
    with suppress(StateError):  # an instance that no class of its name would make may be none that can be stored again
        state.reset("HEAD~1")
        state.undo()
        state.discard()
    gone = Versioned(state.repository)
    with suppress(StateError):
        for key in list(gone)[:20]:
            del gone[key]
        gone.commit(skip_unserializable=True)
    with suppress(StateError):
        state.refresh()


PROGRAM = """
    import sys
    from tests.support.stores import SharedMemory
    from versioned_state import *
    NAMES = [
        "antigravity:x", "this:s", "gadget_of_a_stranger:Gadget", "xml.dom.minidom:Document", "turtle:Turtle",
        "turtledemo:x",
    ]
    trusted, untrusted = Memory(), SharedMemory()
    for store in (trusted, untrusted):
        writer = Versioned(Repository(store, pickle="refuse"))
        for number, name in enumerate(NAMES):
            writer[f"small{number}"] = [Tagged(name, {"a": 1})]
            writer[f"large{number}"] = [Tagged(name, {"a": "x" * 9000, "b": Tagged(name, [1])})]
        writer.commit("first")
        writer["small0"][0].fields["a"] = 2
        writer.commit("second")
    def look(repository):
        before = set(sys.modules)
        state = Versioned(repository)
        for key in state: state[key]
        state["small1"][0].fields["a"] = 5 if type(state["small1"][0]) is Tagged else 0
        state.status(explain=True); state.commit(); str(state.diff("HEAD~1"))
        list(state.log(changed=2)); list(state.grep("x"))
        state.undo()
        repository.fsck(); repository.gc()
        return {name.partition(":")[0] for name in NAMES} & (set(sys.modules) - before)
    print(sorted(look(Repository(untrusted))), sorted(look(Repository(trusted, pickle="refuse"))))
    described = Repository(trusted).snapshot("main", describe=True)
    print([type(described[key][0]).__name__ for key in ("small0", "large0")], "this" in sys.modules)
"""


def test_in_a_store_that_is_not_trusted_nothing_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "gadget_of_a_stranger.py").write_text("print('imported')")
    monkeypatch.chdir(tmp_path)
    lines = run(PROGRAM).stdout.splitlines()
    assert lines == ["[] []", "['Tagged', 'Tagged'] False"]


def test_a_module_that_fails_to_import_is_no_failure_of_the_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "broken_module.py").write_text("raise RuntimeError('broken')")
    monkeypatch.chdir(tmp_path)
    program = """
        from versioned_state import *
        state = Versioned(Memory())
        state["a"] = [Tagged("broken_module:X", {"a": 1}), 5]
        state.commit()
        print(Versioned(state.repository)["a"])
    """
    assert run(program).stdout.strip() == "[Tagged(name='broken_module:X', fields={'a': 1}), 5]"


def test_instances_of_gadgets_are_written_without_running_them():
    """The owner's own: their fields are taken past whatever the class does with them."""
    made = [
        object.__new__(cls)
        for cls in (gadgets.Init, gadgets.Setattr, gadgets.Property, gadgets.Described, gadgets.Subclassed)
    ]
    for value in made:
        object.__getattribute__(value, "__dict__")["field"] = [1]
    repository = Repository(Memory())
    state = Versioned(repository)
    state["values"] = made
    state.commit()
    made[2].__dict__["field"].append(2)
    assert [str(change.path) for change in state.status()] == ["values[2].field[1]"]
    state.commit()
    state.reset("HEAD~1")
    assert made[2].__dict__["field"] == [1]
    read = Versioned(repository)["values"]
    assert [type(each) for each in read] == [type(each) for each in made]
    assert [object.__getattribute__(each, "__dict__") for each in read] == [{"field": [1]}] * 5


def test_the_gadgets_work():
    gadgets.Init()
    gadgets.Missing(5)
    assert gadgets.RAN == ["__init__", "_missing_"]
    gadgets.RAN.clear()
    sys.modules.pop("this", None)
