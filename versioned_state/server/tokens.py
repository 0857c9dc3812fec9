"""Bearer tokens: who may call the server, as which user, and with which scopes. Layer: server."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_bytes
from typing import Any, Final, Literal, cast

from blake3 import blake3

from versioned_state.errors import InvalidArgumentError

Scope = Literal["read", "write"]

SCOPES: Final[frozenset[Scope]] = frozenset({"read", "write"})
EVERY_USER: Final = "*"

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""The characters of a bearer token (RFC 6750)."""

_MOST_BYTES: Final = 16 << 20
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_HINT: Final = 'it is {"TOKEN": {"user": "alice", "scopes": ["read", "write"]}}; the user "*" is every user'


@dataclass(frozen=True, slots=True)
class Grant:
    """The grant of a token: a user, or ``"*"`` for all users, and scopes."""

    user: str
    scopes: frozenset[Scope]

    def covers(self, user_id: str) -> bool:
        """Return whether the token is for that user."""
        return self.user in (EVERY_USER, user_id)


class Tokens:
    """The tokens of a server.

    It has only keyed hashes of them, so that neither the time of a lookup nor a memory dump reveals a token.

    Args:
        grants: by token. Raises ``InvalidArgumentError`` if a token has characters that are not allowed.
    """

    def __init__(self, grants: Mapping[str, Grant]) -> None:
        self._key = token_bytes(32)
        self._grants: dict[bytes, Grant] = {}
        for token, grant in grants.items():
            if not _TOKEN.fullmatch(token):
                raise InvalidArgumentError("a token has characters that are not allowed in a bearer token", hint=_HINT)
            self._grants[self._hash(token)] = grant

    def __len__(self) -> int:
        return len(self._grants)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Tokens:
        """Return the tokens of a file.

        Raises:
            InvalidArgumentError: others may write the file, everybody may read it, or its content is invalid. The error
                names the line, and never a token.
            OSError: it cannot be read.
        """
        name = os.fspath(path)
        with Path(name).open("rb") as file:
            _check_mode(name, os.fstat(file.fileno()))
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise InvalidArgumentError(
                f"{name}: a file of tokens has at most {_MOST_BYTES >> 20} MiB", remains="nothing was started"
            )
        return cls(_parse(name, raw))

    def grant(self, authorization: str) -> Grant | None:
        """Return the grant of an ``Authorization`` header, or None if it has no known token."""
        scheme, _, token = authorization.strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not _TOKEN.fullmatch(token):
            return None
        # Each process has its own key for the hash, so the time of a comparison reveals nothing about a token.
        return self._grants.get(self._hash(token))

    def _hash(self, token: str) -> bytes:
        return blake3(token.encode(), key=self._key).digest()


def _check_mode(name: str, status: os.stat_result) -> None:
    if os.name != "posix":
        return
    if not stat.S_ISREG(status.st_mode):
        raise InvalidArgumentError(f"{name} is not a file", remains="nothing was started")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH | stat.S_IROTH):
        others = "others may read it" if status.st_mode & stat.S_IROTH else "others may write to it"
        raise InvalidArgumentError(
            f"{name} has tokens, and {others}", remains="nothing was started", hint=f"chmod 600 {name}"
        )


def _parse(name: str, raw: bytes) -> dict[str, Grant]:
    def wrong(position: int, what: str) -> InvalidArgumentError:
        line = text.count("\n", 0, position) + 1
        return InvalidArgumentError(f"{name}, line {line}: {what}", remains="nothing was started", hint=_HINT)

    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        text = raw[: error.start].decode()
        raise wrong(error.start, "it is not UTF-8") from None
    grants: dict[str, Grant] = {}
    for position, token, value in _entries(text, wrong):
        if not _TOKEN.fullmatch(token):
            raise wrong(position, "a token consists of letters, digits and -._~+/ with = at its end")
        if token in grants:
            raise wrong(position, "the same token again")
        grants[token] = _grant(value, partial(wrong, position))
    if not grants:
        raise wrong(0, "it has no tokens")
    return grants


def _entries(text: str, wrong: Callable[[int, str], InvalidArgumentError]) -> Iterator[tuple[int, str, Any]]:
    """Yield each name of a JSON object with its position, which ``json.loads`` does not give, and its value."""
    decoder = json.JSONDecoder()

    def skip(position: int) -> int:
        found = _SPACE.match(text, position)
        assert found is not None
        return found.end()

    def expect(position: int, mark: str) -> int:
        position = skip(position)
        if text[position : position + 1] != mark:
            raise wrong(position, f"expected {mark}")
        return skip(position + 1)

    def read(position: int) -> tuple[Any, int]:
        try:
            return decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise wrong(error.pos, f"it is not JSON: {error.msg}") from None
        except (RecursionError, ValueError):
            raise wrong(position, "it is not JSON that can be read") from None

    position = expect(0, "{")
    more = text[position : position + 1] != "}"
    while more:
        if text[position : position + 1] != '"':
            raise wrong(position, "expected a token in double quotes")
        start = position
        token, position = read(position)
        value, position = read(expect(position, ":"))
        yield start, token, value
        position = skip(position)
        more = text[position : position + 1] == ","
        if more:
            position = skip(position + 1)
    position = expect(position, "}")
    if position != len(text):
        raise wrong(position, "there is more text after the last }")


def _grant(value: Any, wrong: Callable[[str], InvalidArgumentError]) -> Grant:
    if type(value) is not dict or value.keys() != {"user", "scopes"}:
        raise wrong('a token has exactly "user" and "scopes"')
    user, scopes = value["user"], value["scopes"]
    if type(user) is not str or not user:
        raise wrong('"user" is a user id, or "*" for every user')
    if type(scopes) is not list or not scopes or any(type(scope) is not str or scope not in SCOPES for scope in scopes):
        raise wrong('"scopes" is a list of "read", "write" or both')
    return Grant(user, frozenset(cast("list[Scope]", scopes)))
