"""The oracle as a plugin of pytest: it watches each test, and says at the end of the run what it checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.dice import dice
from tests.support.oracle import Oracle, installed

EVERYDAY = 0.03
"""The share of the sampled commits in the everyday run."""


class OraclePlugin:
    """Installs the oracle for a run, if it is ``wanted``."""

    def __init__(self, config: pytest.Config, *, wanted: bool) -> None:
        share, seed = config.getoption("--oracle-share"), config.getoption("--oracle-seed")
        inputs = getattr(config, "workerinput", {})  # in a worker of xdist
        self.share = share if share is not None else 1.0 if config.getoption("--long") else EVERYDAY
        self.seed = inputs.get("oracle_seed", seed if seed is not None else dice("oracle").randrange(1_000_000))
        self.oracle = Oracle(share=self.share, seed=self.seed) if wanted else None
        self.checked = 0
        self.counts: Counter[str] = Counter()
        self.aside: Counter[str] = Counter()

    def pytest_report_header(self) -> list[str]:
        if self.oracle is None:
            return ["oracle: off; VERSIONED_STATE_CHECK=1 has it check the commits of all tests"]
        return [f"oracle: --oracle-share={self.share} --oracle-seed={self.seed}"]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["oracle_seed"] = self.seed

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Iterator[None]:
        if self.oracle is None:
            return (yield)
        with installed(self.oracle):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        if self.oracle is not None:  # before the fixtures: what they commit is the test's
            marker = item.get_closest_marker("no_oracle")
            self.oracle.begin(item.nodeid, None if marker is None else str(marker.args[0]))
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        result = yield
        if self.oracle is not None:
            self.oracle.end()
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.oracle is None:
            return
        self._add(self.oracle.checked, self.oracle.counts, self.oracle.aside)
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["oracle"] = (self.checked, dict(self.counts), dict(self.aside))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        if "oracle" in getattr(node, "workeroutput", {}):
            self._add(*node.workeroutput["oracle"])

    def _add(self, checked: int, counts: dict[str, int], aside: dict[str, int]) -> None:
        self.checked += checked
        self.counts.update(counts)
        self.aside.update(aside)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.oracle is None:
            return
        total = sum(self.aside.values())
        terminalreporter.write_line(f"oracle: checked {self.checked:,} commits, stepped aside from {total:,}")
        for reason, count in self.aside.most_common():
            terminalreporter.write_line(f"  {count:,} commits: {reason}")
        for reason, count in self.counts.most_common():
            terminalreporter.write_line(f"  {count:,} {reason}")
