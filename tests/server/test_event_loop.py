"""The event loop of a server: no large body holds it up."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.support.services.sent import client_of, running
from versioned_state.server.limits import Limits
from versioned_state.services.remote import bodies


async def test_large_bodies_are_read_and_written_off_the_loop(monkeypatch: pytest.MonkeyPatch):
    threads: list[threading.Thread] = []

    def watch(name: str) -> None:
        function = getattr(bodies, name)

        def watched(*args: Any, **options: Any) -> Any:
            threads.append(threading.current_thread())
            return function(*args, **options)

        monkeypatch.setattr(bodies, name, watched)

    for name in ("decode_json", "encode_json", "decode", "encode"):
        watch(name)
    async with running(Limits()) as (_, app), client_of(app) as client:
        for state, is_on_the_loop in [
            ({"a": [1, {"b": "x"}]}, True),
            ({"a": "x" * 100_000}, False),
            ({"a": [[]] * 70_000}, False),
            ({str(number): {"n": number} for number in range(8_000)}, False),
        ]:
            for kind, content in ((bodies.JSON, bodies.encode_json(state)), (bodies.NATIVE, bodies.encode(state))):
                threads.clear()
                saved = await client.post("/v1/state", content=content, headers={"Content-Type": kind, "Accept": kind})
                assert saved.status_code == 200
                assert (threads[0] is threading.current_thread()) is is_on_the_loop
                threads.clear()
                found = await client.get("/v1/state", headers={"Accept": kind})
                assert found.status_code == 200
                assert [each is threading.current_thread() for each in threads] == [is_on_the_loop]
