"""Signed commits: what a signature covers, and what becomes of one who may write to the store and has no key.

The intruder here is somebody who can put any bytes under any key of the store, and does it well: addresses, checksums
and refs are right.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgpack
import pytest
from blake3 import blake3
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

import versioned_state
from tests.support.damage import damage
from tests.support.histories import Clock
from versioned_state import Commit, Disk, Memory, Repository, Versioned
from versioned_state.errors import CorruptObjectError, InvalidArgumentError, MissingDependencyError, MissingObjectError
from versioned_state.objects.address import Address, address_of
from versioned_state.objects.envelope import seal
from versioned_state.objects.keys import object_key, ref_key
from versioned_state.repository.history.commit import read_commit
from versioned_state.repository.history.signing import (
    SignatureCheck,
    SignatureStatus,
    Signer,
    Verification,
    iter_signatures,
    key_id,
)
from versioned_state.repository.refs.ref import write_ref

KEY = bytes(range(32))
PUBLIC = bytes.fromhex("03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8")
"""The public key of ``KEY``, as RFC 8032's algorithm gives it: anybody can compute it."""

GOOD, UNSIGNED, UNKNOWN, BAD = (
    SignatureStatus.GOOD,
    SignatureStatus.UNSIGNED,
    SignatureStatus.UNKNOWN_KEY,
    SignatureStatus.BAD,
)


def address(id: str) -> Address:
    return Address(bytes.fromhex(id))


def raw_of(repository: Repository, commit: Commit | str) -> bytes:
    return repository.database.objects.read(address(commit if isinstance(commit, str) else commit.id))


def fields_of(raw: bytes) -> list[Any]:
    return list(msgpack.unpackb(raw[1:]))


def pack(fields: list[Any]) -> bytes:
    body: bytes = msgpack.packb(fields)
    return b"\x01" + body


class Intruder:
    """Writes to a store past the library."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.store = repository.store

    def put(self, raw: bytes) -> str:
        self.store.set(object_key(address_of(raw)), seal(raw))
        return address_of(raw).hex()

    def point(self, id: str, branch: str = "main") -> None:
        log = self.repository.database.ref("branch", branch).log
        self.store.set(ref_key("branch", branch), write_ref("branch", branch, address(id), log))

    def rewrite(self, change: Callable[[int, list[Any]], list[Any]]) -> str:
        """Rewrite the line of ``main``, oldest first, so that each commit follows the new form of its parent.

        Return the new head.
        """
        line = list(self.repository.log(include_root=True))[::-1]
        new = {line[0].id: line[0].id}
        for number, commit in enumerate(line[1:]):
            fields = fields_of(raw_of(self.repository, commit))
            fields[2] = bytes.fromhex("".join(new[id] for id in commit.parents))
            assert commit.jump is not None
            fields[9] = bytes.fromhex(new[commit.jump])
            new[commit.id] = self.put(pack(change(number, fields)))
        self.point(new[line[-1].id])
        return new[line[-1].id]


@pytest.fixture
def signer() -> Signer:
    return Signer(KEY)


@pytest.fixture
def repository(signer: Signer) -> Repository:
    """Six signed rounds on ``main``."""
    repository = Repository(Memory(), clock=Clock(), author="agent", signer=signer)
    state = Versioned(repository)
    for n in range(6):
        state["n"] = n
        state.commit(f"round {n}", meta={"n": n})
    return repository


def statuses(repository: Repository, rev: str = "HEAD", keys: tuple[bytes, ...] = (PUBLIC,)) -> list[SignatureStatus]:
    """Newest first, as a process finds it that opens the store anew."""
    again = Repository(repository.store)
    return [check.status for check in signatures(again, again.commit(rev), keys)]


def signatures(repository: Repository, head: Commit, keys: tuple[bytes, ...] = (PUBLIC,)) -> Iterator[SignatureCheck]:
    return iter_signatures(head, objects=repository.database.objects, commits=repository.database.commits, keys=keys)


def verify(repository: Repository, rev: str = "HEAD", **options: object) -> Verification:
    return Repository(repository.store).verify(rev, keys=[PUBLIC], **options)  # type: ignore[arg-type]


# What is signed


def test_signed_history_is_good(repository):
    found = verify(repository)
    assert (found.ok, found.complete, found.checked, found.faults, found.extends) == (True, True, 6, (), None)
    assert found.counts == {GOOD: 6, UNSIGNED: 0, UNKNOWN: 0, BAD: 0}
    assert found.head == repository.commit("HEAD")
    assert {commit.signed_by for commit in repository.log()} == {Signer(KEY).key_id} == {key_id(PUBLIC)}
    assert repository.fsck().ok


def test_a_signature_is_what_the_format_says(repository):
    for commit in repository.log():
        fields = fields_of(raw_of(repository, commit))
        assert len(fields) == 11
        signature = fields.pop()
        assert signature[:8] == blake3(PUBLIC).digest(length=8)
        Ed25519PublicKey.from_public_bytes(PUBLIC).verify(signature[8:], b"versioned-state commit 1\0" + pack(fields))


def test_the_id_of_a_signed_commit_is_the_same_for_ever():
    def head(**options: object) -> str:
        repository = Repository(Memory(), clock=lambda: 1, **options)  # type: ignore[arg-type]
        state = Versioned(repository, author="me")
        state["a"] = 1
        return state.commit("one").id

    assert head(signer=Signer(KEY)) == "f64b2e3e3983f64e7b4b2e4dc47897101ea1140f51277aa7"
    assert head() == "a83b51078104860411649a0b46831708ffc2cb32486c8498"


def test_commits_without_a_signer_are_not_signed():
    repository = Repository(Memory())
    Versioned(repository, branch="main").commit("one", allow_empty=True)
    commit = repository.commit("HEAD")
    assert (commit.signature, commit.signed_by) == (None, None)
    assert len(fields_of(raw_of(repository, commit))) == 10
    found = verify(repository)
    assert (found.ok, found.counts[UNSIGNED]) == (False, 1)


def test_whoever_makes_a_commit_signs_it(signer):
    other = Signer.generate()
    store = Memory()
    ours = Versioned(store, signer=signer)
    ours["list"] = [1]
    ours.commit("base")
    theirs = Versioned(Repository(store, signer=other), branch="theirs")
    theirs.reset(ours.head)
    theirs["theirs"] = 1
    picked = theirs.commit("picked")
    theirs["more"] = 1
    theirs.commit("merged")
    ours["ours"] = 1
    ours.commit("ours")
    made = {
        "cherry-pick": ours.cherry_pick(picked),
        "merge": ours.merge("theirs"),
        "revert": ours.revert(picked),
    }
    theirs.rebase(ours.repository.commit("main~3"))
    made["squash"] = ours.squash("HEAD~1", message="squashed")
    ours["late"] = 1
    behind = Versioned(ours.repository)
    behind["behind"] = 1
    behind.commit("first")
    made["commit that is merged"] = ours.commit("second")
    assert {name: commit.signed_by for name, commit in made.items()} == dict.fromkeys(made, signer.key_id)
    rebased = theirs.head
    assert (rebased.message, rebased.signed_by) == ("merged", other.key_id)
    keys = [signer.public_key, other.public_key]
    assert Repository(store).verify("main", keys=keys).ok
    assert Repository(store).verify("theirs", keys=keys).ok
    faults = Repository(store).verify("main", keys=[signer.public_key]).faults
    assert {check.status for check in faults} == {UNKNOWN}
    assert {check.commit.signed_by for check in faults} == {other.key_id}


def test_real_rounds_on_disk(tmp_path, real_conversations, signer):
    with Versioned(Disk(tmp_path / "store"), signer=signer) as state:
        state["messages"] = []
        for message in real_conversations[0][:20]:
            state["messages"].append(message)
            state.commit()
    with Repository(Disk(tmp_path / "store", read_only=True)) as repository:
        assert repository.verify(keys=[PUBLIC]).counts[GOOD] == 20


def test_a_state_at_a_url_and_its_forks_sign(tmp_path, signer):
    with versioned_state.open(tmp_path / "store", signer=signer) as state:
        state["a"] = 1
        assert state.commit().signed_by == signer.key_id
        fork = state.fork("side")
        fork["a"] = 2
        assert fork.commit().signed_by == signer.key_id
        assert state.repository.verify("side", keys=[signer.public_key]).ok


def test_a_handle_takes_no_signer_beside_a_repository(repository, signer):
    with pytest.raises(InvalidArgumentError, match="signer"):
        Versioned(repository, signer=signer)


# An intruder


def test_a_commit_that_was_rewritten_shows_and_so_do_all_after_it(repository):
    def change(number: int, fields: list[Any]) -> list[Any]:
        if number == 2:
            fields[5] = "nothing happened"
        return fields

    Intruder(repository).rewrite(change)
    assert [commit.message for commit in Repository(repository.store).log()][3] == "nothing happened"
    assert Repository(repository.store).fsck().ok, "everything else is in order"
    assert statuses(repository) == [BAD] * 4 + [GOOD] * 2
    found = verify(repository)
    assert not found.ok
    assert [check.commit.message for check in found.faults] == ["round 5", "round 4", "round 3", "nothing happened"]


@pytest.mark.parametrize("field", range(10))
def test_every_field_is_under_the_signature(repository, field):
    other: list[Any] = [1, [b"\x12\x81\xc4\x02kn\x2a"], b"\x01" * 24, 7, "them", "else", None, 9, [5, 3], b"\x02" * 24]
    head = repository.commit("HEAD")
    raw = raw_of(repository, head)
    fields = fields_of(raw)
    if field == 0:
        other[0] = fields[0]  # the count alone cannot change: it is checked against the tree
    fields[field] = other[field]
    intruder = Intruder(repository)
    intruder.put(raw_of(repository, head.parents[0]))
    changed = read_commit(address_of(pack(fields)), pack(fields))
    check = next(signatures(repository, repository.commit(intruder.put(pack(fields)))), None)
    assert check is not None
    assert check.commit == changed
    assert check.status is (GOOD if pack(fields) == raw else BAD)


def test_the_tag_that_a_commit_was_made_with_is_under_the_signature(repository):
    with Versioned(repository) as state:
        state["n"] = "tagged"
        commit = state.commit(tag="v1")
    assert (commit.tag, verify(repository).ok) == ("v1", True)
    raw = raw_of(repository, commit)
    intruder = Intruder(repository)
    start = raw.index(b"\xa2v1")
    for changed in (raw[:start] + b"\xa2v2" + raw[start + 3 :], raw[:1] + b"\x9b" + raw[2:start] + raw[start + 3 :]):
        intruder.point(intruder.put(changed))
        assert statuses(repository, "main")[0] is BAD


def test_a_signature_of_another_commit_does_not_pass(repository):
    signatures = [commit.signature for commit in repository.log()][::-1]

    def change(number: int, fields: list[Any]) -> list[Any]:
        if number == 5:
            fields[10] = signatures[4]
        return fields

    Intruder(repository).rewrite(change)
    assert statuses(repository) == [BAD] + [GOOD] * 5


def test_a_signature_that_was_removed_shows_in_all_that_follow(repository):
    def change(number: int, fields: list[Any]) -> list[Any]:
        return fields[:10] if number == 2 else fields

    Intruder(repository).rewrite(change)
    assert statuses(repository) == [BAD] * 3 + [UNSIGNED] + [GOOD] * 2


def test_without_its_signature_the_head_is_unsigned(repository):
    Intruder(repository).rewrite(lambda number, fields: fields[:10] if number == 5 else fields)
    assert statuses(repository) == [UNSIGNED] + [GOOD] * 5
    assert not verify(repository).ok


def test_a_key_that_is_not_trusted_is_unknown_and_cannot_pass_for_another(repository):
    theirs = Signer.generate()

    def with_own_key(_number: int, fields: list[Any]) -> list[Any]:
        return [*fields[:10], theirs.sign(pack(fields[:10]))]

    def with_our_name(_number: int, fields: list[Any]) -> list[Any]:
        return [*fields[:10], blake3(PUBLIC).digest(length=8) + theirs.sign(pack(fields[:10]))[8:]]

    Intruder(repository).rewrite(with_own_key)
    assert statuses(repository) == [UNKNOWN] * 6
    assert statuses(repository, keys=(theirs.public_key,)) == [GOOD] * 6, "a key from the store would prove nothing"
    Intruder(repository).rewrite(with_our_name)
    assert statuses(repository) == [BAD] * 6


def test_what_another_purpose_signed_is_no_signature_of_a_commit(repository):
    key = Ed25519PrivateKey.from_private_bytes(KEY)

    def change(_number: int, fields: list[Any]) -> list[Any]:
        return [*fields[:10], blake3(PUBLIC).digest(length=8) + key.sign(pack(fields[:10]))]

    Intruder(repository).rewrite(change)
    assert statuses(repository) == [BAD] * 6


def test_no_change_of_a_byte_leaves_a_good_signature(repository):
    raw = raw_of(repository, repository.commit("HEAD"))
    intruder = Intruder(repository)
    good = 0
    for place in range(1, len(raw)):
        for bit in (0, 3, 7):
            changed = raw[:place] + bytes((raw[place] ^ 1 << bit,)) + raw[place + 1 :]
            id = intruder.put(changed)
            try:
                commit = repository.database.commits.read(address(id))
                status = next(signatures(repository, commit)).status
            except (CorruptObjectError, MissingObjectError):
                continue
            good += status is GOOD
    assert good == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[:1] + b"\xdc\x00\x0b" + raw[2:],  # the same array under a longer header
        lambda raw: raw[:-74] + b"\xc5\x00\x48" + raw[-72:],  # the same signature under one
        lambda raw: raw[:1] + b"\x9c" + raw[2:] + raw[-74:],  # two signatures
        lambda raw: raw[:-74] + b"\xc4\x47" + raw[-71:],  # one that is too short
        lambda raw: raw[:-74] + b"\xc4\x4a" + b"\xc4\x48" + raw[-72:],  # one that has another within
        lambda raw: raw[:1] + b"\x9c" + raw[2:] + b"\xa1x",  # a text after it, where a tag comes before
        lambda raw: raw[:1] + b"\x9c" + raw[2:-74] + b"\xc0" + raw[-74:],  # nil before it
        lambda raw: raw[:-74] + b"\xc0",
        lambda raw: raw[:1] + b"\x9b" + raw[2:-74],
    ],
)
def test_a_signature_has_one_form(repository, change):
    raw = change(raw_of(repository, repository.commit("HEAD")))
    with pytest.raises(CorruptObjectError, match="decode"):
        read_commit(address_of(raw), raw)


def test_damage_is_damage(repository):
    key = object_key(address(repository.commit("HEAD~2").id))
    damage(repository.store, key)
    with pytest.raises(CorruptObjectError):
        verify(repository)
    with pytest.raises(CorruptObjectError):
        repository.verify(keys=[PUBLIC])  # though the commit was read, and remembered, before that
    repository.store.delete(key)
    with pytest.raises(MissingObjectError):
        repository.verify(keys=[PUBLIC])


# What was taken away


def test_that_the_last_commits_were_taken_away_shows_to_whoever_kept_the_head(repository):
    seen = repository.commit("HEAD")
    Intruder(repository).point(repository.commit("HEAD~2").id)
    assert verify(repository).ok, "no signature can tell"
    found = verify(repository, since=seen.id)
    assert (found.ok, found.extends, found.checked) == (False, False, 4)
    assert not verify(repository, since="ab" * 24).ok, "nor is one that is gone a commit of this history"


def test_since_checks_what_is_new(repository):
    seen = repository.commit("HEAD~2")
    side = Versioned(repository, branch="side")
    side.reset("main~4")
    side["side"] = 1
    side.commit("side")
    Versioned(repository).merge("side")
    found = verify(repository, since=seen)
    assert (found.ok, found.complete, found.extends, found.checked) == (True, True, True, 4)
    assert verify(repository, since=verify(repository).head).checked == 0
    for bad in ("main", seen.short, 1, seen.id.upper()):
        with pytest.raises(InvalidArgumentError, match="since"):
            verify(repository, since=bad)


def test_a_limit_and_cut_history_are_not_all_of_it(repository):
    assert [
        (found.checked, found.complete, found.ok) for found in (verify(repository, limit=n) for n in (0, 2, 6, 7))
    ] == [
        (0, False, True),
        (2, False, True),
        (6, True, True),
        (6, True, True),
    ]
    with pytest.raises(InvalidArgumentError, match="limit"):
        verify(repository, limit=-1)
    repository.prune(keep_last=3, expire=timedelta(0), gc=True)
    found = verify(repository)
    assert (found.checked, found.complete, found.ok) == (3, False, True)


def test_a_purge_leaves_what_it_rewrote_unsigned(repository):
    state = Versioned(repository)
    state["alice"] = "a person"
    state.commit("a person comes")
    state["n"] = 7
    state.commit("and more")
    repository.purge("alice")
    assert statuses(repository) == [UNSIGNED] * 2 + [GOOD] * 6
    state = Versioned(repository)
    state["n"] = 8
    state.commit("after it")
    assert statuses(repository)[0] is GOOD


# Keys


def forms_of_a_private_key() -> Iterator[tuple[str, object, str | bytes | None]]:
    key = Ed25519PrivateKey.from_private_bytes(KEY)
    signer = Signer(KEY)
    ssh = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    yield "raw", KEY, None
    yield "PEM", signer.private_pem(), None
    yield "PEM as text", signer.private_pem().decode(), None
    yield "encrypted PEM", signer.private_pem("pass"), "pass"
    yield "OpenSSH", key.private_bytes(*ssh), None
    yield "a key of cryptography", key, None


@pytest.mark.parametrize(
    ("key", "password"), [form[1:] for form in forms_of_a_private_key()], ids=[f[0] for f in forms_of_a_private_key()]
)
def test_a_private_key_in_any_form(key, password):
    signer = Signer(key, password=password)
    assert signer.public_key == PUBLIC
    assert signer.sign(b"raw") == Signer(KEY).sign(b"raw")


def test_a_public_key_in_any_form(repository):
    key = Ed25519PublicKey.from_public_bytes(PUBLIC)
    ssh = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    pem = Signer(KEY).public_pem()
    for form in (PUBLIC, pem, pem.decode(), ssh, ssh.decode() + " me@here", key):
        assert repository.verify(keys=[form]).ok
        assert key_id(form) == "98ba85304ac639f0"


def test_what_is_no_key_is_refused_and_not_shown(repository):
    secret = Signer(KEY).private_pem("pass")
    curve = ec.generate_private_key(ec.SECP256R1())
    no_encryption = serialization.NoEncryption()
    other = curve.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, no_encryption)
    other_public = curve.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    cases: list[tuple[Any, str | None]] = [(bad, None) for bad in (secret, b"short", b"x" * 33, "", other, None)]
    outside = sys.exc_info()[1]  # tests that raise at any line may leave one behind
    for bad, password in [*cases, (secret, "wrong")]:
        with pytest.raises(InvalidArgumentError) as caught:
            Signer(bad, password=password)
        shown = f"{caught.value} {caught.value.hint} {caught.value.__cause__}"
        assert not any(part in shown for part in ("wrong", "short", "xxx", secret.decode().splitlines()[1]))
        assert caught.value.__suppress_context__ or caught.value.__context__ is outside
    for bad in (b"short", "x" * 32, other_public, secret, 1, None):
        with pytest.raises(InvalidArgumentError):
            repository.verify(keys=[bad])
    for none in ((), PUBLIC, Signer(KEY).public_pem().decode()):
        with pytest.raises(InvalidArgumentError, match="keys"):
            repository.verify(keys=none)


def test_a_signer_does_not_show_its_key(signer):
    assert repr(signer) == f"<Signer {key_id(PUBLIC)}>"
    assert KEY.hex() not in repr(vars(signer))
    assert Signer.generate().public_key != Signer.generate().public_key


def test_without_cryptography_the_extra_is_named(repository, monkeypatch):
    own = key_id(PUBLIC)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    for call in (lambda: Signer(KEY), Signer.generate, lambda: repository.verify(keys=[PUBLIC])):
        with pytest.raises(MissingDependencyError, match="signing") as caught:
            call()
        assert caught.value.extra == "sign"
    assert repository.commit("HEAD").signed_by == own
