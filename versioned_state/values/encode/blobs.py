"""Large texts, bytes, bytearrays and arrays: chunks, and the tree over them. Layer: values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from versioned_state.objects.address import Address
from versioned_state.values.cells import Code, array, extension
from versioned_state.values.codec.arrays import buffer_of
from versioned_state.values.detection.baselines import Baseline, Buffer, Pinned
from versioned_state.values.detection.groups import hash_bytes
from versioned_state.values.trees.blob import CHUNK_BYTES, add_chunk, binary_spans, text_spans, write_blob, write_spans
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.references import tree_cell, tree_parts

if TYPE_CHECKING:
    from versioned_state.values.encode.encoder import Encoder


def encode_text(nodes: Nodes, value: str | bytes, base: Pinned | None) -> tuple[bytes, Baseline]:
    """The cell and the baseline of a large string or bytes. Chunks that it shares with ``base`` are stored already."""
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        code, spans = Code.TEXT, text_spans(data)
    else:
        data = value
        code, spans = Code.BYTES_BLOB, binary_spans(len(data))
    blob = write_spans(nodes, data, spans, None if base is None else base.blob)
    cell = tree_cell(code, blob.tree)
    return cell, Pinned(type(value), cell, value, blob)


def encode_buffer(encoder: Encoder, value: Any, base: Buffer | None) -> tuple[bytes, Baseline]:
    """The cell and the baseline of a large bytearray or array: its chunks that differ from ``base``. Raises ``NotDataError``."""
    form, view = buffer_of(value)
    spans = list(binary_spans(len(view)))
    hashes = [hash_bytes(view[a:b]) for a, b in spans]
    if base is not None and hashes == base.hashes and len(view) == base.size and form == base.form:
        return base.cell, base
    chunks: list[Address] = []
    for index, (a, b) in enumerate(spans):
        if base is not None and b <= base.size and base.hashes[index] == hashes[index] and (b - a == CHUNK_BYTES or b == base.size):
            chunks.append(base.blob.chunks[index])
        else:
            chunks.append(add_chunk(encoder.nodes, view[a:b]))
    blob = write_blob(encoder.nodes, chunks, [b - a for a, b in spans], None if base is None else base.blob)
    if form is None:
        cell = tree_cell(Code.BYTEARRAY_BLOB, blob.tree)
    else:
        descr, shape = form
        cell = extension(Code.ARRAY_BLOB, array([*tree_parts(blob.tree), encoder.inline(descr), encoder.inline(list(shape))]))
    return cell, Buffer(type(value), cell, form, len(view), hashes, blob)
