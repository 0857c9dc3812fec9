"""Printing and saving of results: tables, and one JSON file a workload."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measure import in_line
from benchmarks.results import Metric, Result
from benchmarks.sides import OURS, PEERS


def print_heading(
    environment: Mapping[str, str], settings: Mapping[str, Mapping[str, str]], notes: Sequence[str], *, quick: bool
) -> None:
    """Print the facts that the figures depend on: machine, each side's version and settings, and missing sides."""
    print(in_line(environment))
    for name, facts in settings.items():
        print(f"  {name}: {facts['version']}; {facts['store']}; {facts['use']}")
    if quick:
        print("quick run: small sizes, figures are not comparable with any target")
    for note in notes:
        print(f"note: {note}")


def print_result(result: Result) -> None:
    """The metrics as one table (a line for each way of using ours), then the other tables and notes."""
    print(f"\n{result.workload}: {result.title}", flush=True)
    if result.metrics:
        print_table(["", "side", "ours", *PEERS, "ours/best", "target", "met"], _metric_rows(result.metrics))
    for table in result.tables:
        print(f"\n{table.title}")
        rows = [[cell if isinstance(cell, str) else cell[1].show(cell[0]) for cell in row] for row in table.rows]
        print_table(table.columns, rows)
    for note in result.notes:
        print(f"note: {note}")
    sys.stdout.flush()


def save(
    result: Result,
    folder: Path,
    *,
    environment: Mapping[str, str],
    sides: Mapping[str, Mapping[str, str]],
    data: str,
    quick: bool,
) -> None:
    """Write ``folder/<workload>.json``: the result and all that it depends on."""
    content = {
        "environment": dict(environment),
        "sides": {name: dict(facts) for name, facts in sides.items()},
        "data": data,
        "quick": quick,
        **result.to_json(),
    }
    (folder / f"{result.workload}.json").write_text(
        json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def _metric_rows(metrics: Sequence[Metric]) -> list[list[str]]:
    rows: list[list[str]] = []
    for metric in metrics:
        best = metric.best_peer()
        verdicts = metric.verdicts()
        for side in metric.ours or [""]:
            mine = [verdict for verdict in verdicts if verdict.side == side]
            rows.append(
                [
                    metric.name,
                    side.removeprefix(OURS).strip(" ()") or ("plain" if side else ""),
                    metric.unit.show(metric.values[side]) if side else "-",
                    *(metric.unit.show(metric.values[peer]) if peer in metric.values else "-" for peer in PEERS),
                    f"{metric.ratio(side, best):.3g}" if side and best else "-",
                    "; ".join(
                        _with_ratio(verdict.target.show(metric.unit), verdict.target.base, verdict.ratio)
                        for verdict in mine
                    ),
                    "; ".join({True: "yes", False: "NO", None: "-"}[verdict.met] for verdict in mine),
                ]
            )
    return rows


def _with_ratio(target: str, base: str, ratio: float | None) -> str:
    """A target against one named peer shows the ratio to that peer, which the column of the best peer does not show."""
    return f"{target} (is {ratio:.3g})" if base and ratio is not None else target


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table, in aligned columns."""
    widths = [max(len(line[index]) for line in [columns, *rows]) for index in range(len(columns))]
    for line in [columns, *rows]:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
