"""What services tell of their calls: spans, metrics and logs, with no value and no id in them."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from versioned_state.errors import StateError
from versioned_state.services.agent_state import InMemoryStateService
from versioned_state.services.store_service import StoreService

SECRET = "secret-4929"


@pytest.fixture(scope="module")
def collected() -> tuple[InMemorySpanExporter, InMemoryMetricReader]:
    """Set once: OpenTelemetry takes one provider for the life of a process."""
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([reader]))
    return spans, reader


@pytest.fixture
def spans(collected: tuple[InMemorySpanExporter, InMemoryMetricReader]) -> Iterator[InMemorySpanExporter]:
    collected[0].clear()
    yield collected[0]
    collected[0].clear()


@pytest.fixture
def reader(collected: tuple[InMemorySpanExporter, InMemoryMetricReader]) -> InMemoryMetricReader:
    return collected[1]


async def work() -> None:
    async with InMemoryStateService() as service:
        await service.save_state(SECRET, {SECRET: SECRET}, SECRET)
        await service.export_state(SECRET, SECRET)
        with pytest.raises(StateError, match=SECRET):
            await service.save_state(SECRET, {SECRET: threading.Lock()}, SECRET)


async def test_a_span_for_each_call(spans: InMemorySpanExporter) -> None:
    await work()
    found = spans.get_finished_spans()
    assert [span.name for span in found] == [
        f"InMemoryStateService.{call}" for call in ("save_state", "export_state", "save_state")
    ]
    outcomes = [dict(span.attributes or {})["versioned_state.outcome"] for span in found]
    assert outcomes[:2] == ["ok", "ok"]
    assert outcomes[2].endswith("Error")
    assert [span.status.status_code.name for span in found] == ["UNSET", "UNSET", "ERROR"]
    assert not any(span.events for span in found)
    assert SECRET not in "".join(span.to_json() for span in found)


async def test_calls_seconds_and_the_calls_under_way(reader: InMemoryMetricReader) -> None:
    before = measured(reader)
    await work()
    after = measured(reader)
    key = ("duration", "InMemoryStateService", "save_state", "ok")
    assert after[key] == before.get(key, 0) + 1
    assert sum(value for (name, *_), value in after.items() if name == "active") == 0
    assert SECRET not in json.dumps([*map(str, after)])


def test_a_program_that_configures_no_logging_writes_nothing():
    program = """
import asyncio
from versioned_state.services import SessionService

async def main():
    async with SessionService.over("memory:") as service:
        try:
            await service.undo("alice", "trip")
        except KeyError:
            print("refused")

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("refused\n", "")


def measured(reader: InMemoryMetricReader) -> dict[tuple[str, ...], Any]:
    data = reader.get_metrics_data()
    found: dict[tuple[str, ...], Any] = {}
    for resource in data.resource_metrics if data is not None else ():
        for metric in [metric for scope in resource.scope_metrics for metric in scope.metrics]:
            for point in metric.data.data_points:
                labels = {key.rpartition(".")[2]: value for key, value in point.attributes.items()}
                key = (
                    metric.name.rpartition(".")[2],
                    *(str(labels[each]) for each in ("service", "call", "outcome") if each in labels),
                )
                found[key] = getattr(point, "count", None) or getattr(point, "value", 0)
    return found


async def test_a_cancelled_call_is_no_error(spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture) -> None:
    async with InMemoryStateService() as service:
        with caplog.at_level(logging.DEBUG, "versioned_state.services"):
            call = asyncio.ensure_future(service.save_state("u", {}))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
    assert [record.outcome for record in caplog.records] == ["cancelled"]  # type: ignore[attr-defined]
    assert spans.get_finished_spans()[0].status.status_code.name == "UNSET"


async def test_logs_have_no_values(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "versioned_state.services"):
        await work()
    told = [(record.levelname, record.service, record.call, record.outcome) for record in caplog.records]  # type: ignore[attr-defined]
    assert told[:2] == [("DEBUG", "InMemoryStateService", call, "ok") for call in ("save_state", "export_state")]
    assert told[2][:3] == ("WARNING", "InMemoryStateService", "save_state")
    assert all(record.seconds >= 0 for record in caplog.records)  # type: ignore[attr-defined]
    assert SECRET not in repr([vars(record) for record in caplog.records])


def test_each_public_coroutine_of_a_service_is_measured() -> None:
    class Small(StoreService):
        async def ask(self) -> int:
            """Answers."""
            return 1

    assert Small.ask.__wrapped__.__name__ == "ask"  # type: ignore[attr-defined]
    assert Small.ask.__doc__ == "Answers."
    assert not hasattr(Small.health, "__wrapped__")


def test_services_work_without_opentelemetry() -> None:
    program = """
import asyncio, sys
sys.modules["opentelemetry"] = None
from versioned_state.services.agent_state import InMemoryStateService
async def main():
    async with InMemoryStateService() as service:
        return await service.save_state("u", {})
assert asyncio.run(main()) == 1
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
