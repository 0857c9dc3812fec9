"""A thread of LangGraph to which several writers put checkpoints, for tests of many processes."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from versioned_state.integrations.langgraph import VersionedSaver

THREAD: dict[str, Any] = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


def put(saver: VersionedSaver, onto: Any, name: str, steps: int) -> Any:
    """Put a checkpoint of a writer, and a write for it."""
    checkpoint: Any = {
        **empty_checkpoint(),
        "id": str(uuid6(clock_seq=-1)),
        "channel_values": {"by": name, "steps": list(range(steps))},
    }
    at = saver.put(onto, checkpoint, {"source": "loop", "step": steps}, {})
    saver.put_writes(at, [("by", name)], name)
    return at
