"""Files of tokens: what they may say, who may read them, and errors that name a line and never a token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from versioned_state.errors import InvalidArgumentError
from versioned_state.server.tokens import Grant, Tokens

GOOD = {"abc": {"user": "alice", "scopes": ["read"]}, "d-_.~+/==": {"user": "*", "scopes": ["write", "read", "read"]}}


def write(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "tokens.json"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def test_tokens_are_read(tmp_path: Path):
    tokens = Tokens.read(write(tmp_path, json.dumps(GOOD)))
    assert len(tokens) == 2
    assert tokens.grant("Bearer abc") == Grant("alice", frozenset({"read"}))
    assert tokens.grant("bearer  d-_.~+/== ") == Grant("*", frozenset({"read", "write"}))
    for header in (
        "",
        "Bearer",
        "Bearer ab",
        "Bearer abcd",
        "Bearer abc,abc",
        "Basic abc",
        "abc",
        "Bearer abc abc",
        "Bearer \u00e9",
    ):
        assert tokens.grant(header) is None, header


def test_a_grant_is_for_its_user():
    assert Grant("alice", frozenset()).covers("alice")
    assert not Grant("alice", frozenset()).covers("*")
    assert Grant("*", frozenset()).covers("")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "expected {"),
        ("[]", 1, "expected {"),
        ("{}", 1, "no tokens"),
        ('{\n "SECRET": {"user": "a", "scopes": ["read"]},\n}', 3, "expected a token"),
        ('{\n "SECRET" {"user": "a"}}', 2, "expected :"),
        ('{\n "SECRET": nothing}', 2, "not JSON"),
        ('{\n "SECRET": {"user": "a", "scopes": ["read"]}', 2, "expected }"),
        ('{\n "SECRET": {"user": "a", "scopes": ["read"]}} SECRET', 2, "there is more"),
        ('{\n\n "SECRET": {"user": "a", "scopes": ["admin"]}}', 3, '"scopes"'),
        ('{"SECRET": {"user": "a", "scopes": []}}', 1, '"scopes"'),
        ('{"SECRET": {"user": "a", "scopes": "read"}}', 1, '"scopes"'),
        ('{"SECRET": {"user": "", "scopes": ["read"]}}', 1, '"user"'),
        ('{"SECRET": {"user": 7, "scopes": ["read"]}}', 1, '"user"'),
        ('{"SECRET": {"user": "a"}}', 1, "exactly"),
        ('{"SECRET": {"user": "a", "scopes": ["read"], "admin": true}}', 1, "exactly"),
        ('{"SECRET": "alice"}', 1, "exactly"),
        ('{"SECRET TOO": {"user": "a", "scopes": ["read"]}}', 1, "a token consists of"),
        ('{"": {"user": "a", "scopes": ["read"]}}', 1, "a token consists of"),
        (
            '{"SECRET": {"user": "a", "scopes": ["read"]},\n"SECRET": {"user": "b", "scopes": ["read"]}}',
            2,
            "the same token",
        ),
        ('{"SECRET": ' + "[" * 100_000, 1, "not JSON"),
        ('{"SECRET": ' + "9" * 5000 + "}", 1, "not JSON"),
    ],
)
def test_an_error_names_the_line_and_no_token(tmp_path: Path, text: str, line: int, reason: str):
    with pytest.raises(InvalidArgumentError, match=f"line {line}: ") as caught:
        Tokens.read(write(tmp_path, text))
    assert reason in str(caught.value)
    assert "SECRET" not in f"{caught.value} {caught.value.hint}"


def test_what_is_not_utf_8(tmp_path: Path):
    path = write(tmp_path, "")
    path.write_bytes(b'{\n"a": "\xff"}')
    with pytest.raises(InvalidArgumentError, match="line 2: it is not UTF-8"):
        Tokens.read(path)


@pytest.mark.parametrize(
    ("mode", "refused"),
    [(0o600, ""), (0o400, ""), (0o640, ""), (0o644, "read it"), (0o620, "write to it"), (0o602, "write")],
)
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int, refused: str):
    path = write(tmp_path, json.dumps(GOOD), mode)
    if not refused:
        assert len(Tokens.read(path)) == 2
        return
    with pytest.raises(InvalidArgumentError, match=refused) as caught:
        Tokens.read(path)
    assert "chmod 600" in caught.value.hint


def test_what_is_not_a_file(tmp_path: Path):
    with pytest.raises(OSError, match="directory"):
        Tokens.read(tmp_path)
    with pytest.raises(FileNotFoundError):
        Tokens.read(tmp_path / "none")
    with pytest.raises(InvalidArgumentError, match="is not a file"):
        Tokens.read("/dev/zero")


def test_tokens_are_not_kept(tmp_path: Path):
    tokens = Tokens.read(write(tmp_path, json.dumps(GOOD)))
    assert "abc" not in repr(vars(tokens))
    with pytest.raises(InvalidArgumentError):
        Tokens({"a b": Grant("a", frozenset())})
