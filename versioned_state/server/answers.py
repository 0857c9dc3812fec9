"""Answers of the server: values in the form that the client accepts, and errors, each with its status.

Layer: server.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import ValidationError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from versioned_state.errors import (
    STAGED,
    AccessDeniedError,
    BranchMovedError,
    CommitInDoubtError,
    InvalidArgumentError,
    LimitExceededError,
    MergeConflictError,
    ServiceNotStartedError,
    SessionNotFoundError,
    StateError,
    StorageError,
    StorageFullError,
    UnknownOutcomeError,
    UnreachableStoreError,
    UnserializableValueError,
)
from versioned_state.errors.base import UNCHANGED
from versioned_state.services.calls.deadline import LateError
from versioned_state.services.remote import bodies
from versioned_state.services.remote.errors import error_document, without_details
from versioned_state.services.schemas.model import Model
from versioned_state.services.session_history.messages import invalid

NOTHING: Final = object()
"""The result of an operation that has none: status 204."""

LARGE: Final = 1 << 16
"""Bytes from which a value is large: it may take much memory, or its answer much time."""

_PIECE: Final = 1 << 16
"""Bytes of an answer that are written to a connection at once."""

_PART: Final = 32
"""Bytes of text that take as long to write as one part of a value: 2,000 parts of the slowest types take 5 ms."""

RETRY_S: Final = 1
"""Seconds after which a client that was refused for lack of room should try again."""


class RefusalError(Exception):
    """A refused request: a status, and the error for the client."""

    status: int
    error: StateError

    def __init__(self, status: int, error: StateError, **headers: str) -> None:
        super().__init__(status)
        self.status, self.error = status, error
        self.headers: Final = {name.replace("_", "-"): value for name, value in headers.items()}


def unauthorized() -> RefusalError:
    """Return the refusal of a request without a token, or with an unknown one."""
    error = AccessDeniedError("the request has no valid token", hint="send the header Authorization: Bearer TOKEN")
    return RefusalError(401, error, www_authenticate="Bearer")


def forbidden(scope: str) -> RefusalError:
    """Return the refusal of a token without the scope."""
    error = AccessDeniedError(f"the token does not allow to {scope}")
    return RefusalError(403, error, www_authenticate=f'Bearer error="insufficient_scope", scope="{scope}"')


def absent() -> RefusalError:
    """Return the one answer for another user's session and for one that does not exist: nobody can tell them apart."""
    return RefusalError(404, SessionNotFoundError())


def too_large(limit: int) -> RefusalError:
    """Return the refusal of a body beyond the limit."""
    return RefusalError(413, LimitExceededError("the size of a request's body", limit=limit, remains=UNCHANGED))


def too_many_parts(limit: int) -> RefusalError:
    """Return the refusal of a small body that takes more memory as a value than all bodies together may."""
    return RefusalError(
        413, LimitExceededError("the memory for the parts of a request's body", limit=limit, remains=UNCHANGED)
    )


def too_large_an_answer(limit: int) -> RefusalError:
    """Return the refusal of an answer that is larger than all answers together may be."""
    hint = "ask for less: last, limit, top_k and page_size say how much"
    return RefusalError(422, LimitExceededError("the size of an answer", limit=limit, remains=UNCHANGED, hint=hint))


def late(
    cls: type[StateError] = UnreachableStoreError, *, remains: str = "nothing was changed", hint: str = "try again"
) -> RefusalError:
    """Return the refusal of a request for which the store did not answer in time."""
    return RefusalError(504, cls("the store did not answer in time", remains=remains, hint=hint))


def malformed(what: str, status: int = 422) -> RefusalError:
    """Return the refusal of a request that breaks the API."""
    return RefusalError(status, InvalidArgumentError(what))


def refusal_of(error: BaseException) -> RefusalError:
    """Return the refusal for an error of a service. That of an unexpected error gives no details: the log has them."""
    match error:
        case RefusalError():
            return error
        case LateError():
            return late()
        case SessionNotFoundError():
            return absent()
        case StorageFullError():
            return RefusalError(507, without_details(error))
        case CommitInDoubtError() | UnknownOutcomeError():
            return RefusalError(504, without_details(error))
        case StorageError():
            return RefusalError(503, without_details(error), retry_after=str(RETRY_S))
        case ServiceNotStartedError():
            return RefusalError(503, error, retry_after=str(RETRY_S))
        case BranchMovedError() | MergeConflictError():
            return RefusalError(409, error)
        case StateError():
            if error.remains == STAGED:  # in a handle, which the client does not have
                error.remains = UNCHANGED
            return RefusalError(422, error)
        case ValidationError():
            return RefusalError(422, invalid("the request", error))
    return RefusalError(
        500,
        StateError("the server failed", hint="the server's log has the request under the X-Request-ID of this answer"),
    )


def refuse(refusal: RefusalError) -> Response:
    """Return the answer to a refused request."""
    body = json.dumps(error_document(refusal.error), separators=(",", ":")).encode()
    return Response(body, refusal.status, refusal.headers, bodies.JSON)


def is_large(value: Any, part: int = _PART) -> bool:
    """Return whether a value is, by a quick count, beyond ``LARGE``, so that the event loop must not process it.

    Cost: O(``LARGE``).

    Args:
        part: bytes that each part of the value counts as.
    """
    left = LARGE
    waiting = [value]
    while waiting and left > 0:
        each = waiting.pop()
        left -= part
        if isinstance(each, str | bytes):
            left -= len(each)
        elif isinstance(each, dict | list | tuple | set | frozenset):
            left -= part * len(each)
            if left > 0:
                waiting += each.values() if isinstance(each, dict) else each
        elif isinstance(each, Model):
            waiting.append(vars(each))
    return left <= 0


class Answer(Response):
    """A response that is sent piece by piece, as fast as its client reads. Until the end it counts as under way."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        size = len(self.body)
        for start in range(0, max(size, 1), _PIECE):
            end = start + _PIECE
            await send({"type": "http.response.body", "body": self.body[start:end], "more_body": end < size})


def answer(value: Any, accepted: list[str]) -> Answer:
    """Return a value in the best form that the client accepts and that holds it exactly.

    Raises ``RefusalError`` if there is none.
    """
    if value is NOTHING:
        return Answer(status_code=204)
    try:
        for kind in accepted:
            if kind == bodies.NATIVE:
                return Answer(bodies.encode(value, "the answer"), media_type=kind)
            try:
                return Answer(bodies.encode_json(value, "the answer"), media_type=kind)
            except UnserializableValueError:
                if bodies.NATIVE not in accepted:
                    raise
    except StateError as error:
        error.remains = ""
        raise RefusalError(406, error) from error
    raise AssertionError("checked before the call")
