"""A state, and a workspace of it in a folder of the test's own."""

import pytest

from versioned_state import Memory, Versioned, Workspace


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "project"


@pytest.fixture
def state():
    return Versioned(Memory())


@pytest.fixture
def workspace(state, folder):
    return Workspace(state, folder)
