"""``Embedder``, which turns texts into vectors, and its calls. Layer: services."""

from __future__ import annotations

from array import array
from asyncio import iscoroutine
from collections.abc import Awaitable, Sequence
from inspect import isawaitable
from typing import Protocol, runtime_checkable

from versioned_state.errors import EmbedderError
from versioned_state.off_loop import off_loop


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors: your model, local or remote. This library has none.

    Attributes:
        name: the model and its version. If the name changes, all texts are embedded again.
        dimension: the length of every vector. If it changes, all texts are embedded again.
    """

    name: str
    dimension: int

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]] | Awaitable[Sequence[Sequence[float]]]:
        """Return a vector for each text, in order.

        A plain function is called off the event loop, and a coroutine function runs on it.
        """


async def embedded(embedder: Embedder, texts: Sequence[str]) -> list[bytes]:
    """Embed some texts. Returns each vector as bytes of 32-bit floats.

    Raises:
        EmbedderError: the embedder raised, or its answer is not a vector of the right length for each text.
    """
    try:
        answer = await off_loop(lambda: embedder.embed(texts))
        vectors = await answer if iscoroutine(answer) or isawaitable(answer) else answer
        packed = [array("f", map(float, vector)) for vector in vectors]
    except Exception as error:  # any error of the embedder
        raise EmbedderError(embedder.name, f"{type(error).__name__}: {error}") from error
    if len(packed) != len(texts):
        raise EmbedderError(embedder.name, f"{len(packed)} vectors for {len(texts)} texts")
    for vector in packed:
        if len(vector) != embedder.dimension:
            raise EmbedderError(embedder.name, f"a vector of {len(vector)} numbers instead of {embedder.dimension}")
        if not all(number - number == 0 for number in vector):  # neither infinite nor NaN
            raise EmbedderError(embedder.name, "a vector with a number that is not finite")
    return [vector.tobytes() for vector in packed]
