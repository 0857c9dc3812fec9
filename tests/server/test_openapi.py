"""The server against its own OpenAPI document, by schemathesis: no 5xx, and no answer that the document lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.services.served import ALICE, ALL
from tests.support.services.zygote import Forked, Zygote
from versioned_state.server.openapi import document
from versioned_state.services.remote import bodies

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
SCHEMA = schemathesis.openapi.from_dict(document())
OPERATIONS = {result.ok().label: result.ok() for result in SCHEMA.get_all_operations() if isinstance(result, Ok)}


@pytest.fixture(scope="module")
def server(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forked]:
    with zygote.serve(f"disk:{tmp_path_factory.mktemp('openapi') / 'store'}", "--log-level", "error") as server:
        yield server


@schemathesis.serializer(bodies.NATIVE)
def native(context: Any, value: Any) -> Any:
    """A body of our own form is whatever bytes are generated for it."""
    return value.value if hasattr(value, "value") else str(value).encode("utf-8", "surrogatepass")


CASES = [
    (label, mode)
    for label in OPERATIONS
    for mode in schemathesis.GenerationMode
    if mode.is_positive or "/health" not in label
]  # there is no wrong way to ask for the health


@pytest.mark.parametrize(("label", "mode"), CASES, ids=lambda each: each if isinstance(each, str) else each.value)
def test_every_answer_is_in_the_document(server: Forked, label: str, mode: Any, long_run: bool):  # noqa: FBT001 - a fixture
    operation = OPERATIONS[label]

    @seed(20261122)
    @settings(
        max_examples=500 if long_run else 3,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        for token in (ALL, ALICE):
            case.call_and_validate(base_url=server.url, headers={"Authorization": f"Bearer {token}"}, checks=CHECKS)

    run()


@pytest.mark.parametrize("label", [label for label in OPERATIONS if "/health" not in label])
def test_no_operation_ignores_the_token(server: Forked, label: str):
    case = OPERATIONS[label].Case(query={"user_id": "alice", "session_id": "s"})
    case.call_and_validate(base_url=server.url, headers={"Authorization": f"Bearer {ALICE}"}, checks=[ignored_auth])
