"""What a notebook and completion show: bounded, escaped components, short reprs, and only names for users."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from tests.support.handles import committed, two
from versioned_state import Live, Memory, Versioned, effect
from versioned_state.errors import InvalidArgumentError, MergeConflictError, ReadOnlyError
from versioned_state.storage import Counting

EVIL = "<script>alert('x')</script>&\x1b[31m"


class Strict(HTMLParser):
    """Reads a page, whose tags must be closed in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[str] = []
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.left.append(tag)
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.left.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def full(state: Any, *, commit: bool) -> Any:
    state["evil"] = EVIL
    state["big"] = [{"content": "x" * 1000, "n": n} for n in range(2_000)]
    state[EVIL] = {EVIL: [EVIL]}
    for n in range(500):
        state[f"key {n}"] = n
    if commit:
        state.commit(EVIL, author=EVIL, meta={EVIL: EVIL})
    return state


def opened() -> Versioned:
    return Versioned(full(Versioned(), commit=True).repository)


def long_history() -> Versioned:
    state = Versioned()
    for n in range(60):
        state["n"], state["list"] = n, [EVIL] * n
        state.commit(EVIL * 20, author=EVIL)
    return state


def texts() -> Versioned:
    """A state with long texts, arrays and names that would be markup."""
    state = Versioned()
    lines = [f"{n} {EVIL}" for n in range(100)]
    state["text"], state["array"], state["line"] = "\n".join(lines), np.arange(200.0), "x" * 10_000 + EVIL
    state.commit(EVIL, author=EVIL)
    state["text"], state["array"][:100] = "\n".join(reversed(lines)), -1
    second = state.commit(EVIL, author=EVIL)
    for n in range(60):
        state.repository.branches.create(f"<b>{n}", second)
        state.repository.tags.create(f"<i>{n}", second)
    return state


def refused() -> Versioned:
    state = Versioned(pickle="refuse")
    state["n"] = 1
    state.commit()
    effect("pay", list, state=state)
    state["n"] = 2
    state.commit()
    state.undo()
    state[EVIL] = object()
    state["text"] = EVIL
    return state


SHOWN: dict[str, Callable[[], Any]] = {
    "state": lambda: full(Versioned(), commit=False),
    "state, nothing loaded": opened,
    "namespace": lambda: full(Versioned().namespace("<b>"), commit=False),
    "live": lambda: full(Live(), commit=False),
    "snapshot": lambda: opened().checkout("HEAD"),
    "commit": lambda: opened().head,
    "log": lambda: long_history().log(),
    "diff": lambda: opened().diff("HEAD~1", "HEAD"),
    "status": lambda: full(Versioned(), commit=False).status(),
    "blame": lambda: long_history().blame("list"),
    "history": lambda: long_history().history("list"),
    "grep": lambda: long_history().grep("alert|x"),
    "grep, a long line": lambda: texts().grep("x|alert"),
    "branches": lambda: texts().repository.branches,
    "tags": lambda: texts().repository.tags,
    "diff of texts and arrays": lambda: texts().diff("HEAD~1", "HEAD"),
    "status, refused and behind": lambda: refused().status(explain=True),
    "empty": lambda: Versioned().log(),
}


@pytest.mark.parametrize("name", SHOWN)
def test_an_output_is_valid_escaped_and_small(name):
    shown = SHOWN[name]()
    html = shown._repr_html_()
    page = Strict()
    page.feed(html)
    page.close()
    assert not page.left
    assert set(page.tags) <= {
        *(
            "div",
            "style",
            "p",
            "section",
            "h2",
            "h3",
            "ol",
            "ul",
            "li",
            "dl",
            "dt",
            "dd",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
        ),
        *("span", "code", "time", "b", "i", "del", "ins", "mark", "svg", "path", "circle"),
    }
    assert not {name for name in page.attributes if name.startswith("on") or name in ("href", "src", "style", "id")}
    assert page.tags.count("style") == 1
    assert "<style>.vstate {" in html, "it changes nothing else in the notebook"
    assert "\x1b" not in html
    assert len(html) < 80_000
    assert page.tags.count("li") <= 50
    assert page.tags.count("section") <= 50
    assert shown._repr_html_() == html, "showing it takes nothing from it"
    if name not in {"empty", "commit"}:
        assert "alert" in page.text


def test_an_output_without_rows_says_so():
    state = Versioned()
    for shown in (state.log(), state.grep("x"), state.repository.tags, state):
        assert ">nothing</p>" in shown._repr_html_()
    assert ">Nothing differs.</p>" in state.status()._repr_html_()
    state["a"] = 1
    for html in (state._repr_html_(), state.status()._repr_html_()):
        assert "othing" not in html


def test_showing_a_state_loads_nothing_and_reads_what_it_shows():
    few, many = (Counting(Memory()), Counting(Memory()))
    for store, count in ((few, 1_000), (many, 8_000)):
        state = Versioned(store)
        state["list"] = [{"content": "x" * 50, "n": n} for n in range(count)]
        state.update({f"k{n}": n for n in range(count)})
        state.commit()
    reads = []
    for store in (few, many):
        state = Versioned(store)
        store.reset()
        state._repr_html_()
        reads.append(store.counts.objects_read)
        assert not state._worktree._entries
    assert reads[1] <= reads[0] + 20, "of some hundreds"


def test_the_caption_of_a_namespace_names_its_state_whole():
    state = Versioned()
    assert ">Namespace w of &lt;Versioned main at " in state.namespace("w")._repr_html_()
    assert "&gt;</p>" in state.namespace("w")._repr_html_()


def test_the_lines_of_a_change_are_side_by_side_with_the_words_that_differ():
    state = committed(text="one\ntwo\nthree\n" * 3, array=np.arange(300.0))
    state["text"], state["array"][7] = state["text"].replace("two", "2", 1), 1.5
    html = state.status()._repr_html_()
    assert "\\n" not in html
    for words in ("<del>two</del>", "<ins>2</ins>", "[7] <del>7</del>.<del>0</del>", "[7] <ins>1</ins>.<ins>5</ins>"):
        assert html.count(words) == 1, words


def test_matches_are_marked_and_a_later_line_has_its_number():
    state = committed(text="a train\nno\ntrain & train")
    html = state.grep("train")._repr_html_()
    assert html.count("<mark>train</mark>") == 3
    assert html.count(">text</span>") == 2
    assert ">line 3</span>" in html
    assert "</mark> &amp; <mark>" in html


def test_history_and_grep_are_shown_from_their_first_result_and_taken_once():
    state = long_history()
    for results in (state.history("n"), state.grep("alert")):
        first = next(results)
        shown = results._repr_html_()
        state["n"] = -1
        state["other"] = "alert"
        state.commit()
        assert results._repr_html_() == shown, "it begins at the head of the call"
        assert first not in list(results)
        assert list(results) == []


def test_a_log_is_an_iterator_still():
    state = long_history()
    log = state.log(limit=3)
    first = next(log)
    assert first == state.head
    log._repr_html_()
    assert len(list(log)) == 2
    assert list(log) == []


def test_reprs_are_short_and_say_what_it_is():
    state = Versioned(author="ada")
    state["a"] = [1]
    commit = state.commit("first", meta={"task": 1, "step": 2})
    assert repr(commit) == f"<Commit {commit.short} 'first' by ada, meta: task, step>"
    assert repr(state.diff("HEAD~1", "HEAD")) == "<Diff: 1 change: +1 -0 ~0>"
    assert repr(state.log()) == "<Log: iterate it for its commits, newest first>"
    assert repr(state.repository.branches).startswith("<Branches in <Memory")
    assert repr(state.repository.tags).startswith("<Tags in <Memory")
    assert repr(state.repository).startswith("<Repository over <Memory")
    state.repository.store.close()
    assert repr(state.repository)
    assert repr(state)


def test_completion_offers_nothing_that_is_not_for_users():
    state = committed(a=1)
    commit = state.head
    past = state.checkout(commit)
    for thing, hidden in (
        (state.repository, {"database", "over"}),
        (commit, {"tree", "meta_cell", "jump", "address", "parent_addresses"}),
        (past, {"pop", "popitem", "clear", "update", "setdefault", "cell_at"}),
    ):
        offered = {name for name in dir(thing) if not name.startswith("_")}
        assert offered
        assert not offered & hidden
        assert all(hasattr(thing, name) for name in offered)
    untyped: Any = past
    for call in (
        lambda: untyped.pop("a"),
        untyped.clear,
        lambda: untyped.update(a=1),
        lambda: untyped.__setitem__("a", 1),
    ):
        with pytest.raises(ReadOnlyError):
            call()
    with pytest.raises(AttributeError, match="nothing_like_that"):
        _ = untyped.nothing_like_that


@pytest.mark.parametrize("make", [Versioned, Live, lambda: Versioned().namespace("n")])
def test_completion_offers_keys(make: Callable[[], Any]):
    state = make()
    state.update({f"{n:04}": n for n in range(1200)}, theme="dark")
    assert state._ipython_key_completions_() == [f"{n:04}" for n in range(1000)]
    if isinstance(state, Versioned):
        commit = state.commit()
        state.repository.tags.create("v1")
        assert state.checkout(commit)._ipython_key_completions_() == [f"{n:04}" for n in range(1000)]
        assert state.repository.branches._ipython_key_completions_() == ["main"]
        assert state.repository.tags._ipython_key_completions_() == ["v1"]


@pytest.mark.parametrize("make", [Versioned, Live, lambda: Versioned().namespace("n")])
def test_a_value_assigned_to_an_attribute_is_not_lost(make):
    state = make()
    with pytest.raises(AttributeError, match=r"state\['messages'\]"):
        state.messages = []
    with pytest.raises(AttributeError):
        del state.messages

    class Mine(Versioned):
        """A subclass keeps what it likes."""

    mine: Any = Mine()
    mine.agent = "planner"
    assert mine.agent == "planner"


def test_the_documented_way_to_resolve_a_conflict_is_typed():
    """Checked by mypy as well: ``merge`` is not optional."""
    ours, theirs = two(x=0)
    ours["x"], theirs["x"] = 1, 2
    theirs.commit()
    try:
        ours.commit()
    except MergeConflictError as error:
        for conflict in error.conflicts:
            error.merge.resolve(conflict.path, 3)
        commit = error.merge.commit()
    assert ours["x"] == 3
    assert commit == ours.head


def test_the_difference_of_two_snapshots():
    state = Versioned()
    state["a"] = [1]
    first = state.checkout(state.commit())
    state["a"].append(2)
    state.namespace("n")["b"] = 1
    second = state.checkout(state.commit())
    assert str(first.diff(second)) == str(state.diff("HEAD~1", "HEAD"))
    assert not second.diff(second)
    with pytest.raises(InvalidArgumentError, match="must be a Snapshot"):
        first.diff("HEAD")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="different"):
        first.diff(Versioned().checkout("HEAD"))


def test_an_author_that_is_empty_is_none():
    state = Versioned(author="")
    state["a"] = 1
    assert state.commit(author="").author is None
    named = Versioned(state.repository, author="ada")
    named["a"] = 2
    assert named.commit(author="").author == "ada"
    assert named.revert("HEAD", author="").author == "ada"
    assert Versioned(type(state.repository)(state.repository.store, author="")).repository.author is None


def test_release_of_a_list_with_appended_elements():
    state = committed(log=[1])
    assert state.release("log") is True
    state.sequence("log").append(2)
    assert state.release("log") is False
    state.commit()
    assert state.release("log") is True


def test_release_of_a_value_that_cannot_be_stored_any_more():
    state = committed(small={"a": 1}, large=["x" * 100] * 900)
    for key in ("small", "large"):
        if key == "small":
            state[key]["a"] = (n for n in "")
        else:
            state[key][3] = (n for n in "")
        assert state.release(key) is False
    state.discard()
    assert state.release("small") is True
