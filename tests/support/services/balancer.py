"""`Balancer`: hands connections to several servers in turn, and passes over one that does not accept."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import Self


class Balancer:
    """Listens on a port of 127.0.0.1. Each connection goes to the next server."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = itertools.cycle(ports)
        self._count = len(ports)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._open):
            _end(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = self._connect()
            if server is None:
                client.close()
                continue
            self._open += [client, server]
            for source, target in ((client, server), (server, client)):
                Thread(target=_pass, args=(source, target), daemon=True).start()

    def _connect(self) -> socket.socket | None:
        for _ in range(self._count):
            with suppress(OSError):
                return socket.create_connection(("127.0.0.1", next(self._ports)))
        return None


def _pass(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    _end(source)
    _end(target)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
