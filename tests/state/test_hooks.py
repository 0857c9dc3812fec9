"""Hooks of a handle: what a schema, bounds, a lock or a workspace hear of its commits and moves."""

import pytest

from versioned_state import Memory, Versioned
from versioned_state.errors import InvalidArgumentError, UncommittedChangesError
from versioned_state.repository.refs.ref import BatchPart
from versioned_state.state.branch.hooks import Hook
from versioned_state.values.keys import user_key
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.tree import find


class Recorder(Hook):
    """Records its calls.

    ``cell`` goes into each commit under ``files``, and ``dirty`` names changes outside of the state.
    """

    def __init__(self):
        self.heard = []
        self.cell = None
        self.dirty = []
        self.part = BatchPart()
        self.refusal = None

    def before_commit(self, keys):
        self.heard.append("before_commit")

    def amend(self, nodes, tree, keys):
        return tree if self.cell is None or keys is not None else edit_map(nodes, tree, {user_key("files"): self.cell})

    def check(self, nodes, before, after):
        if find(nodes, after, user_key("bad")) is not None:
            raise InvalidArgumentError("bad is not allowed")

    def batch_part(self):
        return self.part

    def batch_refused(self):
        self.heard.append("batch_refused")
        if self.refusal is not None:
            raise self.refusal

    def uncommitted(self):
        return self.dirty

    def moved(self, before, after):
        self.heard.append(("moved", before.message, after.message))

    def discard(self):
        self.heard.append("discard")

    def save(self):
        return "saved"

    def roll_back(self, saved):
        self.heard.append(("roll_back", saved))


def hooked(store=None):
    state = Versioned(store)
    hook = Recorder()
    state._handle.hooks.add(hook, state.head)
    return state, hook


def test_a_commit_takes_what_a_hook_adds_and_live_values_follow():
    state, hook = hooked()
    hook.cell = b"\x01"
    assert "+ files" in str(state.status())
    state["a"] = 1
    commit = state.commit("first")
    assert state.checkout(commit)["files"] == state["files"] == 1
    assert hook.heard == ["before_commit", ("moved", "", "first")]
    hook.cell = b"\x02"
    assert state.commit("only the hook's").message == "only the hook's"
    assert state["files"] == 2
    assert state.commit() == state.head, "nothing was changed"


def test_a_commit_of_some_keys_leaves_out_the_hooks_changes():
    state, hook = hooked()
    hook.cell = b"\x01"
    state["a"] = 1
    assert list(state.checkout(state.commit("a", keys=["a"]))) == ["a"]


def test_a_hook_refuses_commits_and_merges_and_nothing_is_lost():
    state, _ = hooked()
    state["a"] = 1
    first = state.commit("first")
    state["bad"] = 1
    with pytest.raises(InvalidArgumentError):
        state.commit("second")
    assert state.head == first
    assert state["bad"] == 1
    state.discard()
    other = Versioned(state.repository).fork("other")
    other["bad"] = 2
    other.commit("of another")
    state["b"] = 1
    state.commit("third")
    with pytest.raises(InvalidArgumentError):
        state.merge("other")
    assert state.head.message == "third"
    assert "bad" not in state


def test_a_merge_beside_another_writer_keeps_what_a_hook_adds():
    store = Memory()
    state, hook = hooked(store)
    hook.cell = b"\x01"
    state["a"] = 1
    other = Versioned(store)
    other["b"] = 2
    other.commit("of another")
    state.commit("ours")
    assert dict(state) == {"a": 1, "b": 2, "files": 1}


def test_conditions_of_a_hook_hold_for_the_batch():
    store = Memory()
    state, hook = hooked(store)
    hook.part = BatchPart({"mark": None}, {"mark": b"1"})
    state["a"] = 1
    state.commit("first")
    assert store.get("mark") == b"1"
    state["a"] = 2
    hook.refusal = InvalidArgumentError("the mark is there")
    with pytest.raises(InvalidArgumentError):
        state.commit("second")
    assert state.head.message == "first"
    assert state["a"] == 2
    hook.part, hook.refusal = BatchPart({"mark": b"1"}), None
    state.commit("second")
    assert Versioned(store)["a"] == 2


def test_a_move_is_refused_while_a_hook_has_changes():
    state, hook = hooked()
    state["a"] = 1
    state.commit("first")
    state["a"] = 2
    state.commit("second")
    hook.dirty = ["files"]
    with pytest.raises(UncommittedChangesError) as caught:
        state.undo()
    assert caught.value.paths == ("files",)
    hook.dirty = []
    state.undo()
    assert hook.heard[-1] == ("moved", "second", "first")
    state.redo()
    assert hook.heard[-1] == ("moved", "first", "second")
    state.discard()
    assert hook.heard[-1] == "discard"


def test_a_failed_transaction_rolls_a_hook_back():
    state, hook = hooked()
    with pytest.raises(ZeroDivisionError), state.transaction("t"):
        state["a"] = 1 / 0
    assert hook.heard == [("roll_back", "saved")]


def test_an_interrupt_in_a_hook_that_hears_of_a_move_is_made_up_for():
    state, hook = hooked()
    told = []

    def moved(before, after):
        told.append(after.message)
        if len(told) == 1:
            raise KeyboardInterrupt

    hook.moved = moved
    state["a"] = 1
    with pytest.raises(KeyboardInterrupt):
        state.commit("first")
    assert state.head.message == "first"
    assert list(state) == ["a"]
    assert told == ["first", "first"]


def test_a_hook_refuses_to_take_in_the_head_of_others():
    store = Memory()
    state, hook = hooked(store)
    state["a"] = 1
    state.commit("first")
    other = Versioned(store)
    other["a"] = 2
    other.commit("of another")

    def take_in(head):
        raise UncommittedChangesError("refresh()", [head.message])

    hook.take_in = take_in
    with pytest.raises(UncommittedChangesError, match="of another"):
        state.refresh()
    assert (state["a"], state.head.message) == (1, "first")


def test_a_reset_is_refused_while_a_hook_has_changes():
    state, hook = hooked()
    state["a"] = 1
    first = state.commit("first")
    state["a"] = 2
    hook.dirty = ["files"]
    for move in (lambda: state.reset(first), state.rollback, lambda: state.switch("other", create=True)):
        with pytest.raises(UncommittedChangesError):
            move()
    assert state["a"] == 2


def test_a_hook_restores_the_paths_that_are_its_own():
    state, hook = hooked()
    restored = []

    def restore(path, snapshot):
        is_own = str(path).startswith("files")
        if is_own:
            restored.append((str(path), snapshot.commit.message))
        return is_own

    hook.restore = restore
    state["a"] = 1
    state.commit("first")
    state["a"] = 2
    state.restore("files.x")
    state.restore("a")
    assert (restored, state["a"]) == ([("files.x", "first")], 1)


def test_a_commit_of_the_key_that_a_hook_makes():
    state, hook = hooked()
    hook.keys = frozenset({user_key("files")})
    hook.amend = lambda nodes, tree, keys: edit_map(nodes, tree, {user_key("files"): b"\x01"})
    state["a"] = 1
    commit = state.commit(keys=["files"])
    assert dict(state.checkout(commit)) == {"files": 1}
    assert commit.message == "files added"


def test_a_hook_hears_that_its_state_is_closed():
    state, hook = hooked()
    closed = []
    hook.close = lambda: closed.append(True)
    state.close()
    state.close()
    assert closed == [True]


def test_a_hook_gives_the_roots_to_commit_and_live_values_follow():
    class Twice(Hook):
        """Commits each root unchanged, and then with one more key, also for a merge."""

        def settle(self, nodes, before, after):
            return after, edit_map(nodes, after, {user_key("settled"): b"\x01"})

    state = Versioned()
    state._handle.hooks.add(Twice(), state.head)
    state["a"] = 1
    assert str(state.status()) == "+ a = 1", "status shows the change as it was made"
    commit = state.commit("first", meta={"n": 1})
    assert [(each.message, dict(state.checkout(each)), each.meta) for each in state.log()] == [
        ("first", {"a": 1, "settled": 1}, {"n": 1}),
        ("first (in full)", {"a": 1}, {}),
    ]
    assert (commit, state["settled"]) == (state.head, 1)
    fork = Versioned(state.repository).fork("fork", at="HEAD~1")
    fork["b"] = 2
    fork.commit()
    state["c"] = 3
    state.commit()
    state.merge("fork")
    assert dict(state) == {"a": 1, "b": 2, "c": 3, "settled": 1}
