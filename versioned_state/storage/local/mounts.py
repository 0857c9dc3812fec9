"""Finds network file systems, which a store on SQLite must not use: several machines may share them. Layer: storage.

SQLite's WAL keeps its index in shared memory, so all processes that have the file open must be on one machine. On a
network file system two machines would each use an index of their own and destroy the file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from versioned_state.errors import UnsafeStoreError

# File systems that several machines can mount. 9p and virtiofs are left out: a virtual machine or a container sees its
# host's folder through them, and then usually one machine alone opens the file.
_SHARED = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "afs",
        "ncpfs",
        "ceph",
        "lustre",
        "gpfs",
        "beegfs",
        "pvfs2",
        "orangefs",
        "ocfs2",
        "gfs2",
        "davfs",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.ceph",
        "fuse.ceph-fuse",
        "fuse.mfs",
        "fuse.moosefs",
        "fuse.juicefs",
        "fuse.s3fs",
        "fuse.goofys",
        "fuse.gcsfuse",
        "fuse.rclone",
        "fuse.mount-s3",
        "fuse.blobfuse2",
        "fuse.davfs2",
        "fuse.cgofuse",
    )
)

_MOUNTS = Path("/proc/self/mountinfo")

Device = tuple[int, int]
"""Major and minor number of a file system, as ``stat`` returns them for its files."""


def check_local(directory: Path) -> None:
    """Raise ``UnsafeStoreError`` if the directory, which need not exist yet, is on a network file system.

    Checks on Linux only; other systems do not tell.
    """
    if (kind := shared_file_system(directory)) is not None:
        raise UnsafeStoreError(
            f"{directory} is on a network file system ({kind}), where writers on two machines would destroy the store",
            remains="nothing was made",
            hint="use a local folder, or Postgres or Redis if machines share a state; "
            "allow_network=True if one machine alone opens it",
        )


def shared_file_system(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """Return the type of the network file system of ``path``, or of its nearest existing parent.

    Returns None if the file system is local.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        device = _device(path)
        # Only file systems without a disk of their own have the major number 0, so for others the list need not be
        # read.
        if device is None or device[0] != 0:
            return None
        found = types_by_device(mounts.read_text("utf-8", "replace")).get(device)
    except OSError:
        return None
    return found if found is not None and found.lower() in _SHARED else None


def types_by_device(mountinfo: str) -> dict[Device, str]:
    """Return the types of all mounts in the text of ``/proc/self/mountinfo`` (see proc(5)). Other lines are skipped."""
    found: dict[Device, str] = {}
    for line in mountinfo.splitlines():
        # 36 35 0:98 /root /mount/point rw,noatime shared:1 - nfs4 server:/export rw: a space within a name is written
        # \040.
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
