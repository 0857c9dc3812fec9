"""Fixtures of the server's tests."""

from __future__ import annotations

from tests.support.services.zygote import zygote  # noqa: F401 - a fixture
