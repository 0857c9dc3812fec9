"""``branch_name``: a name of a branch for any ids, such as a user's and a session's, one to one. Layer: repository.

Each id is escaped (see ``escape``), and ``/`` stands between two. ``%t`` and a hash stand for the last ids if they find
no room.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from versioned_state.arguments import instance_of
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.names.escape import escape, hash_of, size, unescape

_LONGEST_NAME: Final = 255
_NAMES_KEPT: Final = 1024
"""Names that are kept in memory: a service needs the same ones again and again."""

_LONGEST_PART: Final = 63
"""In bytes.

Three such parts and the hash of all further ones fit into a name: so at least three parts are always prefixes.
"""

# The characters and names that check_name refuses, and %, and / within a part. Fixed ranges: a Unicode table would make
# the name depend on the release of Python. A dot is written out at the start of a part and after another dot, so that
# no part is "." or "..".
_ESCAPED: Final = re.compile(
    r"[\x00-\x20\x7f-\xa0\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff%/~^:?*\[\\{]|^[-.]|(?<=\.)\.|^@$|^H(?=EAD$)"
)


def branch_name(*parts: str) -> str:
    """Return the name of a branch for these ids: the same on every machine, and another one for any other ids.

    ``branch_name(user) + "/"`` is the prefix of the names of all branches whose first part is ``user``. So it is with
    the first two and three parts, and with more of them unless the ids are long.

    >>> branch_name("bob@example.com", "trip to Rome")
    'bob@example.com/trip%20to%20Rome'

    Args:
        parts: one or more strings, of any length and with any characters. An id of more than 63 bytes becomes its hash,
            so keep long ids in the state or in the meta of its commits if you need them back.

    Raises:
        InvalidArgumentError: there is no part, or one is not a string.
    """
    if not parts:
        raise InvalidArgumentError("branch_name takes at least one part")
    for part in parts:
        instance_of("a part of a branch's name", part, str)
    return _branch_name(*map(str.__str__, parts))


@lru_cache(maxsize=_NAMES_KEPT)
def _branch_name(*parts: str) -> str:
    name = ""
    for at, part in enumerate(parts):
        text = escape(part, _ESCAPED, longest=_LONGEST_PART)
        following = f"{name}/{text}" if at else text
        room = _LONGEST_NAME if at == len(parts) - 1 else _LONGEST_NAME - size("/" + hash_of("%t", parts))
        if size(following) > room:
            return f"{name}/{hash_of('%t', parts[at:])}"
        name = following
    return name


def id_of(part: str) -> str | None:
    """Return the id that a part of such a name stands for, or None if the part is a hash."""
    return unescape(part)
