"""``open_store``, which opens a store by URL, and ``redact``, which hides the secrets in one. Layer: storage.

Each store is imported when it is opened, so that opening one does not load the drivers of the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from versioned_state.errors import InvalidArgumentError, StoreNotFoundError
from versioned_state.storage.base import KVStore
from versioned_state.storage.local.memory import Memory
from versioned_state.storage.wrappers.readonly import ReadOnly

# Two letters at least, so that ``C:\state`` is a path; no dot or slash, so that ``./a:b`` is one too.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+-]+):(.*)", re.DOTALL)

_FORMS: Final = "memory:, disk:PATH, diskcache:PATH, redis://, rediss://, unix://, postgresql:// and s3://"

_OF_FILES: Final = ("file", "sqlite")
"""Schemes that other programs have for a path on this machine."""

_USER: Final = re.compile(r"[\w.+%-]*")
_NOT_A_PORT: Final = re.compile(r"^([^\[:]*):(?!\d*$).*", re.DOTALL)

# Options whose values are shown. Of any other the value may be a secret, whatever its name looks like.
_SHOWN_OPTIONS: Final = frozenset(
    (
        *(
            "application_name",
            "client_name",
            "concurrency",
            "connect_timeout",
            "db",
            "endpoint",
            "max_connections",
            "prefix",
            "protocol",
        ),
        *("region", "schema", "socket_timeout", "sslmode", "ssl_cert_reqs", "timeout"),
    )
)


def open_store(
    url: str | os.PathLike[str], *, read_only: bool = False, create: bool = True, encryption_key: bytes | None = None
) -> KVStore:
    """Open the store at ``url``.

    Local: ``memory:``; ``disk:PATH`` or a bare path; ``diskcache:PATH``. Over a network: ``redis://``, ``rediss://``
    and ``unix://``, with ``?prefix=``; ``postgresql://`` and ``postgres://``, with ``?schema=``;
    ``s3://BUCKET/PREFIX``. Network stores accept ``?timeout=`` in seconds and pass the other query options to the
    driver.

    A user, password or prefix in a URL is percent-encoded. A path is not: ``%20`` is three characters of a name. Text
    before a first colon is a scheme; write a path that contains a colon as ``disk:a:b`` or ``./a:b``.

    With ``read_only``, writes raise ``ReadOnlyError``. With ``create=False`` or ``read_only``, a missing store raises
    ``StoreNotFoundError``. With ``encryption_key``, the store is opened through ``Encrypted``; it must be an encrypted
    store or empty.

    Raises ``InvalidArgumentError`` for a malformed URL, and whatever the named store raises. No message contains the
    URL's password.
    """
    create = create and not read_only
    store = _open(url, read_only=read_only, create=create)
    if encryption_key is None:
        return store
    from versioned_state.storage.wrappers.encrypted.store import Encrypted

    try:
        return Encrypted(store, encryption_key)
    except BaseException:
        store.close()
        raise


def is_remote(url: str | os.PathLike[str]) -> bool:
    """Return whether the store at ``url`` is over a network, so that each call is a round trip."""
    return _split(url)[0] in _REMOTE


def redact(url: str) -> str:
    """Return ``url`` with ``***`` in place of its password, and of anything that may be one in a malformed URL.

    A path stays as it is.
    """
    scheme, rest = _split(url)
    if scheme in ("", "disk", "diskcache", "memory"):
        return url
    # Up to the last @: a password that was not escaped may contain any of : / @ ?.
    login, at, place = rest.rpartition("@")
    place, fragment, _ = place.partition("#")
    base, question, query = place.partition("?")
    shown = (_redact_login(login) if at else "") + _redact_ports(base)
    if query:
        shown += question + "&".join(map(_redact_option, query.split("&")))
    return f"{scheme}:{shown}" + ("#***" if fragment else "")


def _redact_login(login: str) -> str:
    rest = login.lstrip("/")
    slashes = login[: len(login) - len(rest)]
    user, colon, _ = rest.partition(":")
    if not _USER.fullmatch(user) or not (colon or slashes == "//"):
        user = "***"
    return f"{slashes}{user}{':***' if colon and user != '***' else ''}@"


def _redact_ports(base: str) -> str:
    # A port that is not a number may be a password whose @ was left out.
    rest = base.lstrip("/")
    hosts, slash, path = rest.partition("/")
    shown = ",".join(_NOT_A_PORT.sub(r"\1:***", host) for host in hosts.split(","))
    return base[: len(base) - len(rest)] + shown + slash + path


def _redact_option(option: str) -> str:
    name, equals, value = option.partition("=")
    if not equals:
        return "***" if option else ""
    return f"{name}={value if name in _SHOWN_OPTIONS else '***'}"


def _split(url: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the scheme in small letters, or "" for a path, and the rest."""
    match = _SCHEME.fullmatch(url) if isinstance(url, str) else None
    return ("", "") if match is None else (match[1].lower(), match[2])


def _check_path(text: str) -> None:
    """Refuse a mistyped URL, which would become a folder of that name, password and all."""
    if text.startswith(("/", ".")) or not (re.search(r":.*@", text, re.DOTALL) or "://" in text):
        return
    raise InvalidArgumentError(
        f"this is neither a path nor one of {_FORMS}; it is not shown, as it may hold a password",
        hint="a path with a colon and an @ in it, or with ://, is written disk:PATH or ./PATH",
    )


def _open(url: str | os.PathLike[str], *, read_only: bool, create: bool) -> KVStore:
    scheme, rest = _split(url)
    if isinstance(url, str) and not scheme:
        _check_path(url)
    if not isinstance(url, str) or not scheme:
        return _disk(url, read_only=read_only, create=create)
    if scheme == "memory":
        if rest:
            raise InvalidArgumentError("memory: must have nothing after the colon")
        return ReadOnly(Memory()) if read_only else Memory()
    if scheme in ("disk", "diskcache"):
        if rest.startswith("//"):
            raise InvalidArgumentError(
                f"write {scheme}:PATH, without //", hint=f"for example: {scheme}:./state or {scheme}:/var/lib/state"
            )
        return (_disk if scheme == "disk" else _disk_cache)(rest, read_only=read_only, create=create)
    if scheme not in _REMOTE:
        path = redact(rest.removeprefix("//") if scheme in _OF_FILES else url)
        raise InvalidArgumentError(
            f"{redact(url)!r}: unknown scheme {scheme!r}; there are {_FORMS}",
            hint=f"if that is a path, write disk:{path}",
        )
    if not rest.startswith("//"):
        raise InvalidArgumentError(f"{redact(url)!r}: {scheme}: is followed by //", hint=_EXAMPLES[_REMOTE[scheme]])
    store = _REMOTE[scheme](f"{scheme}:{rest}", create=create)
    return ReadOnly(store) if read_only else store


def _disk(path: str | os.PathLike[str], *, read_only: bool, create: bool) -> KVStore:
    from versioned_state.storage.local.disk import Disk

    return Disk(path, read_only=read_only, create=create)


def _disk_cache(path: str | os.PathLike[str], *, read_only: bool, create: bool) -> KVStore:
    from versioned_state.storage.local.diskcache import DiskCache

    store = DiskCache(path, create=create)
    return ReadOnly(store) if read_only else store


def _redis(url: str, *, create: bool) -> KVStore:
    from versioned_state.storage.redis.store import Redis

    rest, options = _take_options(url, {"prefix": unquote, "timeout": float})
    return Redis(rest, create=create, **options)


def _postgres(url: str, *, create: bool) -> KVStore:
    from versioned_state.storage.postgres.store import Postgres

    rest, options = _take_options(url, {"schema": unquote, "timeout": float, "max_connections": int})
    return Postgres(rest, create=create, **options)


def _s3(url: str, *, create: bool) -> KVStore:
    from versioned_state.storage.s3.store import S3

    # The driver takes no URL, so all options are ours here.
    names = [option.partition("=")[0] for option in url.partition("?")[2].split("&")]
    place, options = _take_options(url, {**dict.fromkeys(names, unquote), "timeout": float, "concurrency": int})
    if "@" in place:
        raise InvalidArgumentError(
            f"{redact(url)!r}: no user or password stands before a bucket",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or the machine's role",
        )
    bucket, _, prefix = unquote(place.partition("//")[2]).partition("/")
    store = S3(bucket, prefix.strip("/"), **options)
    try:
        # A bucket cannot hold an empty store: one that does not exist yet has no keys.
        if not create and next(iter(store.keys()), None) is None:
            raise StoreNotFoundError(f"there is no store at {redact(url)}")
    except BaseException:
        store.close()
        raise
    return store


def _take_options(url: str, ours: Mapping[str, Callable[[str], Any]]) -> tuple[str, dict[str, Any]]:
    """Split the options that are ours from a URL, whose others stay for the driver, letter by letter."""
    base, _, query = url.partition("?")
    taken: dict[str, Any] = {}
    left = []
    for option in query.split("&") if query else ():
        name, _, value = option.partition("=")
        if name not in ours:
            left.append(option)
            continue
        if name in taken:
            raise InvalidArgumentError(f"{redact(url)!r} has {name}= twice")
        try:
            taken[name] = ours[name](value)
        except ValueError:
            raise InvalidArgumentError(f"{redact(url)!r}: {name}= must be a number") from None
    return base + ("?" + "&".join(left) if left else ""), taken


_REMOTE: Final[Mapping[str, Callable[..., KVStore]]] = {
    "redis": _redis,
    "rediss": _redis,
    "unix": _redis,
    "postgresql": _postgres,
    "postgres": _postgres,
    "s3": _s3,
}

_EXAMPLES: Final[Mapping[Callable[..., KVStore], str]] = {
    _redis: "for example: redis://host:6379/0?prefix=my-agent",
    _postgres: "for example: postgresql://user@host/database?schema=my_agent",
    _s3: "for example: s3://bucket/my-agent",
}
