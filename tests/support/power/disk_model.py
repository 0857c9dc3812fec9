"""A disk that loses what was not synced: the files of a recording as a cut of the power at any moment may leave them.

The model is as hostile as POSIX allows. A sync of a file covers the bytes and the length of that file and nothing else,
not even its name. Names are made durable by a sync of their folder; without one they reach the disk in the order of the
calls. Of the bytes that were not synced, each sector of 512 bytes reaches the disk by itself, at any of its states
since the last sync. After a failed sync the system takes what was not written for written: a later sync does not cover
it, unless something in the same sector was written again.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SECTOR: Final = 512
_RECORD: Final = struct.Struct("<4siqqII")


@dataclass(frozen=True)
class Call:
    """A recorded call.

    ``kind``: Open, Write, Truncate, Begin, End or Failure of a sync or No result, Unlink, Rename, Link, Mkdir.
    """

    kind: str
    file: int
    offset: int
    first: bytes
    second: bytes

    @property
    def path(self) -> str:
        return self.first.decode()


def read_calls(log: Path) -> Iterator[Call]:
    """Yield the records of ``recorder.c``."""
    data = log.read_bytes()
    at = 0
    while at < len(data):
        kind, _, file, offset, first, second = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        yield Call(kind[:1].decode(), file, offset, data[at : at + first], data[at + first : at + first + second])
        at += first + second


@dataclass
class Piece:
    """Bytes within one sector that were written and not synced. ``lost``: a sync of them has failed."""

    moment: int
    offset: int
    data: bytes
    lost: bool = False


@dataclass
class File:
    """The durable bytes of a file, and what was done to it since."""

    durable: bytearray = field(default_factory=bytearray)
    sectors: dict[int, list[Piece]] = field(default_factory=dict)
    truncations: list[tuple[int, int]] = field(default_factory=list)

    def write(self, moment: int, offset: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            sector = (offset + at) // SECTOR
            part = data[at : at + (sector + 1) * SECTOR - offset - at]
            self.sectors.setdefault(sector, []).append(Piece(moment, offset + at, part))
            at += len(part)

    def sync(self, begun: int) -> None:
        """Make durable what was done before a moment."""
        kept: list[Piece] = []
        for sector, pieces in list(self.sectors.items()):
            # The system writes whole sectors: the last piece takes all before it along.
            last = max(
                (number for number, piece in enumerate(pieces) if piece.moment < begun and not piece.lost), default=-1
            )
            kept += pieces[: last + 1]
            self._keep(sector, pieces[last + 1 :])
        truncations = [each for each in self.truncations if each[0] < begun]
        self.truncations = [each for each in self.truncations if each[0] >= begun]
        _play(self.durable, kept, truncations)

    def fail(self, begun: int) -> None:
        """Take what was written before a moment for written."""
        for pieces in self.sectors.values():
            for piece in pieces:
                piece.lost = piece.lost or piece.moment < begun

    def _keep(self, sector: int, pieces: list[Piece]) -> None:
        if pieces:
            self.sectors[sector] = pieces
        else:
            del self.sectors[sector]

    def after_cut(self, choose: Callable[[list[int]], int]) -> bytes:
        """Return the content after a cut.

        ``choose`` picks the number of changes, of those at these moments, that reached the disk.
        """
        kept: list[Piece] = []
        for pieces in self.sectors.values():
            kept += pieces[: choose([piece.moment for piece in pieces])]
        content = bytearray(self.durable)
        _play(content, kept, self.truncations[: choose([moment for moment, _ in self.truncations])])
        return bytes(content)


def _play(content: bytearray, pieces: list[Piece], truncations: list[tuple[int, int]]) -> None:
    def write(piece: Piece) -> None:
        if len(content) < piece.offset:
            content.extend(bytes(piece.offset - len(content)))
        content[piece.offset : piece.offset + len(piece.data)] = piece.data

    def truncate(length: int) -> None:
        del content[length:]
        content.extend(bytes(length - len(content)))

    steps: list[tuple[int, Callable[[], None]]] = [(piece.moment, lambda piece=piece: write(piece)) for piece in pieces]  # type: ignore[misc]
    steps += [(moment, lambda length=length: truncate(length)) for moment, length in truncations]  # type: ignore[misc]
    for _, step in sorted(steps, key=lambda step: step[0]):
        step()


Names = dict[str, int]
"""The file of each path; 0 for a folder."""


class DiskModel:
    """The disk beneath one folder.

    ``play`` takes calls in order. ``cut`` returns the files after a power cut at this moment.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.moment = 0
        self.files: dict[int, File] = {}
        self.names: Names = {}
        # The names that are durable, and the changes of names since, each with its folder.
        self._durable: Names = {}
        self._changes: list[tuple[int, str, Call]] = []
        self._folders: dict[int, str] = {}
        self._syncs: dict[int, int] = {}

    def play(self, call: Call) -> None:
        self.moment += 1
        match call.kind:
            case "O":
                self._open(call)
            case "W":
                self.files[call.file].write(self.moment, call.offset, call.first)
            case "T":
                self.files[call.file].truncations.append((self.moment, call.offset))
            case "B":
                self._syncs[call.offset] = self.moment
            case "E":
                self._sync(call.file, self._syncs.pop(call.offset))
            case "F":
                self.files[call.file].fail(self._syncs.pop(call.offset))
            case "N":
                del self._syncs[call.offset]
            case _:
                self._rename(call)

    def _open(self, call: Call) -> None:
        path = call.path
        if path == self.folder or self.names.get(path) == 0:
            self._folders[call.file] = path
        elif self.names.get(path) != call.file:
            self.files[call.file] = File()  # the number may be that of a file that is gone
            self._rename(Call("O", call.file, 0, call.first, b""))

    def _rename(self, call: Call) -> None:
        _apply(self.names, call)
        changed = call.second.decode() if call.kind == "L" else call.path
        self._changes.append((self.moment, changed.rpartition("/")[0], call))

    def _sync(self, number: int, begun: int) -> None:
        folder = self._folders.get(number)
        if folder is None or number in self.files:
            self.files[number].sync(begun)
            return
        rest = []
        for moment, where, call in self._changes:
            if where == folder and moment < begun:
                _apply(self._durable, call)
            else:
                rest.append((moment, where, call))
        self._changes = rest

    def cut(self, dice: random.Random) -> dict[str, bytes | None]:
        """Return the content of each path after a cut, None for a folder.

        What of the rest reached the disk is up to the dice.
        """
        choose = _chooser(dice, self.moment)
        names = dict(self._durable)
        for _, _, call in self._changes[: choose([moment for moment, _, _ in self._changes])]:
            _apply(names, call)
        found: dict[str, bytes | None] = {}
        for path, number in names.items():
            folder = path.rpartition("/")[0]
            if folder != self.folder and names.get(folder) != 0:
                continue  # the folder is not on the disk
            found[path] = None if number == 0 else self.files[number].after_cut(choose)
        return found


def _apply(names: Names, call: Call) -> None:
    path, other = call.path, call.second.decode()
    match call.kind:
        case "O":
            names[path] = call.file
        case "M":
            names[path] = 0
        case "U":
            names.pop(path, None)
        case "L":
            if path in names:
                names[other] = names[path]
        case "R":
            if path in names:
                names[other] = names.pop(path)
        case _:
            raise AssertionError(call)


def _chooser(dice: random.Random, now: int) -> Callable[[list[int]], int]:
    """Return one of four ways to lose: all, nothing, what came after a moment, or for each sector any of its states."""
    match dice.randrange(5):
        case 0:
            return lambda moments: 0
        case 1:
            return len
        case 2:
            until = dice.randrange(max(0, now - 60), now + 1)
            return lambda moments: sum(moment <= until for moment in moments)
        case _:
            share = dice.choice((0.1, 0.5, 0.9))
            return lambda moments: len(moments) if dice.random() < share else dice.randrange(len(moments) + 1)


def write_files(found: dict[str, bytes | None], source: Path, target: Path, dice: random.Random) -> None:
    """Write the files after a cut into another folder. Shared memory, which nobody syncs, holds rubbish."""
    for path, content in sorted(found.items()):
        place = target / Path(path).relative_to(source)
        if content is None:
            place.mkdir(parents=True)
        elif place.name.endswith("-shm"):
            place.write_bytes(dice.randbytes(32 * 1024))
        else:
            place.write_bytes(content)
