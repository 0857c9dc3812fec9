"""Making an index of refs by a key of meta, beside writers, and removing the entries that are wrong.

Layer: repository.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from versioned_state.arguments import string
from versioned_state.errors import InvalidArgumentError, LimitExceededError, StoreBusyError, UnsupportedByStoreError
from versioned_state.objects.keys import GC, META, REF_KINDS, read_meta_key, read_ref_key, ref_key
from versioned_state.repository.database import backoff
from versioned_state.repository.refs.gc_fence import GcRecord
from versioned_state.repository.refs.meta_index import MAX_INDEXED, MAX_KEY, entries_of, metas_of
from versioned_state.repository.refs.ref import Ref, iter_refs, parse_ref
from versioned_state.values.cells import has_surrogate

if TYPE_CHECKING:
    from versioned_state.repository.database import Database


_AT_ONCE: Final = 500
"""Refs of one batch, each of which is a condition."""

_ATTEMPTS: Final = 100


def index_meta(database: Database, key: str) -> None:
    """Index the refs of a store by a key of meta. See ``Repository.index_meta``."""
    string("the key of meta", key)
    if has_surrogate(key) or len(key.encode()) > MAX_KEY:
        raise InvalidArgumentError(f"the key of meta must be at most {MAX_KEY} bytes of UTF-8: {key!r:.80}")
    fence = database.fence
    if not fence.enabled:
        raise UnsupportedByStoreError(
            "an index of meta changes with each ref in one batch, and this store takes one condition a batch",
            hint="use a store of another kind: a folder, PostgreSQL or Redis",
        )
    if key in fence.refresh().searchable:
        return
    _begin(database, key)
    for kind in REF_KINDS:
        refs = iter_refs(database.store, kind)
        while some := list(islice(refs, _AT_ONCE)):
            _add(database, some, key)
    _end(database, key)


def _begin(database: Database, key: str) -> None:
    """Make every batch that moves a ref from now on index it by this key."""

    def begun(record: GcRecord) -> GcRecord | None:
        if key in record.indexed:
            return None
        if len(record.indexed) >= MAX_INDEXED:
            raise LimitExceededError(
                f"an index of meta by {key!r:.80}", limit=MAX_INDEXED, remains="nothing was changed"
            )
        return record.but(indexed=(*record.indexed, key))

    _change_record(database, begun, hint="try again")


def _add(database: Database, refs: list[Ref], key: str) -> None:
    """Index refs by a key, on the condition that they are as they were read.

    One that others change meanwhile is read again, alone; so is one whose head is gone, since a purge that has moved it
    may have collected the old head. One that has not moved is damaged, and left out.

    A move does not index it where the old head and the new one have the same value, nor does a change of its record
    alone.
    """
    for attempt in range(_ATTEMPTS):
        metas = metas_of(database.store, database.commits, {ref.head for ref in refs if ref.head is not None}, [key])
        expected: dict[str, bytes | None] = {}
        puts: dict[str, bytes] = {}
        for ref in refs:
            entries = set() if ref.head is None else entries_of(metas.get(ref.head, {}), [key], ref.kind, ref.name)
            if entries:
                expected[ref_key(ref.kind, ref.name)] = ref.stored
                puts.update(dict.fromkeys(entries, b""))
        if not puts or database.store.apply(expected, puts):
            unread = [ref for ref in refs if ref.head is not None and ref.head not in metas]
            refs = _moved(unread, database.refs(refs[0].kind, [ref.name for ref in unread])) if unread else []
            if not refs:
                return
            continue
        now = database.refs(refs[0].kind, [ref.name for ref in refs])
        if len(refs) > 1:
            changed = _moved(refs, now)
            for ref in changed:
                _add(database, [ref], key)
            now = [ref for ref in now if ref not in changed]
        refs = now
        backoff(attempt)
    raise StoreBusyError("others keep moving these refs", hint="call it again: it continues")


def _moved(before: list[Ref], now: list[Ref]) -> list[Ref]:
    """Return the refs, as they are now, that are not as they were."""
    return [ref for ref, known in zip(now, before, strict=True) if ref.stored != known.stored]


def _end(database: Database, key: str) -> None:
    """Note that the index by this key has all refs."""

    def ended(record: GcRecord) -> GcRecord | None:
        # another process has ended it; or the record was lost
        if key in record.searchable or key not in record.indexed:
            return None
        return record.but(searchable=(*record.searchable, key))

    _change_record(database, ended, hint="call it again: it continues")


def _change_record(database: Database, change: Callable[[GcRecord], GcRecord | None], *, hint: str) -> None:
    """Replace the record of gc by what ``change`` makes of it, unless that is None. Others may change it meanwhile."""
    for attempt in range(_ATTEMPTS):
        record = database.fence.refresh()
        after = change(record)
        if after is None:
            return
        assert after.stored is not None
        if database.store.apply({GC: record.stored}, {GC: after.stored}):
            database.fence.learn(after.stored)
            return
        backoff(attempt)
    raise StoreBusyError("others keep changing the record of gc", hint=hint)


def drop_wrong_entries(database: Database) -> None:
    """Delete the entries of the index of meta that no ref has, which a damaged head may leave.

    Cost: reads all refs in the index.
    """
    keys = iter(database.store.keys(META))
    while some := list(islice(keys, _AT_ONCE)):
        for expected, wrong in _wrong(database, some):
            # If others move the ref or make another index at this moment, the next gc looks again.
            database.store.apply(expected, {}, wrong)


def _wrong(database: Database, keys: list[str]) -> Iterator[tuple[dict[str, bytes | None], list[str]]]:
    """Yield, for each ref with wrong entries, the conditions under which they are wrong, and these entries."""
    record = database.fence.refresh()
    by_ref: dict[str, list[str]] = {}
    for key in keys:
        by_ref.setdefault(read_meta_key(key), []).append(key)
    stored = database.store.get_many(by_ref)
    refs = {key: parse_ref(*read_ref_key(key), value) for key, value in stored.items()}
    heads = {ref.head for ref in refs.values() if ref.head is not None}
    metas = metas_of(database.store, database.commits, heads, record.indexed)
    for key, entries in by_ref.items():
        ref = refs.get(key)
        right: set[str] = set()
        if ref is not None and ref.head is not None:
            right = entries_of(metas.get(ref.head, {}), record.indexed, ref.kind, ref.name)
        wrong = [entry for entry in entries if entry not in right]
        if wrong:
            yield {key: stored.get(key), GC: record.stored}, wrong
