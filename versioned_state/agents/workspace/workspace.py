"""``Workspace``, a folder of files that is kept with a state, and the files of a commit without one. Layer: agents."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from versioned_state.agents.workspace.content import Content, Files
from versioned_state.agents.workspace.entries import RESERVED
from versioned_state.agents.workspace.hook import WorkspaceHook
from versioned_state.agents.workspace.ignore import Rules
from versioned_state.agents.workspace.scan import Ignored
from versioned_state.agents.workspace.working import Overwrite, WorkingFolder
from versioned_state.arguments import instance_of, one_of
from versioned_state.errors import HandleClosedError, InvalidArgumentError, WorkspaceError
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.views.diff import Diff
from versioned_state.state.aio.caller import ready
from versioned_state.state.branch import port
from versioned_state.state.versioned import Versioned
from versioned_state.storage import KVStore
from versioned_state.values.keys import user_key
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.tree import find

if TYPE_CHECKING:
    from versioned_state.repository.repository import Repository
    from versioned_state.repository.views.snapshot import Snapshot


class Workspace:
    """A folder of files kept with a state: each commit of the state includes both, and each move restores both.

    The files are a value of the state under the key ``name``: a dict from relative path to a text (a file of mode 0644
    in UTF-8), bytes, ``File``, ``Symlink`` or ``Folder``. So ``diff``, ``blame``, ``log``, ``grep`` and ``merge`` go
    into them, as ``workspace["src/a.py"]``. The value is read as any other, and the files are changed in the folder.

    ``reset``, ``rollback``, ``switch``, ``undo`` and ``merge`` raise ``DirtyWorkspaceError`` while files have changes
    that no commit has. ``discard`` drops those changes. A transaction or task that fails restores the files to those at
    its start. Forks, snapshots and other handles leave the folder alone.

    An empty or missing folder gets the files of the head. The files of another folder are uncommitted changes, and none
    is overwritten.

    Cost of a commit, of ``status()``, of a move and of the start of a transaction or task: a stat for each file, and
    reading those that changed. A move writes what differs.

    Args:
        state: the state. One handle has the folder at a time, in all processes.
        path: the folder. It is made if it is missing. Nothing outside of it is read or written, and no link is
            followed. If the store of the state lies in it, the store is left out.
        name: the key of the state under which the files are.
        ignore: patterns of files that are left out, as in a ``.gitignore``. They come before those of the folder.
        gitignore: whether files that the ``.gitignore`` files of the folder ignore are left out. A file that the head
            has is never ignored, as in git.
        records: a folder for the workspace's own records, instead of one in the folder: if code that is not trusted
            writes there.

    Raises:
        WorkspaceError: the folder cannot be read or written, or another workspace uses it, or the state has something
            else under ``name``.
    """

    def __init__(
        self,
        state: Versioned,
        path: str | os.PathLike[str],
        *,
        name: str = "workspace",
        ignore: str | Iterable[str] = (),
        gitignore: bool = True,
        records: str | os.PathLike[str] | None = None,
    ) -> None:
        instance_of("state", state, Versioned)
        user_key(name)  # raises
        patterns = [ignore] if isinstance(ignore, str) else list(ignore)
        self._state = state
        self._name = name
        if "\0" in os.fsdecode(path):
            raise InvalidArgumentError(f"the path of a folder must not have a NUL: {os.fsdecode(path)!r}")
        self._path = str(Path(os.fsdecode(path)).absolute())
        with ready(port.lock(state)):
            port.check_open(state)
            port.transactions(state).refuse("Workspace")
            handle = port.handle(state)
            if handle.hooks.makes(user_key(name)):
                raise InvalidArgumentError(
                    f"the state has a workspace under {name!r} already", hint="use another name= for each"
                )
            try:
                Path(self._path).mkdir(parents=True, exist_ok=True)
                is_empty = all(
                    each.name.startswith(RESERVED) or each.name == ".git" for each in Path(self._path).iterdir()
                )
            except OSError as error:
                raise WorkspaceError(f"the folder {self._path} cannot be used: {error.strerror}") from error
            patterns += _patterns_of_stores(state.repository.database.store, Path(self._path).resolve())
            ignored = Ignored(Rules(os.fsencode(each) for each in patterns), gitignore=gitignore)
            place = None if records is None else str(Path(os.fsdecode(records)).absolute())
            self._hook = WorkspaceHook(handle, self._path, name, ignored, place)
            try:
                self._hook.folder.begin(handle.head, is_empty=is_empty)
                handle.hooks.add(self._hook, handle.head)
            except BaseException:
                self._hook.close()
                raise

    @property
    def path(self) -> str:
        """The folder, as an absolute path."""
        return self._path

    @property
    def name(self) -> str:
        """The key of the state under which the files are."""
        return self._name

    def _ready(self) -> WorkingFolder:
        port.check_open(self._state)
        if self._hook not in port.handle(self._state).hooks.all:
            raise HandleClosedError("this workspace was closed", hint="make another one: Workspace(state, path)")
        return self._hook.folder

    def status(self) -> Diff:
        """Return the changes of files for the next commit, by path and line.

        Cost: a stat for each file, and reading the changed ones.
        """
        with ready(port.lock(self._state)):
            folder = self._ready()
            head = self._state.head.tree
            nodes = folder.nodes()
            cell = folder.content(nodes).cell
            after = edit_map(nodes, head, {folder.key: cell})
            return Diff(nodes.reader, head, after)

    @property
    def files(self) -> Files:
        """The folder's regular files, as a commit would have them now: a read-only mapping from relative path to bytes.

        Ignored files are not in it. It does not follow later changes. Cost: as of ``status``. A file is read on access.
        """
        with ready(port.lock(self._state)):
            folder = self._ready()
            nodes = folder.nodes()
            return Files(nodes, folder.content(nodes))

    def at(self, rev: str | Commit) -> Files:
        """Return the regular files of a commit.

        Raises ``UnknownRevisionError``. Cost: a read when a file is accessed.
        """
        with ready(port.lock(self._state)):
            self._ready()
            return files_of(self._state.checkout(rev), self._name)

    @property
    def left_out(self) -> list[str]:
        """The sockets, pipes and devices in the folder, which no commit includes. Cost: as of ``status``."""
        with ready(port.lock(self._state)):
            folder = self._ready()
            folder.scan(folder.nodes())
            return sorted(folder.special)

    @property
    def unresolved(self) -> list[str]:
        """The files that were left as they are when the state moved on, or whose restoration was cut short.

        The next commit is refused.

        ``restore(path, overwrite=True)`` writes the state's file, and ``keep(path)`` keeps the folder's, after merging
        by hand.
        """
        with ready(port.lock(self._state)):
            return self._ready().unresolved

    def restore(
        self, path: str | os.PathLike[str] | None = None, *, at: str | Commit = "HEAD", overwrite: Overwrite = False
    ) -> None:
        """Give files the content that they have at a revision: a change to commit, unless that is the head.

        Each file has its old content or the new one, whenever the process ends.

        Args:
            path: a file, or a folder with all that is in it, relative to the workspace. Without it, everything.
            overwrite: replace and remove files whose content no commit has. With ``"restored"``, only files that
                ``restore`` has written since the last commit.

        Raises:
            InvalidArgumentError: there is no such ``overwrite``.
            DirtyWorkspaceError: files whose content no commit has would be lost. Nothing was changed.
            UnknownPathError: neither the revision nor the head has such a file.
            WorkspaceError: files cannot be written, or must not be. The error names them, and those before them were
                restored.
        """
        one_of("overwrite", overwrite, (True, False, "restored"), remains="no file was touched")
        with ready(port.lock(self._state)):
            self._ready().restore(
                None if path is None else self._relative(path), port.resolve(self._state, at), overwrite=overwrite
            )

    def keep(self, *paths: str | os.PathLike[str]) -> None:
        """Keep the folder's files at some ``unresolved`` paths, or at all: the next commit has them as they are."""
        with ready(port.lock(self._state)):
            folder = self._ready()
            folder.keep([self._relative(path) for path in paths] if paths else folder.unresolved)

    def _relative(self, path: str | os.PathLike[str]) -> str:
        """Return a path relative to the folder, with plain names."""
        text = os.fsdecode(path)
        if text.startswith("/"):
            text = os.path.relpath(text, self._path)
        text = os.path.normpath(text)
        if text == ".." or text.startswith("../"):
            raise InvalidArgumentError(f"{os.fsdecode(path)} is not in the folder {self._path}")
        return text

    def close(self) -> None:
        """Release the folder: later commits and moves of the state ignore it. The files stay. Idempotent."""
        with ready(port.lock(self._state)):
            if not port.is_closed(self._state):
                port.handle(self._state).hooks.remove(self._hook)
            self._hook.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Workspace {self._path}>"


def _patterns_of_stores(store: KVStore, folder: Path) -> list[str]:
    """Return the patterns that leave out the state's stores: otherwise a commit would change files that it includes."""
    patterns = []
    stores = [store]
    for each in stores:
        stores += [inner for inner in getattr(each, "__dict__", {}).values() if isinstance(inner, KVStore)]
        path = getattr(each, "path", None)
        place = Path(path).resolve() if isinstance(path, str | Path) else None
        if place is not None and folder.is_relative_to(place):
            raise InvalidArgumentError(f"the folder {folder} is that of the state's store", hint="move one of them")
        if place is not None and place.is_relative_to(folder):
            patterns.append("/" + re.sub(r"([][*?\\!# ])", r"\\\1", str(place.relative_to(folder))) + "/")
    return patterns


def files_of(snapshot: Snapshot, name: str = "workspace") -> Files:
    """Return the regular files of a snapshot: a read-only mapping from relative path to bytes.

    Raises ``WorkspaceError`` if the snapshot has something other than files under this name.
    """
    nodes = snapshot.new_nodes()
    return Files(nodes, Content(nodes, find(nodes, snapshot.tree, port.prefix(snapshot) + user_key(name)), large=False))


def restore_into(
    repository: Repository,
    folder: Path,
    commit: Commit,
    paths: Collection[str] = (),
    *,
    name: str = "workspace",
    overwrite: bool = False,
) -> int:
    """Write files of a commit into a folder, which is made if it is missing.

    Returns the number of files written or removed.

    In the folder of a workspace, files may be replaced if its index has their content. In any other folder, they may
    only if they have the same content.

    Args:
        paths: files, or folders of files, relative to the folder. All if there are none.
        overwrite: replace and remove files whose content no commit has.

    Raises:
        DirtyWorkspaceError: such files are in the way. Nothing was changed.
        UnknownPathError: the commit has no such file.
        WorkspaceError: the folder cannot be written, or is in use by a workspace.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkspaceError(f"the folder {folder} cannot be used: {error.strerror}") from error
    is_workspace = (folder / RESERVED).exists()
    working = WorkingFolder(
        lambda: repository.database, str(folder.absolute()), user_key(name), Ignored(Rules(()), gitignore=True), commit
    )
    try:
        if not paths:
            return working.restore(None, commit, overwrite=overwrite)
        return sum([working.restore(path, commit, overwrite=overwrite) for path in paths])
    finally:
        working.close()
        if not is_workspace:
            shutil.rmtree(folder / RESERVED, ignore_errors=True)
