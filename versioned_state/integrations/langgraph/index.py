"""``Index``: the embeddings of items, and the search by vector. Layer: integrations."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import Any, Final

from langgraph.store.base import IndexConfig, Item, PutOp, ensure_embeddings, get_text_at_path, tokenize_path

Name = tuple[tuple[str, ...], str]
"""The namespace and the key of an item."""

_WHOLE: Final = "$"


class Index:
    """Turns the texts of items and of queries into vectors, by the embeddings of a configuration."""

    def __init__(self, config: IndexConfig) -> None:
        self._embeddings = ensure_embeddings(config.get("embed"))
        # the second is the word of SqliteStore
        fields: Any = config.get("fields") or config.get("text_fields") or [_WHOLE]
        self._fields = [fields] if isinstance(fields, str) else list(fields)

    def embed(self, puts: Mapping[Name, PutOp]) -> dict[Name, dict[str, bytes]]:
        """Return the vectors of the items that are written, by their fields."""
        texts = self._texts(puts)
        return _placed(texts, self._embeddings.embed_documents(list(texts)) if texts else [])

    async def aembed(self, puts: Mapping[Name, PutOp]) -> dict[Name, dict[str, bytes]]:
        """Do ``embed`` by coroutines."""
        texts = self._texts(puts)
        return _placed(texts, await self._embeddings.aembed_documents(list(texts)) if texts else [])

    def embed_queries(self, queries: Iterable[str]) -> dict[str, list[float]]:
        """Return the vector of each query."""
        return {query: self._embeddings.embed_query(query) for query in dict.fromkeys(queries)}

    async def aembed_queries(self, queries: Iterable[str]) -> dict[str, list[float]]:
        """Do ``embed_queries`` by coroutines."""
        return {query: await self._embeddings.aembed_query(query) for query in dict.fromkeys(queries)}

    def _texts(self, puts: Mapping[Name, PutOp]) -> dict[str, list[tuple[Name, str]]]:
        """Return the texts to embed, each with the items and fields that have it."""
        texts: dict[str, list[tuple[Name, str]]] = {}
        for name, op in puts.items():
            if op.value is None or op.index is False:
                continue
            for field in self._fields if op.index is None else op.index:
                found = get_text_at_path(op.value, field if field == _WHOLE else tokenize_path(field))
                for at, text in enumerate(found):
                    texts.setdefault(text, []).append((name, f"{field}.{at}" if len(found) > 1 else field))
        return texts


def _placed(
    texts: Mapping[str, list[tuple[Name, str]]], vectors: Sequence[Sequence[float]]
) -> dict[Name, dict[str, bytes]]:
    placed: dict[Name, dict[str, bytes]] = {}
    for places, vector in zip(texts.values(), vectors, strict=True):
        for name, field in places:
            placed.setdefault(name, {})[field] = _packed(vector)
    return placed


def _packed(vector: Sequence[float]) -> bytes:
    """Return a vector as 32-bit floats, little-endian."""
    floats = array("f", vector)
    if sys.byteorder == "big":
        floats.byteswap()
    return floats.tobytes()


def _unpacked(raw: bytes) -> array[float]:
    floats = array("f", raw)
    if sys.byteorder == "big":
        floats.byteswap()
    return floats


class Vectors:
    """The stored vectors of some items, by their fields."""

    def __init__(self, vectors: Mapping[Name, Mapping[str, bytes]]) -> None:
        self._vectors = vectors

    def ranked(self, items: Sequence[Item], query: Sequence[float]) -> list[tuple[Item, float | None]]:
        """Return items with the cosine of their best field to a query, the best first.

        Those without a vector come last, with None.
        """
        scores: dict[int, float] = {}
        places = [
            (at, raw) for at, item in enumerate(items) for raw in self._vectors[item.namespace, item.key].values()
        ]
        for (at, _), score in zip(places, _cosines([raw for _, raw in places], query), strict=True):
            scores[at] = max(score, scores.get(at, -1.0))
        best = sorted(scores, key=scores.__getitem__, reverse=True)
        return [(items[at], scores[at]) for at in best] + [
            (item, None) for at, item in enumerate(items) if at not in scores
        ]


def _cosines(vectors: Sequence[bytes], query: Sequence[float]) -> list[float]:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return [_cosine(_unpacked(raw), query) for raw in vectors]
    if not vectors:
        return []
    rows = numpy.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), -1)
    wanted = numpy.asarray(query, dtype="f4")
    lengths = numpy.linalg.norm(rows, axis=1) * numpy.linalg.norm(wanted)
    products = rows @ wanted
    result: list[float] = numpy.divide(products, lengths, out=numpy.zeros_like(products), where=lengths != 0).tolist()
    return result


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    length = sqrt(sum(each * each for each in one)) * sqrt(sum(each * each for each in other))
    return sum(a * b for a, b in zip(one, other, strict=True)) / length if length else 0.0
