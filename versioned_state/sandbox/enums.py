"""``SandboxType``: the names of the types of sandboxes. Layer: sandbox."""

from __future__ import annotations

from enum import StrEnum


class SandboxType(StrEnum):
    """The types that tools of the library name.

    ``base`` and ``filesystem`` are local. The others need a registered factory.

    A factory may be registered under any other name too; such a type is a string.
    """

    BASE = "base"
    FILESYSTEM = "filesystem"
    BROWSER = "browser"
    GUI = "gui"
    MOBILE = "mobile"
    APPWORLD = "appworld"
    BFCL = "bfcl"
    AGENTBAY = "agentbay"
