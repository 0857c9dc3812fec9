"""The accelerator gives the answers of the Python code, whatever the values are and whoever changes them meanwhile.

Each test switches it on and off within one process, so both ways are run by every run of the suite.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from benchmarks.measure import environment
from tests.support import accelerator_fuzz as fuzz
from tests.support.accelerated import installed, switched
from tests.support.exact import clone, exact
from tests.support.mutations import mutate, sample
from tests.support.processes import run, start
from tests.support.strategies import any_values
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.services.agent_state.session_handle import SessionHandle
from versioned_state.values import accelerator
from versioned_state.values.accelerator import MOST_MARKED, Accelerator, Marks
from versioned_state.values.cells import MAX_DEPTH
from versioned_state.values.paths.path import StatePath

ROOT = Path(__file__).resolve().parents[2]
ENOUGH = 1 << 30


@pytest.fixture
def fast() -> Accelerator:
    return installed()


@pytest.fixture(params=["without", "with"])
def either(request: pytest.FixtureRequest) -> Iterator[None]:
    """The test runs without and with the accelerator."""
    with switched(installed() if request.param == "with" else None):
        yield


def made(word: str) -> str:
    """A new string."""
    return f"a {word}"


def marks_of(fast: Accelerator, values: list[Any]) -> Marks:
    marked = fast.pack_marked(values, 0, len(values), MAX_DEPTH, ENOUGH)
    assert marked is not None
    return marked[1]


# The functions, beside the same in Python


@given(st.integers(0, 2**32))
def test_each_function_answers_as_python_does(seed):
    for number in range(10):
        fuzz.check(installed(), random.Random(seed + number))


@pytest.mark.parametrize("depth", [0, 1, 5, MAX_DEPTH])
@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"k": value}])
def test_the_depth_is_counted_as_in_python(fast, depth, wrap):
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    assert fast.pack(value, depth, ENOUGH) == fuzz.packed(value, depth) != None  # noqa: E711 - a chain
    assert fast.pack(wrap(value), depth, ENOUGH) is None
    assert fast.pack_marked([wrap(value)], 0, 1, depth, ENOUGH) is None


@pytest.mark.parametrize(
    "characters",
    [
        "abc",
        "é",
        "abcdefé",
        "漢",
        "abcdef\u2019",
        "abcdef\U0001f600",
        "\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff",
        "\x7f\x80\U00010000\U0010ffff",
    ],
    ids=ascii,
)
def test_texts_of_each_width_are_packed_at_each_length_and_limit(fast, characters):
    rng = random.Random(characters)
    for length in (*range(1, 40), 255, 300):
        text = "".join(rng.choice(characters) for _ in range(length))
        cell = fuzz.packed(text, MAX_DEPTH)
        assert cell is not None
        assert fast.pack(text, MAX_DEPTH, len(cell)) == cell
        assert fast.pack(text, MAX_DEPTH, len(cell) - 1) is None
        at = rng.randrange(length)
        for surrogate in ("\ud800", "\udbff", "\udc00", "\udfff"):
            assert fast.pack(text[:at] + surrogate + text[at:], MAX_DEPTH, ENOUGH) is None


def test_a_value_within_itself_ends_a_walk(fast):
    inner: list[Any] = []
    inner.append({"in": inner})
    assert fast.pack(inner, 10**9, ENOUGH) is None, "not a crash of the C stack, whatever the depth"
    assert fast.pack_marked([inner], 0, 1, 10**9, ENOUGH) is None
    doubled: Any = []
    for _ in range(60):
        doubled = [doubled, doubled]
    assert fast.pack(doubled, 128, 1 << 16) is None, "2**60 parts, of which the limit lets few be looked at"


def test_a_thread_with_a_small_stack_walks_as_deep(fast):
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = {"k": value}
    answers: list[Any] = []

    def walk() -> None:
        answers.append(fast.pack(value, MAX_DEPTH, ENOUGH))
        answers.append(marks_of(fast, [value]).same([value], 0))

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=walk)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert answers == [fuzz.packed(value, MAX_DEPTH), True]


NAN = float("nan")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([[-5, "a"], "b"], [-5, ["a", "b"]]),
        ([["a"], "b"], [5, "a", "b"]),  # 4 * 1 + 1, the word of a list of one
        ([{"a": 1}], [7, "a", 1]),
        ([{"a": 1}], [["a", 1]]),
        ([[], []], [[[]]]),
        ([{}, []], [[], {}]),
        ([[1], [2, 3]], [[1, 2], [3]]),
        ([{"a": {"b": 1}}], [{"a": {}, "b": 1}]),
        ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}]),
        ([1], [True]),
        ([0], [False]),
        ([0], [0.0]),
        ([0.0], [-0.0]),
        ([1], ["1"]),
        ([NAN], [None]),
        ([None], [1]),
        ([None, []], [[], None]),
        (["a"], ["a", "b"][:0]),
    ],
)
def test_marks_tell_structures_apart(fast, before, after):
    marks = marks_of(fast, before)
    assert marks.same(before, 0)
    assert not marks.same(after, 0)
    assert len(after) < len(before) or not marks.same([before, *after], 1)


def test_marks_are_of_leaves_and_not_of_containers(fast):
    text, number = "a text", 12345
    marks = marks_of(fast, [{"k": [text, number]}, NAN])
    assert marks.same([0, {"k": [text, number]}, NAN], 1), "equal containers of the same leaves"
    assert not marks.same([{"k": [text, int("12345")]}, NAN], 0), "an equal leaf is another one; the bytes decide then"
    assert not marks.same([{"k": [text, number]}, NAN], 1)
    assert not marks.same([{"k": [text, number]}, NAN], -1)
    assert not marks.same(({"k": [text, number]}, NAN), 0)  # type: ignore[arg-type]


class Everything(list[Any]):
    """A list that says that it is one, and equal to everything."""

    __class__ = list  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None


class Word(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(str(self))


@pytest.mark.parametrize(
    "hostile", [Everything([1]), fuzz.Table(a=1), Word("a"), fuzz.Number(1), {Word("k"): 1}, {1: 1}, (1,), b"1", 2**64]
)
def test_other_types_are_left_to_python_whatever_they_say(fast, hostile):
    assert fast.pack(hostile, MAX_DEPTH, ENOUGH) is None
    assert fast.pack([1, [hostile]], MAX_DEPTH, ENOUGH) is None
    assert fast.pack_marked([hostile], 0, 1, MAX_DEPTH, ENOUGH) is None
    assert fast.pack_all([1, hostile], MAX_DEPTH, ENOUGH) == [b"\x01", None]
    for value in ([1], "a", {"k": 1}, 1, {"a": 1}):
        assert not marks_of(fast, [value]).same([hostile], 0)


def test_wrong_arguments_raise(fast):
    for call in (
        lambda: fast.pack(1),
        lambda: fast.pack(1, "2", 3),
        lambda: fast.pack_all((1,), 2, 3),
        lambda: fast.pack_marked([1], 0),
        lambda: marks_of(fast, [1]).same([1]),  # type: ignore[call-arg]
        type(marks_of(fast, [1])),
    ):
        with pytest.raises(TypeError):
            call()
    for begin, stop in ((0, 2), (-1, 1), (1, 0), (2, 2)):
        assert fast.pack_marked([1], begin, stop, 1, ENOUGH) is None
    assert fast.pack_marked([], 0, 0, 1, ENOUGH) is not None
    assert fast.pack(1, -5, ENOUGH) == b"\x01"
    assert fast.pack([], -5, ENOUGH) is None
    assert fast.pack(1, 5, -1) is None


def test_references_are_owned_and_given_back(fast):
    leaf, key = made("leaf"), made("key")
    value = [{key: leaf}, [leaf, object()]]
    before = sys.getrefcount(leaf), sys.getrefcount(key)
    for _ in range(100):
        assert fast.pack_marked(value, 0, 2, MAX_DEPTH, ENOUGH) is None
        assert fast.pack_marked(value, 0, 1, MAX_DEPTH, 3) is None
        fast.pack_all(value, MAX_DEPTH, ENOUGH)
    assert (sys.getrefcount(leaf), sys.getrefcount(key)) == before
    marks = [marks_of(fast, value[:1]) for _ in range(100)]
    assert (sys.getrefcount(leaf), sys.getrefcount(key)) == (before[0] + 100, before[1] + 100)
    assert all(each.same(value, 0) for each in marks)
    marks.clear()
    assert (sys.getrefcount(leaf), sys.getrefcount(key)) == before
    kept = marks_of(fast, [made("text")])
    gc.collect()
    assert not any(kept.same([made("text")], 0) for _ in range(100)), "no new object can take the address of a leaf"


def test_a_signal_is_handled_during_a_long_call_and_may_change_the_list(fast):
    values = [0] * 3_000_000
    handled: list[int] = []

    def handler(*_: Any) -> None:
        handled.append(len(values))
        values.clear()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        cells = fast.pack_all(values, 1, 1)
        while not handled:  # the machine was faster than the timer
            pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(cells) == 3_000_000
    assert set(cells) <= {b"\x00", None}


def pack_until_interrupted(fast: Accelerator, values: list[Any]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    while True:
        fast.pack_all(values, 1, 1)


def test_ctrl_c_ends_a_long_call(fast):
    values = [0] * 3_000_000
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            pack_until_interrupted(fast, values)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(fast.pack_all(values, 1, 1)) == len(values), "nothing was left behind"


# States, with and without


def content_of(state: Versioned) -> dict[str, Any]:
    return {key: exact(value) for key, value in state.copy().items()}


def both(fast: Accelerator) -> tuple[Versioned, Versioned]:
    with switched(None):
        one = Versioned()
    with switched(fast):
        return one, Versioned()


@given(any_values)
def test_any_value_has_the_same_cells(value):
    slow, quick = both(installed())
    for state in (slow, quick):
        state["value"] = clone(value)
        state["in"] = {"a dict": [clone(value), 1], "b": "text"}
        state["list"] = [clone(value) for _ in range(3)]
    assert slow.commit().root == quick.commit().root
    assert not quick.status()
    assert exact(Versioned(quick.repository)["value"]) == exact(value)


def mutated_alike(states: tuple[Versioned, Versioned], content: dict[str, Any], seed: int) -> Iterator[None]:
    """Commit the same content in both states, then change it alike four times.

    Each time both must see the same changes.
    """
    parts = []
    for state in states:
        mine = clone(content)
        state.update(mine)
        state.commit()
        parts.append(mine)
    for step in range(4):
        for mine in parts:
            mutate(random.Random(seed + step), list(mine.values()))
        slow, quick = [sorted(str(change.path) for change in state.status()) for state in states]
        assert slow == quick
        yield


@pytest.mark.parametrize("size", [3, 30, 150])
@given(seed=st.integers(0, 2**32))
def test_mutated_data_has_the_same_changes_and_roots(size, seed):
    slow, quick = both(installed())
    for _ in mutated_alike((slow, quick), sample(random.Random(seed), size), seed):
        assert slow.commit().root == quick.commit().root
        assert not quick.status()
    with switched(installed()):
        loaded = Versioned(quick.repository)
    assert content_of(loaded) == content_of(slow)
    assert not loaded.status(), "compared with the leaves that it was read from"
    mutate(random.Random(seed), list(loaded.copy().values()))
    changed = content_of(loaded)
    assert bool(loaded.status()) == (changed != content_of(slow))
    loaded.commit()
    assert content_of(Versioned(loaded.repository)) == changed


@given(seed=st.integers(0, 2**32))
def test_mutated_instances_and_aliases_are_seen_alike(seed):
    slow, quick = both(installed())
    rng = random.Random(seed)
    shared: Any = [1, {"shared": [2, "x" * rng.randrange(300)]}]
    content = sample(rng, 20, data_only=False) | {"aliased": [shared, {"again": shared}, shared], "alias": shared}
    for _ in mutated_alike((slow, quick), content, seed):
        assert content_of(slow) == content_of(quick)
        slow.commit()
        quick.commit()
        assert content_of(Versioned(quick.repository)) == content_of(Versioned(slow.repository))


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize(
    "make", [lambda n: {"n": n, "text": f"text {n}"}, lambda n: [n, [str(n)]], lambda n: f"element {n}"]
)
def test_appends_replacements_and_equal_replacements(make: Callable[[int], Any]):
    state = Versioned()
    elements = state["list"] = [make(n) for n in range(200)]
    entries = state["dict"] = {f"key {n}": make(n) for n in range(200)}
    small = [state.setdefault(f"small {n}", {"n": n + 1000, "text": f"t {n}"}) for n in range(150)]
    state.commit()
    for step in range(12):
        elements += [make(1000 + step), make(2000 + step)]
        entries[f"new {step}"] = make(step)
        small[step * 7]["n"] += 1
        state.commit()
        assert content_of(Versioned(state.repository)) == content_of(state)
    head = state.head
    elements[:] = clone(elements)
    small[5].update(n=int(str(small[5]["n"])), text="".join(small[5]["text"]))
    assert not state.status()
    assert not state.status()
    assert state.commit() == head
    elements[70] = {"n": True}
    small[6]["n"] = 1006.0
    assert {str(StatePath(change.path.steps[:1])) for change in state.status()} == {"list", '["small 6"]'}
    state.commit()
    assert content_of(Versioned(state.repository)) == content_of(state)


@pytest.mark.usefixtures("either")
def test_what_another_thread_changes_is_in_the_next_commit():
    """A change between two steps of a comparison is seen by it or by the next one, never by none."""
    state = Versioned()
    leaves = [["other"], "one", {"k": "one"}, 1, True]
    rows = state["rows"] = [{"a": "one", "b": [n]} for n in range(300)]
    small = [state.setdefault(f"small {n}", ["one"]) for n in range(80)]
    state.commit()
    stop = threading.Event()

    def change() -> None:
        rng = random.Random(1)
        while not stop.is_set():
            rng.choice(rows)["a"] = rng.choice(leaves)
            rng.choice(small)[0] = rng.choice(leaves)

    thread = threading.Thread(target=change)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        for _ in range(40):
            state.status()
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
    state.commit()
    assert content_of(Versioned(state.repository)) == content_of(state)


@pytest.mark.no_oracle("another thread changes a value while it is committed")
def test_a_change_after_packing_is_not_taken_for_packed(fast):
    """Bytes and marks are of one moment: marks of a run that changed after its bytes would hide the change for good."""
    with switched(fast):
        state = Versioned()
    rows = state["rows"] = [{"text": f"text {n}" * 20, "n": n + 1000} for n in range(40)]
    state.commit()

    class Racing:
        """The accelerator, while another thread changes a value after the first call of it."""

        ABI = accelerator.ABI
        is_over = False

        def __getattr__(self, name: str) -> Any:
            def call(*arguments: Any) -> Any:
                answer = getattr(fast, name)(*arguments)
                if not self.is_over:
                    self.is_over = True
                    rows[number]["text"] = f"changed {number}" * 20
                return answer

            return call

    encoder = state._worktree.encoder
    for number in range(20):
        if number % 2:
            rows[number]["n"] = int(str(number + 1000))  # equal: the marks give way to the bytes
            encoder.fingerprinter.fast = Racing()
            state.status()
        else:
            rows.append({"n": number, "text": "new"})  # encoded, and then packed with its neighbours
            encoder.fast = Racing()
            state.commit()
        encoder.fast = encoder.fingerprinter.fast = fast
        assert rows[number]["text"].startswith("changed")
        assert state.status()
        state.commit()
        assert Versioned(state.repository)["rows"] == rows


@pytest.mark.usefixtures("either")
def test_an_element_that_grows_the_list_while_it_is_encoded_is_not_lost():
    class Growing:
        def __init__(self) -> None:
            self.elements: list[Any] | None = None

        def __getstate__(self) -> dict[str, Any]:
            if self.elements is not None and len(self.elements) < 300:
                self.elements.append({"late": len(self.elements)})
            return {"n": 1}

        def __setstate__(self, state: dict[str, Any]) -> None:
            self.elements = None

    state = Versioned()
    growing = Growing()
    elements = state["list"] = [*({"n": n} for n in range(200)), growing]
    growing.elements = elements
    state.commit()
    growing.elements = None
    state.commit()
    assert len(Versioned(state.repository)["list"]) == len(elements)


def test_the_memory_of_marks_is_counted(fast):
    def fill(state: Versioned) -> None:
        state["list"] = [{"n": n + 1000, "text": f"text {n}"} for n in range(2000)]
        for n in range(300):
            state[f"small {n}"] = {"n": n + 1000}
        state.commit()

    slow, quick = both(fast)
    fill(slow)
    fill(quick)
    words = 8 * (2000 * 5 + 300 * 3)
    assert words <= quick._held_bytes - slow._held_bytes <= 1.3 * words
    loaded = [Versioned(quick.repository), Versioned(quick.repository)]
    for state, way in zip(loaded, (None, fast), strict=True):
        with switched(way):
            assert len(state["list"]) == 2000
    before = [state._held_bytes for state in loaded]
    assert 0.6 * 8 * 2000 * 5 <= before[1] - before[0] <= 1.5 * 8 * 2000 * 5, "estimated from the start"
    loaded[1].status()
    assert loaded[1]._held_bytes == before[1]


def test_sessions_keep_no_text_alive(fast):
    texts = [f"text {n} of a session" for n in range(100)]
    before = sys.getrefcount(texts[50])
    with switched(fast):
        handle = SessionHandle(Repository(Memory()), "a")
        encoded = handle.encoded({"messages": [{"text": text} for text in texts]})
        assert encoded.changed
        after = sys.getrefcount(texts[50])
    assert after == before


def test_the_limit_of_a_run_leaves_longer_ones_to_python(fast):
    text = "x" * (MOST_MARKED - 10)
    with switched(fast):
        state = Versioned()
    state["texts"] = [{"text": "x" * 4000, "n": n} for n in range(600)]
    state["long"] = (text, text)
    state.commit()
    state["texts"][599]["n"] = -1
    assert len(state.status()) == 1


# The module as a part


def test_a_module_of_another_abi_is_not_used(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "too_new.py").write_text("ABI = 99")
    (tmp_path / "too_old.py").write_text("")
    (tmp_path / "broken.py").write_text("raise ImportError('built for another system')")
    (tmp_path / "right.py").write_text(f"ABI = {accelerator.ABI}")
    assert accelerator.load("too_new") == (None, "not used: its ABI is 99, and this version of versioned-state needs 1")
    assert accelerator.load("too_old")[1] == "not used: its ABI is None, and this version of versioned-state needs 1"
    assert accelerator.load("broken") == (None, "not used: built for another system")
    assert accelerator.load("missing_altogether") == (None, "not installed")
    assert accelerator.load("right")[1] == "active"


def test_each_benchmark_says_whether_it_is_active(tmp_path):
    assert environment(tmp_path)["accelerator"] == accelerator.status


PROGRAM = """
import sys
from versioned_state import Disk, Versioned
from versioned_state.values import accelerator

with Versioned(Disk(sys.argv[1])) as state:
    if sys.argv[2] == "begin":
        state["messages"] = [{"role": "user", "n": n, "text": "é" * n} for n in range(300)]
        state["prefs"] = {f"key {n}": [n, {"deep": None}] for n in range(200)}
        state["tuple"] = (1, 2.0, b"3")
    state["messages"].append({"role": "agent", "n": -1, "text": "new"})
    state["messages"][7]["n"] += 1
    state["prefs"]["key 9"][0] = True
    print(accelerator.status, state.commit().root)
"""


def test_two_processes_of_which_one_has_it_share_a_store(fast, tmp_path, monkeypatch):
    assert fast is not None

    def step(folder: str, how: str, wanted: str) -> tuple[str, str]:
        monkeypatch.setenv("VERSIONED_STATE_FAST", wanted)
        status, _, root = run(PROGRAM, tmp_path / folder, how).stdout.strip().rpartition(" ")
        return status, root

    off = "not used: switched off by VERSIONED_STATE_FAST=0"
    seen = [
        [step(folder, how, wanted) for how, wanted in zip(("begin", "go on", "go on"), order, strict=True)]
        for folder, order in (("mixed", "010"), ("other", "101"))
    ]
    assert [[status for status, _ in steps] for steps in seen] == [[off, "active", off], ["active", off, "active"]]
    assert [root for _, root in seen[0]] == [root for _, root in seen[1]]
    with switched(fast), Versioned(Disk(tmp_path / "mixed")) as state:
        assert len(state["messages"]) == 303
        assert not state.status()
        assert state.repository.fsck().ok


AT_ONCE = """
import sys
from versioned_state import Disk, Versioned
from versioned_state.values import accelerator

with Versioned(Disk(sys.argv[1], timeout=30)) as state:
    mine = int(sys.argv[2])
    print(accelerator.status, flush=True)
    for n in range(40):
        sys.stdin.readline()
        state["rows"][2 * n + mine]["n"] += 1
        state["rows"][n]["seen"][mine] = n
        state[f"own {mine}"].append({"n": n, "text": "é" * n})
        print(state.commit().id, flush=True)
"""


def test_two_processes_of_which_one_has_it_commit_at_once(fast, tmp_path, monkeypatch):
    """In each round, one merges with the other's commit, and then compares with leaves that the other has written."""
    assert fast is not None
    with Versioned(Disk(tmp_path / "store")) as state:
        state["rows"] = [{"n": 1000 + n, "seen": [-1, -1], "text": f"é {n}" * 20} for n in range(80)]
        state.update({"own 0": [], "own 1": []})
        state.commit()
    processes = []
    for mine in (0, 1):
        monkeypatch.setenv("VERSIONED_STATE_FAST", str(mine))
        processes.append(start(AT_ONCE, tmp_path / "store", mine))

    def answers() -> list[str]:
        return [process.stdout.readline().strip() for process in processes if process.stdout]

    assert answers() == ["not used: switched off by VERSIONED_STATE_FAST=0", "active"]
    commits = set()
    for _ in range(40):
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go on\n")
            process.stdin.flush()
        commits.update(answers())
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    own = [{"n": n, "text": "é" * n} for n in range(40)]
    rows = [{"n": 1001 + n, "seen": [n, n] if n < 40 else [-1, -1], "text": f"é {n}" * 20} for n in range(80)]
    with switched(None), Versioned(Disk(tmp_path / "store")) as state, Versioned() as anew:
        assert state.copy() == {"rows": rows, "own 0": own, "own 1": own}
        assert {commit.id for commit in state.log(limit=80)} == commits
        assert state.repository.fsck().ok
        anew.update(state.copy())
        assert anew.commit().root == state.head.root


# The long run


def built(folder: Path, *options: str) -> Path:
    """The module built with more options of the compiler."""
    file = folder / "versioned_state_fast.so"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    include = f"-I{sysconfig.get_path('include')}"
    source = str(ROOT / "accelerator/src/versioned_state_fast.c")
    warnings = ("-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-Wno-cast-function-type")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-g", "-O1", *warnings, *options, include, source, "-o", str(file)], check=True
    )
    return file


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_the_fuzzer_finds_nothing_under_sanitizers(tmp_path, seed):
    file = built(tmp_path, "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
    libraries = [
        subprocess.run(["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    surroundings = {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter keeps memory to its end; references are counted above
        "PYTHONMALLOC": "malloc",  # so that each object is a block of its own, with guards around it
        "VERSIONED_STATE_FAST": "1",
    }
    command = [sys.executable, "-m", "tests.support.accelerator_fuzz", str(seed * 10**6), "4000", str(file)]
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.long
def test_the_fuzzer_finds_nothing():
    fast = installed()
    for seed in range(40_000):
        fuzz.check(fast, random.Random(10**9 + seed))
