"""The longest increasing run of pairs of positions, which aligns two sequences. Layer: values."""

from __future__ import annotations

from bisect import bisect_left


def rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return a longest subsequence of some pairs in which the second numbers increase.

    The pairs are in the order of their first numbers.
    """
    ends: list[int] = []
    last: list[int] = []
    back: list[int] = []
    for index, (_, second) in enumerate(pairs):
        place = bisect_left(ends, second)
        back.append(last[place - 1] if place else -1)
        ends[place : place + 1] = [second]
        last[place : place + 1] = [index]
    chosen = []
    index = last[-1] if last else -1
    while index >= 0:
        chosen.append(pairs[index])
        index = back[index]
    return chosen[::-1]
