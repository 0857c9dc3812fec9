"""Finds some words in a store: in commits, names of refs, merge policies, effects and notes. Layer: repository."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from versioned_state.objects.keys import RefKind
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.ledger import iter_mentions as iter_effects
from versioned_state.repository.merging.policies import read_policies
from versioned_state.repository.names.branches import Branches
from versioned_state.repository.names.tags import Tags
from versioned_state.repository.refs.notes import iter_notes, read_note
from versioned_state.repository.refs.ref import iter_refs

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

_KINDS: Final[tuple[RefKind, ...]] = ("branch", "tag")


def iter_mentions(database: Database, words: Sequence[str]) -> Iterator[str]:
    """The ids of commits whose message, author, meta or tag contains one of the words; and the refs, policies, effects and notes that do.

    Words of one character are left out.
    """
    wanted = [word for word in dict.fromkeys(words) if len(word) > 1]
    if not wanted:
        return
    for pattern in read_policies(database.store):
        if _has(pattern, wanted):
            yield f"merge policy {pattern}"
    yield from iter_effects(database.store, wanted)
    for address, key, stored in iter_notes(database.store):
        if _has(str(read_note(key, stored)), wanted):
            yield f"note of {address.hex()}"
    heads: set[Commit] = set()
    yield from _in_refs(database, wanted, heads)
    for commit in graph.walk(heads, database.commits.read):
        if _has("\0".join((commit.message, commit.author or "", commit.tag or "", str(commit.meta))), wanted):
            yield commit.id


def _in_refs(database: Database, wanted: Sequence[str], heads: set[Commit]) -> Iterator[str]:
    """The refs whose name or annotation contains one of the words. Adds the heads of all refs to ``heads``."""
    for kind in _KINDS:
        for ref in iter_refs(database.store, kind, deleted=True):
            if ref.head is None and _has(ref.name, wanted):
                yield f"deleted {kind} {ref.name}"
    branches, tags = Branches(database), Tags(database)
    for kind, refs in (("branch", branches), ("tag", tags)):
        for name, head in refs.items():
            heads.add(head)
            annotation = tags.annotation(name) if kind == "tag" else None
            if _has("\0".join((name, *(() if annotation is None else (annotation.message, annotation.author or "")))), wanted):
                yield f"{kind} {name}"


def _has(text: str, words: Sequence[str]) -> bool:
    return any(word in text for word in words)
