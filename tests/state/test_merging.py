"""Merges on a handle: by path, with policies, or resolved by hand. Live values follow."""

from __future__ import annotations

import copy
import itertools
import random

import pytest

from tests.support.exact import exact
from tests.support.handles import cold, committed
from tests.support.long_runs import first as everyday
from versioned_state import Commit, Memory, Repository, Versioned
from versioned_state.errors import (
    InvalidArgumentError,
    InvalidPathError,
    MergeConflictError,
    UncommittedChangesError,
    UnknownRevisionError,
)
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.repository.merging import merge as merging
from versioned_state.repository.merging.merge import MISSING
from versioned_state.repository.merging.policies import Policies, Policy
from versioned_state.storage import Counting, Disk
from versioned_state.values.trees.tree import same

MESSAGES = [{"role": "user", "content": f"{n} " + "x" * 60} for n in range(200)]


def two() -> tuple[Versioned, Versioned]:
    """Two handles on one branch, with values large and small."""
    repository = Repository(Memory(), clock=itertools.count(1).__next__)
    ours = Versioned(repository, author="ours")
    ours.update(
        messages=copy.deepcopy(MESSAGES),
        prefs={"theme": "dark", "deep": {"a": 1, "b": 1}},
        score=10,
        plan=["one"],
        note="a\nb\nc\n",
    )
    ours.commit("begin")
    return ours, Versioned(repository, author="theirs")


class TestCommitOnAMovedBranch:
    def test_changes_of_different_paths_are_merged_and_references_hold(self):
        ours, theirs = two()
        messages, deep, his = ours["messages"], ours["prefs"]["deep"], theirs["prefs"]["deep"]
        theirs["prefs"]["deep"]["b"] = 2
        theirs["messages"][150]["content"] = "theirs"
        theirs["new"] = 1
        del theirs["note"]
        head = theirs.commit("theirs")
        ours["prefs"]["deep"]["a"] = 2
        ours["messages"][3]["content"] = "ours"
        ours["messages"].append("last")
        commit = ours.commit("ours")
        assert commit.parents == (head.id,)
        assert ours["messages"] is messages
        assert ours["prefs"]["deep"] is deep
        assert deep == {"a": 2, "b": 2}
        assert (messages[3]["content"], messages[150]["content"], messages[-1], len(messages)) == (
            "ours",
            "theirs",
            "last",
            201,
        )
        assert ours["new"] == 1
        assert "note" not in ours
        assert not ours.status()
        assert exact(ours.checkout("HEAD").copy()) == exact(dict(ours))
        assert theirs.refresh() == commit
        assert his == {"a": 2, "b": 2}
        assert exact(dict(theirs)) == exact(dict(ours))

    def test_a_conflict_changes_nothing_and_is_settled_by_hand(self):
        ours, theirs = two()
        theirs["plan"].append("theirs")
        theirs["score"] = 11
        theirs["prefs"]["theme"] = "light"
        theirs.commit("theirs")
        plan = ours["plan"]
        plan.append("ours")
        ours["score"] = 12
        before = exact(dict(ours))
        with pytest.raises(MergeConflictError) as caught:
            ours.commit("ours")
        error = caught.value
        assert "at plan, score" in str(error)
        assert "append" in error.hint
        assert [(str(c.path), c.base, c.ours, c.theirs) for c in error.conflicts] == [
            ("plan", ["one"], ["one", "ours"], ["one", "theirs"]),
            ("score", 10, 12, 11),
        ]
        assert exact(dict(ours)) == before
        assert ours["plan"] is plan
        error.merge.resolve("plan", ["one", "both"])
        with pytest.raises(MergeConflictError) as again:
            error.merge.commit()
        assert [str(conflict.path) for conflict in again.value.conflicts] == ["score"]
        with pytest.raises(InvalidArgumentError, match="no conflict at prefs"):
            error.merge.resolve("prefs", 1)
        again.value.merge.resolve("score", MISSING)
        commit = again.value.merge.commit()
        assert commit.message == "ours"
        assert ours["plan"] is plan
        assert plan == ["one", "both"]
        assert "score" not in ours
        assert ours["prefs"]["theme"] == "light"
        assert not ours.status()

    def test_policies_of_the_call_and_of_the_repository(self):
        ours, theirs = two()
        ours.repository.set_merge_policy("plan", "append")
        ours.repository.set_merge_policy("score", "max")
        assert theirs.repository.merge_policies == {"plan": "append", "score": "max"}
        for state, add in ((theirs, 1), (ours, 2)):
            state["plan"].append(add)
            state["score"] += add
        theirs.commit("theirs")
        ours.commit("ours", policies={"score": "sum"})
        assert (ours["plan"], ours["score"]) == (["one", 1, 2], 13)
        ours.repository.set_merge_policy("**", "theirs")
        theirs.refresh()
        for state, score in ((theirs, 20), (ours, 30)):
            state["score"] = score
            state.commit(str(score), policies={"score": "ours"})
        assert ours["score"] == 30, "a call's policy goes before those kept, whatever the order in which they were kept"
        ours.repository.set_merge_policy("**", None)
        ours.repository.set_merge_policy("score", None)
        assert ours.repository.merge_policies == {"plan": "append"}

    def test_equal_changes_of_both_are_one_unless_they_count(self):
        ours, theirs = two()
        for state in (ours, theirs):
            state["score"] += 1
        theirs.commit("theirs")
        assert ours.commit("ours") == theirs.head, "the others made the very change"
        for state in (ours, theirs):
            state["score"] += 1
        theirs.refresh()
        theirs["score"] = 12
        theirs.commit("theirs")
        ours["score"] = 12
        ours.commit("ours", policies={"score": "sum"})
        assert ours["score"] == 13

    @pytest.mark.parametrize("bad", [{"a": "bigger"}, {"a": 3}])
    def test_bad_policies_are_refused_at_once(self, bad):
        ours, _ = two()
        ours["score"] = 1
        with pytest.raises(InvalidArgumentError, match="is not a merge policy"):
            ours.commit(policies=bad)
        with pytest.raises(InvalidPathError):
            ours.commit(policies={"a[": "ours"})
        with pytest.raises(InvalidArgumentError):
            ours.repository.set_merge_policy("a", bad["a"])
        assert ours.status()

    def test_a_sequence_that_both_appended_to(self):
        ours, theirs = two()
        theirs.sequence("messages").append("theirs")
        theirs.commit()
        ours.sequence("messages").extend(["ours"])
        with pytest.raises(MergeConflictError) as caught:
            ours.commit()
        assert caught.value.conflicts[0].both_appended
        ours.commit(policies={"messages": "append"})
        assert ours["messages"] == [*MESSAGES, "theirs", "ours"]
        assert ours.sequence("messages")[-2:] == ["theirs", "ours"]


class TestRefresh:
    def test_uncommitted_changes_are_merged_on_top(self):
        ours, theirs = two()
        prefs = ours["prefs"]
        prefs["deep"]["a"] = 2
        theirs["prefs"]["deep"]["b"] = 2
        theirs["messages"].pop(0)
        theirs.commit()
        assert ours.refresh() == theirs.head
        assert ours["prefs"] is prefs
        assert prefs["deep"] == {"a": 2, "b": 2}
        assert [str(change) for change in ours.status()] == ["~ prefs.deep.a = 1 -> 2"]
        ours.discard()
        assert prefs["deep"] == {"a": 1, "b": 2}
        assert not ours.status()

    def test_a_conflict_changes_nothing_and_can_be_settled(self):
        ours, theirs = two()
        ours["score"] = 1
        theirs["score"] = 2
        theirs["plan"] = []
        theirs.commit()
        head = ours.head
        with pytest.raises(MergeConflictError) as caught:
            ours.refresh()
        assert (ours.head, ours["score"], ours["plan"]) == (head, 1, ["one"])
        caught.value.merge.resolve("score", 3)
        assert caught.value.merge.commit() == theirs.head, "a refresh commits nothing"
        assert (ours["score"], ours["plan"]) == (3, [])
        assert [str(change) for change in ours.status()] == ["~ score = 2 -> 3"]


class TestMerge:
    def test_a_what_if_is_merged(self):
        state, _ = two()
        what_if = state.fork("what-if")
        what_if["prefs"]["theme"] = "light"
        what_if["messages"].append("what if")
        there = what_if.commit("what if")
        prefs, messages = state["prefs"], state["messages"]
        state["prefs"]["deep"]["a"] = 7
        here = state.commit("meanwhile")
        merged = state.merge("what-if")
        assert merged.parents == (here.id, there.id)
        assert merged.message == "merge what-if into main"
        assert state["prefs"] is prefs
        assert prefs == {"theme": "light", "deep": {"a": 7, "b": 1}}
        assert messages[-1] == "what if"
        assert not state.status()
        assert state.merge("what-if") == merged, "it is merged already"
        assert state.repository.merge_base("main", "what-if") == there
        assert what_if["prefs"]["deep"]["a"] == 1, "the other branch is as it was"

    def test_fast_forward(self):
        state, _ = two()
        what_if = state.fork("what-if")
        what_if["score"] = 1
        there = what_if.commit("what if")
        before = state.head
        assert state.merge("what-if") == there
        assert state["score"] == 1
        state.undo()
        assert state.head == before
        merged = state.merge("what-if", fast_forward=False, message="by hand", meta={"why": "no"})
        assert merged.parents == (before.id, there.id)
        assert (merged.message, merged.meta) == ("by hand", {"why": "no"})

    def test_a_conflict_leaves_everything_as_it_was(self):
        state, _ = two()
        what_if = state.fork("what-if")
        what_if["score"], what_if["plan"] = 1, ["what if"]
        what_if.commit("what if")
        state["score"] = 2
        head = state.commit("here")
        with pytest.raises(MergeConflictError) as caught:
            state.merge("what-if")
        assert (state.head, state["score"], state["plan"]) == (head, 2, ["one"])
        assert not state.status()
        caught.value.merge.resolve("score", 3)
        merged = caught.value.merge.commit()
        assert len(merged.parents) == 2
        assert (state["score"], state["plan"]) == (3, ["what if"])

    def test_policies_settle(self):
        state, _ = two()
        what_if = state.fork("what-if")
        what_if["plan"].append("first")
        what_if.commit()
        state["plan"].append("second")
        state.commit()
        state.merge("what-if", policies={"plan": "append"})
        assert state["plan"] == ["one", "first", "second"], "in the order of time"

    def test_what_is_not_committed_stands_in_the_way(self):
        state, _ = two()
        state.fork("what-if")
        state["score"] = 1
        for call in (
            lambda: state.merge("what-if"),
            lambda: state.cherry_pick("HEAD"),
            lambda: state.switch("what-if"),
            state.undo,
        ):
            with pytest.raises(UncommittedChangesError, match="score") as caught:
                call()
            assert caught.value.paths == ("score",)
        assert state["score"] == 1

    def test_others_may_commit_meanwhile(self, monkeypatch):
        state, other = two()
        what_if = state.fork("what-if")
        what_if["score"] = 1
        what_if.commit("what if")
        state["plan"] = ["two"]
        state.commit("here")
        other.refresh()
        publish, meanwhile = state.repository.database.publish, iter([True])

        def slow(*args, **options):
            if next(meanwhile, False):
                other["new"] = 1
                other.commit("meanwhile")
            return publish(*args, **options)

        monkeypatch.setattr(state.repository.database, "publish", slow)
        merged = state.merge("what-if")
        assert state.repository.commit(merged.parents[0]).message == "meanwhile"
        assert (state["score"], state["new"], state["plan"]) == (1, 1, ["two"])

    def test_both_ways_give_one_state(self):
        state, _ = two()
        what_if = state.fork("what-if")
        what_if["messages"].insert(5, "x")
        what_if["prefs"]["z"] = 1
        what_if.commit()
        state["messages"].pop(100)
        state["prefs"]["y"] = 1
        state.commit()
        again = state.fork("again", at="what-if")
        assert state.merge("what-if").root == again.merge("main").root

    def test_it_costs_what_differs(self, tmp_path):
        store = Counting(Disk(tmp_path))
        state = Versioned(store)
        state.update({f"key {n:05}": {"n": n} for n in range(20_000)})
        state["messages"] = [dict(message) for message in MESSAGES * 10]
        state.commit()
        what_if = state.fork("what-if")
        what_if["key 00007"]["n"] = 0
        what_if["messages"][5] = "theirs"
        what_if.commit()
        state["key 19000"]["m"] = 0
        state["messages"][1500] = "ours"
        state.commit()
        objects = sum(1 for _ in store.keys("o/"))
        merging = Versioned(cold(store))
        store.reset()
        merging.merge("what-if")
        assert store.counts.objects_read < objects / 50
        assert merging["key 00007"] == {"n": 0}
        assert merging["key 19000"] == {"n": 19000, "m": 0}


class TestPicking:
    def test_cherry_pick(self):
        state, _ = two()
        side = state.fork("side")
        side["score"] = 1
        side.commit("score", author="her", meta={"step": 1})
        side["prefs"]["deep"]["b"] = 2
        picked = side.commit("deep", author="her", meta={"step": 2})
        state["prefs"]["deep"]["a"] = 2
        head = state.commit("here")
        commit = state.cherry_pick("side")
        assert (commit.parents, commit.message, commit.author, commit.meta) == ((head.id,), "deep", "her", {"step": 2})
        assert state["prefs"]["deep"] == {"a": 2, "b": 2}
        assert state["score"] == 10
        assert state.cherry_pick(picked) == commit, "it is there already"

    def test_what_is_there_already_is_not_counted_again(self):
        state, _ = two()
        state["plan"].append("two")
        state["score"] += 1
        commit = state.commit()
        assert state.cherry_pick(commit, policies={"plan": "append", "score": "sum"}) == commit

    def test_a_range(self):
        state, _ = two()
        side = state.fork("side")
        for n in range(4):
            side["messages"].append(n)
            side.commit(f"side {n}")
        state["score"] = 0
        state.commit("here")
        state.cherry_pick("side~3..side")
        assert [commit.message for commit in state.log(limit=4)] == ["side 3", "side 2", "side 1", "here"]
        assert state["messages"][-3:] == [1, 2, 3]
        with pytest.raises(InvalidArgumentError, match="does not come before"):
            state.cherry_pick("side..side~3")
        with pytest.raises(UnknownRevisionError):
            state.cherry_pick("nowhere..side")

    def test_revert(self):
        state, _ = two()
        root = state.head.root
        state["prefs"]["theme"] = "light"
        bad = state.commit("bad idea")
        state["score"] = 1
        state.commit("good one")
        theme = state["prefs"]
        reverted = state.revert(bad)
        assert reverted.message == f"revert {bad.short}: bad idea"
        assert reverted.author == "ours"
        assert theme["theme"] == "dark"
        assert state["score"] == 1
        state.revert(reverted)
        assert theme["theme"] == "light"
        state.revert("HEAD~4..HEAD")
        assert state.head.root == root, "all of it, newest first"

    def test_a_conflict_names_the_commit_and_can_be_settled(self):
        state, _ = two()
        state["score"] = 1
        bad = state.commit("one")
        state["score"] = 2
        head = state.commit("two")
        with pytest.raises(MergeConflictError) as caught:
            state.revert(bad)
        assert any(bad.short in note for note in caught.value.__notes__)
        assert (state.head, state["score"]) == (head, 2)
        caught.value.merge.resolve("score", 5)
        caught.value.merge.commit()
        assert state["score"] == 5

    def test_rebase(self):
        state, _ = two()
        side = state.fork("side")
        for n in range(3):
            side["messages"][n]["content"] = f"side {n}"
            side.commit(f"side {n}", meta={"n": n})
        state["messages"][100]["content"] = "main"
        main = state.commit("main")
        before = side.head
        head = side.rebase("main")
        assert [commit.message for commit in side.log(limit=4)] == ["side 2", "side 1", "side 0", "main"]
        assert [commit.meta for commit in side.log(limit=3)] == [{"n": 2}, {"n": 1}, {"n": 0}]
        assert side.repository.merge_base(head, main) == main
        assert side["messages"][100]["content"] == "main"
        assert side["messages"][2]["content"] == "side 2"
        assert side.rebase("main") == head, "it stands there already"
        assert side.undo() == before
        assert side["messages"][100]["content"] == MESSAGES[100]["content"]

    def test_squash(self):
        state, _ = two()
        begin = state.head
        for n in range(5):
            state["messages"].append(n)
            state.commit(f"round {n}")
        root, before = state.head.root, state.head
        state.squash("HEAD~4", "HEAD~1", message="three rounds")
        assert [commit.message for commit in state.log()] == ["round 4", "three rounds", "round 0", "begin"]
        assert state.head.root == root
        assert state.checkout("HEAD~1")["messages"][-1] == 3
        state.squash(begin)
        assert [commit.message for commit in state.log()] == ["round 0\nthree rounds\nround 4", "begin"]
        assert state.undo(2) == before
        for bad in (("HEAD", "HEAD~1"), ("HEAD", "HEAD")):
            with pytest.raises(InvalidArgumentError, match="no commits after"):
                state.squash(*bad)


class TestUndo:
    def test_any_move_is_taken_back_and_brought_back(self):
        state, _ = two()
        heads = [state.head]
        state["score"] = 1
        heads.append(state.commit("one"))
        state["score"] = 2
        heads.append(state.commit("two"))
        heads.append(state.reset("HEAD~1"))
        state["score"] = 3
        heads.append(state.commit("three"))
        for head in heads[-2::-1]:
            assert state.undo() == head
            assert state.checkout("HEAD").copy() == dict(state)
        with pytest.raises(UnknownRevisionError, match="nothing to undo"):
            state.undo(1)
        for head in heads[1:]:
            assert state.redo() == head
        with pytest.raises(UnknownRevisionError, match="nothing to redo"):
            state.redo()
        assert state.undo(3) == heads[1]
        assert state.redo(2) == heads[3]
        state["score"] = 4
        after = state.commit("another way")
        with pytest.raises(UnknownRevisionError, match="nothing to redo"):
            state.redo()
        assert state.undo() == heads[3]
        assert state.redo() == after

    def test_bad_steps(self):
        state, _ = two()
        for call in (state.undo, state.redo):
            for steps in (0, -1):
                with pytest.raises(InvalidArgumentError):
                    call(steps)
        with pytest.raises(InvalidArgumentError):
            state.rollback(-1)

    def test_rollback(self):
        state, _ = two()
        heads = [state.head]
        for n in range(3):
            state["score"] = n
            heads.append(state.commit())
        state["score"] = "dropped"
        assert state.rollback(2) == heads[1]
        assert state["score"] == 0
        assert state.undo() == heads[3]
        first = heads[0]
        assert state.rollback(9) == first, "at most to the first commit"
        assert state.rollback(1) == first
        assert Versioned().rollback(3).id == ROOT_ID

    def test_restore(self):
        state, _ = two()
        first = state.head
        prefs = state["prefs"]
        prefs["deep"]["a"], prefs["theme"] = 9, "light"
        prefs["new"] = 1
        del state["plan"]
        state["messages"][3] = "lost"
        state.namespace("n")["x"] = 1
        state.commit()
        for path in ("prefs.deep.a", "messages[3]", "plan", "prefs.new", "@n.x"):
            state.restore(path, at=first)
        assert state["prefs"] is prefs
        assert prefs == {"deep": {"a": 1, "b": 1}, "theme": "light"}
        assert state["messages"][3] == MESSAGES[3]
        assert state["plan"] == ["one"]
        assert "x" not in state.namespace("n")
        assert len(state.status()) == 5

    def test_switch(self):
        state, _ = two()
        prefs = state["prefs"]
        state.switch("side", create=True)
        assert (state.branch, state.head.message) == ("side", "begin")
        prefs["theme"] = "light"
        state.commit("on side")
        state.switch("main")
        assert prefs["theme"] == "dark"
        assert state["prefs"] is prefs
        with pytest.raises(UnknownRevisionError):
            state.switch("nowhere")
        assert state.branch == "main"
        state.switch("side")
        assert prefs["theme"] == "light"
        assert Repository(state.repository.store).branches["main"].message == "begin"

    def test_switching_before_the_first_commit(self):
        """As in git, a branch is there with its first commit, whatever the name that it began under."""
        state = Versioned()
        root = state.head
        assert state.switch("side", create=True) == root
        assert (state.branch, dict(state), list(state.repository.branches)) == ("side", {}, [])
        with pytest.raises(UnknownRevisionError):
            state.switch("main")
        state["x"] = 1
        with pytest.raises(UncommittedChangesError):
            state.switch("other", create=True)
        commit = state.commit()
        assert dict(state.repository.branches) == {"side": commit}
        assert [position.action for position in state.repository.reflog("side")] == ["commit"]
        other = Versioned(state.repository)
        assert other.switch("side", create=True) == commit, "it is there already"
        assert dict(other) == {"x": 1}
        with pytest.raises(UnknownRevisionError):
            state.switch("main")
        assert state.switch("main", create=True) == commit
        assert set(state.repository.branches) == {"main", "side"}


# Lines of history that were merged into each other


POLICIES: dict[str, Policy] = {"log": "append", "n": "sum"}


def merge_as_shown(line: Versioned, theirs: Commit, *, fast_forward: bool = True) -> None:
    """Merge, and check that a dry run shows the result."""
    shown, _ = merging.preview_merge(line.repository.database, line.head, theirs, policies=Policies(POLICIES))
    head = line.merge(theirs, policies=POLICIES, fast_forward=fast_forward)
    assert not shown.conflicts
    assert same(shown.tree, head.tree)


def test_lines_that_took_in_each_others_commits_have_each_change_once():
    """The two have two best common ancestors, and each line has the changes of both: they must not count again."""
    main = committed(log=["base"], n=0)
    side = main.fork("side")
    for state, word in ((main, "main"), (side, "side")):
        state["log"].append(word)
        state["n"] += 1
        state.commit()
    first, second = main.head, side.head
    main.merge(second, policies=POLICIES)
    side.merge(first, policies=POLICIES)
    side["log"].append("new")
    side["n"] += 1
    side.commit()
    assert len(list(graph.iter_merge_bases(main.head, side.head, main.repository.database.commits.read))) == 2
    main.merge("side", policies=POLICIES)
    assert sorted(main["log"]) == ["base", "main", "new", "side"]
    assert main["n"] == 3


def rounds_of_mutual_merges(lines, rounds):
    """Let each line count one up, then merge what the others were before, ``rounds`` times."""
    for _ in range(rounds):
        for line in lines:
            line["n"] += 1
            line.commit()
        heads = [line.head for line in lines]
        for line, head in itertools.product(lines, heads):
            line.merge(head, policies=POLICIES)


def test_lines_may_merge_each_other_any_number_of_times():
    main = committed(n=0)
    lines = [main, main.fork("side")]
    rounds_of_mutual_merges(lines, 90)
    assert [line["n"] for line in lines] == [180, 180]


def test_bases_of_three_lines_that_merge_each_other_are_each_merged_once(monkeypatch):
    made: list[int] = []
    real = merging.merged_base

    def counted(*args, **options):
        made.append(1)
        return real(*args, **options)

    monkeypatch.setattr(merging, "merged_base", counted)
    counts = []
    for rounds in (5, 10):
        main = committed(n=0)
        lines = [main, main.fork("b"), main.fork("c")]
        rounds_of_mutual_merges(lines, rounds)
        assert [line["n"] for line in lines] == [3 * rounds] * 3
        made.clear()
        for line in lines:
            line["n"] += 1
            line.commit()
        main.merge("b", policies=POLICIES)
        counts.append(len(made))
    assert 0 < counts[1] <= 2.3 * counts[0]


@pytest.mark.parametrize("seed", everyday(20, [137, 285, 287, *range(500)]))
def test_a_counter_and_a_log_have_each_change_once_however_lines_are_merged(seed):
    rng = random.Random(seed)
    main = committed(log=["root"], n=1)
    lines = [main, *(main.fork(name) for name in ("ab" if seed % 2 else "abc"))]
    commits, words = [main.head], ["root"]
    for step in range(rng.randrange(6, 16)):
        line = rng.choice(lines)
        if rng.random() < 0.45:
            words.append(f"word {step}")
            line["log"].append(words[-1])
            line["n"] += 1
            commits.append(line.commit())
        else:
            theirs = rng.choice([rng.choice(lines).head, rng.choice(commits)])
            merge_as_shown(line, theirs, fast_forward=rng.random() < 0.5)
    for line, other in [*itertools.permutations(lines, 2)] * 2:
        merge_as_shown(line, other.head)
    for line in lines:
        assert sorted(line["log"]) == sorted(words)
        assert line["n"] == len(words)


def test_lines_with_the_same_words_in_other_orders_are_merged_without_repeating_one():
    """Their base is a merge of two, whose order is neither that of one line nor that of the other."""
    main = committed(log=["root"])
    lines = [main, main.fork("a")]
    for line, words in zip(lines, (["m1", "m2"], ["a1", "a2"]), strict=True):
        line["log"].extend(words)
        line.commit()
    heads = [line.head for line in lines]
    main.merge(heads[1], policies=POLICIES)
    lines[1].merge(heads[0], policies=POLICIES)
    main["log"] = ["a2", "m2", "root", "a1", "m1", "new"]
    main.commit()
    lines[1]["log"] = ["m1", "a2", "a1", "root"]
    lines[1].commit()
    main.merge("a", policies=POLICIES)
    assert main["log"] == ["a2", "root", "a1", "m1", "new"]
