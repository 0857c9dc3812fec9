"""Templates filled in: every printed text is escaped, and its unseen characters written out. Layer: server."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from versioned_state.server.page.links import Links
from versioned_state.server.page.views.text import visible

HERE: Final = Path(__file__).parent


def _shown(value: Any) -> Any:
    if value is None:
        return ""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _number(value: int) -> str:
    return f"{value:,}"


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
    made.filters["number"] = _number
    return made


def render(template: str, *, link: Links, **context: Any) -> str:
    """Return a page."""
    return _environment().get_template(f"{template}.html").render(link=link, **context)
