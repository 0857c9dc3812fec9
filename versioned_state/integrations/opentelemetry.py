"""``RoundRecorder``: the spans of an instrumented program as rounds.

Needs the extra ``opentelemetry``. Layer: integrations.

The names are those of OpenTelemetry's semantic conventions for generative AI, version 1.37 and later, where a span has
its messages in attributes; and of what instrumentations did before: messages as events of the span, or as numbered
attributes (OpenLLMetry).
"""

from __future__ import annotations

import json
import logging
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import StatusCode, format_span_id, format_trace_id

from versioned_state.errors import StateError, StorageError
from versioned_state.integrations.frameworks import check_version
from versioned_state.integrations.rounds import Round, RoundLog

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from versioned_state.integrations.adapter import Place
    from versioned_state.repository.repository import Repository
    from versioned_state.state.versioned import Versioned

check_version("opentelemetry")

_log: Final = logging.getLogger(__name__)

_OPERATION: Final = "gen_ai.operation.name"
_CONVERSATION: Final = "gen_ai.conversation.id"
_AGENT: Final = "gen_ai.agent.name"
_INPUT: Final = "gen_ai.input.messages"
_OUTPUT: Final = "gen_ai.output.messages"
_SYSTEM: Final = "gen_ai.system_instructions"
_DETAILS: Final = "gen_ai.client.inference.operation.details"
_AGENT_CALLS: Final = ("invoke_agent", "invoke_workflow")

_META: Final = {
    "operation": (_OPERATION,),
    "agent": (_AGENT,),
    "provider": ("gen_ai.provider.name", "gen_ai.system"),
    "model": ("gen_ai.response.model", "gen_ai.request.model"),
    "tool": ("gen_ai.tool.name",),
    "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    "finish_reasons": ("gen_ai.response.finish_reasons",),
    "error": ("error.type",),
}
"""The meta of a commit, and the attributes of a span that it comes from, newest first."""

_EVENT: Final = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message|gen_ai\.choice")
_NUMBERED: Final = re.compile(r"gen_ai\.(prompt|completion)\.(\d+)\.(.+)")

_OPEN_SPANS: Final = 65_536
"""The spans whose descendants are still told what they belong to.

A program that never ends its spans must not fill the memory.
"""


@dataclass(frozen=True, slots=True)
class _Ancestry:
    """A span that is not over, and the one around it."""

    span: ReadableSpan
    parent: _Ancestry | None

    def line(self) -> Iterator[Mapping[str, Any]]:
        """Yield the attributes of the span, as they are now, and of those around it, innermost first."""
        at: _Ancestry | None = self
        while at is not None:
            yield at.span.attributes or {}
            at = at.parent


class RoundRecorder(SpanProcessor):  # type: ignore[misc] # its types are not read here
    """Records calls of models, tools and agents of an instrumented program, each a commit on its conversation's branch.

    ::

        from opentelemetry.sdk.trace import TracerProvider
        from versioned_state.integrations.opentelemetry import RoundRecorder

        provider = TracerProvider()
        provider.add_span_processor(RoundRecorder("./agent-state"))

    Messages are recorded where the instrumentation puts them into its spans, which many do only when told to. A span
    without ``gen_ai.conversation.id``, in itself or around it, belongs to a conversation named after its trace. The
    program does not wait: a thread of ``BatchSpanProcessor`` records, and its environment variables (``OTEL_BSP_…``)
    and bounds apply. If the store fails, these spans are lost, and the log says so.

    Args:
        place: a state: all rounds go to its branch, in its namespace ``rounds``. Or a repository, a store or a URL:
            each conversation gets a branch under ``opentelemetry/``.
        content: whether to record messages, arguments and results; otherwise only who was called, for how long, and how
            it ended.
    """

    def __init__(self, place: Versioned | Place, *, content: bool = True) -> None:
        self._log = RoundLog(place, "opentelemetry")
        self._spans = _Exporter(self._log, content=content)
        self._batches = BatchSpanProcessor(self._spans)

    @property
    def repository(self) -> Repository:
        """The repository that has the rounds."""
        return self._log.repository

    def branch(self, conversation: str) -> str:
        """Return the name of the branch of a conversation."""
        return self._log.branch(conversation)

    # As a span processor

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Remember what the span belongs to."""
        self._spans.began(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Hand the span to the thread that records."""
        if self._spans.ended(span):
            self._batches.on_end(span)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Record all spans that have ended. Returns whether that was done in time."""
        return bool(self._batches.force_flush(timeout_millis))

    def shutdown(self) -> None:
        """Record all spans that have ended, end the thread, and close the store if it was opened here."""
        self._batches.shutdown()
        self._log.close()


class _Exporter(SpanExporter):  # type: ignore[misc] # likewise
    """Makes rounds of spans."""

    def __init__(self, log: RoundLog, *, content: bool) -> None:
        self._rounds = log
        self._content = content
        self._guard = Lock()
        self._open: OrderedDict[tuple[int, int], _Ancestry] = OrderedDict()
        self._lines: dict[tuple[int, int], list[Mapping[str, Any]]] = {}

    def began(self, span: ReadableSpan) -> None:
        parent = span.parent
        with self._guard:
            around = None if parent is None else self._open.get((parent.trace_id, parent.span_id))
            self._open[_key(span)] = _Ancestry(span, around)
            if len(self._open) > _OPEN_SPANS:
                self._open.popitem(last=False)

    def ended(self, span: ReadableSpan) -> bool:
        """Return whether the span is one to record."""
        with self._guard:
            at = self._open.pop(_key(span), None)
            if not _is_round(span.attributes or {}):
                return False
            # As they are now: the spans around it may have ended before it is recorded.
            self._lines[_key(span)] = [dict(each) for each in (_Ancestry(span, None) if at is None else at).line()]
        return True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        lost, failure = 0, None
        for span in spans:
            with self._guard:
                line = self._lines.pop(_key(span), [dict(span.attributes or {})])
            if not isinstance(failure, StorageError):  # each of the others would wait for the store, too
                try:
                    self._rounds.record(_round(span, line, content=self._content))
                    continue
                except StateError as error:
                    failure = error
            lost += 1
        if failure is None:
            return SpanExportResult.SUCCESS
        _log.warning("%d of %d spans were not recorded: %s", lost, len(spans), failure)
        return SpanExportResult.FAILURE


def _key(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    return (0, 0) if context is None else (context.trace_id, context.span_id)


def _is_round(attributes: Mapping[str, Any]) -> bool:
    return _OPERATION in attributes or "gen_ai.request.model" in attributes


def _round(span: ReadableSpan, line: list[Mapping[str, Any]], *, content: bool) -> Round:
    own = line[0]
    trace, id = _key(span)
    conversation = next((str(each[_CONVERSATION]) for each in line if _CONVERSATION in each), None) or format_trace_id(
        trace
    )
    within = takewhile(lambda each: str(each.get(_CONVERSATION, conversation)) == conversation, line)
    called = [str(each.get(_AGENT, "")) for each in within if each.get(_OPERATION) in _AGENT_CALLS][::-1]
    agents = tuple(filter(None, called[1:]))
    meta: dict[str, Any] = {}
    for name, keys in _META.items():
        if found := [own[key] for key in keys if key in own]:
            meta[name] = _plain(found[0])
    meta.setdefault(
        "outcome", "failure" if span.status.status_code is StatusCode.ERROR or "error" in meta else "success"
    )
    if span.start_time is not None and span.end_time is not None:
        meta["seconds"] = (span.end_time - span.start_time) / 1e9
    meta |= {"trace": format_trace_id(trace), "span": format_span_id(id)}
    if span.parent is not None:
        meta["parent"] = format_span_id(span.parent.span_id)
    inputs: list[Any] | None = None
    outputs: list[Any] = []
    system, tool = None, None
    operation = own.get(_OPERATION)
    if content and operation == "execute_tool":
        tool = _tool_call(own, span)
    elif content and operation not in _AGENT_CALLS:  # their messages are those of the calls within
        inputs, outputs, system = _messages(span, own)
    return Round(conversation, span.name, agents, inputs, outputs, system, tool, meta)


def _tool_call(own: Mapping[str, Any], span: ReadableSpan) -> dict[str, Any]:
    found = {name: own.get(f"gen_ai.tool.{key}") for name, key in (("name", "name"), ("id", "call.id"))}
    found |= {name: _data(own.get(f"gen_ai.tool.call.{name}")) for name in ("arguments", "result")}
    if span.status.status_code is StatusCode.ERROR:
        found["error"] = span.status.description or own.get("error.type")
    return {name: value for name, value in found.items() if value is not None}


def _messages(span: ReadableSpan, own: Mapping[str, Any]) -> tuple[list[Any] | None, list[Any], Any]:
    """Return what went into a model, what came out, and its instructions, wherever the instrumentation has put them."""
    events = [(event.name, event.attributes or {}) for event in span.events]
    for source in (own, *(attributes for name, attributes in events if name == _DETAILS)):
        if _INPUT in source or _OUTPUT in source:
            inputs = _data(source.get(_INPUT))
            return (
                inputs if isinstance(inputs, list) else None,
                _as_list(_data(source.get(_OUTPUT))),
                _data(source.get(_SYSTEM)),
            )
    named = [(match, attributes) for name, attributes in events if (match := _EVENT.fullmatch(name))]
    if named:
        given = [{"role": match[1], **_fields(attributes)} for match, attributes in named if match[1]]
        chosen = [{"role": "assistant", **_fields(attributes)} for match, attributes in named if not match[1]]
        return given, chosen, None
    numbered: dict[str, dict[int, dict[str, Any]]] = {"prompt": {}, "completion": {}}
    for key, value in own.items():
        if match := _NUMBERED.fullmatch(key):
            numbered[match[1]].setdefault(int(match[2]), {})[match[3]] = _plain(value)
    given, chosen = ([found[number] for number in sorted(found)] for found in numbered.values())
    return given or None, chosen, None


def _fields(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _data(value) for key, value in attributes.items() if key not in ("gen_ai.system", "gen_ai.provider.name")
    }


def _data(value: Any) -> Any:
    """Read an attribute that is JSON in a text, as spans have it, or a value as it is."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(each) for each in value]
    return value


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
