"""The index of refs by the meta of their heads: its entries, and what a batch that moves refs changes in it.

Layer: repository.

The fence's record names the keys of meta that are indexed, and every batch that moves a ref expects that record, so no
writer can miss it. The batch puts an empty key for each value of an indexed key in the meta of the new head, and
deletes those of the old one. An entry too many is harmless, since a search reads the refs that it finds. One too few
would be a wrong result. ``docs/design/044-an-index-of-meta.md`` has the reasons.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from versioned_state.errors import CorruptObjectError, LimitExceededError, MissingObjectError
from versioned_state.objects.address import Address
from versioned_state.objects.keys import REFS, RefKind, meta_prefix, read_ref_key
from versioned_state.objects.reading import DAMAGE, Reading
from versioned_state.objects.store import Staging
from versioned_state.repository.history.commit import Commit, meta_values, read_commit
from versioned_state.repository.history.reader import CommitReader
from versioned_state.repository.refs.gc_fence import GcFence
from versioned_state.repository.refs.ref import parse_ref
from versioned_state.storage import KVStore
from versioned_state.values.encode.inline import InlineEncoder, plain_cell

MAX_INDEXED: Final = 16
"""Keys of meta with an index: the fence's record has their names, and each is looked up in the meta of each commit."""

MAX_KEY: Final = 1000
"""Bytes of such a key: the fence's record stays small."""

INDEXED_TYPES: Final = (str, int, bool, type(None))
"""Two values of one of these types are equal exactly if their cells are. Values of other types are in no index."""


def entry_of(key: str, value: Any, kind: RefKind) -> str:
    """Return the beginning of the keys of the index for refs of a kind whose heads have this value.

    It is of an ``INDEXED_TYPES``.
    """
    cell = plain_cell(value)
    return meta_prefix(key, InlineEncoder().encode_inline(value, "meta") if cell is None else cell, kind)


def entries_of(meta: Mapping[str, Any], indexed: Iterable[str], kind: RefKind, name: str) -> set[str]:
    """Return the keys of the index for a ref whose head has this meta."""
    return {
        entry_of(key, meta[key], kind) + name for key in indexed if key in meta and type(meta[key]) in INDEXED_TYPES
    }


def entry_changes(
    store: KVStore,
    commits: CommitReader,
    indexed: Collection[str],
    expected: Mapping[str, bytes | None],
    puts: Mapping[str, bytes],
    deletes: Collection[str],
    staging: Staging | None = None,
) -> tuple[dict[str, bytes], list[str]]:
    """Return what a batch that moves refs puts into the index and deletes from it.

    See ``GcFence.apply`` for the arguments.

    Cost: nothing if the commits are staged or were read lately, else one call of the store for all of them.
    """
    moves: list[tuple[RefKind, str, Address | None, Address | None]] = []
    for key in (*puts, *deletes):
        if key.startswith(REFS):
            kind, name = read_ref_key(key)
            records = (expected.get(key), puts.get(key))
            before, after = (None if stored is None else parse_ref(kind, name, stored).head for stored in records)
            if before != after:
                moves.append((kind, name, before, after))
    heads = {head for *_, before, after in moves for head in (before, after) if head is not None}
    metas = metas_of(store, commits, heads, indexed, staging)
    added: set[str] = set()
    removed: set[str] = set()
    for kind, name, before, after in moves:
        added |= set() if after is None else entries_of(metas.get(after, {}), indexed, kind, name)
        removed |= set() if before is None else entries_of(metas.get(before, {}), indexed, kind, name)
    return dict.fromkeys(sorted(added - removed), b""), sorted(removed - added)


def metas_of(
    store: KVStore,
    commits: CommitReader,
    heads: Collection[Address],
    indexed: Collection[str],
    staging: Staging | None = None,
) -> dict[Address, dict[str, Any]]:
    """Return the values under indexed keys in the meta of some commits, which are staged or stored.

    Leaves out the commits that are missing or damaged.
    """
    read: list[Commit] = []
    stored = []
    for head in heads:
        if staging is not None and head in staging:
            read.append(read_commit(head, staging.read(head)))
        else:
            stored.append(head)
    try:
        read += commits.read_many(stored).values()
    except (MissingObjectError, *DAMAGE):
        for head, raw in Reading(store).objects(stored)[0].items():
            with suppress(CorruptObjectError):
                read.append(read_commit(head, raw))
    found = {}
    for commit in read:
        with suppress(CorruptObjectError, LimitExceededError):
            found[commit.address] = meta_values(commit, indexed)
    return found


def search_index(fence: GcFence, kind: RefKind, where: Mapping[str, Any]) -> str | None:
    """Return the beginning of the keys of an index that have the refs with these values in the meta of their heads.

    It may have other refs too. Returns None if there is no such index. Cost: nothing, or a read if none is known of.
    """
    keys = [key for key, value in where.items() if type(value) in INDEXED_TYPES]
    if keys and fence.enabled:
        with suppress(CorruptObjectError):
            searchable = fence.record.searchable
            if not any(key in searchable for key in keys):
                searchable = fence.refresh().searchable  # another process may have made one
            for key in keys:
                if key in searchable:
                    return entry_of(key, where[key], kind)
    return None
