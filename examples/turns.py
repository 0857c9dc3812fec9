"""A chat with tools: state, messages, memory and files of a session change together, and are taken back together.

python examples/turns.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from versioned_state.services import SessionService
from versioned_state.services.session import VersionedSessionService


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def add_stop(plan: dict[str, Any], city: str) -> str:
    """A tool: it changes the plan in place."""
    plan["stops"].append(city)
    return f"{city} is stop {len(plan['stops'])}."


def model(question: str) -> tuple[str, str] | None:
    """A model goes here; this one calls the tool for each city that it knows."""
    known = [city for city in ("Rome", "Oslo", "Atlantis") if city in question]
    return ("add_stop", known[0]) if known else None


async def answer(service: VersionedSessionService, user: str, session: str, question: str, folder: Path) -> str:
    """One turn: if anything in it fails, nothing of it is kept."""
    async with service.turn(user, session, workspace=folder) as turn:
        turn.append(said("user", question))
        plan = turn.state.setdefault("plan", {"stops": []})
        call = model(question)
        reply = add_stop(plan, call[1]) if call else "Tell me more."
        (folder / "plan.txt").write_text("\n".join(plan["stops"]))
        if call and call[1] == "Atlantis":
            raise LookupError("there are no flights to Atlantis")
        turn.append(said("assistant", reply))
        turn.remember(said("user", question))
    return reply


async def main(folder: Path) -> None:
    async with SessionService.over(f"disk:{folder / 'store'}") as service:
        files = folder / "files"
        files.mkdir()
        for question in ("I want to see Rome.", "Then Atlantis!", "Then Oslo."):
            try:
                print(f"> {question}\n{await answer(service, 'alice', 'trip', question, files)}")
            except LookupError as error:
                print(f"(nothing was kept: {error})")
        print((files / "plan.txt").read_text().split())

        other = await service.fork("alice", "trip")
        await service.undo("alice", "trip")
        for session in ("trip", other):
            history = await service.history.get_session("alice", session)
            state = await service.state.export_state("alice", session)
            assert history is not None
            assert state is not None
            print(
                f"{len(history.messages)} messages, {len(await service.log('alice', session))} turns, "
                f"plan {state['plan']['stops']}"
            )
        found = await service.memory.search_memory("alice", [said("user", "Oslo")])
        print(f"the other session remembers: {found[0].get_text_content()}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
