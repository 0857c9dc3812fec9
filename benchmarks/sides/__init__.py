"""The sides by name. A side without its library is left out, and the run says so."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from benchmarks.sides.base import Session, Side

__all__ = ["NAMES", "OURS", "PEERS", "Session", "Side", "load"]

OURS = "ours"
PEERS = ("kvgit", "langgraph", "zodb")
NAMES = (OURS, *PEERS)

_CLASSES = {
    "ours": ("benchmarks.sides.ours", "Ours"),
    "kvgit": ("benchmarks.sides.kvgit_disk", "Kvgit"),
    "langgraph": ("benchmarks.sides.langgraph_sqlite", "LangGraph"),
    "zodb": ("benchmarks.sides.zodb_filestorage", "Zodb"),
}


def load(names: Iterable[str]) -> tuple[dict[str, type[Side]], list[str]]:
    """The sides of those ``NAMES``, and a line for each that cannot be run here."""
    found: dict[str, type[Side]] = {}
    missing: list[str] = []
    for name in names:
        module, attribute = _CLASSES[name]
        try:
            found[name] = getattr(import_module(module), attribute)
        except ImportError as error:
            missing.append(f"{name} is left out: {error}")
    return found, missing
