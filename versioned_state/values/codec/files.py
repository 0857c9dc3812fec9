"""The values that stand for files: those of a workspace, which is a ``FileTree``. Layer: values."""

from __future__ import annotations

from typing import Any

from versioned_state.records import dataclass


@dataclass(frozen=True, slots=True)
class File:
    """A file whose permission bits are not 0644. Its content is a text if it is valid UTF-8, else bytes."""

    content: str | bytes
    mode: int


@dataclass(frozen=True, slots=True)
class Symlink:
    """A symbolic link. It is never followed."""

    target: str


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder with nothing in it."""


class FileTree(dict[str, Any]):
    """The files of a folder: a dict from relative path to entry, in path order, which is not part of the value.

    A file of mode 0644 is a text if it is valid UTF-8, else bytes; the others are ``File``, ``Symlink`` and ``Folder``.
    """
