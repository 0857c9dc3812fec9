"""The entries of a workspace, and the paths that they may have. Layer: agents.

An entry is a text or bytes, for a file of mode 0644, or a ``File``, ``Symlink`` or ``Folder``.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

from versioned_state.values.cells import ENTRY_INLINE, MAX_KEY, Code, code_of, is_string
from versioned_state.values.codec.files import File, Folder, Symlink
from versioned_state.values.encode.encoder import Encoder

PLAIN_MODE: Final = 0o644
"""The mode of the files that are kept as a text or bytes alone."""

RESERVED: Final = ".versioned-state"
"""The folder of the workspace's own files. No name in a workspace begins like this."""

MAX_FOLDERS: Final = 256
"""The depth of folders around a file that is written or committed.

Each folder holds a descriptor while it is scanned.
"""

Entry = str | bytes | File | Symlink | Folder


def text_or_bytes(data: bytes) -> str | bytes:
    """Return a text if the bytes are exactly valid UTF-8, or else the bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def file_entry(data: bytes, mode: int) -> Entry:
    """Return the entry of a file with this content and these permission bits."""
    content = text_or_bytes(data)
    return content if mode == PLAIN_MODE else File(content, mode)


def data_of(entry: str | bytes | File) -> tuple[bytes, int]:
    """Return the bytes and the permission bits of a file.

    Raises ``UnicodeEncodeError`` for a text with lone surrogates.
    """
    content, mode = (entry.content, entry.mode) if isinstance(entry, File) else (entry, PLAIN_MODE)
    return content.encode() if isinstance(content, str) else content, mode


def why_no_entry(value: Any) -> str:
    """Return the reason why a value cannot be written as a file, or an empty string if it can."""
    if type(value) is Symlink:
        return (
            "" if type(value.target) is str and value.target and "\0" not in value.target else "a link without a target"
        )
    if type(value) is Folder:
        return ""
    content, mode = (value.content, value.mode) if type(value) is File else (value, PLAIN_MODE)
    if type(content) not in (str, bytes):
        return f"its value is of type {type(content).__name__}"
    if type(mode) is not int or not 0 <= mode <= 0o777:
        return f"its mode is {mode!r}"
    if isinstance(content, str):
        try:
            content.encode()
        except UnicodeEncodeError:
            return "its text has lone surrogates"
    return ""


def same_entry(a: Any, b: Any) -> bool:
    """Return whether two values mean the same file, even in forms that no scan makes, such as bytes that are a text."""
    if why_no_entry(a) or why_no_entry(b):
        return False
    if isinstance(a, Symlink | Folder) or isinstance(b, Symlink | Folder):
        return type(a) is type(b) and a == b
    return data_of(a) == data_of(b)


def cell_of(encoder: Encoder, entry: Entry, path: str) -> bytes:
    """Return the stored form of an entry."""
    return encoder.encode_at(entry, ENTRY_INLINE, path)


def form_of(cell: bytes) -> str:
    """Return a word for the form of a cell: two cells of the same form and content are equal."""
    code = code_of(cell)
    if is_string(cell) or code == Code.TEXT:
        return "text"
    return "bytes" if code in (Code.BYTES, Code.BYTES_BLOB) else "other"


# Paths


_REFUSED: Final = re.compile(
    rf"(?:^|/)(?:\.{{0,2}}|\.git|{re.escape(RESERVED)}[^/]*)(?:/|$)|\0|[^/]{{256}}|[\ud800-\udfff]", re.IGNORECASE
).search
"""Finds the parts that no path may have. Lone surrogates that stand for bytes that are not UTF-8 are checked apart."""


def why_refused(path: str) -> str:
    """Return the reason why the library never writes a file at a path, or an empty string if it may."""
    # 64 characters may take 256 bytes
    if _REFUSED(path) is None and (len(path) < 64 or (path.isascii() and len(path) <= MAX_FOLDERS)):
        return ""
    if "\0" in path:
        return "it has a NUL in it"
    try:
        if os.fsdecode(os.fsencode(path)) != path:
            return "it is another spelling of a name"
    except UnicodeEncodeError:
        return "it has characters that no file name has"
    # The next scan must find each file that is written: otherwise it could neither go back nor on.
    if len(path.encode("utf-8", "surrogatepass")) >= MAX_KEY:
        return "it is too long"
    if path.count("/") > MAX_FOLDERS:
        return f"it is more than {MAX_FOLDERS} folders deep"
    for name in path.split("/"):
        if name in {"", ".", ".."}:
            return "it leads out of the folder, or is not written plainly"
        if name.lower() == ".git" or name.lower().startswith(RESERVED):
            return f"{name} is not for files of a workspace"
        if len(os.fsencode(name)) > 255:
            return "a name in it is too long"
    return ""


def key_of(path: str) -> bytes:
    """Return the key of a path in the map of a workspace's entries."""
    return b"s" + path.encode("utf-8", "surrogatepass")


def path_of(key: bytes) -> str | None:
    """Return the path of a key in the map of a workspace's entries, or None if the key is not a string."""
    return key[1:].decode("utf-8", "surrogatepass") if key[:1] == b"s" else None
