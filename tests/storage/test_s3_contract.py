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
    def _server(self, s3_server: S3Server) -> None:
        self.server = s3_server

    def open_store(self, place: Path) -> KVStore:
        return self.server.open(f"{place.parent.name}/{place.name}")
