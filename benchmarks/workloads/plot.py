"""``plot``: an SVG of a round's time and stored bytes against the length of the history, in two log-log panels."""

from __future__ import annotations

from typing import Any

from benchmarks.measure import median
from benchmarks.results import Result, Table, Unit
from benchmarks.sides import OURS
from benchmarks.workloads.append import SEQUENCE, measure, with_sequence
from benchmarks.workloads.base import Context, Workload

# Length: turns and rounds a turn. Fewer as they get longer: a round of the largest list writes 10 MB on most sides.
LENGTHS = {20: (3, 6), 50: (5, 8), 100: (5, 8), 300: (5, 8), 1000: (5, 8), 3000: (4, 6), 10_000: (4, 4)}
QUICK_LENGTHS = {20: (2, 2), 100: (2, 2)}

# Colours that stay apart for the colour-blind (Okabe and Ito), ours drawn heavier.
STYLE: dict[str, dict[str, Any]] = {
    OURS: {"color": "#0072B2", "linewidth": 2.4, "marker": "o"},
    SEQUENCE: {"color": "#56B4E9", "linewidth": 2.4, "marker": "s"},
    "kvgit": {"color": "#D55E00", "linewidth": 1.4, "marker": "^"},
    "langgraph": {"color": "#009E73", "linewidth": 1.4, "marker": "v"},
    "zodb": {"color": "#CC79A7", "linewidth": 1.4, "marker": "D"},
}
LABELS = {
    OURS: "versioned-state, plain list",
    SEQUENCE: "versioned-state, sequence",
    "kvgit": "kvgit",
    "langgraph": "LangGraph SqliteSaver",
    "zodb": "ZODB",
}

Curves = dict[str, dict[int, float]]


def run(context: Context, workload: Workload) -> Result:
    """All sides, and ours through the lazy handle; writes ``plot.svg`` beside the JSON."""
    sides = with_sequence(context)
    seconds: Curves = {name: {} for name in sides}
    stored: Curves = {name: {} for name in sides}
    for length, (turns, batch) in (QUICK_LENGTHS if context.quick else LENGTHS).items():
        context.progress(f"{workload.name}: a list of {length} messages")
        found = measure(context, sides, length, turns, batch)
        for name in sides:
            seconds[name][length] = median(found.seconds[name])
            stored[name][length] = found.stored[name]
    result = Result(
        workload.name,
        "cost of a round (append 2 messages, commit) against the length of the list",
        tables=[_table("time a round", seconds, Unit.SECONDS), _table("bytes a round", stored, Unit.BYTES)],
    )
    try:
        _draw(seconds, stored, context)
    except ImportError as error:
        result.notes.append(f"no plot was drawn: {error}")
    else:
        result.notes.append("drawn as plot.svg beside the JSON")
    return result


def _table(title: str, curves: Curves, unit: Unit) -> Table:
    lengths = list(next(iter(curves.values())))
    rows: list[list[str | tuple[float, Unit]]] = [
        [name, *((curve[length], unit) for length in lengths)] for name, curve in curves.items()
    ]
    return Table(title, ["side", *(f"{length:,}" for length in lengths)], rows)


def _draw(seconds: Curves, stored: Curves, context: Context) -> None:
    import matplotlib as mpl

    # Text stays text, and equal figures give an equal file.
    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "versioned-state", "font.size": 10})
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for panel, curves, scale, title in (
        (panels[0], seconds, 1e3, "time of a round, ms"),
        (panels[1], stored, 1e-3, "stored by a round, KB"),
    ):
        for name, curve in curves.items():
            panel.plot(
                list(curve),
                [value * scale for value in curve.values()],
                label=LABELS[name],
                markersize=4.5,
                **STYLE[name],
            )
        panel.set(xscale="log", yscale="log", xlabel="messages in the list", title=title)
        panel.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panels[0].legend(frameon=False)
    figure.suptitle("Append 2 messages of 1 KB to a list, commit")
    figure.savefig(context.out / "plot.svg", metadata={"Date": None})
    plt.close(figure)


WORKLOADS = (Workload("plot", "cost of a round against the length of history, as an SVG", run),)
