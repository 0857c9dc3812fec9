"""``RoundCallback``: the model and tool calls of a LangChain program as rounds.

Needs the extra ``langchain``. Layer: integrations.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage

from versioned_state.errors import StateError
from versioned_state.integrations.frameworks import check_version
from versioned_state.integrations.rounds import Round, RoundLog

if TYPE_CHECKING:
    from uuid import UUID

    from langchain_core.outputs import LLMResult

    from versioned_state.integrations.adapter import Place
    from versioned_state.repository.repository import Repository
    from versioned_state.state.versioned import Versioned

check_version("langchain")

_log: Final = logging.getLogger(__name__)

_CONVERSATION: Final = ("thread_id", "conversation_id", "session_id")
_ROLES: Final = {"human": "user", "ai": "assistant"}
_OPEN_RUNS: Final = 65_536
"""The runs that have not ended. A program that drops its runs must not fill the memory."""


@dataclass(slots=True)
class _Run:
    """A run that has not ended.

    Attributes:
        name: what runs: a model, a tool, a chain.
        conversation: by the metadata of the run, or of one around it; else the id of the outermost run.
        inputs: the messages that went into a model, or the arguments of a tool.
    """

    name: str
    conversation: str
    began: float = field(default_factory=perf_counter)
    inputs: Any = None


class RoundCallback(BaseCallbackHandler):  # type: ignore[misc] # its types are not read here
    """Records the calls of models and tools of a LangChain program: each is a commit on the branch of its conversation.

    ::

        from versioned_state.integrations.langchain import RoundCallback

        chain.invoke(question, config={"callbacks": [RoundCallback("./agent-state")], "metadata": {"thread_id": "t1"}})

    The conversation is named by ``thread_id``, ``conversation_id`` or ``session_id`` in the metadata of a run, or of
    one around it; else by the id of the outermost run. A round is committed before the program continues. If the
    program runs in an event loop, LangChain calls this on a thread. If the store fails, the round is lost, the log says
    so, and the program continues.

    Args:
        place: a state: all rounds go to its branch, in its namespace ``rounds``. Or a repository, a store or a URL:
            each conversation gets a branch under ``langchain/``.
        content: whether to record messages, arguments and results; otherwise only who was called, for how long, and how
            it ended.
    """

    def __init__(self, place: Versioned | Place, *, content: bool = True) -> None:
        super().__init__()
        self._rounds = RoundLog(place, "langchain")
        self._content = content
        self._guard = Lock()
        self._open: OrderedDict[UUID, _Run] = OrderedDict()

    @property
    def repository(self) -> Repository:
        """The repository that has the rounds."""
        return self._rounds.repository

    def branch(self, conversation: str) -> str:
        """Return the name of the branch of a conversation."""
        return self._rounds.branch(conversation)

    def close(self) -> None:
        """Close the store, if it was opened here."""
        self._rounds.close()

    # What LangChain calls. The runs of chains only say what the others belong to.

    def on_chain_start(self, serialized: Any, inputs: Any, **run: Any) -> None:
        """Remember a run."""
        self._begin(serialized, None, run)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **_: Any) -> None:
        """Forget a run."""
        self._end(run_id)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Forget a run."""
        self._end(run_id)

    def on_chat_model_start(self, serialized: Any, messages: list[list[BaseMessage]], **run: Any) -> None:
        """Remember what goes into a model."""
        self._begin(serialized, [_message(each) for each in messages[0]] if messages else [], run)

    def on_llm_start(self, serialized: Any, prompts: list[str], **run: Any) -> None:
        """Remember what goes into a model."""
        self._begin(serialized, [{"role": "user", "content": each} for each in prompts], run)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """Record a call of a model."""
        run = self._end(run_id)
        if run is None:
            return
        given = [generation for generations in response.generations for generation in generations]
        outputs = [
            _message(each.message) if hasattr(each, "message") else {"role": "assistant", "content": each.text}
            for each in given
        ]
        usage = getattr(given[0].message, "usage_metadata", None) if given and hasattr(given[0], "message") else None
        tokens = {name: usage[name] for name in ("input_tokens", "output_tokens")} if usage else {}
        self._record(run, "chat", tokens, inputs=run.inputs, outputs=outputs)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Record a call of a model that failed."""
        run = self._end(run_id)
        if run is not None:
            self._record(run, "chat", _failure(error), inputs=run.inputs)

    def on_tool_start(
        self, serialized: Any, input_str: str, *, inputs: dict[str, Any] | None = None, **run: Any
    ) -> None:
        """Remember the arguments of a tool."""
        self._begin(serialized, input_str if inputs is None else inputs, run)

    def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
        """Record a call of a tool."""
        run = self._end(run_id)
        if run is not None:
            result = _message(output) if isinstance(output, BaseMessage) else output
            id = {"id": output.tool_call_id} if getattr(output, "tool_call_id", None) else {}
            self._record(
                run, "execute_tool", {}, tool={"name": run.name, **id, "arguments": run.inputs, "result": result}
            )

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Record a call of a tool that failed."""
        run = self._end(run_id)
        if run is not None:
            self._record(
                run,
                "execute_tool",
                _failure(error),
                tool={"name": run.name, "arguments": run.inputs, "error": repr(error)},
            )

    # Parts

    def _begin(self, serialized: Any, inputs: Any, run: dict[str, Any]) -> None:
        id, parent, metadata = run["run_id"], run.get("parent_run_id"), run.get("metadata") or {}
        name = run.get("name") or (serialized or {}).get("name") or "run"
        with self._guard:
            around = None if parent is None else self._open.get(parent)
            found = next((str(metadata[key]) for key in _CONVERSATION if metadata.get(key)), None)
            self._open[id] = _Run(
                name, found or (str(parent or id) if around is None else around.conversation), inputs=inputs
            )
            if len(self._open) > _OPEN_RUNS:
                self._open.popitem(last=False)

    def _end(self, id: UUID) -> _Run | None:
        with self._guard:
            return self._open.pop(id, None)

    def _record(
        self,
        run: _Run,
        operation: str,
        meta: dict[str, Any],
        *,
        tool: Any = None,
        inputs: Any = None,
        outputs: Any = (),
    ) -> None:
        seconds = perf_counter() - run.began
        meta = {"operation": operation, "outcome": "success", "seconds": seconds, **meta}
        if not self._content:
            tool, inputs, outputs = None, None, ()
        step = Round(run.conversation, f"{operation} {run.name}", inputs=inputs, outputs=outputs, tool=tool, meta=meta)
        try:
            self._rounds.record(step)
        except StateError as error:
            _log.warning("a round was not recorded: %s", error)


def _failure(error: BaseException) -> dict[str, Any]:
    return {"outcome": "failure", "error": type(error).__name__}


def _message(message: BaseMessage) -> dict[str, Any]:
    """Return a message as data: its role, its content, and its other fields that have a value."""
    fields = message.model_dump(exclude_defaults=True, exclude={"type", "content", "response_metadata"})
    return {"role": _ROLES.get(message.type, message.type), "content": message.content, **fields}
