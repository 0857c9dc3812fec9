"""``Retries``: when a client sends a request again, and for how long. Layer: services.

::

    refused for lack of room (429, 503)   nothing was done: again after the server's Retry-After, until the time limit
    refused otherwise (503)               nothing was done: again, up to ``attempts``
    no answer (502, 504, a lost reply)    unknown: again, up to ``attempts``, since a write has an id and is done once
"""

from __future__ import annotations

import random
import time
from typing import Final

LONGEST_AGE_S: Final = 3600
"""Seconds after the first attempt in which a write may be repeated: the server searches all commits since then."""

_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0


class Retries:
    """The attempts of one request.

    Args:
        attempts: how often it is sent at most, besides those attempts that were refused for lack of room.
        timeout: seconds after which an attempt that was refused for lack of room is not repeated.
    """

    def __init__(self, attempts: int, timeout: float) -> None:
        self._left = attempts
        self._timeout = timeout
        self._began = time.monotonic()
        self.made: int = 0

    @property
    def age(self) -> int:
        """Seconds since the first attempt, rounded up, and at most the largest age that a server accepts."""
        return min(int(time.monotonic() - self._began) + 1, LONGEST_AGE_S)

    def again(self, *, crowded: bool = False, after: float = 0.0) -> bool:
        """Wait until the next attempt is due. Returns False if there is none.

        Args:
            crowded: whether the last one was refused for lack of room.
            after: the server's Retry-After, in seconds.
        """
        self.made += 1
        self._left -= not crowded
        pause = min(_LONGEST_PAUSE_S, _PAUSE_S * 2 ** min(self.made, 10))
        pause *= 0.5 + random.random() / 2  # noqa: S311 - so that clients do not all come back at once
        pause = max(pause, after * (1 + random.random() / 4))  # noqa: S311
        end = time.monotonic() + pause - self._began
        if self._left <= 0 or end > LONGEST_AGE_S or ((crowded or after) and end > self._timeout):
            return False
        time.sleep(pause)
        return True


def retry_after(header: str | None) -> float:
    """Return the seconds of a ``Retry-After``, or 0 if it has none or a date, which is unusable if clocks differ."""
    text = (header or "").strip()
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0.0
