"""A scan of a folder for the paths that differ from the commit. Layer: agents.

Each entry costs a stat. A file is read only if its stat shows that it may have changed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress

from versioned_state.agents.workspace.entries import MAX_FOLDERS, RESERVED, Entry
from versioned_state.agents.workspace.folder import (
    ABSENT,
    FOLDER,
    FOLDER_STAT,
    Parents,
    Stat,
    look,
    read_entry,
    read_file,
    stat_of,
)
from versioned_state.agents.workspace.ignore import Rules, rules_of
from versioned_state.agents.workspace.index import Index
from versioned_state.errors import LimitExceededError, WorkspaceError
from versioned_state.values.cells import MAX_KEY
from versioned_state.values.codec.files import Folder

Changes = dict[str, tuple[Stat | None, bytes | None]]
"""The paths that differ from the commit, with the present stat and cell of each, or None if there is no file."""

Same = Callable[[bytes, bytes, Entry], bool]


class Ignored:
    """The decisions on which entries that the commit does not have are left out.

    They are kept until a ``.gitignore`` changes.
    """

    def __init__(self, patterns: Rules, *, gitignore: bool) -> None:
        self._patterns = patterns
        self._gitignore = gitignore
        self._rules: dict[str, tuple[Stat, Rules]] = {}
        self._decisions: dict[str, bool] = {}

    def enter(self, folder: str, parent: int, found: os.stat_result | None) -> None:
        """Read the ``.gitignore`` of a folder, or note that it has none."""
        if not self._gitignore:
            return
        known = self._rules.get(folder)
        if found is None or not stat.S_ISREG(found.st_mode):
            if known is not None:
                del self._rules[folder]
                self._decisions.clear()
            return
        now = stat_of(found)
        # too new for its stat to be conclusive
        if known is None or known[0] != now or now[1] > time.time_ns() - 2_000_000_000:
            rules = rules_of(read_file(parent, ".gitignore"))
            self._rules[folder] = now, rules
            self._decisions.clear()

    def decide(self, path: str, *, is_folder: bool) -> bool:
        """Return whether an entry is left out, by the nearest pattern that matches."""
        key = path + "/" if is_folder else path
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decisions[key] = self._decide(path, is_folder=is_folder)
        return decision

    def _decide(self, path: str, *, is_folder: bool) -> bool:
        name = os.fsencode(path)
        decided = self._patterns.decide(name, is_folder=is_folder)
        folder = path.rpartition("/")[0]
        while decided is None:
            if folder in self._rules:
                skip = len(os.fsencode(folder)) + 1 if folder else 0
                decided = self._rules[folder][1].decide(name[skip:], is_folder=is_folder)
            if not folder:
                break
            folder = folder.rpartition("/")[0]
        return bool(decided)


class Scan:
    """One scan of a folder.

    Args:
        encode: the cell of an entry at a path.
        same: whether a cell, if it differs from that of an entry, still means the same file.

    Attributes:
        changes: the differences from the commit.
        special: the sockets, pipes and devices, which are left out.
    """

    def __init__(self, index: Index, ignored: Ignored, encode: Callable[[Entry, str], bytes], same: Same) -> None:
        self._index = index
        self._ignored = ignored
        self._encode = encode
        self._same = same
        self._seen = 0
        self._names: list[str] = []
        self.changes: Changes = {}
        self.special: list[str] = []

    def run(self, root: int) -> Changes:
        """Scan everything. Raises ``WorkspaceError`` if something cannot be read, and ``LimitExceededError``."""
        index = self._index
        began = time.time_ns()
        self._folder(root, "", 0, ignored=False)
        if self._seen < len(index.cells):
            seen = set(self._names)
            self.changes.update((path, (None, None)) for path in index.cells if path not in seen)
        index.time = began
        return self.changes

    def run_within(self, root: int, path: str) -> Changes:
        """Scan only one file, or the content of one folder. Raises as ``run``."""
        cells, names = self._index.cells, self._names
        with Parents(root) as parents:
            ignored = self._is_below_ignored(parents, path)
            found = look(parents, path)
            if found is not None:
                parent, name = parents.open(path)
                known = path in cells
                if stat.S_ISDIR(found.st_mode):
                    self._below(parent, path, path.count("/"), ignored=ignored)
                elif known or not (ignored or self._ignored.decide(path, is_folder=False)):
                    names.append(path)
                    now = stat_of(found)
                    if self._index.stats.get(path) != now or not self._index.is_fresh(now):
                        self._suspect(parent, name, path, now, known=known)
        within = path + "/"
        left = {each for each in cells if each == path or each.startswith(within)}.difference(names)
        self.changes.update((each, (None, None)) for each in left)
        return self.changes

    def _is_below_ignored(self, parents: Parents, path: str) -> bool:
        """Return whether a folder around a path is ignored. Reads the ``.gitignore`` files on the way."""
        around = [""] + [path[:at] for at, char in enumerate(path) if char == "/"]
        for folder in around:
            if folder and self._ignored.decide(folder, is_folder=True):
                return True
            rules = f"{folder}/.gitignore" if folder else ".gitignore"
            found = look(parents, rules)
            with suppress(OSError):
                self._ignored.enter(folder, parents.open(rules)[0], found)
        return False

    def _folder(self, folder: int, prefix: str, depth: int, *, ignored: bool) -> bool:
        """Scan a folder. Returns whether it is empty."""
        if depth > MAX_FOLDERS:
            hint = f"move {prefix.partition('/')[0]!r} out of the folder, or remove it"
            raise LimitExceededError("folders within folders", limit=MAX_FOLDERS, path=f"{prefix[:80]}…", hint=hint)
        index, names = self._index, self._names
        cells, stats, surely_fresh = index.cells, index.stats, index.surely_fresh
        with os.scandir(folder) as found:
            entries = list(found)
        self._read_rules(folder, prefix, entries)
        folders = []
        count = seen = 0
        for entry in entries:
            name = entry.name
            if name[0] == "." and (name == ".git" or name.startswith(RESERVED)):
                count += self._own(folder, name)
                continue
            count += 1
            path = prefix + name
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
                continue
            known = path in cells
            if not known and (ignored or self._ignored.decide(path, is_folder=False)):
                continue
            try:
                now = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if known:
                names.append(path)
                # As a call of a function this would take a third of the time of the whole.
                last = stats.get(path)
                if last == (now.st_mtime_ns, now.st_ctime_ns, now.st_size, now.st_ino, now.st_mode) and (
                    last[1] < surely_fresh or index.is_fresh(last)
                ):
                    seen += 1
                    continue
            self._suspect(folder, name, path, stat_of(now), known=known)
        self._seen += seen
        for path in folders:
            self._below(folder, path, depth, ignored=ignored)
        return not count

    def _read_rules(self, folder: int, prefix: str, entries: list[os.DirEntry[str]]) -> None:
        rules = next((entry for entry in entries if entry.name == ".gitignore"), None)
        with suppress(FileNotFoundError):
            self._ignored.enter(prefix[:-1], folder, None if rules is None else rules.stat(follow_symlinks=False))

    def _own(self, folder: int, name: str) -> bool:
        """Remove a file that a killed process was writing.

        Returns whether the entry counts as content of the folder.
        """
        if name == ".git":
            return True
        if name != RESERVED:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
        return False

    def _below(self, parent: int, path: str, depth: int, *, ignored: bool) -> None:
        known = path in self._index.cells
        if not known and (ignored or self._ignored.decide(path, is_folder=True)):
            if not self._index.holds_below(path):
                return
            ignored = True  # except for the files that the commit has
        try:
            folder = os.open(path.rpartition("/")[2], FOLDER, dir_fd=parent)
        except OSError as error:
            if error.errno in ABSENT:
                return
            raise self._failed(path, error) from error
        try:
            empty = self._folder(folder, path + "/", depth + 1, ignored=ignored)
        except OSError as error:
            raise self._failed(path, error) from error
        finally:
            os.close(folder)
        if empty or known:
            self._empty_folder(path, known=known, empty=empty)

    def _empty_folder(self, path: str, *, known: bool, empty: bool) -> None:
        if known:
            self._names.append(path)
        cell = self._encode(Folder(), path)
        old = self._index.cells.get(path)
        if old == cell:  # even if it is not empty now: two commits that were merged may have both
            self._seen += 1
        elif empty:
            self.changes[path] = (FOLDER_STAT, cell)
        elif known:
            self.changes[path] = (None, None)  # it was a file, and is a folder with something in it

    def _suspect(self, folder: int, name: str, path: str, now: Stat, *, known: bool) -> None:
        """Read a file or link whose content is not known."""
        try:
            entry = read_entry(folder, name, now[4])
            if entry is None:
                self.special.append(path)
                if known:
                    self.changes[path] = (now, None)
                return
        except OSError as error:
            if error.errno in ABSENT:  # gone, or replaced, since it was listed
                self.changes[path] = (None, None)
                return
            raise self._failed(path, error) from error
        if len(path.encode("utf-8", "surrogatepass")) >= MAX_KEY:
            raise LimitExceededError("a path", limit=MAX_KEY - 1, path=path[:80])
        cell = self._encode(entry, path)
        old = self._index.cells.get(path)
        if old is not None and (old == cell or self._same(old, cell, entry)):
            self._index.set(path, old, now)
            self._seen += 1
        else:
            self.changes[path] = (now, cell)

    @staticmethod
    def _failed(path: str, error: OSError) -> WorkspaceError:
        return WorkspaceError(f"{path} cannot be read: {error.strerror}", [path])
