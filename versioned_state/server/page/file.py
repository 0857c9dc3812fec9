"""Commits as one file that a browser opens without a server: the views and components of the page. Layer: server."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from markupsafe import Markup

from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.repository.shown.lanes import lanes
from versioned_state.repository.shown.text import Budget
from versioned_state.server.page import static
from versioned_state.server.page.links import Links
from versioned_state.server.page.render import render
from versioned_state.server.page.views.commit import commit as commit_view
from versioned_state.server.page.views.state import state as state_view

COMMITS: Final = 50
"""Commits of a file, unless a number is given."""

_BYTES: Final = 4_000_000
"""Bytes of text in a file; beyond them texts are cut short, and the file says so."""


class _Within(Links):
    """The addresses within the file: commits only."""

    def commit(self, id: str, **query: object) -> str:
        return f"#c-{id[:12]}"


def file_of(
    repository: Repository,
    commits: Iterable[Commit],
    *,
    title: str,
    store: str = "",
    limit: int = COMMITS,
    with_state: bool = False,
) -> bytes:
    """Return the file of commits, newest first: their list if there are several, each with what it says and changes.

    Args:
        limit: at most this many; the file says if there are more.
        with_state: the first level of the state at the first commit too.
    """
    budget = Budget(_BYTES)
    source = iter(commits)
    found = list(islice(source, limit))
    more = next(source, None) is not None
    history = [(each.id, each.parents_but_root) for each in found]
    rows, _ = lanes(history, ())
    shown: list[dict[str, Any]] = [
        {**commit_view(repository, budget, each), "graph": row} for each, row in zip(found, rows, strict=True)
    ]
    text = render(
        "file",
        link=_Within(),
        title=title,
        store=store,
        commits=shown,
        rows=[{**each["commit"], "graph": each["graph"]} for each in shown],
        more=more,
        state=state_view(repository, budget, found[0], path="", start=0) if with_state and found else None,
        graph_width=max((row["width"] for row in rows), default=1),
        style=Markup(static.content("page.css").decode()),  # noqa: S704 - a file of the package
        style_hash=static.style_hash(),
        left_out=budget.left_out,
    )
    return text.encode("utf-8", "replace")
