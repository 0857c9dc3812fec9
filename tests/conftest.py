"""Shared by all tests: the everyday and the long run, Hypothesis profiles, conversations, and skips that fail.

A test that is a coroutine function runs in an event loop of its own.

Fixtures: ``real_conversations``, ``long_run``, ``without_collector``, ``small_tree_nodes``, ``earlier_leaves``, and the
servers.
Options: ``--long``, ``--no-skips``, ``--oracle-seed``, ``--oracle-share``. Markers: ``long``, ``every_case``,
``browser``, ``no_oracle``. With ``VERSIONED_STATE_CHECK=1``, as in ``scripts/test``, the oracle checks the commits of
all tests.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from benchmarks import data
from tests.support import chromium
from tests.support.canonical_form import EARLIER_LEAVES
from tests.support.dice import CI
from tests.support.oracle_plugin import OraclePlugin
from tests.support.registrations import forgotten
from tests.support.servers.kinds import place_behind_proxy, server_kind  # noqa: F401 - fixtures
from tests.support.servers.postgres import postgres_server  # noqa: F401 - a fixture
from tests.support.servers.redis import redis_server  # noqa: F401 - a fixture
from tests.support.servers.s3 import s3_server  # noqa: F401 - a fixture
from tests.support.small_nodes import small_nodes
from versioned_state.values import accelerator

# Compiled modules are kept even if the environment says otherwise. Each run would rewrite the asserts of all tests
# again, and each process that a test starts would compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Time limits of single examples say more about the machine than about the code. In CI the examples are the same in
# every run, so that a change is not blamed for what another one did; elsewhere each run looks at new ones.
settings.register_profile(
    "everyday",
    deadline=None,
    max_examples=15,
    stateful_step_count=30,
    derandomize=CI,
    print_blob=True,
)
settings.register_profile(
    "long",
    deadline=None,
    max_examples=1_000,
    stateful_step_count=500,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


MOST_CASES: Final = 5
"""The cases of one test that an everyday run of the whole suite takes, evenly spaced.

All run if a path is named, and in the long run.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("versioned-state")
    group.addoption("--long", action="store_true", help="the long run: tests marked long too, and many more examples")
    group.addoption("--oracle-seed", type=int, help="which commits the oracle checks: the seed of an earlier run")
    group.addoption("--oracle-share", type=float, help="how many of those it checks, 0 to 1; all in the long run")
    group.addoption(
        "--no-skips", action="store_true", help="fail when a test was skipped, for example for want of a server"
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("long" if config.getoption("--long") else "everyday")
    config.pluginmanager.register(OraclePlugin(config, wanted=os.environ.get("VERSIONED_STATE_CHECK") == "1"), "oracle")


def pytest_report_header(config: pytest.Config) -> list[str]:
    run = "long" if config.getoption("--long") else "everyday"
    return [
        f"run: {run}" + (f", {MOST_CASES} cases of a test at most" if _is_sampled(config) else ""),
        f"accelerator: {accelerator.status}",
        f"chromium: {chromium.find() or f'none, and without it the tests in a browser do not run: {chromium.HOW}'}",
    ]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the choice to a worker of xdist, which gets the paths of a whole run as if they had been named."""
    node.workerinput["sampled"] = _is_sampled(node.config)


def _is_sampled(config: pytest.Config) -> bool:
    """Whether a test with many cases runs some of them: in an everyday run of the whole suite."""
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    if workerinput is not None:
        return bool(workerinput["sampled"])
    return not config.getoption("--long") and config.args_source is not pytest.Config.ArgsSource.ARGS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if chromium.find() is None and not CI:
        in_browser = [item for item in items if item.get_closest_marker("browser")]
        config.hook.pytest_deselected(items=in_browser)
        items[:] = [item for item in items if not item.get_closest_marker("browser")]
    if config.getoption("--long"):
        return
    cases: dict[str, list[pytest.Item]] = {}
    left_out: set[pytest.Item] = set()
    for item in items:
        if item.get_closest_marker("long"):
            left_out.add(item)
        elif _is_sampled(config) and not item.get_closest_marker("every_case"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for each in cases.values():
        if len(each) > MOST_CASES:
            left_out.update(set(each) - {each[number * len(each) // MOST_CASES] for number in range(MOST_CASES)})
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function, in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in arguments}))
    return True


def pytest_collection_finish() -> None:
    # The half million objects of the collected tests stay to the end: without this, every collection would look at all
    # of them.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _forbidden_skips(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if skipped := _forbidden_skips(config):
        terminalreporter.write_line(
            f"FAILED: {skipped} skipped, and --no-skips allows none; the reasons are below", red=True
        )


def _forbidden_skips(config: pytest.Config) -> int:
    """Return the number of forbidden skips. It is 0 in the workers of xdist, which report to the main process."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not config.getoption("--no-skips"):
        return 0
    return len(reporter.stats.get("skipped", []))


@pytest.fixture(autouse=True)
def _registrations() -> Iterator[None]:
    """The types that a test registers are forgotten at its end, so that no test depends on the order of the files."""
    with forgotten():
        yield


@pytest.fixture(autouse=True)
def _garbage(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test leaves that warns as it is collected is collected where the test's own filter of that holds."""
    yield
    filters = [each for mark in request.node.iter_markers("filterwarnings") for each in mark.args]
    if any("coroutine" in each or "Unraisable" in each for each in filters):
        gc.collect()


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Only what loses its last reference is freed: a cycle of objects stays until the end of the test."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def small_tree_nodes() -> Iterator[None]:
    """The limits of nodes are small, so that a hundred elements are four levels."""
    with small_nodes():
        yield


@pytest.fixture
def earlier_leaves() -> Iterator[None]:
    """Leaves have the sizes of an earlier version of the format."""
    with small_nodes(EARLIER_LEAVES):
        yield


@pytest.fixture(scope="session")
def _conversations() -> list[list[data.Message]]:
    return data.sample().conversations


@pytest.fixture
def real_conversations(_conversations: list[list[data.Message]]) -> list[list[data.Message]]:
    """A fresh copy of 40 conversations with an agent, each a list of chat messages: 1,222 messages in all."""
    return copy.deepcopy(_conversations)


@pytest.fixture(scope="session")
def long_run(pytestconfig: pytest.Config) -> bool:
    """Whether this is the long run, for tests that only repeat more in it: ``rounds = 2_000 if long_run else 20``."""
    return bool(pytestconfig.getoption("--long"))
