"""Numbers and texts that public calls are given, checked before anything is done. Layer: repository.

Revisions are checked by ``Repository.commit``, names by ``Repository.ref`` and ``check_name``, paths by ``as_path``, and policies by
``Policies``.
"""

from __future__ import annotations

import operator
import sys
from datetime import timedelta
from typing import Any, Final

from versioned_state.errors import InvalidArgumentError

DEFAULT_EXPIRE: Final = timedelta(days=30)
"""How long the reflog keeps commits that nothing else leads to; git's default."""


def count(name: str, value: Any, *, least: int = 0) -> int:
    """A number of things, as an int: any type of integer but bool. Raises ``InvalidArgumentError`` for others, and below ``least``."""
    number = integer(name, value)
    if number < least:
        raise InvalidArgumentError(f"{name} is {least} or more, not {number}; nothing was changed")
    return min(number, sys.maxsize)


def integer(name: str, value: Any) -> int:
    """A number, as an int: of any type of integer but bool. Raises ``InvalidArgumentError`` for anything else."""
    try:
        if type(value) is not bool:
            return operator.index(value)
    except TypeError:
        pass
    raise InvalidArgumentError(f"{name} is a number, not {type(value).__name__}; nothing was changed")


def check_text(name: str, value: Any) -> None:
    """Raise ``InvalidArgumentError`` for what is neither a string nor None."""
    if value is not None and type(value) is not str:
        raise InvalidArgumentError(f"{name} is a string, not {type(value).__name__}; nothing was changed")
