"""The ``filters`` of a search or a listing. Layer: services."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self, cast, get_args

from versioned_state.errors import InvalidArgumentError

Rank = Literal["keyword", "bm25", "vector"]

_NOTHING_DONE = "nothing was read"


@dataclass(frozen=True, slots=True)
class SearchFilters:
    """The filters of a search: how messages are found and in which order they come, and the most of them."""

    rank: Rank = "keyword"
    top_k: int | None = None

    @classmethod
    def of(cls, filters: Mapping[str, Any] | None) -> Self:
        """Raises ``InvalidArgumentError``, which names the filter."""
        given = _known(filters, cls)
        rank = given.get("rank", "keyword")
        if not isinstance(rank, str) or rank not in get_args(Rank):
            raise InvalidArgumentError(f"rank is 'keyword', 'bm25' or 'vector', not {_shown(rank)}", remains=_NOTHING_DONE)
        return cls(cast("Rank", rank), _number(given, "top_k", least=0))


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
    if not isinstance(filters, Mapping):
        raise InvalidArgumentError(f"filters is a dict, not {type(filters).__name__}", remains=_NOTHING_DONE)
    known = [field.name for field in fields(kind)]
    for name in filters:
        if name not in known:
            raise InvalidArgumentError(f"there is no filter {_shown(name)}", remains=_NOTHING_DONE, hint=f"there are {' and '.join(known)}")
    return filters


def _number(filters: Mapping[str, Any], name: str, *, least: int) -> int | None:
    number = filters.get(name)
    if number is None:
        return None
    if type(number) is not int or number < least:
        raise InvalidArgumentError(f"{name} is a whole number of {least} or more, not {_shown(number)}", remains=_NOTHING_DONE)
    return min(number, sys.maxsize)


def _shown(value: object) -> str:
    try:
        return f"{value!r:.80}"
    except ValueError:  # an int with more digits than Python writes
        return f"that {type(value).__name__}"
