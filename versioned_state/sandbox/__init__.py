"""Sandboxes, in which the tools of an agent run code and keep files.

Layer: sandbox, beneath the services. Does not use the engine.

``BaseSandbox`` runs Python and shell commands in processes of their own, ``FilesystemSandbox`` is a folder. Other
types, such as browsers and containers, are plug-ins: ``register`` their factories. docs/howto/sandboxes.md says what a
local sandbox does not hold back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from versioned_state.lazy import lazy_names

if TYPE_CHECKING:
    from versioned_state.sandbox.enums import SandboxType as SandboxType
    from versioned_state.sandbox.local.base_sandbox import BaseSandbox as BaseSandbox, ContentSandbox as ContentSandbox
    from versioned_state.sandbox.local.filesystem_sandbox import FilesystemSandbox as FilesystemSandbox
    from versioned_state.sandbox.local.protocol import Isolation as Isolation
    from versioned_state.sandbox.registry import register as register, unregister as unregister
    from versioned_state.sandbox.sandbox import Sandbox as Sandbox

    __all__: list[str]
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "enums": "SandboxType",
            "local.base_sandbox": "BaseSandbox ContentSandbox",
            "local.filesystem_sandbox": "FilesystemSandbox",
            "local.protocol": "Isolation",
            "registry": "register unregister",
            "sandbox": "Sandbox",
        },
    )
