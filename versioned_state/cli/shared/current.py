"""The current branch, which ``vstate switch`` chose: for one user, store by store. Layer: cli.

Git keeps it in the work tree. A store is shared by users and machines, and has none; so it is a small file of this user's, in
``$XDG_STATE_HOME/vstate`` or ``~/.local/state/vstate``. What the store holds is not touched by it.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

from versioned_state.errors import InvalidArgumentError
from versioned_state.storage.url import is_remote, redact


def chosen(url: str) -> str | None:
    """The branch that was chosen for the store at a path or URL, be it there still or not; None: nobody chose one."""
    file = _file(url)
    if file is None:
        return None
    try:
        return file.read_text("utf-8").partition("\n")[0] or None
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return None


def choose(url: str, branch: str) -> None:
    """Keep a branch as the current one of the store at a path or URL. Whoever reads meanwhile finds the one before it, or this one."""
    file = _file(url)
    if file is None:
        raise InvalidArgumentError(
            "there is no home directory to keep the current branch in", hint="XDG_STATE_HOME names another place; -b needs none"
        )
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        unfinished.write_text(f"{branch}\n{_place(url)}\n", "utf-8", "surrogateescape")
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _file(url: str) -> Path | None:
    base = os.environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):  # a relative one is to be ignored, says its standard
        base = os.path.expanduser("~/.local/state")  # noqa: PTH111 - it leaves the tilde where there is no home; Path raises
    name = sha256(_place(url).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return Path(base, "vstate", "branches", name) if base.startswith("/") else None


def _place(url: str) -> str:
    """One name for a store, however it is reached: a path as it is from the root, a URL without its secrets."""
    return redact(url) if is_remote(url) else str(Path(url.removeprefix("disk:").removeprefix("diskcache:")).resolve())
