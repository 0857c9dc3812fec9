"""Uploading again the objects that a ref is about to need and that gc may have deleted. Layer: repository.

Gc never deletes a reachable object, so this concerns unreachable ones: objects that a large commit stored ahead, parts
of commits that are no longer reachable, and a whole history that becomes reachable again. Checking whether the store
has them is not enough, since a cache may answer after they are gone. So they are read, from the cache or the store, and
stored again; a store ignores an object that it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from versioned_state.objects.address import Address
from versioned_state.objects.envelope import Segmented, seal
from versioned_state.objects.keys import object_key
from versioned_state.objects.store import ObjectStore, Reader, Staging
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ADDRESS, Commit
from versioned_state.repository.history.reach import Reference, iter_new, references_of_tree

_BATCH_BYTES: Final = 1 << 20


class _Uploader:
    """An upload of objects, about a megabyte in one call."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._batch: dict[str, bytes] = {}
        self._size = 0

    def add(self, address: Address, raw: bytes) -> None:
        if isinstance(raw, Segmented):
            # All segments: a failed batch may have stored the object without some of them.
            for part_address, part in raw.parts():
                self.add(part_address, part)
        sealed = seal(raw)
        self._batch[object_key(address)] = sealed
        self._size += len(sealed)
        if self._size >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._batch:
            self._objects.kv.apply({}, {}, objects=self._batch)
            self._batch, self._size = {}, 0


def reupload_tree(objects: ObjectStore, commit: Commit, parents: Iterable[Commit], staging: Staging) -> None:
    """Store the objects of a commit's tree that neither its parents' trees nor the staging have.

    Cost: reads the difference.

    Raises:
        MissingObjectError: an object of the tree is gone for good; the values must be encoded again.
    """
    uploader = _Uploader(objects)
    for address, raw in _new_in_tree(staging, commit, parents):
        if address not in staging:
            uploader.add(address, raw)
    uploader.flush()


def reupload_history(objects: ObjectStore, commit: Commit, heads: Iterable[Commit], read: graph.Read) -> None:
    """Store a commit, its tree and its history again, except what ``heads``, which are reachable, lead to.

    Cost: O(log n) reads if the commit is an ancestor of a head by first parents; else see ``graph.only_in``, and what
    each of those commits changed.

    Raises:
        MissingObjectError: part of the history was collected, so no ref can be moved to the commit any more.
    """
    uploader = _Uploader(objects)
    for each in graph.only_in(commit, heads, read):
        if each.address == ROOT_ADDRESS:
            continue
        uploader.add(each.address, objects.read(each.address))
        for address, raw in _new_in_tree(objects, each, graph.parents_of(each, read)):
            uploader.add(address, raw)
    uploader.flush()


def _new_in_tree(reader: Reader, commit: Commit, parents: Iterable[Commit]) -> Iterator[tuple[Address, bytes]]:
    old: list[Reference] = []
    for parent in parents:
        old += references_of_tree(parent.tree)
    for reference, raw in iter_new(reader, old, references_of_tree(commit.tree)):
        yield reference.address, raw
