"""Ports for servers that must know theirs before they listen, such as one that comes back where it was."""

from __future__ import annotations

import itertools
import os
import socket
from contextlib import suppress
from pathlib import Path

_FIRST = 10_000
_GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")
_tried = itertools.count(os.getpid() * 61)  # each process begins at another one


def quiet_port() -> int:
    """Return a free port that the system gives to no connection and to no server that takes any.

    One that it does give may be taken by another test before the server listens there.
    """
    end = int(_GIVEN.read_text().split()[0]) if _GIVEN.exists() else 32_768
    for number in _tried:
        port = _FIRST + number % max(end - _FIRST, 1_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError
