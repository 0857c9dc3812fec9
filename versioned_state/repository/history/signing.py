"""Signed commits: keys, signing, and verifying history against keys that the caller trusts. Layer: repository.

A signature covers everything in a commit: the root of its state, its parents, author, time and message. Their ids stand
for all that is below them, the signatures of the parents included, so one good signature proves the whole history up to
that commit. No signature
in the store can say which commit the head of a branch should be: see ``verify``. ``docs/design/017-signed-commits.md``
has the reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from blake3 import blake3

from versioned_state.arguments import count, list_of
from versioned_state.errors import InvalidArgumentError, MissingDependencyError, MissingObjectError
from versioned_state.objects.address import HEX_SIZE, Address
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import KEY_ID_SIZE, ROOT_ID, Commit, read_commit, unsigned

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from versioned_state.objects.store import ObjectStore
    from versioned_state.repository.history.reader import CommitReader

    PrivateKey = bytes | str | Ed25519PrivateKey
    PublicKey = bytes | str | Ed25519PublicKey

MAX_FAULTS: Final = 1000
"""The most faults that a ``Verification`` lists; further ones are only counted."""

_KEY_SIZE: Final = 32
_PURPOSE: Final = b"versioned-state commit 1\0"
"""Put before the signed bytes, so that a signature made for another purpose never passes for one of a commit."""


class Signer:
    """A signer of commits, with one Ed25519 key (RFC 8032). Threads may share it.

    Args:
        private_key: 32 raw bytes, PEM (PKCS #8), OpenSSH's format, or an ``Ed25519PrivateKey`` of ``cryptography``,
            whose secret may be in hardware.
        password: the password of an encrypted PEM or OpenSSH key.

    Raises:
        InvalidArgumentError: it is not such a key, or the password is wrong. The message does not show the key.
        MissingDependencyError: ``cryptography`` is not installed.
    """

    def __init__(self, private_key: PrivateKey, *, password: bytes | str | None = None) -> None:
        self._key = _private_key(private_key, password.encode() if isinstance(password, str) else password)
        self.public_key: Final = self._key.public_key().public_bytes_raw()
        """32 raw bytes, for ``verify``."""
        self._id = _id_of(self.public_key)

    @classmethod
    def generate(cls) -> Signer:
        """Return a signer with a new random key. Keep the key as ``private_pem``."""
        return cls(_ed25519().Ed25519PrivateKey.generate())

    @property
    def key_id(self) -> str:
        """16 hex digits, as ``Commit.signed_by`` has them."""
        return self._id.hex()

    def sign(self, raw: bytes) -> bytes:
        """Return the signature field of a commit, from the raw bytes that it has without one."""
        return self._id + self._key.sign(_PURPOSE + raw)

    def private_pem(self, password: bytes | str | None = None) -> bytes:
        """Return the private key in PEM, encrypted if a password is given. Keep it where only its owner can read it."""
        serialization = _serialization()
        secret = password.encode() if isinstance(password, str) else password
        return self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(secret) if secret else serialization.NoEncryption(),
        )

    def public_pem(self) -> bytes:
        """Return the public key in PEM, for verifying."""
        serialization = _serialization()
        return self._key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def __repr__(self) -> str:
        return f"<Signer {self.key_id}>"


def key_id(public_key: PublicKey) -> str:
    """Return the id of a key, 16 hex digits, as in commits.

    Takes the same keys as ``verify``, and raises the same errors.
    """
    return _id_of(_public_key(public_key).public_bytes_raw()).hex()


class SignatureStatus(Enum):
    """The status of a commit's signature."""

    GOOD = "good"
    """It was made with a key that the caller trusts, over this very commit."""
    UNSIGNED = "unsigned"
    """The commit has no signature."""
    UNKNOWN_KEY = "unknown key"
    """It names a key that was not given, so it cannot be checked."""
    BAD = "bad"
    """It names a key that was given, but that key did not sign this commit."""


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """A commit and the status of its signature. ``commit.signed_by`` is the id of the key that the signature names."""

    commit: Commit
    status: SignatureStatus


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of verifying history.

    Attributes:
        head: the newest commit that was verified.
        counts: the number of commits with each status, without the empty root commit, which is the same everywhere.
        faults: the commits that are not good, newest first, at most ``MAX_FAULTS``.
        complete: whether history was followed to its beginning, or to ``since``, before ``limit`` or a ``prune`` ended
            it.
        extends: whether ``since`` is still in this history, or None if it was not given. If it is not, commits were
            removed or rewritten since then.
    """

    head: Commit
    counts: Mapping[SignatureStatus, int]
    faults: tuple[SignatureCheck, ...]
    complete: bool
    extends: bool | None = None

    @property
    def ok(self) -> bool:
        """Whether every commit is good, and ``since``, if given, is in this history.

        History may be incomplete: see ``complete``.
        """
        return not self.faults and self.extends is not False

    @property
    def checked(self) -> int:
        """The number of commits that were verified."""
        return sum(self.counts.values())


def verify(
    head: Commit,
    *,
    objects: ObjectStore,
    commits: CommitReader,
    keys: Iterable[PublicKey],
    limit: int | None = None,
    since: str | Commit | None = None,
) -> Verification:
    """Check the signatures of a commit and of all its ancestors, against keys that the caller trusts.

    It finds a commit that was changed, inserted, or signed by somebody else, and one whose signature was removed; if
    that is the head, it is reported as unsigned. It cannot find that the last commits were removed: an earlier head is
    as good as it was. Keep the id of the last head that you saw elsewhere and pass it as ``since``: then that is found
    too, and only newer commits are checked.

    Every commit is read from the store and checked against its id. The trees of the states are not read here; each read
    of them checks them, and ``fsck`` reads all. Cost: one read and one check a commit (about 0.15 ms on ``Disk``).

    Args:
        keys: public keys: 32 raw bytes, PEM, OpenSSH's one line, or ``Ed25519PublicKey``. None are taken from the
            store.
        limit: the most commits to check, newest first.
        since: a commit that was verified before, or its full id. A name is refused, because it could have been moved.

    Raises:
        InvalidArgumentError: there is no key, a key is not valid, or ``limit`` or ``since`` is not.
        MissingObjectError, CorruptObjectError: history is damaged.
        MissingDependencyError: ``cryptography`` is not installed.
    """
    anchor = None if since is None else _anchor(commits, since)
    extends = None if since is None else anchor is not None and graph.is_ancestor(anchor, head, commits.read)
    counts = Counter(dict.fromkeys(SignatureStatus, 0))
    faults: list[SignatureCheck] = []
    reading = _Reading(objects, commits)
    checks = _checks(reading, head, _trusted(keys), anchor if extends else None)
    for check in islice(checks, None if limit is None else count("limit", limit)):
        counts[check.status] += 1
        if check.status is not SignatureStatus.GOOD and len(faults) < MAX_FAULTS:
            faults.append(check)
    ended = limit is None or next(checks, None) is None
    return Verification(head, dict(counts), tuple(faults), ended and not reading.ended, extends)


def iter_signatures(
    head: Commit, *, objects: ObjectStore, commits: CommitReader, keys: Iterable[PublicKey]
) -> Iterator[SignatureCheck]:
    """Do ``verify`` as a stream: yield each commit with its status, newest first, in the order of ``log``."""
    return _checks(_Reading(objects, commits), head, _trusted(keys), None)


class _Reading:
    """Commits read from the store, not from a cache, and their signed bytes. ``ended``: a shallow commit was read."""

    def __init__(self, objects: ObjectStore, commits: CommitReader) -> None:
        self._objects, self._commits = objects, commits
        self._raws: dict[Address, bytes] = {}
        self.ended = False

    def read(self, address: Address) -> Commit:
        raw = self._read(address)
        commit = read_commit(address, raw)
        if commit.signature is not None:
            self._raws[address] = raw
        return self._commits.shallow.graft(commit)

    def _read(self, address: Address) -> bytes:
        try:
            return self._objects.read(address)
        except MissingObjectError:
            self._commits.refresh_shallow()  # the walk then reads the child again
            raise

    def signed(self, commit: Commit) -> bytes:
        """Return the bytes that the signature of a commit covers. It is called once for each commit that was read."""
        return _PURPOSE + unsigned(self._raws.pop(commit.address))


def _checks(
    reading: _Reading, head: Commit, trusted: Mapping[bytes, Ed25519PublicKey], since: Commit | None
) -> Iterator[SignatureCheck]:
    start = reading.read(head.address)
    commits = graph.walk([start], reading.read) if since is None else graph.only_in(start, [since], reading.read)
    for commit in commits:
        reading.ended = reading.ended or commit.shallow
        if commit.id != ROOT_ID:
            yield SignatureCheck(commit, _status(commit, reading, trusted))


def _status(commit: Commit, reading: _Reading, trusted: Mapping[bytes, Ed25519PublicKey]) -> SignatureStatus:
    from cryptography.exceptions import InvalidSignature

    signature = commit.signature
    if signature is None:
        return SignatureStatus.UNSIGNED
    key = trusted.get(signature[:KEY_ID_SIZE])
    if key is None:
        return SignatureStatus.UNKNOWN_KEY
    try:
        key.verify(signature[KEY_ID_SIZE:], reading.signed(commit))
    except InvalidSignature:
        return SignatureStatus.BAD
    return SignatureStatus.GOOD


def _anchor(commits: CommitReader, since: str | Commit) -> Commit | None:
    """Return the commit that was verified before, or None if the store does not have it any more."""
    id = since.id if isinstance(since, Commit) else since
    if type(id) is not str or len(id) != HEX_SIZE or not all(digit in "0123456789abcdef" for digit in id):
        raise InvalidArgumentError(f"since={since!r} is not a commit or a full id of {HEX_SIZE} hex digits")
    try:
        return commits.read(Address(bytes.fromhex(id)))
    except MissingObjectError:
        return None


# Keys


def _id_of(public_key: bytes) -> bytes:
    return blake3(public_key).digest(length=KEY_ID_SIZE)


def _trusted(keys: Iterable[PublicKey]) -> dict[bytes, Ed25519PublicKey]:
    found = [_public_key(key) for key in list_of("keys", keys)]
    if not found:
        raise InvalidArgumentError("verify needs the public keys that you trust")
    return {_id_of(key.public_bytes_raw()): key for key in found}


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise MissingDependencyError("signing", extra="sign") from error
    return ed25519


def _serialization() -> Any:
    _ed25519()
    from cryptography.hazmat.primitives import serialization

    return serialization


def _private_key(given: PrivateKey, password: bytes | None) -> Ed25519PrivateKey:
    serialization, kind = _serialization(), _ed25519().Ed25519PrivateKey

    def load(data: bytes) -> Any:
        is_ssh = b"OPENSSH PRIVATE KEY" in data[:64]
        return (serialization.load_ssh_private_key if is_ssh else serialization.load_pem_private_key)(data, password)

    return _key(given, "private", kind, kind.from_private_bytes, load)  # type: ignore[no-any-return]


def _public_key(given: PublicKey) -> Ed25519PublicKey:
    serialization, kind = _serialization(), _ed25519().Ed25519PublicKey

    def load(data: bytes) -> Any:
        is_pem = data.lstrip().startswith(b"-----")
        return (serialization.load_pem_public_key if is_pem else serialization.load_ssh_public_key)(data)

    return _key(given, "public", kind, kind.from_public_bytes, load)  # type: ignore[no-any-return]


def _key(given: Any, what: str, kind: type, from_raw: Callable[[bytes], Any], load: Callable[[bytes], Any]) -> Any:
    """Return a key as cryptography has it, from such a key, its raw bytes, or a file's content."""
    from cryptography.exceptions import UnsupportedAlgorithm

    if isinstance(given, kind):
        return given
    if isinstance(given, str):
        data = given.encode("utf-8", "replace")
    elif isinstance(given, bytes | bytearray | memoryview):
        data = bytes(given)
        if len(data) == _KEY_SIZE:
            return from_raw(data)
    else:
        raise InvalidArgumentError(
            f"a {what} key must be bytes, text or a key of cryptography, not {type(given).__name__}"
        )
    hint = "Signer.generate() makes one; so does openssl genpkey -algorithm ed25519"
    try:
        key = load(data)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Without the cause: its message may quote the key.
        raise InvalidArgumentError(
            f"not a {what} Ed25519 key: neither 32 raw bytes, nor PEM, nor OpenSSH's format, "
            "or the password does not fit it",
            hint=hint,
        ) from None
    if not isinstance(key, kind):
        raise InvalidArgumentError(f"a {what} key of another algorithm: commits are signed with Ed25519", hint=hint)
    return key
