"""The style sheet and the script, each under an address that changes with its content. Layer: server.

Browsers may therefore keep them for ever.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import Final

from versioned_state.repository.shown import components
from versioned_state.server.page.render import HERE

_TYPES: Final = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@cache
def content(name: str) -> bytes:
    """Return the bytes of a file. The style sheet begins with that of the components."""
    whole = (HERE / "static" / name).read_bytes()
    return components.style_sheet().encode() + whole if name == "page.css" else whole


@cache
def address(name: str) -> str:
    """Return the address of a file below ``/static/``: a hash of its content, and its name."""
    return f"{hashlib.sha256(content(name)).hexdigest()[:16]}/{name}"


def find(hash: str, name: str) -> tuple[bytes, str] | None:
    """Return the bytes and the type of the file at an address, or None."""
    if name not in _TYPES or address(name) != f"{hash}/{name}":
        return None
    return content(name), _TYPES[name]


@cache
def style_hash() -> str:
    """Return the hash by which a policy allows the style sheet within a page whose viewer may ask for nothing else."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content("page.css")).digest()).decode()
