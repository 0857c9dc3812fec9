"""The current branch, which ``vstate switch`` chose: for one user, store by store. Layer: cli.

Git keeps it in the work tree. A store is shared by users and machines and has no work tree, so the choice is a small
file of this user, in ``$XDG_STATE_HOME/vstate`` or ``~/.local/state/vstate``. The store does not change.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from blake3 import blake3

from versioned_state.errors import InvalidArgumentError, StateError
from versioned_state.storage.url import is_remote, redact

_ELSEWHERE: Final = (
    "-b NAME names the branch for one command; XDG_STATE_HOME names another folder to keep the choice in"
)


def chosen(url: str) -> str | None:
    """Return the branch chosen for a store's path or URL, even if it no longer exists, or None if none was chosen."""
    return _read(url)[0]


def before(url: str) -> str | None:
    """Return the branch that was current before the last choice, or None if there was no choice."""
    return _read(url)[1]


def choose(url: str, branch: str, *, before: str = "") -> None:
    """Make a branch the current one of the store at a path or URL. A reader meanwhile finds the old choice or this one.

    Args:
        before: the branch that ``vstate switch -`` goes back to; without it, the same as until now.
    """
    file = _file(url)
    if file is None:
        raise InvalidArgumentError(
            "the current branch is kept in the home directory, and none is known", hint=_ELSEWHERE
        )
    if not before or before == branch:
        before = _read(url)[1] or ""
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            unfinished.write_text(f"{branch}\n{before}\n{_location(url)}\n", "utf-8", "surrogateescape")
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise StateError(
            f"{file}, which names the current branch, cannot be written: {error.strerror}", hint=_ELSEWHERE
        ) from error


def _read(url: str) -> tuple[str | None, str | None]:
    """Return the current branch of the store and the branch before it.

    The file's third line, the store, is for people.
    """
    file = _file(url)
    if file is None:
        return None, None
    try:
        branch, before, *_ = file.read_text("utf-8", "surrogateescape").split("\n")
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None, None
    except OSError as error:
        # as in sudo -u, which may keep HOME: another branch than the chosen one would be a surprise
        raise StateError(
            f"{file}, which names the current branch, cannot be read: {error.strerror}", hint=_ELSEWHERE
        ) from error
    return branch or None, before or None


def _file(url: str) -> Path | None:
    folder = _folder()
    name = _location(url).encode("utf-8", "surrogateescape")
    return None if folder is None else folder / (blake3(name).hexdigest()[:32] + ".branch")


def _folder() -> Path | None:
    base = os.environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):  # its standard says to ignore a relative one
        base = os.path.expanduser("~/.local/state")  # noqa: PTH111 - it leaves the tilde if there is no home; Path raises
    return Path(base, "vstate", "branches") if base.startswith("/") else None


def _location(url: str) -> str:
    """Return one name for a store, whatever path leads to it: an absolute path, or a URL without its secrets."""
    return redact(url) if is_remote(url) else str(Path(url.removeprefix("disk:").removeprefix("diskcache:")).resolve())
