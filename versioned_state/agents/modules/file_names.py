"""The names of session files: one to one from the ids, and safe on every file system. Layer: agents.

::

    session.json              a session of no user
    user%_session.json        a session of a user

AgentScope writes ``session.json`` and ``user_session.json``. A session of no user whose id has only lower-case letters, digits and
``-_.@+=,`` has one name there and here.
"""

from __future__ import annotations

import os
import re
from typing import Final

from versioned_state.repository.names.escape import escape

_LONGEST_PART: Final = 100
"""In bytes: two parts, what stands between them and the ending of a temporary file make 255 at most."""

# Upper case, since some file systems do not tell it from lower case. A dot would hide the file. The last: CON, PRN, AUX, NUL, COM1,
# LPT1 and the like are devices on Windows, whatever ending they have.
_ESCAPED: Final = re.compile(
    r"[^a-z0-9_.@+=,-]|^\.|^(?:c(?=on(?:\.|$))|p(?=rn(?:\.|$))|a(?=ux(?:\.|$))|n(?=ul(?:\.|$))|[cl](?=(?:om|pt)\d(?:\.|$)))"
)

_UNSAFE: Final = re.compile(r"[/\\\x00]|^\.")


def session_file(session_id: str, user_id: str) -> str:
    """The name of the file of a session; another one for any other two ids. No user is the empty id."""
    session = escape(session_id, _ESCAPED, longest=_LONGEST_PART)
    user = escape(user_id, _ESCAPED, longest=_LONGEST_PART) + "%_" if user_id else ""
    return f"{user}{session}.json"


def agentscope_file(session_id: str, user_id: str) -> str | None:
    """The name that AgentScope gave the file of a session; None if it is not the name of a file in the folder."""
    name = f"{user_id}_{session_id}.json" if user_id else f"{session_id}.json"
    try:
        is_safe = not _UNSAFE.search(name) and len(os.fsencode(name)) <= 255
    except UnicodeEncodeError:
        return None
    return name if is_safe else None
