"""An import and a first commit load only what they need: counted in modules, which a busy machine does not change."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from versioned_state import Disk, Versioned
from versioned_state.lazy import made_once

UNUSED = """
    cloudpickle numpy pydantic cryptography click redis psycopg obstore diskcache
    ast asyncio concurrent.futures dataclasses inspect logging multiprocessing difflib hmac
    secrets pickletools socket subprocess tempfile unittest
    versioned_state.cli versioned_state.repository.inspect versioned_state.repository.maintenance
    versioned_state.repository.merging.merge versioned_state.repository.shown.notebook
    versioned_state.repository.views.patch versioned_state.storage.redis versioned_state.storage.postgres
    versioned_state.storage.s3 versioned_state.storage.wrappers.encrypted
""".split()
"""What looks, merges, maintains, signs, unpickles or draws, and other stores: the call that needs one loads it."""

LATER = """
    random versioned_state.repository.history.reach versioned_state.repository.merging.policies
    versioned_state.repository.names.branches versioned_state.repository.names.listing
    versioned_state.repository.names.mapping versioned_state.repository.names.resolve
    versioned_state.repository.names.syntax versioned_state.repository.names.tags versioned_state.repository.names.times
    versioned_state.repository.refs.named_records versioned_state.repository.refs.notes
    versioned_state.repository.refs.reupload versioned_state.repository.views.sequence
    versioned_state.state.branch.summary versioned_state.state.sequence versioned_state.values.series
    versioned_state.values.typed.why zstandard
""".split()
"""What resolves names, lists refs, notes, secures what a sweep may have taken, or compresses: a later commit may."""

FIRST_COMMIT = (
    "from versioned_state import Versioned\nstate = Versioned()\n"
    "state['messages'] = [{'role': 'user'}]\nstate.commit('first')\n"
)


def loaded(code: str) -> set[str]:
    """The modules that a fresh interpreter has after some code."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(json.loads(found.stdout.splitlines()[-1]))


ENGINE: set[str] = set(
    """
    blake3 decimal hashlib json pickletools random uuid xxhash zoneinfo zstandard
    versioned_state.objects versioned_state.repository.repository versioned_state.repository.history
    versioned_state.repository.names versioned_state.state.branch.branch_handle versioned_state.state.worktree
    versioned_state.values.decode versioned_state.values.encode versioned_state.values.detection
    versioned_state.values.trees versioned_state.values.typed
    """.split()
)
"""What the first state loads, and the import of its class does not."""


@pytest.mark.parametrize(
    ("code", "also", "most"),
    [
        ("import versioned_state", {"sqlite3", "msgpack"} | ENGINE, 2),
        ("from versioned_state import Versioned, Disk", ENGINE, 41),
        (FIRST_COMMIT, {"sqlite3", *LATER}, 125),
    ],
)
def test_nothing_is_loaded_that_is_not_needed(code, also, most):
    modules = loaded(code) - loaded("")
    assert "versioned_state" in modules
    assert sorted(modules & {*UNUSED, *also}) == []
    assert len([name for name in modules if name.startswith("versioned_state.")]) <= most


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
    assert (
        sorted(
            modules & {"dataclasses", "difflib", "subprocess", "pydantic", "versioned_state.repository.views.change"}
        )
        == []
    )
    assert len([name for name in modules if name.startswith("versioned_state.")]) <= 140


def test_the_names_are_all_there():
    modules = loaded("from versioned_state import *\nimport versioned_state\nversioned_state.open")
    assert "versioned_state.state.versioned" in modules


FIRST_USES = """
import threading
from versioned_state import Repository, Versioned
repository = Repository()
state = Versioned(repository.store)
state["text"] = "some words, and some words again. " * 100
first = state.commit("first")
ready, found, failed = threading.Barrier(8), [], []
def use(number):
    name = f"branch-{number}"
    try:
        ready.wait()
        repository.branches.create(name, first)
        repository.tags.create(name, first)
        repository.records[name] = {"number": number}
        mine = Versioned(repository.store, branch=name)
        mine["text"] = f"other words of {number}. " * 100
        mine.sequence("list").append(number)
        repository.notes[mine.commit()] = {"number": number}
        found.append((mine["text"][:16], repository.commit(name) == mine.head))
    except BaseException as error:
        failed.append(repr(error))
threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failed, failed
assert len(found) == 8 and all(good for _, good in found)
names = {f"branch-{number}" for number in range(8)}
assert set(repository.branches) == names | {"main"}
assert set(repository.tags) == set(repository.records) == names
assert len(repository.notes) == 8
"""


def test_threads_may_meet_at_the_first_use_of_what_is_loaded_later():
    assert "versioned_state.repository.names.branches" in loaded(FIRST_USES)


def test_threads_that_meet_at_the_first_use_of_an_attribute_get_one_object():
    meeting = Barrier(2)

    class Owner:
        @made_once
        def part(self) -> object:
            meeting.wait(20)
            return object()

    owner = Owner()
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: owner.part, range(2))
    assert first is second is owner.part
