"""The log of requests: a line each, without ids of users and sessions, tokens, queries or content. Layer: server."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, Final
from uuid import uuid4

from starlette.types import Message, Scope, Send

from versioned_state.server.answers import RefusalError

logger: Final = logging.getLogger("versioned_state.server")

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_FACTS: Final = "event request_id method path status ms received sent error service call outcome seconds".split()


def request_id(given: str | None) -> str:
    """Return the id of a request: a valid one from the client or a balancer before the server, or else a new one."""
    return given if given is not None and _REQUEST_ID.fullmatch(given) else uuid4().hex


class RequestLog:
    """The line of one request in the log. Its ``send`` passes the answer on, with the id of the request."""

    def __init__(self, scope: Scope, id: str, send: Send) -> None:
        self.id = id
        self.status: Any = 0
        self.received = 0
        self.sent: int = 0
        self._scope = scope
        self._send = send
        self._began = perf_counter()
        self._error: BaseException | None = None
        self._name = ""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self.id.encode())]
        elif message["type"] == "http.response.body":
            self.sent += len(message.get("body", b""))
        await self._send(message)

    def failed(self, error: BaseException, refusal: RefusalError) -> None:
        """Record an error: its class, and its traceback if the fault is the server's."""
        self._name = type(refusal.error).__name__
        if refusal.status >= 500:
            self._error = error.error if isinstance(error, RefusalError) else error
            self._name = type(self._error).__name__

    def disconnected(self) -> None:
        """Record that the client has disconnected."""
        self._name = "disconnected"

    def write(self) -> None:
        """Write the line."""
        level = logging.ERROR if self.status >= 500 else logging.INFO
        if not logger.isEnabledFor(level):
            return
        facts: dict[str, Any] = {
            "event": "request",
            "request_id": self.id,
            "method": self._scope["method"],
            "path": _path(self._scope),
            "status": self.status,
            "ms": round((perf_counter() - self._began) * 1000, 2),
            "received": self.received,
            "sent": self.sent,
        }
        if self._name:
            facts["error"] = self._name
        unexpected = self._error if self.status == 500 else None
        logger.log(level, "%s %s %d", facts["method"], facts["path"], self.status, extra=facts, exc_info=unexpected)


def _path(scope: Scope) -> str:
    """Return the path of an operation, and nothing for other requests, whose paths may contain anything."""
    return scope["path"] if "endpoint" in scope else "(unknown)"


class JsonLines(logging.Formatter):
    """Each record as one line of JSON: time, level, message, and the facts that this library adds."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((name, value) for name in _FACTS if (value := getattr(record, name, None)) is not None)
        if record.exc_info and record.exc_info[0] is not None:
            line["traceback"] = _places(record.exc_info[2])
            line["error"] = record.exc_info[0].__name__
        return json.dumps(line)


def _places(traceback: Any) -> list[str]:
    """Return the files and lines of a traceback, without the error's text, which may contain values."""
    places = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        places.append(f"{code.co_filename}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    return places
