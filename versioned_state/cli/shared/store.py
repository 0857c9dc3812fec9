"""The store that a command works on, opened for reading, which writes no byte and unpickles nothing, or for writing.

Layer: cli.

A store may be across a network, and it may be encrypted; its key is in a file, never on the command line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from versioned_state.cli.render import text
from versioned_state.errors import InvalidArgumentError, NotAStoreError, StoreNotFoundError
from versioned_state.repository.database import Database
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.storage import Cache, KVStore, open_store
from versioned_state.storage.local.sqlite_file import DISK
from versioned_state.storage.url import is_remote
from versioned_state.storage.wrappers.cache import CACHE_BYTES

if TYPE_CHECKING:
    from versioned_state.repository.history.signing import Signer

DEFAULT: Final = "./.vstate"
"""The store that ``init`` and ``import`` create if none is named."""

_FOLDER: Final = ".vstate"
_FILES: Final = (DISK.file_name, "cache.db")
"""The files of ``Disk`` and ``DiskCache``, whose module needs an extra: a folder that has one is a store."""

_HINT: Final = "vstate --store PATH names a store, its folder or its URL; vstate init creates one"

_KEY_SIZE: Final = 32
_KEY_FILE_SIZE: Final = 1 << 16

_T = TypeVar("_T")


def locate(given: str | None, *, to_write: bool = False) -> str:
    """Return the URL or path of the store: the given one, ``VSTATE_STORE``, or the nearest store from this folder up.

    Args:
        to_write: the caller creates ``./.vstate`` if there is no store.

    Raises:
        StoreNotFoundError: no store was given, and none was found.
        InvalidArgumentError: it is a store in memory, which no command could keep.
    """
    url = given or os.environ.get("VSTATE_STORE")
    if not url:
        found = _nearest()
        if found is None and not to_write:
            raise StoreNotFoundError(
                f"no store was named, and there is no {_FOLDER} in this folder or above it", hint=_HINT
            )
        return found or DEFAULT
    if url.lower().startswith("memory:"):
        raise InvalidArgumentError("a store in memory ends with the command", hint=_HINT)
    return os.path.expanduser(url)  # noqa: PTH111 - a URL is not a path; in --store=~/x the shell leaves the tilde


def _nearest() -> str | None:
    """Return the nearest ``.vstate`` of this folder or one above, or such a folder that is a store, or None."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # this folder was deleted
        return None
    if Path(DEFAULT).exists():
        return DEFAULT
    for folder in (here, *here.parents):
        for candidate in (folder / _FOLDER, folder):
            if (candidate.name == _FOLDER and candidate.exists()) or any(
                (candidate / name).is_file() for name in _FILES
            ):
                return str(candidate) if _is_trusted(candidate) else None
    return None


def _is_trusted(folder: Path) -> bool:
    """Return whether this user or root owns a store above this folder: others can put one into a shared folder."""
    return not hasattr(os, "geteuid") or folder.stat().st_uid in (os.geteuid(), 0)


def read_key(given: str | None) -> bytes | None:
    """Return the key in the given file, or in the one that ``VSTATE_KEY_FILE`` names: 32 bytes, or their 64 hex digits.

    Raises:
        InvalidArgumentError: the file holds something else. The content is not shown.
    """
    name = given or os.environ.get("VSTATE_KEY_FILE")
    if not name:
        return None
    # The size of a key at most: the file may be /dev/zero.
    with open(os.path.expanduser(name), "rb") as file:  # noqa: PTH111, PTH123 - as it was typed, so that an error names it so
        raw = file.read(4 * _KEY_SIZE)
    if len(raw) == _KEY_SIZE:
        return raw
    try:
        key = bytes.fromhex(raw.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != _KEY_SIZE:
        raise InvalidArgumentError(
            f"{name}: a key file holds {_KEY_SIZE} bytes, or {2 * _KEY_SIZE} hex digits"
        ) from None
    return key


def read_signer(given: str | None) -> Signer | None:
    """Return the signer with the private key in the given file or in ``VSTATE_SIGN_KEY``, or None if there is neither.

    Raises:
        InvalidArgumentError: the file does not hold such a key, or one with a password. The content is not shown.
    """
    name = given or os.environ.get("VSTATE_SIGN_KEY")
    if not name:
        return None
    from versioned_state.repository.history.signing import Signer

    return named(name, Signer, read_bounded(name))


def named(name: str, make: Callable[[bytes], _T], content: bytes) -> _T:
    """Return the value made of a file's content. An error names the file."""
    try:
        return make(content)
    except InvalidArgumentError as error:
        error.what = f"{name}: {error.what}"
        error.hint = "vstate sign --new-key FILE makes a pair of keys; so does ssh-keygen -t ed25519"
        raise


def read_bounded(name: str) -> bytes:
    """Return the content of a key file, up to the size that a key may have: the file may be /dev/zero."""
    with open(os.path.expanduser(name), "rb") as file:  # noqa: PTH111, PTH123 - as it was typed, so that an error names it so
        return file.read(_KEY_FILE_SIZE)


class Recorder(Database):
    """A database that remembers the commits made through it, so a command can tell its own from those of others."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made: set[str] = set()

    def write_commit(self, *args: Any, **kwargs: Any) -> Commit:
        commit = super().write_commit(*args, **kwargs)
        self.made.add(commit.id)
        return commit


@contextmanager
def reading(given: str | None, key_file: str | None = None) -> Iterator[Repository]:
    """Open the repository of a store for reading. It may be on a read-only mount, and others may write to it meanwhile.

    Raises:
        StorageError: there is no store, or something else is there.
    """
    with _repository(_open(given, key_file, read_only=True)) as repository:
        yield repository


@contextmanager
def writing(url: str, key_file: str | None = None) -> Iterator[Repository]:
    """Open the repository of a store for writing. A store that does not exist is created."""
    with _repository(open_store(url, encryption_key=read_key(key_file))) as repository:
        yield repository


@contextmanager
def serving(given: str | None, key_file: str | None = None, *, cache_bytes: int = CACHE_BYTES) -> Iterator[KVStore]:
    """Open a store for many users at once, with a cache if it is across a network.

    A store that does not exist is created.
    """
    url = locate(given, to_write=True)
    store = open_store(url, encryption_key=read_key(key_file))
    with Cache(store, cache_bytes) if cache_bytes and is_remote(url) else store as served:
        yield served


@contextmanager
def changing(given: str | None, key_file: str | None = None) -> Iterator[Repository]:
    """Open the repository of an existing store, over a ``Recorder``, for writing. Raises the same as ``reading``."""
    with _repository(_open(given, key_file), Recorder) as repository:
        yield repository


@contextmanager
def unchecked(given: str | None, key_file: str | None = None) -> Iterator[KVStore]:
    """Open the store alone, for reading, whatever its content, to look for damage.

    Raises ``StorageError`` if there is no store.
    """
    with _open(given, key_file, read_only=True) as store:
        yield store


def _open(given: str | None, key_file: str | None, *, read_only: bool = False) -> KVStore:
    """Open a store that must exist."""
    url, key = locate(given), read_key(key_file)
    try:
        return open_store(url, read_only=read_only, create=False, encryption_key=key)
    except (StoreNotFoundError, NotAStoreError) as error:
        error.hint = _HINT
        raise


def _repository(store: KVStore, kind: type[Database] = Database) -> Repository:
    try:
        return Repository.over(kind(store, pickle="refuse", clock=text.now))
    except BaseException:
        store.close()
        raise
