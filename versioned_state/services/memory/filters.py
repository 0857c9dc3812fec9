"""The ``filters`` of a search or a listing. Layer: services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from versioned_state.arguments import count, instance_of, one_of

Rank = Literal["keyword", "bm25", "vector"]


@dataclass(frozen=True, slots=True)
class SearchFilters:
    """The filters of a search: how messages are found and in which order they come, and the most of them."""

    rank: Rank = "keyword"
    top_k: int | None = None

    @classmethod
    def of(cls, filters: Mapping[str, Any] | None) -> Self:
        """Raises ``InvalidArgumentError``, which names the filter."""
        given = _known(filters, cls)
        return cls(one_of("rank", given.get("rank", "keyword"), Rank), _number(given, "top_k", least=0))


@dataclass(frozen=True, slots=True)
class ListFilters:
    """The filters of a listing: which page of it, counted from 1, and how many messages a page has."""

    page_num: int = 1
    page_size: int = 10

    @classmethod
    def of(cls, filters: Mapping[str, Any] | None) -> Self:
        """Raises ``InvalidArgumentError``, which names the filter."""
        given = _known(filters, cls)
        number, size = _number(given, "page_num", least=1), _number(given, "page_size", least=1)
        return cls(1 if number is None else number, 10 if size is None else size)


def _known(filters: Mapping[str, Any] | None, kind: type[SearchFilters | ListFilters]) -> Mapping[str, Any]:
    if filters is None:
        return {}
    known = [field.name for field in fields(kind)]
    for name in instance_of("filters", filters, Mapping):
        one_of("the name of a filter", name, known)
    return filters


def _number(filters: Mapping[str, Any], name: str, *, least: int) -> int | None:
    number = filters.get(name)
    return None if number is None else count(name, number, least=least)
