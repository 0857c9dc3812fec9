"""Signing and verifying from the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.command_line import Vstate, assert_error
from tests.support.forked_trips import head_of
from versioned_state import Disk, Repository, Versioned
from versioned_state.repository.history.signing import Signer


def test_signed_history_is_verified(vstate: Vstate, fork: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert vstate("sign", "--new-key", "key").code == 0
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    secret = (tmp_path / "key").read_text()
    assert_error(vstate("sign", "--new-key", "key"), "exists")
    assert (tmp_path / "key").read_text() == secret
    assert_error(vstate("sign"), "no key")
    monkeypatch.setenv("VSTATE_SIGN_KEY", "key")
    assert vstate("switch", "-c", "signed", "main~2").code == 0
    assert vstate("cherry-pick", "main~1").code == 0
    assert vstate("sign", "-m", "seen").stderr == "signed is signed with that key already\n"
    result = vstate("verify", "--key", "key.pub", "-n", "1")
    assert result.code == 0
    assert "1 good" in result.stdout
    result = vstate("verify", "--key", "key.pub", "--json")
    found = json.loads(result.stdout)
    assert (result.code, found["ok"], found["counts"]["good"], found["counts"]["unsigned"]) == (1, False, 1, 1)
    seen = head_of(fork, "signed").id
    assert vstate("undo").code == 0
    assert_gone = vstate("verify", "--key", "key.pub", "--since", seen)
    assert assert_gone.code == 1
    assert "not in this history" in assert_gone.stdout
    assert vstate("sign", "--new-key", "other").code == 0
    assert "unknown key" in vstate("verify", "signed@{1}", "--key", "other.pub").stdout
    for wrong in ("key", "patch", "none"):
        (tmp_path / "patch").write_bytes(os.urandom(100))
        assert_error(vstate("verify", "--key", wrong), wrong)
    assert_error(vstate("--sign-key", "key.pub", "sign"), "key.pub", "vstate sign --new-key")
    assert secret.splitlines()[1] not in "".join(
        vstate("--debug", "show", name).stdout for name in ("signed", "signed@{1}")
    )


def test_a_signature_that_only_claims_the_key_is_not_taken_for_one(
    vstate: Vstate, fork: Path, monkeypatch: pytest.MonkeyPatch
):
    class Forger(Signer):
        def sign(self, raw: bytes) -> bytes:
            return bytes.fromhex(self.key_id) + bytes(64)

    assert vstate("sign", "--new-key", "key").code == 0
    with Repository(Disk(fork), signer=Forger(Path("key").read_bytes())) as repository:
        Versioned(repository).commit("forged", allow_empty=True)
    forged = head_of(fork)
    assert forged.signed_by is not None
    assert "1 bad" in vstate("verify", "-n", "1", "--key", "key.pub").stdout
    assert vstate("--sign-key", "key", "sign").code == 0
    assert head_of(fork).parents == (forged.id,)
    shown = vstate("verify", "--key", "key.pub")
    assert shown.code == 1
    assert "1 good, 3 unsigned, 1 bad" in shown.stdout
