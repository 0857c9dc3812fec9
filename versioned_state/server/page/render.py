"""Templates filled in: every printed text is escaped, and its unseen characters written out. Layer: server."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from versioned_state.repository.shown import components
from versioned_state.repository.shown.text import visible
from versioned_state.server.page.links import Links

HERE: Final = Path(__file__).parent


def _shown(value: Any) -> Any:
    if value is None:
        return ""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _exact(value: object) -> components.Html:
    """Return the value of a field of a form, escaped and otherwise as it is: the browser sends it back."""
    return components.Html(escape(str(value)))


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters["number"] = components.number
    made.filters["exact"] = _exact
    made.globals["ui"] = components
    return made


def render(template: str, *, link: Links, **context: Any) -> str:
    """Return a page."""
    return _environment().get_template(f"{template}.html").render(link=link, **context)


def pieces(template: str, *, link: Links, **context: Any) -> Iterator[str]:
    """Yield a page piece by piece: what comes before a row of an iterator is there before the row is looked for."""
    return _environment().get_template(f"{template}.html").generate(link=link, **context)
