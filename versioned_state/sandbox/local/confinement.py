"""How the Linux kernel confines the processes of a sandbox: namespaces, limits, Landlock.

Layer: sandbox, in the supervisor.

Each part is tried, and a system that refuses it goes without: ``Isolation`` says what holds. Other systems have the
limits alone.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import socket
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_NEWNS: Final = 0x00020000
_NEWIPC: Final = 0x08000000
_NEWUSER: Final = 0x10000000
_NEWPID: Final = 0x20000000
_NEWNET: Final = 0x40000000

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_SECUREBITS: Final = 28
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38

_NOROOT_LOCKED: Final = 0b11
_SIGKILL: Final = 9
_MS_NOSUID_NODEV_NOEXEC: Final = 2 | 4 | 8
_MS_REC_PRIVATE: Final = 16384 | (1 << 18)

_INSIDE_ID: Final = 1000
"""The user that root is within a sandbox. Any but 0: a program that it starts has no capabilities then."""

IS_LINUX: Final = sys.platform == "linux"

_libc: Any = ctypes.CDLL(None, use_errno=True) if IS_LINUX else None


def _check(result: int) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _prctl(option: int, value: int) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)))


# Namespaces


def enter_namespaces(*, network: bool) -> bool:
    """Enter namespaces of a user, of later processes, of mounts and of IPC, and of the network unless that stays.

    Returns whether it worked. The process must have one thread. Raises ``OSError`` if it is in them but cannot run
    there: end it then.
    """
    if not IS_LINUX:
        return False
    user, group = os.geteuid(), os.getegid()
    flags = _NEWUSER | _NEWPID | _NEWNS | _NEWIPC | (0 if network else _NEWNET)
    if _libc.unshare(flags) != 0:
        return False
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user or _INSIDE_ID} {user} 1")
    _write("/proc/self/gid_map", f"{group or _INSIDE_ID} {group} 1")
    return True


def _write(path: str, text: str) -> None:
    Path(path).write_text(text)


def settle_in(shared_memory: int) -> bool:
    """Prepare the namespaces, as their first process: their own ``/proc`` and ``/dev/shm``, and a loopback interface.

    A part that the system refuses is left out. Returns whether there is a ``/dev/shm`` of its own.
    """
    own_shm = False
    with suppress(OSError):
        _check(_libc.mount(None, b"/", None, _MS_REC_PRIVATE, None))
        with suppress(OSError):
            _check(_libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID_NODEV_NOEXEC, None))
        with suppress(OSError):
            _check(_libc.mount(b"shm", b"/dev/shm", b"tmpfs", 2 | 4, f"size={shared_memory},mode=700".encode()))
            own_shm = True
        with suppress(OSError):  # a namespace of users in this one would have rights that no process is to have
            _write("/proc/sys/user/max_user_namespaces", "0")
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh22x", b"lo", 0x1 | 0x40)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(any_socket, 0x8914, request)  # SIOCSIFFLAGS
    return own_shm


def end_with_parent() -> None:
    """Die when the parent dies."""
    if IS_LINUX:
        _prctl(_PR_SET_PDEATHSIG, _SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end."""
    if IS_LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def give_up_privileges() -> None:
    """Prevent programs that this process or its children start from gaining rights or looking into this process."""
    if IS_LINUX:
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _prctl(_PR_SET_DUMPABLE, 0)


def drop_capabilities() -> None:
    """Take the rights of root from this process and the programs that it starts.

    A namespace of users does so by itself.
    """
    if not IS_LINUX or os.geteuid() != 0:
        return
    with suppress(OSError):
        _prctl(_PR_SET_SECUREBITS, _NOROOT_LOCKED)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()))


# Limits

_LARGEST: Final = 1 << 62


def set_limits(*, memory: int, file_bytes: int, processes: int | None) -> None:
    """Set the limits of this process and those that it starts. None of them is above what it has already."""
    for kind, limit in [
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 1024),
        *([] if processes is None else [(resource.RLIMIT_NPROC, processes)]),
    ]:
        hard = resource.getrlimit(kind)[1]
        allowed = min(limit, _LARGEST) if hard == resource.RLIM_INFINITY else min(limit, hard)
        with suppress(ValueError, OSError):  # macOS has no limit of memory
            resource.setrlimit(kind, (allowed, allowed))


def threads_of_user() -> int:
    """Return the threads that this user has now: the kernel counts them against the limit of processes."""
    user, count = os.geteuid(), 0
    for each in Path("/proc").iterdir() if IS_LINUX else ():
        if each.name.isdigit():
            with suppress(OSError):
                if each.stat().st_uid == user:
                    count += len(list((each / "task").iterdir()))
    return count


# Landlock: which files may be read and written

_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_PATH_BENEATH: Final = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE: Final = 1 << 14
_READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_RIGHTS_OF_ABI: Final = {1: 13, 2: 14, 3: 15, 4: 15}
"""The number of rights in each version of the kernel's interface: 16 in later ones."""

_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2

_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/proc", "/sys"),
    *(
        f"/etc/{name}"
        for name in (
            "alternatives",
            "ca-certificates",
            "fonts",
            "ld.so.cache",
            "ld.so.conf",
            "ld.so.conf.d",
            "pki",
            "ssl",
        )
    ),
    *(
        f"/etc/{name}"
        for name in (
            "group",
            "hosts",
            "localtime",
            "mime.types",
            "nsswitch.conf",
            "os-release",
            "passwd",
            "resolv.conf",
        )
    ),
    *(f"/etc/{name}" for name in ("protocols", "services", "timezone")),
)
"""The folders that programs read on any system, without the secrets of an administrator."""

_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


class Landlock:
    """The rules for files, for processes to come: made once, and entered by each."""

    def __init__(self, *, readable: Iterable[str], writable: Iterable[str], scoped: bool) -> None:
        """Open a ruleset. Raises ``OSError`` if the kernel has no Landlock.

        Args:
            scoped: processes cannot signal those outside.
        """
        if not IS_LINUX:
            raise OSError("Landlock exists on Linux only")
        version = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
        _check(version)
        self._all = (1 << _RIGHTS_OF_ABI.get(version, 16)) - 1
        scope = (_SCOPE_ABSTRACT_SOCKETS | (_SCOPE_SIGNALS if scoped else 0)) if version >= 6 else 0
        attributes = struct.pack("QQQ", self._all, 0, scope)[: 8 if version < 4 else 16 if version < 6 else 24]
        self._rules = _libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
        _check(self._rules)
        os.set_inheritable(self._rules, False)
        for path in (*_SYSTEM, *readable):
            self._allow(path, _READ)
        for path in _DEVICES:
            self._allow(path, _READ | _WRITE_FILE | _TRUNCATE)
        for path in writable:
            self._allow(path, self._all)

    def _allow(self, path: str, rights: int) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                known = self._all if Path(path).is_dir() else self._all & _OF_FILES
                rule = struct.pack("=Qi", rights & known, place)
                _check(_libc.syscall(_ADD_RULE, self._rules, _PATH_BENEATH, rule, ctypes.c_uint32(0)))
            finally:
                os.close(place)

    def enter(self) -> None:
        """Confine this process and those that it starts. It must have given up gaining privileges before."""
        _check(_libc.syscall(_RESTRICT_SELF, self._rules, ctypes.c_uint32(0)))
