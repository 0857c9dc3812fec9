"""Sending again what a move of a ref relies on, where gc has deleted something since it was found. Layer: repository.

What is reachable is never deleted, so this is about the rest: objects that a large commit stored ahead, parts of commits that nothing
leads to any more, and a whole history that is to be reachable again. To look whether they are still there would not do: a cache may
say so although they are gone. So they are read, from wherever they can be had, and sent again; objects that are there are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from versioned_state.objects.address import Address
from versioned_state.objects.envelope import seal
from versioned_state.objects.keys import object_key
from versioned_state.objects.store import ObjectStore, Reader, Staging
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ADDRESS, Commit, read_commit
from versioned_state.repository.history.reach import Reference, iter_new, references_of_tree
from versioned_state.repository.history.shallow import Shallow

_BATCH_BYTES: Final = 1 << 20


class _Sender:
    """Sends objects, some at a time."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._batch: dict[str, bytes] = {}
        self._size = 0

    def send(self, address: Address, raw: bytes) -> None:
        sealed = seal(raw)
        self._batch[object_key(address)] = sealed
        self._size += len(sealed)
        if self._size >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._batch:
            self._objects.kv.apply({}, {}, objects=self._batch)
            self._batch, self._size = {}, 0


def resend_tree(objects: ObjectStore, commit: Commit, parents: Iterable[Commit], staging: Staging) -> None:
    """Send what a commit's tree has and neither its parents' trees nor the staging have. Cost: reading what differs.

    Raises:
        MissingObjectError: a part of it is gone and cannot be had: the values must be encoded afresh.
    """
    sender = _Sender(objects)
    for address, raw in _iter_tree(staging, commit, parents):
        if address not in staging:
            sender.send(address, raw)
    sender.flush()


def _iter_tree(reader: Reader, commit: Commit, parents: Iterable[Commit]) -> Iterable[tuple[Address, bytes]]:
    old: list[Reference] = []
    for parent in parents:
        old += references_of_tree(parent.tree)
    for reference, raw in iter_new(reader, old, references_of_tree(commit.tree)):
        yield reference.address, raw


def resend_history(objects: ObjectStore, commit: Commit, heads: Iterable[Commit], shallow: Shallow, read: graph.Read) -> None:
    """Send a commit, with its trees and all its history but for what ``heads``, which are reachable, lead to.

    Cost: O(log n) reads where it is an ancestor of one of them by first parents. Where no head has to do with it, all that it leads to.

    Raises:
        MissingObjectError: it was collected, wholly or in part, so nothing can point to it any more.
    """
    heads = list(heads)
    sender = _Sender(objects)
    seen: set[Address] = set()
    pending = [commit]
    while pending:
        commit = pending.pop()
        address = commit.address
        if address in seen or address == ROOT_ADDRESS or any(graph.is_ancestor(commit, head, read) for head in heads):
            continue
        seen.add(address)
        raw = objects.read(address)
        sender.send(address, raw)
        parents = [read(parent) for parent in shallow.graft(read_commit(address, raw)).parent_addresses]
        for part, part_raw in _iter_tree(objects, commit, parents):
            sender.send(part, part_raw)
        pending += parents
    sender.flush()
