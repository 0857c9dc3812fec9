"""Files opened from a folder on, one name at a time, so that no link leads out of it. Layer: sandbox."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from versioned_state.arguments import instance_of
from versioned_state.errors import InvalidArgumentError, LimitExceededError, SandboxFileError

_HIDDEN: Final = ".versioned-state"
"""Files that begin so are not the sandbox's: the engine's records and temporary files."""

MAX_DEPTH: Final = 256
"""Folders within folders that are made. A workspace commits no more of them."""

_ATTEMPTS: Final = 100

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def is_hidden(name: str) -> bool:
    """Return whether a name is one of the engine's own."""
    return name.lower().startswith(_HIDDEN)


def parts_of(path: str) -> list[str]:
    """Return the names on a relative path.

    Raises ``InvalidArgumentError`` if it is absolute, leads out, or is not a path.
    """
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    try:
        reason = _why_refused(instance_of("a path", path, str))
    except UnicodeEncodeError:
        reason = "it has characters that no file name has"
    if reason:
        raise InvalidArgumentError(f"{path!r:.200} is not a path in the sandbox: {reason}")
    return [name for name in path.split("/") if name not in ("", ".")]


def _why_refused(path: str) -> str:
    names = path.split("/")
    if not path:
        return "it is empty"
    if path.startswith("/"):
        return "it is absolute"
    if ".." in names:
        return "it leads out of the folder"
    if "\0" in path:
        return "it has a NUL in it"
    if any(is_hidden(name) for name in names):
        return f"names that begin with {_HIDDEN} are not for files of a sandbox"
    os.fsencode(path)
    return ""


def open_folder(root: Path, parts: Sequence[str], *, create: bool = False) -> int:
    """Return a descriptor of a folder below another one.

    Raises ``OSError``, also for a link on the way, and ``LimitExceededError``.
    """
    if create and len(parts) > MAX_DEPTH:
        raise LimitExceededError("folders within folders", limit=MAX_DEPTH)
    here = os.open(root, _FOLDER)
    try:
        for name in parts:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=here)
            above, here = here, os.open(name, _FOLDER, dir_fd=here)
            os.close(above)  # not before: an interrupt would close it again
    except BaseException:
        os.close(here)
        raise
    return here


def read(parent: int, name: str, path: str, limit: int) -> bytes:
    """Return the content of a regular file that has one name. Raises ``OSError``."""
    descriptor = os.open(name, _READ, dir_fd=parent)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise SandboxFileError(f"{path} is not a file", path=path)
        if found.st_nlink > 1:
            raise SandboxFileError(
                f"{path} has another name, perhaps outside of the folder", path=path, hint="a copy of it can be read"
            )
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(descriptor)
    if len(data) > limit:
        raise LimitExceededError(f"the size of {path}", limit=limit)
    return data


def write(parent: int, name: str, data: bytes) -> None:
    """Write a file beside its place and rename it, so that it is the old one or the new one.

    It keeps the mode of the old one.
    """
    mode = 0o644
    with suppress(FileNotFoundError):
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISREG(found.st_mode):
            mode = stat.S_IMODE(found.st_mode) & 0o777
    for attempt in range(_ATTEMPTS):
        try:
            _write(parent, name, data, mode)
        except FileNotFoundError:  # a save of the folder takes the new file for that of a killed process
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return


def _write(parent: int, name: str, data: bytes, mode: int) -> None:
    temporary = f"{_HIDDEN}.{secrets.token_hex(8)}"
    descriptor = os.open(temporary, _WRITE, 0o600, dir_fd=parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, mode)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise
