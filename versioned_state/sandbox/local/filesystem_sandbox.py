"""``FilesystemSandbox``: the files of one folder, and nothing outside of it. Layer: sandbox."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from difflib import unified_diff
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Final

from versioned_state.arguments import count, instance_of, list_of
from versioned_state.errors import HandleClosedError, InvalidArgumentError, LimitExceededError, SandboxFileError
from versioned_state.sandbox.enums import SandboxType
from versioned_state.sandbox.local.opened import is_hidden, open_folder, parts_of, read, write
from versioned_state.sandbox.sandbox import MAX_FILE_BYTES, Sandbox

_MAX_DEPTH: Final = 64
"""Folders within folders that a walk goes into."""


class FilesystemSandbox(Sandbox):
    """Reads and writes files in a folder.

    Paths are relative to it. Links are never followed, at the end of a path or on its way.

    Each path is opened name by name from the folder on, so that a program that moves folders and links about meanwhile
    leads nowhere else. A file is replaced as a whole, and is never seen half written. Calls may come from several
    threads; the last of two writes stays.

    Every call raises ``SandboxFileError`` (also an ``OSError``) if the system refuses it, a link is in the way, or
    something is missing; ``InvalidArgumentError`` for a path that is absolute or leads out of the folder;
    ``HandleClosedError`` after ``close``. Nothing was changed then.

    Args:
        folder: as of ``Sandbox``.
        max_file_bytes: the largest file that is written or read; ``LimitExceededError`` beyond. So it is beyond 256
            folders within folders.
    """

    sandbox_type: ClassVar[SandboxType] = SandboxType.FILESYSTEM
    tools: ClassVar[tuple[str, ...]] = (
        "read_file",
        "read_multiple_files",
        "write_file",
        "edit_file",
        "delete_file",
        "move_file",
        "create_directory",
        *("list_directory", "directory_tree", "search_files", "get_file_info", "list_allowed_directories"),
    )

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self._max_bytes = count("max_file_bytes", max_file_bytes, least=1, remains="no sandbox was made")
        self._closed = False
        super().__init__(folder)

    # Files

    def read_file(self, path: str) -> str:
        """Return the text of a file. Raises ``SandboxFileError`` if it is not UTF-8. ``read_bytes`` reads any file."""
        data = self.read_bytes(path)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise SandboxFileError(f"{path} is not a text in UTF-8", path=path, hint="read_bytes() reads it") from None

    def read_bytes(self, path: str) -> bytes:
        """Return the bytes of a file.

        One that has another name too (a hard link) is refused: that may be outside of the folder.
        """
        with self._parent(path) as (parent, name):
            return read(parent, name, path, self._max_bytes)

    def read_multiple_files(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the texts of some files, by path. A file that cannot be read has the reason in place of its text."""
        texts = {}
        for path in list_of("paths", paths):
            try:
                texts[path] = self.read_file(path)
            except (SandboxFileError, InvalidArgumentError, LimitExceededError) as error:
                texts[path] = f"[{error}]"
        return texts

    def write_file(self, path: str, content: str | bytes) -> None:
        """Write a file, which replaces an existing one. Folders on the way are made."""
        data = _encoded(content)
        if len(data) > self._max_bytes:
            raise LimitExceededError(f"the size of {path}", limit=self._max_bytes)
        with self._parent(path, create=True) as (parent, name):
            write(parent, name, data)

    def edit_file(self, path: str, edits: Sequence[Mapping[str, str]], dry_run: bool = False) -> str:  # noqa: FBT001, FBT002 - a tool's
        """Replace texts in a file, one after another, and return the difference line by line.

        Args:
            edits: each has ``oldText``, which occurs in the file, and ``newText``, which replaces its first occurrence.
            dry_run: only return the difference.

        Raises ``InvalidArgumentError`` if a text does not occur; no edit is made then.
        """
        before = after = self.read_file(path)
        for edit in list_of("edits", edits):
            try:
                old, new = str(edit["oldText"]), str(edit["newText"])
            except (KeyError, TypeError):
                raise InvalidArgumentError(f"an edit has oldText and newText, not {edit!r:.200}") from None
            if not old or old not in after:
                raise InvalidArgumentError(f"{path} has no {old!r:.200}")
            after = after.replace(old, new, 1)
        if not dry_run and after != before:
            self.write_file(path, after)
        return "".join(unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), path, path))

    def delete_file(self, path: str) -> None:
        """Remove a file, a link or an empty folder."""
        with self._parent(path) as (parent, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                os.rmdir(name, dir_fd=parent)
            else:
                os.unlink(name, dir_fd=parent)

    def move_file(self, source: str, destination: str) -> None:
        """Give a file or folder another path. Raises ``SandboxFileError`` if there is something already."""
        self.get_file_info(source)  # raises if it is not there
        with self._parent(source) as (here, name), self._parent(destination, create=True) as (there, other):
            try:
                os.stat(other, dir_fd=there, follow_symlinks=False)
            except FileNotFoundError:
                os.rename(name, other, src_dir_fd=here, dst_dir_fd=there)
                return
        raise SandboxFileError(f"there is a {destination} already", path=destination)

    # Folders

    def create_directory(self, path: str) -> None:
        """Make a folder, and those on the way. An existing one stays as it is."""
        with self._errors(path):
            os.close(open_folder(self._folder, parts_of(path), create=True))

    def list_directory(self, path: str = ".") -> list[str]:
        """Return the names in a folder, sorted. Those of folders end with ``/``."""
        return [entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in self._entries(path)]

    def directory_tree(self, path: str = ".") -> list[dict[str, Any]]:
        """Return the content of a folder, to a depth of 64.

        Each entry has ``name``, ``type`` ("file", "directory" or "link"), and ``children`` if it is a folder.
        """
        tree: list[dict[str, Any]] = []
        for each in self._entries(path):
            kind = "link" if each.is_symlink() else "directory" if each.is_dir(follow_symlinks=False) else "file"
            node: dict[str, Any] = {"name": each.name, "type": kind}
            if kind == "directory":
                below = f"{path}/{each.name}"
                node["children"] = self.directory_tree(below) if below.count("/") < _MAX_DEPTH else []
            tree.append(node)
        return tree

    def search_files(self, path: str, pattern: str, exclude_patterns: Sequence[str] = ()) -> list[str]:
        """Return the paths of files and folders, below a folder, whose name matches a pattern such as ``*.py``, sorted.

        Links are not followed.

        Args:
            exclude_patterns: names and paths that are left out, with all that is in them.
        """
        excluded = list_of("exclude_patterns", exclude_patterns)
        found: list[str] = []
        waiting = [(path, 0)]
        while waiting:
            folder, depth = waiting.pop()
            for each in self._entries(folder):
                where = "/".join(parts_of(f"{folder}/{each.name}"))
                if any(fnmatchcase(each.name, other) or fnmatchcase(where, other) for other in excluded):
                    continue
                if fnmatchcase(each.name, pattern) or fnmatchcase(where, pattern):
                    found.append(where)
                if each.is_dir(follow_symlinks=False) and depth < _MAX_DEPTH:
                    waiting.append((f"{folder}/{each.name}", depth + 1))
        return sorted(found)

    def get_file_info(self, path: str) -> dict[str, Any]:
        """Return a path's ``type``, ``size`` in bytes, ``modified`` (ISO 8601, UTC) and ``permissions`` (octal)."""
        with self._parent(path, folder=True) as (parent, name):
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
        return {
            "type": kinds.get(stat.S_IFMT(found.st_mode), "other"),
            "size": found.st_size,
            "modified": datetime.fromtimestamp(found.st_mtime, UTC).isoformat(),
            "permissions": f"{stat.S_IMODE(found.st_mode):03o}",
        }

    def list_allowed_directories(self) -> list[str]:
        """Return the folders that paths are relative to: this one, ``"."``."""
        self._check_open()
        return ["."]

    def close(self) -> None:
        """Remove the sandbox's own folder. A folder that was passed to it stays. Idempotent."""
        self._closed = True
        self._close_folder()

    # Paths

    def _check_open(self) -> None:
        if self._closed:
            raise HandleClosedError("this sandbox is closed", hint="connect() gives another one")

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        self._check_open()
        try:
            yield
        except OSError as error:
            if isinstance(error, SandboxFileError):
                raise
            raise SandboxFileError.of(error, path) from error

    @contextmanager
    def _parent(self, path: str, *, create: bool = False, folder: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder that holds a path, and yield it with the last name.

        The path is not that of the sandbox's folder, unless ``folder`` allows it.
        """
        parts = parts_of(path)
        if not parts and not folder:
            raise InvalidArgumentError(f"{path!r} is the folder itself")
        with self._errors(path):
            parent = open_folder(self._folder, parts[:-1], create=create)
            try:
                yield parent, parts[-1] if parts else "."
            finally:
                os.close(parent)

    def _entries(self, path: str) -> list[os.DirEntry[str]]:
        with self._errors(path):
            descriptor = open_folder(self._folder, parts_of(path))
            try:
                with os.scandir(descriptor) as entries:
                    return sorted((each for each in entries if not is_hidden(each.name)), key=lambda each: each.name)
            finally:
                os.close(descriptor)


def _encoded(content: str | bytes) -> bytes:
    if isinstance(content, bytes):
        return content
    try:
        return instance_of("the content of a file", content, str | bytes).encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError("the content has lone surrogates, which no file has") from None
