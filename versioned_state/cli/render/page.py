"""A commit as one file of HTML, which opens anywhere: no script, nothing from elsewhere. Layer: cli."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from versioned_state.cli.render.output import Line, Span
from versioned_state.repository.views.render import escape as printable

_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
pre { font: 13px/1.5 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: 1rem 0; }
pre.changes { border-top: 1px solid #8888; padding-top: 1rem; }
.added { color: #1a7f37; } .removed { color: #cf222e; } .changed { color: #9a6700; }
.id, .ref, .author, .time, .path { font-weight: 600; } .meta, .dim { opacity: 0.7; }
@media (prefers-color-scheme: dark) { .added { color: #56d364; } .removed { color: #ff7b72; } .changed { color: #d29922; } }
"""

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def commit_page(title: str, header: Iterable[Line], message: Iterable[Line], changes: Iterable[Line]) -> Iterator[str]:
    """Yield the text of the file, a line at a time. All that comes from the store is escaped."""
    shown = escape(printable(title))
    yield f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{shown}</title>\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
    yield f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style>\n</head>\n<body>\n'
    yield f"<h1>{shown}</h1>\n"
    for name, lines in (("facts", header), ("message", message), ("changes", changes)):
        yield f'<pre class="{name}">'
        for line in lines:
            yield "".join(map(_part, line)) + "\n"
        yield "</pre>\n"
    yield "</body>\n</html>\n"


def _part(part: str | Span) -> str:
    if isinstance(part, str):
        return escape(printable(part))
    return f'<span class="{part.style}">{escape(printable(part.text))}</span>'
