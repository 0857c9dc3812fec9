"""`Postgres` on connections that are cut or silent, beyond what `test_server_loss.py` has for every server."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.support.servers.kinds import POSTGRES, Place, ServerKind
from tests.support.servers.proxy import Fault
from tests.support.waiting import eventually
from versioned_state.errors import UnknownOutcomeError


@pytest.fixture
def server_kind() -> ServerKind:
    return POSTGRES


@pytest.mark.parametrize("kind", ["cut request", "cut reply"])
def test_large_batch_is_repeated_until_it_comes_to_the_commit(
    place_behind_proxy: Place, kind: Literal["cut request", "cut reply"]
) -> None:
    proxy, direct, store = place_behind_proxy.proxy, place_behind_proxy.direct, place_behind_proxy.open(20)
    objects = {f"o/{number:02x}": bytes([number]) * 3_000_000 for number in range(3)}
    proxy.requests = 0
    assert store.apply({"ref": None}, {"ref": b"1"}, objects=objects)
    requests = proxy.requests
    assert requests == 5  # BEGIN, two portions, the rest, COMMIT
    outcomes: list[bool | None] = []
    for number in range(1, requests + 1):
        direct.delete_many(direct.keys())
        proxy.arm(Fault(kind, at=number))
        try:
            outcomes.append(store.apply({"ref": None}, {"ref": b"1"}, objects=objects))
        except UnknownOutcomeError:
            outcomes.append(None)
        direct.delete("o/none")  # which comes after all batches that are under way
        done = outcomes[-1] or kind == "cut reply"
        assert dict(direct.items()) == ({"ref": b"1", **objects} if done else {})
    assert proxy.fired == requests
    assert outcomes == [True] * (requests - 1) + [None]


@pytest.mark.parametrize("kind", ["hold request", "hold reply"])
def test_silence_ends_a_call(place_behind_proxy: Place, kind: Literal["hold request", "hold reply"]) -> None:
    proxy, direct, store = place_behind_proxy.proxy, place_behind_proxy.direct, place_behind_proxy.open(1)
    proxy.arm(Fault(kind))
    assert store.get("ref") is None  # on a second connection
    proxy.arm(Fault(kind))
    with pytest.raises(UnknownOutcomeError, match="no answer"):
        store.apply({"ref": None}, {"ref": b"1"})
    proxy.disarm()
    # It may be done even now, when the caller has been told that nobody knows.
    assert eventually(lambda: store.apply({"ref": direct.get("ref")}, {"ref": b"2"}))
