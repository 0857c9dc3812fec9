"""`S3` keeps the promises of `KVStore`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.servers.s3 import S3Server
from versioned_state.storage import KVStore
from versioned_state.storage.testing.contract import KVStoreContract


class TestS3(KVStoreContract):
    persistent = True
    shared = True

    @pytest.fixture(autouse=True)
    def _server(self, s3_server: S3Server, *, long_run: bool) -> None:
        self.server = s3_server
        self.races = 10 if long_run else 3  # each takes a second, in which one writer waits for the other

    def open_store(self, place: Path) -> KVStore:
        return self.server.open(f"{place.parent.name}/{place.name}")
