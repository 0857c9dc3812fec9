"""Spans, metrics and logs of the calls of services, without any value, key or id of a user. Layer: services.

They go to OpenTelemetry's API if it is installed, and from there to the SDK that the program sets up:

=======================================  ===============================================================
``<service>.<call>``                     a span; its status is that of the call
``versioned_state.service.duration``     a histogram of seconds, by service, call and outcome;
                                         its count is the number of calls
``versioned_state.service.active``       the calls that were accepted and have not ended, whether they wait or run
=======================================  ===============================================================

An outcome is ``ok``, ``cancelled``, or the name of the error's class. The logger ``versioned_state.services`` has a
record for each call, at the level DEBUG, or WARNING if the call failed; ``service``, ``call``, ``outcome`` and
``seconds`` are its attributes.
"""

from __future__ import annotations

import inspect
import logging
from asyncio import CancelledError
from collections.abc import Callable, Coroutine
from functools import cache, wraps
from time import perf_counter
from types import TracebackType
from typing import Any, Final, NamedTuple

logger: Final = logging.getLogger("versioned_state.services")
# in a program that configures no logging, Python would write warnings to stderr
logger.addHandler(logging.NullHandler())

_API: Final = ("opentelemetry.trace", "opentelemetry.metrics")

_NOT_MEASURED: Final = frozenset({"start", "stop", "health"})


class _Instruments(NamedTuple):
    """The instruments of OpenTelemetry."""

    tracer: Any
    duration: Any
    active: Any
    failed: Any
    """Makes the status of a call that failed."""
    providers: tuple[Callable[[], object], ...]
    """The providers of the program's SDK, or those of the API, which do nothing."""

    @property
    def are_in_use(self) -> bool:
        """Whether the program has set up an SDK."""
        return any(not type(provider()).__module__.startswith(_API) for provider in self.providers)


@cache
def _instruments() -> _Instruments | None:
    """Return the instruments, or None if OpenTelemetry is not installed."""
    try:
        from opentelemetry import metrics, trace
    except ImportError:
        return None
    meter = metrics.get_meter("versioned_state")
    return _Instruments(
        trace.get_tracer("versioned_state"),
        meter.create_histogram(
            "versioned_state.service.duration", "s", "seconds that calls took, from acceptance to the end"
        ),
        meter.create_up_down_counter(
            "versioned_state.service.active", "{call}", "calls that were accepted and have not ended"
        ),
        lambda outcome: trace.Status(trace.StatusCode.ERROR, outcome),
        (trace.get_tracer_provider, metrics.get_meter_provider),
    )


class Measured:
    """A ``with`` block that measures one call."""

    __slots__ = ("_attributes", "_began", "_call", "_instruments", "_service", "_span", "_within")

    def __init__(self, service: str, call: str) -> None:
        self._service = service
        self._call = call
        found = _instruments()
        self._instruments = found if found is not None and found.are_in_use else None

    def __enter__(self) -> None:
        self._began = perf_counter()
        found = self._instruments
        if found is not None:
            self._attributes = {"versioned_state.service": self._service, "versioned_state.call": self._call}
            found.active.add(1, self._attributes)
            # The message of an exception may contain values, so it is not recorded.
            self._within = found.tracer.start_as_current_span(
                f"{self._service}.{self._call}",
                attributes=self._attributes,
                record_exception=False,
                set_status_on_exception=False,
            )
            self._span = self._within.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        outcome = "ok" if kind is None else "cancelled" if issubclass(kind, CancelledError) else kind.__name__
        seconds = perf_counter() - self._began
        found = self._instruments
        if found is not None:
            if outcome not in ("ok", "cancelled"):
                self._span.set_status(found.failed(outcome))
            self._span.set_attribute("versioned_state.outcome", outcome)
            self._within.__exit__(None, None, None)
            found.active.add(-1, self._attributes)
            found.duration.record(seconds, {**self._attributes, "versioned_state.outcome": outcome})
        level = logging.DEBUG if outcome in ("ok", "cancelled") else logging.WARNING
        if logger.isEnabledFor(level):
            more = {"service": self._service, "call": self._call, "outcome": outcome, "seconds": seconds}
            logger.log(level, "%s.%s: %s in %.6f s", self._service, self._call, outcome, seconds, extra=more)


def measure_calls(service: type) -> None:
    """Measure each public coroutine that a class of services defines, except those of its life cycle."""
    for name, function in list(vars(service).items()):
        if not name.startswith("_") and name not in _NOT_MEASURED and inspect.iscoroutinefunction(function):
            setattr(service, name, _measured(name, function))


def _measured(name: str, function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    @wraps(function)
    async def call(self: object, *args: Any, **kwargs: Any) -> Any:
        with Measured(type(self).__name__, name):
            return await function(self, *args, **kwargs)

    return call
