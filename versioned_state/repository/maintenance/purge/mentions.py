"""Mentions of some words in a store: in commits, names of refs, merge policies, effects, notes, records and stamps.

Layer: repository.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from versioned_state.errors import StateError
from versioned_state.objects.keys import EFFECTS, REF_KINDS
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.ledger import read_entry
from versioned_state.repository.merging.policies import read_policies
from versioned_state.repository.names.branches import Branches
from versioned_state.repository.names.tags import Tags
from versioned_state.repository.refs.named_records import iter_named, read_named
from versioned_state.repository.refs.notes import iter_notes, read_note
from versioned_state.repository.refs.ref import iter_refs
from versioned_state.repository.refs.stamps import iter_stamps

if TYPE_CHECKING:
    from versioned_state.repository.database import Database
    from versioned_state.storage import KVStore


def iter_mentions(database: Database, words: Sequence[str]) -> Iterator[str]:
    """Yield the ids of the commits, and the other places, that have one of the words.

    A commit is searched in its message, author, meta and tag. The other places are refs, policies, effects, notes,
    records and stamps. Words of one character are left out.
    """
    wanted = [word for word in dict.fromkeys(words) if len(word) > 1]
    if not wanted:
        return
    for pattern in read_policies(database.store):
        if _has(pattern, wanted):
            yield f"merge policy {pattern}"
    yield from _in_effects(database.store, wanted)
    for address, key, stored in iter_notes(database.store):
        if _is_in(read_note(key, stored), wanted):
            yield f"note of {address.hex()}"
    for name, key, stored in iter_named(database.store):
        if _has(name, wanted) or _is_in(read_named(key, stored), wanted):
            yield f"record {name}"
    for key, stored in iter_stamps(database.store):
        if _is_in(read_named(key, stored), wanted):
            yield key
    heads: set[Commit] = set()
    yield from _in_refs(database, wanted, heads)
    for commit in graph.walk(heads, database.commits.read):
        if _has("\0".join((commit.message, commit.author or "", commit.tag or "")), wanted) or _is_in(
            commit.meta, wanted
        ):
            yield commit.id


def _in_refs(database: Database, wanted: Sequence[str], heads: set[Commit]) -> Iterator[str]:
    """Yield the refs whose name or annotation contains one of the words. Adds the heads of all refs to ``heads``."""
    for kind in REF_KINDS:
        for ref in iter_refs(database.store, kind, deleted=True):
            if ref.head is None and _has(ref.name, wanted):
                yield f"deleted {kind} {ref.name}"
    branches, tags = Branches(database), Tags(database)
    for kind, refs in (("branch", branches), ("tag", tags)):
        for name, head in refs.items():
            heads.add(head)
            annotation = tags.annotation(name) if kind == "tag" else None
            if _has(
                "\0".join((name, *(() if annotation is None else (annotation.message, annotation.author or "")))),
                wanted,
            ):
                yield f"{kind} {name}"


def _in_effects(store: KVStore, words: Sequence[str]) -> Iterator[str]:
    """Yield the effects that have one of the words in their key or in their result. Nothing is unpickled.

    A record that cannot be read may have one too, and is named by its key in the store.
    """
    for name, stored in store.items(EFFECTS):
        try:
            entry = read_entry(name, stored)
            result = entry.result(None) if entry.parts else None
        except StateError:
            yield f"effect in {name}"
            continue
        if entry.key is not None and (_has(entry.key, words) or _is_in(result, words)):
            yield f"effect {entry.key}"


def _is_in(value: Any, words: Sequence[str]) -> bool:
    """Return whether one of the words is in a value.

    It may be in a text, a key or a number of the value, or in the way that anything else is shown.
    """
    pending = [value]
    while pending:
        each = pending.pop()
        if type(each) in (list, tuple, set, frozenset):
            pending += each
        elif type(each) is dict:
            pending += each
            pending += each.values()
        elif type(each) is int:
            # Python refuses to show an int of more than 4,300 digits, and a Decimal of any.
            if _has(str(Decimal(each)), words):
                return True
        elif _has(str(each), words):
            return True
    return False


def _has(text: str, words: Sequence[str]) -> bool:
    return any(word in text for word in words)
