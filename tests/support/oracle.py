"""The oracle: after each commit, the results of the engine's fast paths are compared with those of its slow ones.

Three questions are asked of a commit that was published:

1. Do its cells follow from their content? Each value is read anew from the store, without any cache, and encoded anew
   from nothing; the series of the engine are made again of their entries; the root is built at once from all cells.
   Every cell, and the root, is the same.
2. Is each of its trees in canonical form? (``values.canonical``)
3. Does it hold the live values of the handle that made it? Each loaded value is encoded from nothing, as it is now: the
   cell is the one in the commit, and the value that is read anew from it is exactly the live one. What was staged for
   other keys, removals too, is in it.

The engine does not know of it: it is called after the calls through which each commit passes (``SEAMS``). It reads the
store beneath all wrappers that count, cache or fail, and touches neither cache nor handle. Where it cannot ask, it
steps aside and counts why.

An object, which is pickled, cannot be encoded to the same bytes again, and is not unpickled here. A value with one in
it is asked question 2 only; so is one with a part that cannot be read here (a class that is not found, a time zone).
"""

from __future__ import annotations

import hashlib
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest

from tests.support.exact import exact
from versioned_state import KVStore, Memory
from versioned_state.errors import (
    CorruptObjectError,
    LimitExceededError,
    MissingObjectError,
    PickleRefusedError,
    StateError,
    StorageError,
    UnserializableValueError,
)
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.repository.database import Database, Publication
from versioned_state.repository.history.commit import Commit, read_commit
from versioned_state.repository.maintenance.purge.rewrite import RewritePass
from versioned_state.repository.refs.ref import Ref
from versioned_state.state.aio.caller import current_caller
from versioned_state.state.branch.branch_handle import BranchHandle
from versioned_state.state.worktree.entries import Staged
from versioned_state.storage import Encrypted
from versioned_state.storage.wrapper import Wrapper
from versioned_state.values.canonical import Known, find_flaws
from versioned_state.values.cells import Code, code_of
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.encode.inline import InlineEncoder
from versioned_state.values.keys import OLDER_ROUNDS, is_internal, name_in, path_of
from versioned_state.values.series import parts_of, series_of
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Node, NodeCache, Nodes, Shape
from versioned_state.values.trees.references import tree_cell, tree_of
from versioned_state.values.trees.tree import Tree, empty, iter_items, same
from versioned_state.values.typed.older import OlderForms

SEAMS: Final = {
    "Database.publish": "plain commits, merges, picks, reverts, rebases, squashes, transactions, tasks, "
    "saves, appends, commit_together",
    "Database.publish_each": "saves and appends of many sessions that are sent together",
    "BranchHandle.adopt_commit": "each of these that a handle takes as its head, also after a lost reply: "
    "with its live values",
    "RewritePass.publish": "purge, which writes commits anew",
}

SMALL: Final = 1_000
"""The weight of a state up to which it counts as small: about a millisecond of work."""

TESTS: Final = 0.25
"""The share of the tests whose commits are looked at, unless all are checked."""

LARGE: Final = 10_000
"""The weight from which a state is drawn less often than the others."""

FIRST: Final = 2
"""Commits of a test that are always checked, if they are small; later ones, and large ones, by the share."""

_MEMO: Final = 20_000
_WRITTEN_WRONGLY: Final = (
    "not a node",
    "keys are not in order",
    "its level, count or first key",
    "elements that holds",
)
"""Words of errors that say that sound objects do not fit together."""
_SHORT: Final = 32
_NO_OBJECTS: Final = PicklePolicy("refuse", private=False)


class Oracle:
    """Checks commits, and keeps what it found until the end of a test.

    Args:
        share: of the later and of the large commits, how many to check: 1 for all.
        seed: decides which.
    """

    def __init__(self, *, share: float, seed: int) -> None:
        self.share = share
        self.seed = seed
        self.checked = 0
        self.counts: Counter[str] = Counter()
        self.aside: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._known: Known = {}
        self._verified: set[bytes] = set()
        self.begin("")

    def begin(self, test: str, reason: str | None = None) -> None:
        """Check the commits of a test from now on, or with a ``reason``, check none."""
        with self._lock:
            self.found: list[str] = []
            self._rng = random.Random(f"{self.seed} {test}")
            if reason is None and self.share < 1 and self._rng.random() >= TESTS:
                reason = "the test is not in the sample"
            self._reason = reason
            self._seen = 0
            self._wanted = True
            self._done: dict[str, bool] = {}  # by id of a commit, whether it is in the sample

    def end(self) -> None:
        """Fail for what was found since ``begin``."""
        with self._lock:
            found, self.found = self.found, []
            self._done.clear()
            if len(self._known) > _MEMO:
                self._known.clear()
            if len(self._verified) > _MEMO:
                self._verified.clear()
        assert not found, "the oracle disagrees:\n" + "\n".join(found[:20])

    def check(
        self, database: Database, commit: Commit, handle: BranchHandle | None = None, staged: Staged | None = None
    ) -> None:
        """Check a published commit, and the live values of the handle that adopted it after staging these changes."""
        with self._lock:
            if self._reason is not None:
                self.aside[self._reason] += 1
                return
            if sys.gettrace() is not None or sys.getprofile() is not None:
                self.aside["a test counts calls or lines, or interrupts them"] += 1
                return
            chosen = self._done.get(commit.id)
            if chosen is False or (chosen and handle is None):
                return
            self._done[commit.id] = False
            try:
                self._done[commit.id] = self._check(database, commit, handle, staged, is_new=chosen is None)
            except CorruptObjectError as error:
                if any(word in error.reason for word in _WRITTEN_WRONGLY):
                    self.found.append(f"commit {commit.id}: {error}")
                else:
                    self.aside["its objects are damaged"] += 1
            except MissingObjectError:
                # Tests delete objects, and collect commits that a process has just made. That a commit leads to objects
                # that are not there is a matter of fsck, which these tests ask.
                self.aside["its objects are gone"] += 1
            except StorageError:
                self.aside["its store cannot be read"] += 1

    def _check(
        self, database: Database, commit: Commit, handle: BranchHandle | None, staged: Staged | None, *, is_new: bool
    ) -> bool:
        """Check a commit, if it is in the sample.

        Returns whether it is. One that was checked already is compared with the handle only.
        """
        if is_new:
            self._seen += 1
            drawn = self._rng.random()
            self._wanted = drawn < self.share
            if not self._wanted and self._seen > FIRST:
                self.aside["not in the sample"] += 1
                return False
        objects = ObjectStore(beneath(database.store))
        commit = read_commit(commit.address, objects.read(commit.address))
        nodes = Nodes(objects, cache=NodeCache())
        cells = dict(iter_items(nodes, commit.tree))
        if is_new:
            weight = sum(_weight_of(key, cell) for key, cell in cells.items())
            # A large commit is drawn the less often the more it weighs, so that no run is slow by chance.
            if weight > SMALL and drawn >= self.share * (1 if self.share == 1 else min(1, LARGE / weight)):
                self.aside["not in the sample"] += 1
                return False
            self.checked += 1
            self._check_cells(nodes, commit, cells)
            for flaw in find_flaws(nodes, commit.tree, known=self._known):
                self.found.append(f"commit {commit.id}: not canonical: {flaw}")
        if handle is not None and staged is not None:
            self._check_live(nodes, commit, cells, handle, staged)
        return True

    # 1. The cells and the root follow from their content

    def _check_cells(self, nodes: Nodes, commit: Commit, cells: dict[bytes, bytes]) -> None:
        for key, cell in cells.items():
            if len(cell) > _SHORT and self._is_memo(key + b"\0" + cell):
                continue
            anew = self._anew(nodes, key, cell)
            if anew is not None and anew != cell:
                where = f"commit {commit.id}: the cell of {path_of(key)}"
                self.found.append(f"{where} is not the one of its value: {cell!r:.200}, not {anew!r:.200}")
        root = edit_map(_fresh(), empty(Shape.MAP), {**cells})
        if not same(root, commit.tree):
            self.found.append(
                f"commit {commit.id}: the root is not that of its cells: {commit.tree!r:.200}, not {root!r:.200}"
            )

    def _anew(self, nodes: Nodes, key: bytes, cell: bytes) -> bytes | None:
        """Return the cell that a cell's content has if encoded from nothing, or None if that cannot be said."""
        if is_internal(key):
            if name_in(key) == name_in(OLDER_ROUNDS):
                tree = tree_of(cell)
                assert tree is not None
                built = edit_map(_fresh(), empty(Shape.MAP), {**dict(iter_items(nodes, tree))})
                top = (
                    Tree(Shape.MAP, built.count, _fresh().add(Shape.MAP, built.top))
                    if isinstance(built.top, Node)
                    else built
                )
                return tree_cell(Code.DICT_TREE, top)
            with suppress(CorruptObjectError):
                parts = parts_of(cell)
                entries = {
                    key[1:].decode("utf-8", "surrogatepass"): entry
                    for part in parts
                    for key, entry in iter_items(nodes, part.tree)
                }
                fresh = _fresh()
                return series_of(fresh, None).extended(fresh, entries).cell
        try:
            return encoded_again(nodes, cell)
        except StateError as error:
            if isinstance(error, StorageError | CorruptObjectError):
                raise
            self.counts[f"values that are not encoded anew: {type(error).__name__}"] += 1
            return None

    # 3. The live values

    def _check_live(
        self, nodes: Nodes, commit: Commit, cells: dict[bytes, bytes], handle: BranchHandle, staged: Staged
    ) -> None:
        if current_caller() is not None:
            self.counts["handles whose values may change meanwhile: not compared"] += 1
            return
        if same(staged.tree, commit.tree):  # nothing of other writers is in it
            for key, update in staged.changes.items():
                if cells.get(key) != update.cell:
                    what = "is still there" if update.cell is None else "is not what was staged"
                    self.found.append(f"commit {commit.id}: {path_of(key)} {what}")
        tracked = handle.worktree._tracked
        for key, entry in list(tracked.entries.items()):
            if key not in staged.failed and key not in tracked.assigned and key not in tracked.stale:
                self._compare(nodes, commit, key, entry.value, cells.get(key), handle)

    def _compare(
        self, nodes: Nodes, commit: Commit, key: bytes, live: Any, cell: bytes | None, handle: BranchHandle
    ) -> None:
        try:
            anew = encoded(live, handle)
            if anew != cell:
                self.found.append(
                    f"commit {commit.id}: {path_of(key)} is not the live value: {cell!r:.200}, not {anew!r:.200}"
                )
                return
            stored = Decoder(nodes, handle.repository.database.policy).decode(anew)
        except _UNASKABLE as error:
            self.counts[f"live values that are not compared: {type(error).__name__}"] += 1
            return
        if (cell and self._is_memo(b"live" + cell)) or exact(stored) == exact(live):
            return
        if "Tagged(name=" in repr(stored):  # its class may not be read here; the stored form is that of the live value
            self.counts["live values that are not compared: Tagged"] += 1
        else:
            self.found.append(f"commit {commit.id}: {path_of(key)} is read as {stored!r:.300}, and is {live!r:.300}")

    def _is_memo(self, content: bytes) -> bool:
        """Return whether this content was verified before, and count it as verified from now on."""
        memo = hashlib.blake2b(content, digest_size=16).digest()
        if memo in self._verified:
            return True
        self._verified.add(memo)
        return False


_UNASKABLE: Final = (UnserializableValueError, PickleRefusedError, LimitExceededError)


def encoded(value: Any, handle: BranchHandle | None = None) -> bytes:
    """Return the cell of a value, encoded from nothing.

    An instance that a handle has read from an older form keeps that form.
    """
    encoder = _slow_encoder()
    if handle is not None:
        encoder.older = handle.worktree._encoder.older
    return encoder.encode(value, None, "a value")[0]


def encoded_again(nodes: Nodes, cell: bytes) -> bytes:
    """Return the cell of the value of a cell, encoded from nothing.

    An instance in an older form than its class has now keeps that form.
    """
    encoder, decoder = _slow_encoder(), Decoder(nodes, _NO_OBJECTS)
    decoder._typed.older = encoder.older = OlderForms(
        encoder.fingerprinter.content, InlineEncoder(_NO_OBJECTS).encode_inline
    )
    return encoder.encode(decoder.decode(cell), None, "a value")[0]


def _slow_encoder() -> Encoder:
    encoder = Encoder(_fresh())
    encoder.fast = encoder.fingerprinter.fast = None  # the accelerator is among the fast paths
    return encoder


def _fresh() -> Nodes:
    staging = Staging(ObjectStore(Memory()))
    return Nodes(staging, staging=staging)


def beneath(store: KVStore) -> KVStore:
    """Return the store under the wrappers that count, cache or fail.

    One that encrypts stays, since nothing can be read beneath it.
    """
    while isinstance(store, Wrapper) and not isinstance(store, Encrypted):
        store = store.store
    return store


def _weight_of(key: bytes, cell: bytes) -> int:
    """Return about how long the check of a value takes, in units of a small element."""
    if is_internal(key):
        with suppress(CorruptObjectError):
            return sum(part.tree.count for part in parts_of(cell))
    tree = tree_of(cell) if (code := code_of(cell)) is not None and code >= Code.LIST_TREE else None
    if tree is None:
        return 1 + len(cell) // 50
    return 10 + (tree.count // 200 if tree.shape is Shape.BLOB else tree.count)


def _publish(original: Any, oracle: Oracle) -> Any:
    def publish(self: Database, publications: Sequence[Publication]) -> list[Ref] | None:
        moved: list[Ref] | None = original(self, publications)
        for each in publications if moved is not None else ():
            oracle.check(self, each.commit)
        return moved

    return publish


def _publish_each(original: Any, oracle: Oracle) -> Any:
    def publish_each(self: Database, publications: Sequence[Publication]) -> list[Ref | StateError | None]:
        outcomes: list[Ref | StateError | None] = original(self, publications)
        for each, outcome in zip(publications, outcomes, strict=True):
            if isinstance(outcome, Ref):
                oracle.check(self, each.commit)
        return outcomes

    return publish_each


def _adopt_commit(original: Any, oracle: Oracle) -> Any:
    def adopt_commit(self: BranchHandle, commit: Commit, ref: Ref, staged: Staged) -> None:
        database = self.repository.database
        original(self, commit, ref, staged)
        if self.head == commit:
            oracle.check(database, commit, self, staged)

    return adopt_commit


def _publish_rewritten(original: Any, oracle: Oracle) -> Any:
    def publish(self: RewritePass) -> bool:
        done: bool = original(self)
        for _, head, _ in self.moves:
            if head is not None:
                with suppress(StateError):
                    # tests count, and fail, what the wrappers are asked
                    raw = ObjectStore(beneath(self._database.store)).read(head)
                    oracle.check(self._database, read_commit(head, raw))
        return done

    return publish


_WRAPPED: Final[list[tuple[Any, str, Any]]] = [
    (Database, "publish", _publish),
    (Database, "publish_each", _publish_each),
    (BranchHandle, "adopt_commit", _adopt_commit),
    (RewritePass, "publish", _publish_rewritten),
]


@contextmanager
def installed(oracle: Oracle) -> Iterator[None]:
    """Have each commit of this process checked."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, wrapped in _WRAPPED:
            patch.setattr(owner, name, wrapped(getattr(owner, name), oracle))
        yield
