"""``vstate stats``: what takes up space in a store, as numbers, bars and a plot. Layer: cli."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any, Final

import click

from versioned_state.cli.render.output import Output, Span, columns, is_utf8, padded
from versioned_state.cli.render.text import plural, size
from versioned_state.cli.shared import completion
from versioned_state.cli.shared.settings import Settings, json_option, limit_option, revision_argument, verb
from versioned_state.repository.inspect.stats import Growth, Stats
from versioned_state.repository.views.render import one_line

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_ASCII_BLOCKS: Final = " _.-=+*%#"
_SPARKS: Final = 60
_WIDTH, _HEIGHT, _MARGIN = 900, 300, 60


@verb("stats", example="vstate stats main --depth 2 --plot growth.svg")
@revision_argument(default="HEAD")
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    metavar="COUNT",
    default=1,
    show_default=True,
    help="Follow paths COUNT steps into values.",
)
@click.option(
    "--commits",
    type=click.IntRange(min=0),
    metavar="COUNT",
    default=100,
    show_default=True,
    help="Show the growth by the last COUNT commits.",
)
@limit_option("Show at most COUNT branches and paths.", default=10, show_default=True)
@click.option("--plot", metavar="FILE", help="Also draw the growth as an SVG image.", shell_complete=completion.file)
@json_option
@click.pass_obj
def stats(
    settings: Settings, rev: str, *, depth: int, commits: int, limit: int, plot: str | None, as_json: bool
) -> None:
    """Show the bytes in the store by branch, by kind of object and, for REV (default: HEAD), by path and recent commit.

    Bytes are counted in the store, after compression. The bytes of a branch are those that deleting it would free, once
    its reflog has expired. The whole store is read once.

    With --json: one object.
    """
    output = settings.output
    with settings.reading() as repository:
        found = repository.stats(rev, depth=depth, commits=commits, top=limit)
    if plot is not None:
        Path(plot).write_text(_svg(found.growth), encoding="utf-8")
    if as_json:
        output.json(_json(found))
    else:
        with output.paged():
            _print(output, found, limit)


def _json(found: Stats) -> dict[str, Any]:
    data = asdict(found) | {"ratio": found.ratio}
    data["growth"] = [{"commit": growth.commit.id, "stored": growth.stored} for growth in found.growth]
    return data


def _print(output: Output, found: Stats, limit: int) -> None:
    garbage = found.total.objects - found.reachable.objects
    before = f"{size(found.total.raw)} before compression ({found.ratio:.0%})"
    output.print(f"{plural(found.total.objects, 'object')}, {size(found.total.stored)}; {before}")
    output.print(f"garbage: {plural(garbage, 'object')}, {size(found.total.stored - found.reachable.stored)}")
    _table(
        output,
        "branches",
        [(each.name, each.unique.stored, f"of {size(each.total.stored)} in all") for each in found.branches],
        limit,
    )
    if found.shared.objects:
        output.print(f"  shared by several branches and tags: {size(found.shared.stored)}")
    _table(output, "paths", [(each.path, each.stored, "") for each in found.paths], limit)
    _table(
        output,
        "kinds",
        [(name, each.stored, plural(each.objects, "object")) for name, each in found.kinds.items()],
        len(found.kinds),
    )
    if found.growth:
        sizes = [growth.stored for growth in found.growth]
        mean = sum(sizes) // len(sizes)
        output.print()
        figures = f"  {size(mean)} a commit over the last {plural(len(sizes), 'commit')}, at most {size(max(sizes))}"
        output.wrapped([[Span("growth", "title"), figures]])
        output.print("  ", Span(sparkline(sizes), "added"))


def _table(output: Output, title: str, rows: Sequence[tuple[str, int, str]], limit: int) -> None:
    if not rows:
        return
    output.print()
    output.print(Span(title, "title"))
    shown = [(one_line(name, width=40, quote=False), stored, more) for name, stored, more in rows[:limit]]
    width = max((columns(name) for name, _, _ in shown), default=0)
    most = max((stored for _, stored, _ in shown), default=0) or 1
    for name, stored, more in shown:
        bar = ("█" if is_utf8() else "#") * round(20 * stored / most)
        output.crop(
            "  ", Span(padded(name, width), "path"), f"  {size(stored):>9}  ", Span(f"{bar:<20}", "added"), f"  {more}"
        )
    if len(rows) > limit:
        output.print(f"  and {len(rows) - limit:,} more; -n shows more of them")


def sparkline(sizes: Sequence[int]) -> str:
    """Return a character for each number or, if there are many, for means of them, in ASCII if stdout is not UTF-8."""
    blocks = _BLOCKS if is_utf8() else _ASCII_BLOCKS
    step = -(-len(sizes) // _SPARKS)
    means = [sum(part) / len(part) for start in range(0, len(sizes), step) if (part := sizes[start : start + step])]
    most = max(means) or 1
    return "".join(blocks[max(1, round(mean / most * (len(blocks) - 1)))] for mean in means)


def _svg(growth: Sequence[Growth]) -> str:
    """Return an SVG image for any browser, with a bar for each commit and its message as a tooltip."""
    most = max((each.stored for each in growth), default=0) or 1
    room, high = _WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN
    step = room / max(len(growth), 1)
    bars = []
    for index, each in enumerate(growth):
        tall = high * each.stored / most
        label = _printable(f"{each.commit.short}  {size(each.stored)}  {one_line(each.commit.message, quote=False)}")
        bars.append(
            f'<rect x="{_MARGIN + index * step:.2f}" y="{_HEIGHT - _MARGIN - tall:.2f}" '
            f'width="{max(step * 0.8, 0.5):.2f}" '
            f'height="{tall:.2f}"><title>{escape(label)}</title></rect>'
        )
    base = _HEIGHT - _MARGIN
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
                'font-family="sans-serif" font-size="13">'
            ),
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
            (
                f'<text x="{_MARGIN}" y="28">'
                f"Bytes that each of the last {plural(len(growth), 'commit')} added to the store</text>"
            ),
            f'<text x="{_MARGIN - 6}" y="{_MARGIN + 4}" text-anchor="end">{size(most)}</text>',
            f'<text x="{_MARGIN - 6}" y="{base + 4}" text-anchor="end">0</text>',
            f'<path d="M{_MARGIN} {_MARGIN}V{base}H{_WIDTH - _MARGIN}" fill="none" stroke="#888"/>',
            '<g fill="#3a7d44">',
            *bars,
            "</g>",
            "</svg>",
            "",
        ]
    )


def _printable(text: str) -> str:
    return "".join(char for char in text if char.isprintable())
