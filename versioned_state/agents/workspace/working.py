"""The folder of a workspace relative to a commit: finding the differences, and moving it to another commit.

Layer: agents.

::

    follow   each path that differs between two commits: a file with the old commit's content gets that of the new one
    bring    all files get the content of a commit, or of the start of a transaction

The present content of a file is always read from the file. ``Position`` records a move under way, so that half a move
never passes for the user's work.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Literal

from versioned_state.agents.workspace.content import Content, check_entries, check_paths, in_batches
from versioned_state.agents.workspace.entries import (
    cell_of,
    form_of,
    path_of,
    same_entry,
    why_no_entry,
)
from versioned_state.agents.workspace.folder import (
    FOLDER_STAT,
    Brought,
    Parents,
    Stat,
    Step,
    is_empty,
    look,
    open_root,
    read_entry,
    remove,
    stat_of,
    write,
)
from versioned_state.agents.workspace.index import Index, Position, Records
from versioned_state.agents.workspace.scan import Changes, Ignored, Scan
from versioned_state.errors import (
    DirtyWorkspaceError,
    MissingObjectError,
    UnknownPathError,
    WorkspaceError,
)
from versioned_state.objects.address import Address
from versioned_state.objects.store import Staging
from versioned_state.repository.history.commit import Commit
from versioned_state.values.changes.diff import diff_maps
from versioned_state.values.codec.files import Folder
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.keys import path_of as path_of_root_key
from versioned_state.values.paths.path import Key, StatePath
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import same

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

Overwrite = bool | Literal["restored"]
"""Whether a call may replace content that no commit has.

``"restored"`` allows it only for files that ``restore`` wrote since the last commit.
"""

_SAVE_AFTER: Final = 200
"""Changed paths after which the index is saved.

Those that a killed process did not save are read again by the next one.
"""


class WorkingFolder:
    """A folder that is at a commit: its files are those of the commit, except for the user's changes.

    Args:
        database: returns the database that the commits are in.
        path: the folder.
        key: the root key that the files are under.
        head: the commit that a folder without records is assumed to be at.
        place: the folder of the records, if it is another one.

    Attributes:
        special: the sockets, pipes and devices that the last scan found.
        staged: the changes that the last scan for a commit found.
        taken: the changes in the commit that is being published, or None if there is none.
    """

    def __init__(
        self,
        database: Callable[[], Database],
        path: str,
        key: bytes,
        ignored: Ignored,
        head: Commit,
        place: str | None = None,
    ) -> None:
        self._database = database
        self.path = path
        self.key = key
        self._ignored = ignored
        self.staged: Changes = {}
        self.taken: Changes = {}
        self.special: list[str] = []
        self._records: Records | None = None
        with self._root() as root:
            self._records = records = Records(root, str(path_of_root_key(key)), place)
        self._close = weakref.finalize(self, records.close)
        try:
            self._load(head)
        except BaseException:
            self._close()
            raise

    @contextmanager
    def _root(self) -> Iterator[int]:
        try:
            root = open_root(self.path)
        except OSError as error:
            raise WorkspaceError(
                f"the folder {self.path} cannot be opened: {error.strerror}",
                hint="make it again: the state has its files, and workspace.restore() writes them",
            ) from error
        try:
            if self._records is not None:
                self._records.stay_in(root)
            yield root
        finally:
            os.close(root)

    # The position and the index

    @property
    def records(self) -> Records:
        """The files in ``.versioned-state``."""
        assert self._records is not None
        return self._records

    def begin(self, head: Commit, *, is_empty: bool) -> None:
        """Bring the folder to the head: from the commit that it is at, or with all files if it is new and empty."""
        if self._is_new and is_empty:
            self.bring_to(head)
        if self._position.toward or self._position.writing:
            self.scan(self.nodes())  # which removes the temporary files of a killed process
        self.follow(head)

    def _load(self, head: Commit) -> None:
        nodes = self.nodes()
        position = self.records.read_position()
        content = None if position is None else self._content_at(nodes, position.at)
        self._is_new = position is None or content is None
        if position is None or content is None:  # new, damaged, or of another store: the files are unknown
            position = Position(head.address)
            content = Content.of(nodes, head.tree, self.key)
        self._position = position
        index = self.records.read_index(position.at)
        if index is None:
            index = Index()
            index.cells = dict(content.items())
        self._index = index

    def _content_at(self, nodes: Nodes, address: bytes) -> Content | None:
        """Return the files of a commit, or None if the store does not have it."""
        with suppress(MissingObjectError):
            commit = self._database().commits.read(Address(address))
            return Content.of(nodes, commit.tree, self.key)
        return None

    def _write_position(self) -> None:
        try:
            self.records.write_position(self._position)
        except OSError as error:
            raise WorkspaceError(
                f"the folder {self.path} cannot be written: {error.strerror}", remains="no file was touched"
            ) from error

    def _set_at(self, head: Commit) -> None:
        """Record that the files are those of a commit now, except for the unresolved ones and the user's changes."""
        self._position = Position(head.address, unresolved=self._position.unresolved)
        self.staged, self.taken = {}, {}
        # if this fails, the next process has an older position, and reads the files that were written since again
        with suppress(OSError):
            self.records.write_position(self._position)
        if self._index.changed >= _SAVE_AFTER:
            self.records.write_index(head.address, self._index)

    def nodes(self) -> Nodes:
        """Return nodes over the store, for objects that go nowhere."""
        staging = Staging(self._database().objects)
        return Nodes(staging, staging=staging)

    # The content of the folder

    def scan(self, nodes: Nodes, within: str | None = None) -> Changes:
        """Return the differences between the folder and the commit that it is at. Stages their objects.

        Args:
            within: scan only this file, or the content of this folder.
        """
        encoder, decoder = Encoder(nodes), Decoder(nodes)
        scan = Scan(
            self._index,
            self._ignored,
            lambda entry, path: cell_of(encoder, entry, path),
            lambda old, new, entry: form_of(old) != form_of(new) and same_entry(decoder.decode(old), entry),
        )
        with self._root() as root:
            changes = scan.run(root) if within is None else scan.run_within(root, within)
        self.special = scan.special
        return changes

    def content(self, nodes: Nodes) -> Content:
        """Return the files in the folder, as a commit would have them."""
        return self.base(nodes).edited(self.scan(nodes))

    def base(self, nodes: Nodes) -> Content:
        """Return the files of the commit that the folder is at."""
        found = self._content_at(nodes, self._position.at)
        if found is not None:
            return found
        self._index = Index()  # gc has collected the commit: every file is read and compared
        return Content(nodes, None)

    def dirty(self, nodes: Nodes) -> Changes:
        """Return the user's changes, without those that an interrupted move has made already."""
        changes = self.scan(nodes)
        toward = self._contents_at(nodes, self._position.toward)
        if not toward:
            return changes
        return {
            path: found for path, found in changes.items() if all(other.cell_at(path) != found[1] for other in toward)
        }

    def _contents_at(self, nodes: Nodes, addresses: Iterable[bytes]) -> list[Content]:
        """Return the files of those commits that the store has."""
        found = (self._content_at(nodes, address) for address in addresses)
        return [content for content in found if content is not None]

    def follow(self, head: Commit) -> None:
        """Move the files from their commit to another one. Files that the user has changed stay.

        Raises:
            WorkspaceError: the move cannot be completed. The folder is still at the old commit, and the next call
                continues.
        """
        if self._position.at == head.address and not self._position.toward and not self._is_new:
            return
        self._is_new = False
        nodes = self.nodes()
        old, new = self.base(nodes), Content.of(nodes, head.tree, self.key)
        toward = self._contents_at(nodes, self._position.toward)
        if same(old.tree, new.tree) and not toward:
            self._set_at(head)
            return
        changed = self._changed(nodes, old, new, toward)
        check_paths({path: cell for path, (_, cell) in changed.items() if cell is not None})
        steps: list[Step] = []
        settled: dict[str, Stat | None] = {}
        left = []
        with self._root() as root, Parents(root) as parents:
            for path, (before, after) in changed.items():
                known = [before, *(other.cell_at(path) for other in toward)]
                now, cell = self._current(nodes, parents, path, after, known)
                if cell is None is after and toward:
                    steps.append(Step(path, None, None))  # its folder may still be there
                elif cell == after:
                    settled[path] = now
                elif cell in known or self._is_taken(path, cell):
                    steps.append(Step(path, now, after))
                elif not self._is_taken(path, after):
                    # otherwise the user has changed the file again since the commit took it
                    left.append(path)
        brought = Brought()
        if steps:
            _check_typed(nodes, steps)
            if head.address not in self._position.toward:
                self._position.toward.append(head.address)
                self._write_position()
            self._bring(
                nodes,
                steps,
                new,
                brought,
                "the state has moved, and these files have not",
                "the next commit() or move tries again",
            )
        settled |= brought.stats
        for path, (_, after) in changed.items():
            self._index.set(path, after, settled.get(path))
        self._position.unresolved |= {*left, *brought.in_the_way}
        self._position.unresolved -= settled.keys()
        self._set_at(head)

    def _changed(
        self, nodes: Nodes, old: Content, new: Content, toward: list[Content]
    ) -> dict[str, tuple[bytes | None, bytes | None]]:
        """Return the paths that may have to be written, with their cells in both commits."""
        changed: dict[str, tuple[bytes | None, bytes | None]] = {}
        for other in [new, *toward]:
            for key, before, _ in diff_maps(nodes, old.tree, other.tree):
                path = _path_of(key)
                changed[path] = before, new.cell_at(path)
        return changed

    def _is_taken(self, path: str, cell: bytes | None) -> bool:
        """Return whether the commit just made took this content from the folder.

        It may have merged it with changes of others.
        """
        return path in self.taken and self.taken[path][1] == cell

    def _current(
        self, nodes: Nodes, parents: Parents, path: str, expected: bytes | None, known: list[bytes | None]
    ) -> tuple[Stat | None, bytes | None]:
        """Return the present stat and cell of a path, in the expected or known form.

        A folder that is not an entry counts as nothing.
        """
        try:
            found = look(parents, path)
            if found is None:
                return None, None
            now = stat_of(found)
            if self._index.stats.get(path) == now and self._index.is_fresh(now):
                return now, self._index.cells[path]
            if path in self.taken and self.taken[path] == (now, expected):
                return now, expected
            encoder = Encoder(nodes)
            if stat.S_ISDIR(found.st_mode):
                cell = cell_of(encoder, Folder(), path)
                is_kept = cell == expected or (cell in known and is_empty(parents, path))
                return FOLDER_STAT, cell if is_kept else None
            parent, name = parents.open(path)
            entry = read_entry(parent, name, found.st_mode)
            if entry is None:
                return now, b""  # a socket, a pipe or a device, which no commit has
        except OSError as error:
            raise WorkspaceError(f"{path} cannot be read: {error.strerror}", [path]) from error
        cell = cell_of(encoder, entry, path)
        for each in (expected, *known):
            if each is not None and form_of(each) != form_of(cell) and same_entry(Decoder(nodes).decode(each), entry):
                return now, each
        return now, cell

    # Writing files

    def _bring(
        self, nodes: Nodes, steps: list[Step], target: Content, brought: Brought, remains: str, hint: str
    ) -> None:
        """Carry out some steps: first removals, then files, which are read from the store as they are written."""
        folder = cell_of(Encoder(nodes), Folder(), "")
        writes = {step.path: step for step in sorted(steps) if step.cell is not None}
        cells = {path: step.cell for path, step in writes.items() if step.cell is not None}
        try:
            with self._root() as root:
                remove(
                    root,
                    [step for step in steps if step.cell is None],
                    brought,
                    lambda path: target.cell_at(path) == folder,
                )
                with Parents(root) as parents:
                    for path, entry in in_batches(nodes, cells):
                        if why_no_entry(entry):
                            brought.in_the_way.append(path)
                        else:
                            write(parents, writes[path], entry, brought)
        except OSError as error:
            raise WorkspaceError(
                f"files in {self.path} could not be written: {error.strerror}",
                [step.path for step in steps if step.path not in brought.stats],
                remains=f"{remains}, and status() shows the differences",
                hint=f"make sure that the folder can be written and has room; {hint}",
            ) from error

    def bring(
        self,
        nodes: Nodes,
        target: Content,
        *,
        source: bytes | None = None,
        scope: str | None = None,
        overwrite: Overwrite = True,
    ) -> int:
        """Give the folder, or a part of it, the files of ``target``, whatever it has now.

        Returns the number of files that it changed.

        Args:
            source: the address of the commit with these files, if there is one.
            scope: only this file, or the content of this folder.
            overwrite: whether to replace content that no commit has, or only content that ``restore`` has written.
                Otherwise refuse.
        """
        changes = self.scan(nodes, scope)
        wanted = self._wanted(nodes, target, changes, scope)
        cells = {path: cell for path, cell in wanted.items() if cell is not None}
        check_paths(cells)
        stats = self._stats(wanted, changes)
        unknown = [path for path in wanted if path in changes or path not in self._index.cells]
        lost = [path for path in unknown if stats[path] not in (None, FOLDER_STAT)]
        if overwrite == "restored":
            lost = self._unknown(nodes, lost, changes)
        if lost and overwrite is not True:
            raise DirtyWorkspaceError(
                "files whose content no commit has would be overwritten",
                lost,
                paths=self.paths_of(lost),
                hint=_OVERWRITE,
            )
        steps = [Step(path, stats[path], cell) for path, cell in wanted.items()]
        brought = Brought()
        if steps:
            _check_typed(nodes, steps)
            self._position.writing = sorted({*self._position.writing, *wanted})
            if source is not None and source not in self._position.restored:
                self._position.restored.append(source)
            self._write_position()
            self._bring(
                nodes,
                steps,
                target,
                brought,
                "these files are as they were, and the others were brought",
                "then do it again",
            )
            for path, found in brought.stats.items():
                cell = self._index.cells.get(path)
                self._index.set(path, cell, found if cell == wanted[path] else None)
        if steps or scope is None:
            self._position.writing = [] if scope is None else sorted({*self._position.writing} - wanted.keys())
            self._position.unresolved -= brought.stats.keys()
            if scope is None and source is not None and not brought.in_the_way:
                self._position.restored = [source]
            self._write_position()
        if brought.in_the_way:
            raise WorkspaceError(
                f"something is in the way of {', '.join(brought.in_the_way[:5])}",
                brought.in_the_way,
                remains="the other files were brought",
                hint="a folder with other files in it, a link on the way, or a program that writes there: move it "
                "away; or a text with lone surrogates in the state, which no file can have: "
                "keep(path) keeps the folder's file",
            )
        return len(brought.stats)

    def _unknown(self, nodes: Nodes, paths: Iterable[str], changes: Changes) -> list[str]:
        """Return those of some paths at which the folder does not have the content that ``restore`` wrote."""
        restored = self._contents_at(nodes, self._position.restored)
        return [
            path
            for path in paths
            if path not in changes or all(content.cell_at(path) != changes[path][1] for content in restored)
        ]

    def _wanted(self, nodes: Nodes, target: Content, changes: Changes, scope: str | None) -> dict[str, bytes | None]:
        """Return the paths at which the folder differs from ``target``, with the cells that they are to have."""
        wanted: dict[str, bytes | None] = {}
        within = f"{scope}/"
        for key, _, cell in diff_maps(nodes, self.base(nodes).tree, target.tree):
            path = _path_of(key)
            if scope is None or path == scope or path.startswith(within):
                wanted[path] = cell
        for path, (_, now) in changes.items():
            cell = target.cell_at(path)
            if cell == now:
                wanted.pop(path, None)
            else:
                wanted[path] = cell
        return wanted

    def _stats(self, paths: Iterable[str], changes: Changes) -> dict[str, Stat | None]:
        """Return the present stats of some paths.

        They come from the scan, or from the disk if the scan left a path out, such as an ignored file.
        """
        found: dict[str, Stat | None] = {}
        with self._root() as root, Parents(root) as parents:
            for path in sorted(paths):
                if path in changes:
                    found[path] = changes[path][0]
                elif path in self._index.cells:
                    found[path] = self._index.stats.get(path, FOLDER_STAT)
                else:
                    try:
                        now = look(parents, path)
                    except OSError as error:
                        raise WorkspaceError(f"{path} cannot be read: {error.strerror}", [path]) from error
                    found[path] = None if now is None else FOLDER_STAT if stat.S_ISDIR(now.st_mode) else stat_of(now)
        return found

    def bring_to(self, commit: Commit) -> None:
        """Give the folder the files of a commit, whatever it has now."""
        nodes = self.nodes()
        self.bring(nodes, Content.of(nodes, commit.tree, self.key))

    def keep(self, files: Iterable[str]) -> None:
        """Keep the folder's files at paths that a move has left as they were."""
        self._position.unresolved -= set(files)
        self._position.writing = [path for path in self._position.writing if path not in set(files)]
        self._write_position()

    @property
    def unresolved(self) -> list[str]:
        """The paths that a move has left as they were, or whose restoration was cut short.

        Cost: as of ``scan`` if there may be any.
        """
        position = self._position
        if not position.unresolved and not position.writing:
            return []
        left = {*position.unresolved, *position.writing} & self.scan(self.nodes()).keys()
        position.unresolved, position.writing = left, []
        return sorted(left)

    def check_resolved(self) -> None:
        """Raise ``DirtyWorkspaceError`` if files were left as they are by a move, or in the middle of being brought."""
        left = self.unresolved
        if left:
            raise DirtyWorkspaceError(
                "files were left as they are when the state moved on, so a commit would undo changes of others",
                left,
                paths=self.paths_of(left),
                hint="workspace.restore(path, overwrite=True) writes the state's file, "
                "and workspace.keep(path) keeps yours",
            )

    def paths_of(self, files: Iterable[str]) -> list[str]:
        """Return the paths of some files in the state."""
        root = path_of_root_key(self.key)
        return [str(StatePath((*root.steps, Key(path)))) for path in files]

    def restore(self, path: str | None, commit: Commit, *, overwrite: Overwrite) -> int:
        """Give a file, the content of a folder, or all files the content of a commit.

        Returns the number of files that it changed.

        Raises ``UnknownPathError`` if neither that commit nor the one that the folder is at has such a file.
        """
        nodes = self.nodes()
        target = Content.of(nodes, commit.tree, self.key)
        if path is not None and not any(content.holds(path) for content in (target, self.base(nodes))):
            raise UnknownPathError(
                *self.paths_of([path]), at=commit.short, hint="paths are relative to the folder, with / between names"
            )
        return self.bring(nodes, target, source=commit.address, scope=path, overwrite=overwrite)

    def close(self) -> None:
        """Release the folder. The index stays for the next process."""
        if self._close.alive:
            if self._index.changed:
                self.records.write_index(self._position.at, self._index)
            self.records.close()
            self._close.detach()  # last, because an interrupted close is repeated


_OVERWRITE: Final = "restore(path, overwrite=True) overwrites them, and commit() keeps them"


def _path_of(key: bytes) -> str:
    path = path_of(key)
    if path is None:
        raise WorkspaceError("the state has a file whose path is not a string", remains="no file was touched")
    return path


def _check_typed(nodes: Nodes, steps: Iterable[Step]) -> None:
    """Raise ``WorkspaceError`` if the value of a step is not a file: then no file is written."""
    typed = {step.path: step.cell for step in steps if step.cell is not None and form_of(step.cell) == "other"}
    check_entries(dict(in_batches(nodes, typed)))
