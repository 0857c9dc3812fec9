"""``import versioned_state`` and a first commit load what they need, and no more."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from versioned_state import Disk, Versioned

UNUSED = """
    cloudpickle numpy pydantic cryptography click redis psycopg obstore diskcache
    ast asyncio concurrent.futures dataclasses inspect logging multiprocessing difflib hmac
    secrets pickletools socket subprocess tempfile unittest
    versioned_state.cli versioned_state.repository.inspect versioned_state.repository.maintenance
    versioned_state.repository.merging.merge versioned_state.repository.views.html versioned_state.repository.views.patch
    versioned_state.storage.redis versioned_state.storage.postgres versioned_state.storage.s3 versioned_state.storage.wrappers.encrypted
""".split()
"""What looks, merges, maintains, signs, unpickles or draws, and other stores: each is loaded by the call that needs it."""

FIRST_COMMIT = "from versioned_state import Versioned\nstate = Versioned()\nstate['messages'] = [{'role': 'user'}]\nstate.commit('first')\n"


def loaded(code: str) -> set[str]:
    """The modules that a fresh interpreter has after some code."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(json.loads(found.stdout.splitlines()[-1]))


@pytest.mark.parametrize(("code", "also"), [("import versioned_state", {"sqlite3", "blake3", "msgpack"}), (FIRST_COMMIT, {"sqlite3"})])
def test_nothing_is_loaded_that_a_first_commit_does_not_need(code, also):
    modules = loaded(code) - loaded("")
    assert "versioned_state" in modules
    assert not modules & {*UNUSED, *also}


LOG = """
import sys
from versioned_state.cli.main import main
sys.argv = ["vstate", "--store", {store!r}, "log"]
try:
    main()
except SystemExit:
    pass
"""


def test_a_command_loads_what_it_shows(tmp_path):
    with Disk(tmp_path / "store") as store, Versioned(store) as state:
        state["messages"] = []
        state.commit("first")
    modules = loaded(LOG.format(store=str(tmp_path / "store")))
    assert sorted(modules & {"dataclasses", "difflib", "subprocess", "pydantic", "versioned_state.repository.views.change"}) == []
    assert len([name for name in modules if name.startswith("versioned_state")]) <= 140


def test_the_names_are_all_there():
    modules = loaded("from versioned_state import *\nimport versioned_state\nversioned_state.open")
    assert "versioned_state.state.versioned" in modules
