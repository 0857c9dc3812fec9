"""``branch_name``: a name of a branch for any ids, such as a user's and a session's, one to one. Layer: repository.

A part keeps the characters that a name may have; any other is written as ``%XX``, byte by byte. So ``%`` with anything but two digits
after it is free for three marks: ``%`` an empty part, ``%h`` the hash of a long part, ``%t`` the hash of the parts that found no room.
"""

from __future__ import annotations

import re
from typing import Final

from blake3 import blake3

from versioned_state.errors import InvalidArgumentError
from versioned_state.objects.address import ADDRESS_SIZE

_LONGEST_NAME: Final = 255
_LONGEST_PART: Final = 63
"""In bytes. Three such parts and the hash of all further ones fit into a name: so at least three parts are always prefixes."""

# The characters and names that check_name refuses, and %, and / within a part. Fixed ranges: a Unicode table would make the name depend on
# the release of Python. A dot is written out at the start of a part and after another dot, so that no part is "." or "..".
_ESCAPED: Final = re.compile(
    r"[\x00-\x20\x7f-\xa0\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff%/~^:?*\[\\{]|^[-.]|(?<=\.)\.|^@$|^H(?=EAD$)"
)


def branch_name(*parts: str) -> str:
    """The name of a branch for these ids: the same for the same ids on every machine, and another one for any others.

    ``branch_name(user) + "/"`` is the prefix of the names of all branches whose first part is ``user``. So it is with the first two and
    three parts, and with more of them unless the ids are long.

    >>> branch_name("bob@example.com", "trip to Rome")
    'bob@example.com/trip%20to%20Rome'

    Args:
        parts: one or more strings, of any length and with any characters. An id of more than 63 bytes becomes its hash, so keep long ids
            in the state or in the meta of its commits if you need them back.

    Raises:
        InvalidArgumentError: there is no part, or one is not a string.
    """
    if not parts:
        raise InvalidArgumentError("branch_name takes at least one part", remains="nothing was changed")
    for part in parts:
        if not isinstance(part, str):
            raise InvalidArgumentError(
                f"the parts of a branch's name are strings, not {type(part).__name__}", remains="nothing was changed"
            )
    name, room = "", _LONGEST_NAME - _size(_hash("%t", ()))
    for at, part in enumerate(parts):
        following = f"{name}/{_encoded(part)}" if at else _encoded(part)
        is_last = at == len(parts) - 1
        if _size(following) > (_LONGEST_NAME if is_last else room - 1):
            return f"{name}/{_hash('%t', parts[at:])}"
        name = following
    return name


def _encoded(part: str) -> str:
    """A part as it stands in a name: at most 63 bytes."""
    if not part:
        return "%"
    text = _ESCAPED.sub(lambda found: "".join(f"%{byte:02X}" for byte in _bytes(found[0])), part)
    return text if _size(text) <= _LONGEST_PART else _hash("%h", (part,))


def _hash(mark: str, parts: tuple[str, ...]) -> str:
    """The mark and a hash of the parts, each of which is preceded by its length, so that no two lists of parts are the same bytes."""
    raw = b"".join(b"%d:%b" % (len(data), data) for data in map(_bytes, parts))
    return mark + blake3(raw).digest(length=ADDRESS_SIZE).hex()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _size(text: str) -> int:
    return len(_bytes(text))
