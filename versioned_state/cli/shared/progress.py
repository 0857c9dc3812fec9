"""A progress bar for work with several stages, on stderr if that is a terminal. Layer: cli."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from versioned_state.cli.render.output import Output


@contextmanager
def progress_bar(output: Output) -> Iterator[Callable[[str, int, int | None], None] | None]:
    """A function of the stage, the work done, and the total; None if stderr is not a terminal. The bar is erased at the end."""
    console = output.console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda stage, done, total: progress.update(task, description=stage, completed=done, total=total)
