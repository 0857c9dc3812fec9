"""What kind of file system a path lies on, where the system tells: whether several machines may share it.

SQLite's WAL keeps its index in memory that all who have the file open must share, so they must be on one
machine. Over a network file system two machines each work by an index of their own, and the file is lost.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from versioned_state.errors import UnsafeStoreError

# Types of mount that bring one file to several machines. Not 9p and virtiofs: they are how a virtual machine or
# a container sees a folder of its host, and there one machine has the file open as a rule.
_SHARED = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "ceph", "lustre", "gpfs", "beegfs", "pvfs2", "orangefs", "ocfs2", "gfs2"),
        *("davfs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.mfs", "fuse.moosefs", "fuse.juicefs"),
        *("fuse.s3fs", "fuse.goofys", "fuse.gcsfuse", "fuse.rclone", "fuse.mount-s3", "fuse.blobfuse2", "fuse.davfs2", "fuse.cgofuse"),
    )
)

_MOUNTS = Path("/proc/self/mountinfo")

Device = tuple[int, int]
"""Major and minor number, as ``stat`` gives them for each file of a file system."""


def check_local(directory: Path) -> None:
    """Refuse a directory, made already or yet to be made, on a file system that several machines share.

    Raises ``UnsafeStoreError``. Lets pass what the system does not tell: everything but Linux.
    """
    if (kind := shared_file_system(directory)) is not None:
        raise UnsafeStoreError(
            f"{directory} is on a network file system ({kind}), where writers on two machines would destroy the store",
            remains="nothing was made",
            hint="use a local folder, or Postgres or Redis where machines share a state; allow_network=True if one machine alone opens it",
        )


def shared_file_system(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """The type of the network file system that ``path`` lies on, or the nearest folder above it that is there; None: a local one."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        device = _device(path)
        # Only a file system without a disk of its own has the major number 0. On any other the list need not be read.
        if device is None or device[0] != 0:
            return None
        found = types_by_device(mounts.read_text("utf-8", "replace")).get(device)
    except OSError:
        return None
    return found if found is not None and found.lower() in _SHARED else None


def types_by_device(mountinfo: str) -> dict[Device, str]:
    """The types of all mounts in a text such as ``/proc/self/mountinfo``, as proc(5) describes it; other lines are passed over."""
    found: dict[Device, str] = {}
    for line in mountinfo.splitlines():
        # 36 35 0:98 /root /mount/point rw,noatime shared:1 - nfs4 server:/export rw: a space within a name is written \040.
        place, separator, source = line.partition(" - ")
        fields, kinds = place.split(" "), source.split(" ")
        major, colon, minor = fields[2].partition(":") if len(fields) > 2 else ("", "", "")
        if separator and colon and major.isdecimal() and minor.isdecimal():
            found[int(major), int(minor)] = kinds[0]
    return found


def _device(path: Path) -> Device | None:
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - Path.resolve() would follow links that lead nowhere
    for folder in (absolute, *absolute.parents):
        try:
            number = folder.stat().st_dev
        except (FileNotFoundError, NotADirectoryError):
            continue
        return os.major(number), os.minor(number)
    return None
