"""Threads of LangGraph: their checkpoints, and several writers of one thread, for tests of many processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from versioned_state.integrations.langgraph import VersionedSaver


def config(thread: str = "1", id: str | None = None, namespace: str = "") -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace} | ({"checkpoint_id": id} if id else {})}


def put(
    saver: VersionedSaver, onto: Any, values: Mapping[str, Any] | None = None, id: str | None = None, **metadata: Any
) -> Any:
    """Put a checkpoint with these values, and return its configuration."""
    checkpoint: Any = {**empty_checkpoint(), "id": id or str(uuid6(clock_seq=-1)), "channel_values": values or {}}
    checkpoint["channel_versions"] = dict.fromkeys(values or {}, 1)
    return saver.put(onto, checkpoint, {"source": "loop", "step": 0, **metadata}, {})


def put_step(saver: VersionedSaver, onto: Any, name: str, steps: int) -> Any:
    """Put the next checkpoint of a writer after those that it has made, and a write for it."""
    at = put(saver, onto, {"by": name, "steps": list(range(steps))}, step=steps)
    saver.put_writes(at, [("by", name)], name)
    return at


def put_steps(saver: VersionedSaver, name: str, count: int) -> None:
    """Put a number of checkpoints of a writer, each onto the one before."""
    at = config()
    for steps in range(1, count + 1):
        at = put_step(saver, at, name, steps)


def check_steps(saver: VersionedSaver, done: Mapping[str, int], *, killed: bool = False) -> None:
    """Each writer's acknowledged checkpoints are there, each onto its own one before, and with its own write only."""
    found = list(saver.list(config()))
    ids = [each.checkpoint["id"] for each in found]
    assert ids == sorted(set(ids), reverse=True)
    for name, count in done.items():
        own = [each for each in found if each.checkpoint["channel_values"]["by"] == name]
        lengths = [len(each.checkpoint["channel_values"]["steps"]) for each in own]
        assert lengths == list(range(len(own), 0, -1))
        assert count <= len(own) <= count + killed  # the last one may have been put, and not acknowledged
        for at, (each, before) in enumerate(zip(own, [*own[1:], None], strict=True)):
            assert each.parent_config == (None if before is None else before.config)
            assert each.pending_writes == [(name, "by", name)] or (killed and at == 0 and not each.pending_writes)
    assert {each.checkpoint["channel_values"]["by"] for each in found} == set(done)
