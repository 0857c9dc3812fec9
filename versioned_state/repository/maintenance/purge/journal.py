"""The journal of a purge: a record in the store of what it erases, until the purge has finished. Layer: repository.

A purge that is cut off has erased some of the data, so a repeated one no longer finds it. The journal keeps the
findings, so the repeated purge, in any process, reports what both of them erased. It is written before anything is
erased, and removed last.

The findings hold names and paths, which are personal data. They are encrypted by a key that is derived from the
arguments of the purge: who repeats the purge can read them, and nobody else, short of a guess of these arguments. The
record lies under a hash of the arguments too.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgpack
from blake3 import blake3

from versioned_state.errors import CorruptObjectError, StorageError, StoreBusyError
from versioned_state.objects.keys import PURGES, purge_key
from versioned_state.objects.record import read_record, replace_record, write_record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from versioned_state.storage import KVStore

_ATTEMPTS: Final = 100
_NONCE_SIZE: Final = 16
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Findings:
    """The findings of a purge, which it erases. See ``PurgeReport``.

    Attributes:
        freed, kept: by the attempt, how many objects of branches that are erased at their own cost go and stay.
        owed: whether objects may be left that only a gc finds.
    """

    commits: dict[str, str] = field(default_factory=dict)
    holding: dict[str, None] = field(default_factory=dict)
    refs: dict[str, None] = field(default_factory=dict)
    branches: dict[str, None] = field(default_factory=dict)
    effects: dict[str, None] = field(default_factory=dict)
    records: dict[str, None] = field(default_factory=dict)
    shared: dict[str, None] = field(default_factory=dict)
    paths: dict[str, None] = field(default_factory=dict)
    freed: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    owed: bool = False

    def joined(self, other: Findings) -> Findings:
        """Return both findings as one."""
        joined = {each.name: getattr(self, each.name) | getattr(other, each.name) for each in fields(self)}
        return Findings(**joined)

    def pack(self) -> bytes:
        """Return the findings as bytes."""
        packed: bytes = msgpack.packb(
            [getattr(self, each.name) for each in fields(self)], unicode_errors="surrogatepass"
        )
        return packed

    @classmethod
    def unpack(cls, packed: bytes) -> Findings:
        """Return the findings in some bytes.

        Raises ``ValueError``, or another error of decoding, for any other bytes.
        """
        values = msgpack.unpackb(packed, unicode_errors="surrogatepass")
        if [type(value) for value in values] != [dict] * (len(fields(cls)) - 1) + [bool]:
            raise ValueError("a field of another type")
        return cls(*values)


class Journal:
    """The journal of one purge. Two processes may do the same purge at the same time, and then share it.

    Args:
        request: the arguments of the purge, by which a repeated one is recognised.
        now: the time, in microseconds since 1970.

    Attributes:
        findings: what this attempt and earlier ones have found.
        attempt: the id of this attempt.
        is_begun: whether something may have been erased already.
        is_damaged: whether an earlier attempt left a record that cannot be read.
        others: when each other purge began that has not finished.
    """

    def __init__(self, store: KVStore, request: Iterable[Any], now: int) -> None:
        packed = msgpack.packb(list(request), unicode_errors="surrogatepass")
        self.key: Final = purge_key(
            blake3(packed, derive_key_context="versioned-state: the name of a purge").digest(length=16)
        )
        self._secret = blake3(packed, derive_key_context="versioned-state: the journal of a purge").digest()
        self._store = store
        self._since = now
        self._stored: bytes | None = None
        self._sent: tuple[bytes, Findings] | None = None
        self.findings: Findings = Findings()
        self.attempt: Final = secrets.token_hex(4)
        self.is_damaged: bool = False
        keys = list(store.keys(PURGES))
        if self.key in keys:
            self.refresh()
        self.others: Final = self._times([key for key in keys if key != self.key])
        self.is_begun: bool = self._stored is not None

    def refresh(self) -> None:
        """Read the findings of the same purge in another process."""
        self._stored = self._store.get(self.key)
        if self._stored is not None:
            try:
                self.findings = self._open(self._stored).joined(self.findings)
            except (ValueError, TypeError, msgpack.UnpackException):
                self.is_damaged = True

    def save(self) -> None:
        """Write the findings, before the data that they name is erased.

        Raises:
            StorageError: they may not have been written, and nothing may be erased.
        """
        for _ in range(_ATTEMPTS):
            expected, puts = self.draft(self.findings)
            if replace_record(self._store, self.key, expected[self.key], puts[self.key]):
                self.accept()
                return
            self.refresh()
        raise StoreBusyError(
            "the same purge is at work in other processes", remains="this attempt erased nothing more", hint="try again"
        )

    def draft(self, found: Findings) -> tuple[dict[str, bytes | None], dict[str, bytes]]:
        """Return the condition and the record with further findings, for a batch that erases what these name."""
        findings = self.findings.joined(found)
        nonce = secrets.token_bytes(_NONCE_SIZE)
        sealed = write_record(self.key, msgpack.packb([self._since, nonce, self._mixed(nonce, findings.pack())]))
        self._sent = sealed, findings
        return {self.key: self._stored}, {self.key: sealed}

    def accept(self) -> None:
        """Note that the last draft was written."""
        assert self._sent is not None
        self._stored, self.findings = self._sent
        self._sent = None
        self.is_begun = True

    def find_out(self) -> None:
        """Find out whether the last draft was written, after the write failed.

        If the store cannot be read, it counts as written.
        """
        if self._sent is not None:
            try:
                was_written = self._store.get(self.key) == self._sent[0]
            except StorageError:
                was_written = True
            if was_written:
                self.accept()

    def remove(self) -> None:
        """Remove the record once all is done.

        If the same purge has written it meanwhile in another process, that one removes it.
        """
        if self._stored is not None:
            replace_record(self._store, self.key, self._stored, None)

    def _open(self, stored: bytes) -> Findings:
        since, nonce, sealed = msgpack.unpackb(read_record(self.key, stored))
        self._since = min(self._since, int(since))
        return Findings.unpack(self._mixed(nonce, sealed))

    def _mixed(self, nonce: bytes, data: bytes) -> bytes:
        """Return the data encrypted or decrypted.

        The data is combined with a stream of bytes that follows from the key and the nonce.
        """
        stream = blake3(nonce, key=self._secret).digest(length=len(data))
        return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")

    def _times(self, keys: list[str]) -> list[datetime]:
        times = []
        for key, stored in self._store.get_many(keys).items() if keys else ():
            try:
                times.append(_EPOCH + timedelta(microseconds=msgpack.unpackb(read_record(key, stored))[0]))
            except (ValueError, TypeError, LookupError, OverflowError, msgpack.UnpackException):
                continue  # it is damaged: fsck names it
        return sorted(times)


def check_journal(key: str, stored: bytes) -> None:
    """Raise ``CorruptObjectError`` unless a record is whole.

    Its findings cannot be read without the arguments of the purge.
    """
    try:
        since, nonce, sealed = msgpack.unpackb(read_record(key, stored))
        if type(since) is not int or type(nonce) is not bytes or type(sealed) is not bytes:
            raise ValueError("a field of another type")
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptObjectError(key, f"the journal of a purge is damaged: {error}") from error
