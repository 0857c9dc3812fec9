"""Fixtures of the storage tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path) -> str:
    """The prefix of a store in a bucket that no other test has."""
    return f"{tmp_path.parent.name}/{tmp_path.name}"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach, which those of `tmp_path` are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
