"""Places over which the contract of each service is tested. The services of a test open one as often as they like."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.services.zygote import zygote  # noqa: F401 - a fixture
from versioned_state import KVStore, Memory
from versioned_state.storage import Postgres


@pytest.fixture(params=["memory", "disk"])
def local_place(request: pytest.FixtureRequest, tmp_path: Path) -> KVStore | str:
    """A store of this process, or the URL of one of this machine."""
    return Memory() if request.param == "memory" else f"disk:{tmp_path / 'store'}"


@pytest.fixture(params=["memory", "disk", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KVStore | str]:
    """As ``local_place``, or a store on a server."""
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        with Postgres(server.url, schema=server.fresh_schema()) as store:
            yield store
    else:
        yield Memory() if request.param == "memory" else f"disk:{tmp_path / 'store'}"
