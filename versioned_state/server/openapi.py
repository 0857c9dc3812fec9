"""The OpenAPI document, made of the table of operations. Layer: server."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from pydantic import BaseModel, Field, TypeAdapter

from versioned_state.server.operations import OPERATIONS, Operation
from versioned_state.server.requests import Parameter, adapter
from versioned_state.services.remote import bodies
from versioned_state.services.remote.retries import LONGEST_AGE_S

_REFUSALS: Final[dict[str, str]] = {
    "400": "The request does not read.",
    "401": "No token, or one that is not known.",
    "403": "The token lacks the scope.",
    "404": "There is no such session, or it is another user's: the two answers are the same.",
    "406": "The answer cannot be given in the accepted form without a change of its types; `path` in `facts` is where.",
    "408": "The body came too slowly.",
    "409": "Others wrote to the same place at the same time.",
    "413": "The body is too large.",
    "415": "The body is of another media type, or compressed.",
    "422": "The request is well formed, and asks for what cannot be.",
    "431": "The head is too large.",
    "500": "The server failed.",
    "503": "The server or its store is busy, or cannot be reached: nothing was changed. Try again.",
    "504": (
        "The store did not answer in time. A write may have been done: "
        "repeated with its `Idempotency-Key` it is done once."
    ),
    "507": "The store is full.",
}


class Fault(BaseModel):
    """An error, as the library reports it."""

    type: str = Field(description="The class of the error in `versioned_state.errors`.")
    what: str
    remains: str = Field(description="What the failed call leaves behind.")
    hint: str = Field(description="The way out, if there is one.")
    facts: dict[str, Any]


class Failure(BaseModel):
    """The answer to a request that failed."""

    error: Fault


class Health(BaseModel):
    """The answer of a server that is alive."""

    status: str


_KEY: Final[dict[str, Any]] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": (
        "The identity of a write: repeated with the same key, it is done once. "
        "Another body or other parameters are refused."
    ),
    "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"},
}
_AGE: Final[dict[str, Any]] = {
    "name": "Idempotency-Age",
    "in": "header",
    "description": "For a repeated write: seconds since it was sent first.",
    "schema": {"type": "integer", "minimum": 0, "maximum": LONGEST_AGE_S},
}


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    kinds = [
        Failure,
        Health,
        *(kind for operation in OPERATIONS for kind in (operation.body, operation.result) if kind is not None),
    ]
    asked: list[Any] = [(str(kind), "validation", adapter(kind)) for kind in kinds]
    found, shared = TypeAdapter.json_schemas(asked, ref_template="#/components/schemas/{model}")
    schemas = {kind: schema for (kind, _), schema in found.items()}
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    paths["/health"] = {
        "get": {
            "operationId": "health",
            "summary": "Whether the server and its store answer.",
            "security": [],
            "responses": {
                code: _response(text, schemas[str(Health)], json_only=True)
                for code, text in (("200", "They do."), ("503", "They do not."))
            },
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "versioned-state",
            "version": "1",
            "description": (
                "States, histories and memories of many users, with history. Every answer has an `X-Request-ID`."
            ),
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}, "schemas": shared["$defs"]},
    }


def _operation(operation: Operation, schemas: Mapping[str, Any]) -> dict[str, Any]:
    codes = {code: text for code, text in _REFUSALS.items() if code != "415" or operation.body is not None}
    responses = {code: _response(text, schemas[str(Failure)], json_only=True) for code, text in sorted(codes.items())}
    if operation.result is None:
        responses["204"] = {"description": "Done."}
    else:
        responses["200"] = _response("Done.", schemas[str(operation.result)])
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"Needs the scope `{operation.scope}`.",
        "parameters": [
            *(
                _parameter(each, required=each.name == "session_id" and operation.session == "required")
                for each in operation.parameters
            ),
            *((_KEY, _AGE) if operation.scope == "write" else ()),
        ],
        "responses": responses,
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {
                bodies.JSON: {"schema": schemas[str(operation.body)]},
                bodies.NATIVE: {"schema": {"type": "string", "format": "binary"}},
            },
        }
    return described


def _parameter(parameter: Parameter, *, required: bool) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "required": required,
        "description": parameter.description,
        "schema": adapter(parameter.kind).json_schema(),
    }


def _response(text: str, schema: dict[str, Any], *, json_only: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {bodies.JSON: {"schema": schema}}
    if not json_only:
        content[bodies.NATIVE] = {"schema": {"type": "string", "format": "binary"}}
    return {"description": text, "content": content}
