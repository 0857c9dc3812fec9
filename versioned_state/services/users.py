"""All data of one user in a store, of any service: erased with proof, and exported as a file. Layer: services."""

from __future__ import annotations

import json
import os
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO, Final

from versioned_state.errors import (
    CorruptObjectError,
    InvalidArgumentError,
    MissingObjectError,
    PickleRefusedError,
    UnserializableValueError,
)
from versioned_state.objects.address import Address
from versioned_state.objects.keys import object_key
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ADDRESS, Commit
from versioned_state.repository.maintenance.purge.purge import PurgeReport
from versioned_state.repository.names.branch_name import branch_name, id_of
from versioned_state.repository.refs.ref import Ref, iter_refs
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.json_form import json_value
from versioned_state.services.agent_state.reading import commit_of, content_of, files_of, rounds_at
from versioned_state.services.calls.heads import ERASURES, is_over
from versioned_state.values.decode.decoder import decode_inline
from versioned_state.values.encode.inline import InlineEncoder

KINDS: Final = ("", "%messages", "%memory")
"""The first parts of the branches of all services: see ``StoreService.kind``."""

FORMAT: Final = "versioned-state-user"
_VERSION: Final = 1
_END: Final = "records"
"""The key of the last line of an export, which has the number of records."""

_LONGEST_END: Final = 64
_KEYS_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class UserErasure:
    """The report of an erasure.

    Attributes:
        branches: the erased branches: sessions of all services, also deleted ones.
        commits: how many commits they led to.
        left: the ids of the commits that are still in the store. Without concurrent writers, they are those in
            ``purge.shared`` and their ancestors.
        again: the branches that concurrent writers have created again. Erase the user again when they have stopped.
        purge: the report of the purge: the collected objects, the ``shared`` commits that branches of others lead to,
            ``mentions``, and the places that it cannot reach, such as backups.
    """

    branches: tuple[str, ...]
    commits: int
    left: tuple[str, ...]
    again: tuple[str, ...]
    purge: PurgeReport

    @property
    def is_complete(self) -> bool:
        """Whether a check after the erasure found nothing of the user."""
        return not self.left and not self.again


@dataclass(frozen=True, slots=True)
class ExportedRecord:
    """A record of an exported user.

    Attributes:
        kind: ``"state"`` for a round of a session's state, ``"files"`` for its files, ``"messages"`` and ``"memory"``
            for those beside the state; the kind of another service's branch.
        session_id: the session, or None.
        round_id: the round, or None.
        commit, time: the commit that the value is from.
        content: the value, with its exact types.
    """

    kind: str
    session_id: str | None
    round_id: int | None
    commit: str
    time: datetime
    content: Any


def branches_of(repository: Repository, user_id: str) -> Iterator[tuple[str, Ref]]:
    """Iterate over the branches of a user, each with its kind, deleted ones included.

    Cost: proportional to these branches.
    """
    user = branch_name(user_id)
    for kind in KINDS:
        name = f"{kind}/{user}" if kind else user
        own = repository.database.ref("branch", name) if kind else None
        if own is not None and own.stored is not None:
            yield kind, own
        for ref in iter_refs(repository.store, "branch", name + "/", deleted=True):
            yield kind, ref


def delete_user(repository: Repository, user_id: str, *, forget: Callable[[str], object] | None = None) -> UserErasure:
    """Erase the branches of a user from the store, of all services, with their history, and check that nothing is left.

    Commits and objects that branches of others lead to stay. A call on the user's sessions that is made meanwhile
    begins a new session. Cost: as of ``purge``.

    Args:
        forget: drops what a service holds of an erased branch.

    Raises:
        UnsafeStoreError: gc cannot run over this store, so nothing could be erased. Nothing was changed.
        UnfinishedPurgeError: the purge did not finish. Its ``report`` lists the erased branches. Delete the user again.
        StoreBusyError, StorageError: nothing was erased.
    """
    commits = _commits_of(repository, user_id)
    user = branch_name(user_id)
    patterns = [f"{kind}/{user}{end}" for kind in KINDS if kind for end in ("", "/*")] + [f"{user}/*"]
    report = repository.purge(branches=patterns)
    left = tuple(address.hex() for address in _in_store(repository, commits))
    again = tuple(ref.name for _, ref in branches_of(repository, user_id))
    if forget is not None:
        for branch in report.branches:
            forget(branch)
    return UserErasure(tuple(sorted(report.branches)), len(commits), left, again, report)


def _commits_of(repository: Repository, user_id: str) -> list[Address]:
    """Iterate over the commits that the branches of a user lead to, in order."""
    read = repository.database.commits.read
    for attempt in count():
        refs = [ref for _, ref in branches_of(repository, user_id)]
        heads = chain.from_iterable((entry.commit for entry in repository.reflog(ref.name)) for ref in refs)
        try:
            return sorted(
                {commit.address for commit in graph.walk([head for head in heads if head is not None], read)}
                - {ROOT_ADDRESS}
            )
        except MissingObjectError:  # others pruned the history while it was read
            if attempt == ERASURES:
                raise
            repository.database.commits.refresh_shallow()
    raise AssertionError


def _in_store(repository: Repository, commits: list[Address]) -> Iterator[Address]:
    for start in range(0, len(commits), _KEYS_AT_ONCE):
        keys = {object_key(address): address for address in commits[start : start + _KEYS_AT_ONCE]}
        yield from (keys[key] for key in repository.store.get_many(keys))


# Export


def export_user(repository: Repository, user_id: str, path: str | os.PathLike[str]) -> int:
    """Write all of a user's data to a new file of JSON lines. Returns the number of records.

    The first line names the format and the user. Then there is a line for each round of each session, for the files of
    a session, and for the content of each branch of another service. The last line has their number, which
    distinguishes a whole file from a part. ``content`` is JSON for people and programs, with ``{"$tuple": [...]}`` and
    the like for types that JSON lacks. In that case ``exact`` has the value with its types, for ``read_export``. The
    file is written whole or not at all, and only this user of the machine can read it.

    Raises:
        InvalidArgumentError: the file exists.
        OSError: the file cannot be written.
        StorageError: the store failed. There is no file then.
    """
    target = Path(path)
    if target.exists():
        raise InvalidArgumentError(
            f"{os.fspath(path)!r} exists", remains="nothing was written", hint="choose another name"
        )
    descriptor, name = tempfile.mkstemp(prefix=target.name, suffix=".part", dir=target.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            head = {"format": FORMAT, "version": _VERSION, "user_id": user_id, "time": datetime.now(UTC).isoformat()}
            file.write(json.dumps(head) + "\n")
            count = 0
            for line in _lines(repository, user_id):
                file.write(json.dumps(line) + "\n")
                count += 1
            file.write(json.dumps({_END: count}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(name, target)  # a file that was created meanwhile stays
    except FileExistsError:
        raise InvalidArgumentError(
            f"{os.fspath(path)!r} exists", remains="nothing was written", hint="choose another name"
        ) from None
    finally:
        Path(name).unlink()
    return count


def _lines(repository: Repository, user_id: str) -> Iterator[dict[str, Any]]:
    database = repository.database
    for kind, ref in branches_of(repository, user_id):
        # that one is the plan of a deletion under way
        if ref.head is None or (kind == "%messages" and ref.name.count("/") == 1):
            continue
        head = database.commits.read(ref.head)
        if is_over(database, ref, head):
            continue
        rounds = rounds_at(database, head)
        last = id_of(ref.name.rpartition("/")[2]) if ref.name.count("/") > bool(kind) else None
        session = head.meta.get("session_id", rounds.session_id) if last is None else last
        if kind:
            snapshot = repository.snapshot(head)
            spaces = {name: snapshot.namespace(name).copy() for name in snapshot.namespaces()}
            # as the session history service keeps it
            session = spaces.get("session", {}).get("id") if session is None else session
            content = {**snapshot.copy(), **({"namespaces": spaces} if spaces else {})}
            yield _line(kind.removeprefix("%"), session, None, head, content)
            continue
        for number in rounds:
            commit = commit_of(database, head, number)
            if commit is not None:
                yield _line("state", session, number, commit, content_of(repository, commit))
        for part, found in beside_state(repository, head):
            yield _line(part, session, None, head, found)
        files = files_of(repository, head)
        if files is not None:
            yield _line("files", session, rounds.latest, head, files)


def beside_state(repository: Repository, head: Commit) -> Iterator[tuple[str, list[Any]]]:
    """Iterate over the message lists of a ``SessionService``'s session beside its state, each with its kind."""
    snapshot = repository.snapshot(head)
    messages = snapshot.namespace("history").get("messages")
    if messages is not None:
        yield "messages", messages
    memories = snapshot.namespace("messages")
    remembered = [message for name in memories.namespaces() for message in memories.namespace(name).copy().values()]
    if remembered:
        yield "memory", remembered


def _line(kind: str, session: str | None, number: int | None, commit: Commit, content: Any) -> dict[str, Any]:
    shown = json_value(content)
    time = datetime.fromtimestamp(commit.time / 1e6, UTC).isoformat()
    line = {
        "kind": kind,
        "session_id": session,
        "round_id": number,
        "commit": commit.id,
        "time": time,
        "content": shown,
    }
    if json.loads(json.dumps(shown)) != content:  # JSON joins two surrogates of a pair into one character
        with suppress(PickleRefusedError, UnserializableValueError):  # an object that is not data is only shown
            line["exact"] = b64encode(InlineEncoder().encode_inline(content)).decode()
    return line


def read_export(path: str | os.PathLike[str]) -> Iterator[ExportedRecord]:
    """Iterate over the records of a file of ``export_user``. Nothing is unpickled.

    A file without its end gives no records, so a part of an export never passes for the whole.

    Raises:
        InvalidArgumentError: the file is something else, or damaged, or only the beginning of an export.
        OSError: the file cannot be read.
    """
    with Path(path).open("rb") as file:
        try:
            head = json.loads(file.readline())
            if head["format"] != FORMAT or head["version"] > _VERSION:
                raise ValueError(f"it is of the format {head['format']!r}, version {head['version']}")
            first = file.tell()
            count = _count_of(file)
            file.seek(first)
            for _ in range(count):
                line = json.loads(file.readline())
                exact = line.get("exact")
                content = line["content"] if exact is None else decode_inline(b64decode(exact, validate=True))
                time = datetime.fromisoformat(line["time"])
                yield ExportedRecord(line["kind"], line["session_id"], line["round_id"], line["commit"], time, content)
            # another export may follow, with as many records
            if json.loads(file.readline()) != {_END: count} or file.read(1):
                raise ValueError(f"it has more than {count} records")
        except (ValueError, KeyError, TypeError, AttributeError, CorruptObjectError) as error:
            raise InvalidArgumentError(f"{os.fspath(path)!r} is not the export of a user: {error}") from error


def _count_of(file: BinaryIO) -> int:
    """Return the number of records in the last line of an export. Raises ``ValueError`` if its end is missing."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _LONGEST_END))
    end = file.read().removesuffix(b"\n").rpartition(b"\n")[2]
    with suppress(ValueError, KeyError, TypeError):
        count = json.loads(end)[_END]
        if type(count) is int and count >= 0:
            return count
    raise ValueError("its end is missing")
