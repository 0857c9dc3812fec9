"""What is too deep, too large or not data is refused with one typed error, and nothing is lost by it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from tests.support.exact import exact
from tests.support.nested_values import WRAPS, nest
from tests.support.processes import run
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import LimitExceededError, StateError
from versioned_state.values.cells import MAX_DEPTH, MAX_KEY


@pytest.mark.parametrize("name", WRAPS)
def test_deep_values_are_stored_or_refused_and_what_is_stored_can_be_read(name):
    levels = {"mixed": 3}.get(name, 1)
    for depth in (1, 20, 60, MAX_DEPTH - 2, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 300, 5000):
        value = nest(WRAPS[name], depth)
        state = Versioned()
        state["kept"] = [1]
        state.commit()
        state["kept"].append(2)
        state["deep"] = value
        try:
            commit = state.commit()
        except LimitExceededError as error:
            refused = str(error)
        else:
            refused = ""
        if refused:
            assert depth * levels > MAX_DEPTH - 2
            assert refused.startswith(
                f"the depth of a value at deep is beyond the limit of {MAX_DEPTH}; nothing was committed"
            )
            assert list(state.status().unstorable) == ["deep"]
            assert state["deep"] is value
            del state["deep"]
            assert [str(change) for change in state.status()] == ["+ kept[1] = 2"]
            assert state.checkout(state.commit()).copy() == {"kept": [1, 2]}
        else:
            assert depth * levels <= MAX_DEPTH
            again = Versioned(Repository(state.repository.store))
            assert exact(again["deep"]) == exact(value) == exact(state.checkout(commit)["deep"])
            assert not again.status()
            str(state.diff("HEAD~1", "HEAD"))


@pytest.mark.parametrize("depth", [1, 60, 125, 300])
def test_deep_keys(depth):
    key = nest(WRAPS["tuple"], depth)
    for value in ({key: 1}, {key: 1, **{f"k{n}": "x" * 100 for n in range(60)}}, {key}):
        state = Versioned()
        state["deep"] = value
        if depth < MAX_DEPTH - 2:
            assert exact(state.checkout(state.commit())["deep"]) == exact(value)
        else:
            with pytest.raises(LimitExceededError, match="deep"):
                state.commit()


def test_the_limit_does_not_depend_on_how_deep_the_caller_is():
    """Nor does reading need more room than writing did."""
    value = nest(WRAPS["tuple"], MAX_DEPTH - 3)
    state = Versioned()
    state["deep"] = value
    commit = state.commit()

    def deeper(frames: int) -> Any:
        return deeper(frames - 1) if frames else state.checkout(commit)["deep"]

    assert deeper(sys.getrecursionlimit() // 3) == value


@pytest.mark.parametrize("name", ["list", "tuple", "dict", "frozenset", "large list"])
def test_deep_values_in_a_thread_with_a_small_stack(name):
    program = """
        import sys, threading
        from tests.support.nested_values import WRAPS, nest
        from versioned_state.values.codec.scalars import MAX_DEPTH
        from versioned_state import Versioned

        def work():
            state = Versioned()
            state["deep"] = nest(WRAPS[sys.argv[1]], MAX_DEPTH - 2)
            state.checkout(state.commit())["deep"]
            print("read")

        threading.stack_size(1 << 20)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    """
    assert run(program, name).stdout == "read\n"


@pytest.mark.parametrize("exponent", [63, 64, 100, 4300, 15_000, 100_000])
def test_huge_ints(exponent):
    for value in (10**exponent, -(10**exponent)):
        state = Versioned()
        state["n"] = value
        state["in"] = {"list": [value], value: value}
        commit = state.commit()
        assert state.checkout(commit)["n"] == value
        assert exact(state.checkout(commit)["in"]) == exact({"list": [value], value: value})
        state["in"]["list"][0] += 1
        for change in state.status():
            assert len(str(change)) < 40_000 or exponent > 30_000
            change.to_json()


def test_lone_surrogates_everywhere():
    state = Versioned(author="\udc80")
    bad = "a\ud800\udc00\udfff"
    state[bad] = {bad: [bad, {bad: (bad,)}], "text": bad * 3000, "set": {bad}}
    space = state.namespace(bad)
    space[bad] = bad
    commit = state.commit(bad, meta={bad: bad})
    assert (commit.message, commit.meta, commit.author) == (bad, {bad: bad}, "\udc80")
    again = Versioned(Repository(state.repository.store))
    assert exact(again.copy()) == exact(state.copy())
    assert again.namespace(bad)[bad] == bad
    assert next(iter(again.log())).message == bad
    state[bad]["text"] += "\ud800"
    assert len(state.status()) == 1
    str(state.status()).encode()
    str(state.repository.diff(commit, "HEAD~1")).encode()
    assert again.checkout(commit).at(f"{state.status().changes[0].path}") == bad * 3000


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"message": "x" * 70_000}, "message"),
        ({"message": "é" * 40_000}, "message"),
        ({"author": "x" * 70_000}, "author"),
        ({"meta": {"k": "x" * 70_000}}, "meta"),
        ({"meta": {"deep": nest(WRAPS["list"], 300)}}, "depth"),
    ],
)
def test_a_commit_takes_so_much_text_and_no_more(arguments, what):
    state = Versioned()
    state["k"] = [1]
    with pytest.raises(LimitExceededError, match=what):
        state.commit(**arguments)
    assert len(state.status()) == 1
    assert state.commit("fine").message == "fine"


def test_keys_of_dicts_may_have_any_length():
    state = Versioned()
    for size in (0, 1, 1000, 5000, 100_000, 2_000_000):
        state["dict"] = {"k" * size: size, ("t" * size,): size, "other": [1]}
        assert state.checkout(state.commit())["dict"] == state["dict"]
        state["dict"]["other"].append(2)
        assert len(state.status()) == 1
    state["large"] = {f"{n}" + "k" * 3000: n for n in range(500)}
    assert state.checkout(state.commit())["large"] == state["large"]


def test_keys_of_a_state_up_to_a_limit():
    state = Versioned()
    state["fine"] = [1]
    state.commit()
    state["fine"].append(2)
    state["k" * (MAX_KEY - 1)] = 1
    for key in ("k" * MAX_KEY, "é" * (MAX_KEY // 2), "k" * 3_000_000):
        with pytest.raises(LimitExceededError, match="key"):
            state[key] = 1
        with pytest.raises(LimitExceededError, match="key"):
            state.namespace("n")[key] = 1
    assert len(state.status()) == 2
    assert dict(state.checkout(state.commit())) == {"fine": [1, 2], "k" * (MAX_KEY - 1): 1}


def test_large_pieces():
    state = Versioned()
    state["text"] = "x" * 5_000_000
    state["list"] = ["y" * 2_000_000, b"z" * 2_000_000, ("t" * 2_000_000,)]
    state["array"] = np.zeros(700_000)
    state["many"] = list(range(300_000))
    past = state.checkout(state.commit())
    assert exact(past.copy()) == exact(state.copy())


def test_a_value_that_is_too_deep_is_shown_and_refused():
    state = Versioned()
    state["deep"] = nest(WRAPS["list"], 1000)

    def transact() -> None:
        with state.transaction():
            pass

    for call in (state.commit, transact):
        with pytest.raises(StateError):
            call()
    for diff in (state.status(), state.diff("HEAD")):
        assert str(diff).startswith("! deep: cannot be stored: the depth of a value")
    state.discard()
    assert not state.status()
    assert "deep" not in state
    with state.transaction("works"):
        state["fine"] = 1
    assert state.head.message == "works"


def test_memory_of_a_commit_is_bounded_by_what_it_touches():
    """Less than three times the values that it touches."""
    import tracemalloc

    state = Versioned(Memory())
    rng = np.random.default_rng(1)
    state["array"] = rng.integers(0, 2**62, 250_000)
    state["buffer"] = bytearray(rng.bytes(2_000_000))
    state["text"] = "line of text, quite ordinary\n" * 75_000
    size = 2_000_000 + 2_000_000 + 2_175_000
    tracemalloc.start()
    state.commit()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    stored = sum(len(value) for _, value in state.repository.store.items())
    assert peak - stored < 2 * size, "what Memory keeps is the store's"
