"""The result of a workload: metrics with a figure for each side, targets for ours, and tables.

Data only; nothing is measured here.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from benchmarks.sides import OURS, PEERS


class Unit(Enum):
    """The unit of a figure."""

    SECONDS = "s"
    BYTES = "B"
    COUNT = ""
    RATIO = "x"

    def show(self, value: float) -> str:
        """The figure in three digits with a unit a person reads; bytes in powers of ten."""
        match self:
            case Unit.SECONDS:
                scales: Sequence[tuple[float, str]] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")]
            case Unit.BYTES:
                scales = [(1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1.0, "B")]
            case Unit.RATIO:
                return f"{value:.2f}x"
            case Unit.COUNT:
                return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
        for scale, name in scales:
            if abs(value) >= scale or scale == scales[-1][0]:
                scaled = value / scale
                digits = 0 if abs(scaled) >= 100 or name == "B" else 1 if abs(scaled) >= 10 else 2
                return f"{scaled:.{digits}f} {name}"
        raise AssertionError("the last scale always matches")


@dataclass(frozen=True)
class Target:
    """The target of one of our figures: at most ``ratio`` times a peer's, or at most ``limit``.

    ``base`` names the peer, or is empty for the best of those that ran.
    """

    ratio: float | None = None
    limit: float | None = None
    base: str = ""

    def show(self, unit: Unit) -> str:
        """The target in words, such as "≤ 1/8 of the best"."""
        if self.limit is not None:
            return f"≤ {unit.show(self.limit)}"
        assert self.ratio is not None
        amount = f"1/{1 / self.ratio:.3g}" if self.ratio < 1 else f"{self.ratio:g}x"
        return f"≤ {amount} of {self.base or 'the best'}"


@dataclass(frozen=True)
class Verdict:
    """One target held against one of our figures; ``met`` is None if the peer of the target did not run."""

    side: str
    target: Target
    ratio: float | None
    met: bool | None


@dataclass(frozen=True)
class Metric:
    """One quantity, a figure a side.

    ``samples`` are the turns behind it, taken in alternation, so that they can be paired.
    """

    name: str
    unit: Unit
    values: Mapping[str, float]
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)
    targets: Sequence[tuple[str, Target]] = ()

    @classmethod
    def of_samples(
        cls, name: str, samples: Mapping[str, Sequence[float]], targets: Sequence[tuple[str, Target]] = ()
    ) -> Metric:
        """Seconds a round, of alternating turns; the figure is their median."""
        return cls(
            name, Unit.SECONDS, {side: statistics.median(found) for side, found in samples.items()}, samples, targets
        )

    @property
    def ours(self) -> list[str]:
        """The sides that are this library, in one way of use or another."""
        return [side for side in self.values if side.startswith(OURS)]

    def best_peer(self) -> str | None:
        """The peer with the lowest figure."""
        peers = [side for side in PEERS if side in self.values]
        return min(peers, key=lambda side: self.values[side]) if peers else None

    def ratio(self, side: str, base: str) -> float:
        """The figure of ``side`` over that of ``base``: the median of the turns' own ratios if turns can be paired."""
        mine, theirs = self.samples.get(side), self.samples.get(base)
        if mine and theirs and len(mine) == len(theirs):
            return statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
        return self.values[side] / self.values[base]

    def verdicts(self) -> list[Verdict]:
        """Each target of a side that ran."""
        found: list[Verdict] = []
        for side, target in self.targets:
            if side not in self.values:
                continue
            base = target.base or self.best_peer()
            ratio = self.ratio(side, base) if base and base in self.values else None
            if target.limit is not None:
                found.append(Verdict(side, target, ratio, self.values[side] <= target.limit))
            else:
                assert target.ratio is not None
                found.append(Verdict(side, target, ratio, None if ratio is None else ratio <= target.ratio))
        return found


@dataclass(frozen=True)
class Table:
    """Rows of (label, figure, ...) for figures without peers: growth and memory.

    A cell is a figure with its unit, or text.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | tuple[float, Unit]]]


@dataclass
class Result:
    """All that one workload measured."""

    workload: str
    title: str
    metrics: list[Metric] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain data; figures in seconds and bytes."""
        return {
            "workload": self.workload,
            "title": self.title,
            "metrics": [
                {
                    "name": metric.name,
                    "unit": metric.unit.value,
                    "values": dict(metric.values),
                    "samples": {side: list(found) for side, found in metric.samples.items()},
                    "best_peer": metric.best_peer(),
                    "verdicts": [
                        {
                            "side": verdict.side,
                            "target": verdict.target.show(metric.unit),
                            "ratio": verdict.ratio,
                            "met": verdict.met,
                        }
                        for verdict in metric.verdicts()
                    ],
                }
                for metric in self.metrics
            ],
            "tables": [
                {
                    "title": table.title,
                    "columns": list(table.columns),
                    "rows": [[cell if isinstance(cell, str) else cell[0] for cell in row] for row in table.rows],
                }
                for table in self.tables
            ],
            "notes": list(self.notes),
        }
