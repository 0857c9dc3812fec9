"""The pieces of a list that is not loaded are those of the list, after any edits."""

from __future__ import annotations

import random
from typing import Any

from versioned_state.state.worktree.lists.pieces import Element, ListEdits, Piece


def flat(pieces: list[Piece]) -> list[Any]:
    return [each if isinstance(each, int) else each.value for piece in pieces for each in piece]


def test_any_edits():
    for seed in range(400):
        rng = random.Random(seed)
        expected: list[Any] = list(range(rng.choice([0, 1, 5, 40])))
        edits = ListEdits(b"", len(expected))
        for step in range(rng.randrange(1, 25)):
            start = rng.randrange(len(expected) + 1)
            end = min(len(expected), start + rng.choice([0, 0, 1, 1, 2, 9]))
            new = [f"{step}.{n}" for n in range(rng.choice([0, 1, 3]))]
            if rng.random() < 0.8:
                edits.replace(start, end, list(map(Element, new)))
            else:
                edits.replace_all([(start, end, list(map(Element, new)))])
            expected[start:end] = new
            assert flat(edits.pieces) == expected
            assert len(edits) == len(expected)
            for one, next_one in zip(edits.pieces, edits.pieces[1:], strict=False):
                assert not (isinstance(one, list) and isinstance(next_one, list))
                assert not (isinstance(one, range) and isinstance(next_one, range) and one.stop == next_one.start)
            assert all(edits.pieces)
            first = rng.randrange(len(expected) + 1)
            last = rng.randrange(first, len(expected) + 1)
            assert flat(list(edits.between(first, last))) == expected[first:last]
