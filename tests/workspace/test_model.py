"""A workspace against naive copies of its folder: any trees, edits and moves."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings, strategies as st

from tests.support.workspaces import lay, tree_of
from versioned_state import Memory, Versioned, Workspace
from versioned_state.errors import DirtyWorkspaceError, MergeConflictError
from versioned_state.values.codec.files import FileTree

NAMES = ["a", "b", "A", "ä", "x.py", "_\udcff"]

contents = st.one_of(
    st.binary(max_size=6),
    st.text(alphabet="ab\n\r", max_size=6).map(str.encode),
    st.integers(0, 5).map(
        lambda n: b"".join(b"line %d of a text that is too long to lie in its leaf\n" % (i * n) for i in range(40))
    ),
    st.integers(0, 3).map(lambda n: bytes([255, n]) * 200),
)
entries = st.one_of(
    st.tuples(st.sampled_from([0o644, 0o644, 0o755, 0o600]), contents),
    st.sampled_from(["a", "../outside", "/tmp", "b/x.py"]),
    st.none(),
)
paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)


def is_possible(tree):
    """Whether no path is both a file, or an empty folder, and a folder with something in it."""
    return not any(other.startswith(path + "/") for path in tree for other in tree)


trees = st.dictionaries(paths, entries, max_size=6).filter(is_possible)


class Pair:
    """A state with a workspace."""

    def __init__(self, store=None):
        self.root = Path(tempfile.mkdtemp())
        self.folder = self.root / "folder"
        self.state = Versioned(store)
        self.workspace = Workspace(self.state, self.folder)

    def close(self):
        self.state.close()
        shutil.rmtree(self.root)


def checked(pair, tree):
    assert tree_of(pair.folder) == tree
    assert not pair.workspace.status()
    assert pair.workspace.unresolved == []


@given(st.lists(trees, min_size=1, max_size=4), st.data())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=30)
def test_any_trees_come_back_exactly(versions, data):
    pair = Pair()
    try:
        state = pair.state
        commits = [state.commit("nothing", allow_empty=True)]
        for tree in versions:
            lay(pair.folder, tree)
            commits.append(state.commit(allow_empty=True))
            checked(pair, tree)
            plain = Versioned(Memory())
            if tree:
                plain["workspace"] = FileTree(sorted(state["workspace"].items()))
            assert plain.commit(allow_empty=True).root == state.head.root
        trees_of = [{}, *versions]
        for _ in range(4):
            n = data.draw(st.integers(0, len(commits) - 1))
            state.reset(commits[n])
            checked(pair, trees_of[n])
        lay(pair.folder, data.draw(trees))
        if pair.workspace.status():
            before = tree_of(pair.folder)
            try:
                state.reset(commits[0])
                raise AssertionError("it was not refused")
            except DirtyWorkspaceError:
                assert tree_of(pair.folder) == before
        state.discard()
        checked(pair, trees_of[n])
        lay(pair.folder, data.draw(trees))
        pair.workspace.restore(at=commits[-1], overwrite=True)
        assert tree_of(pair.folder) == trees_of[-1]
        lay(pair.folder, dirty := data.draw(trees))
        try:
            with state.transaction("t"):
                lay(pair.folder, data.draw(trees))
                raise ZeroDivisionError
        except ZeroDivisionError:
            assert tree_of(pair.folder) == dirty
    finally:
        pair.close()


@given(trees, trees, trees)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=25)
def test_two_folders_that_commit_to_one_branch_are_the_same_in_the_end(base, left, right):
    store = Memory()
    one = Pair(store)
    try:
        lay(one.folder, base)
        one.state.commit("base", allow_empty=True)
        two = Pair(store)
        try:
            checked(two, base)
            lay(one.folder, left)
            one.state.commit("left", allow_empty=True)
            lay(two.folder, right)
            try:
                two.state.commit("right", allow_empty=True)
            except MergeConflictError:
                assert tree_of(two.folder) == right
                return
            if two.workspace.unresolved or is_ambiguous(two.state.get("workspace", {})):
                return  # one put a file where the other put a folder
            one.state.refresh()
            assert tree_of(one.folder) == tree_of(two.folder)
            assert not one.workspace.status()
            assert not two.workspace.status()
        finally:
            two.close()
    finally:
        one.close()


def is_ambiguous(files):
    return not is_possible(files)
