"""Sandboxes: where the tools of an agent run code and keep files. Layer: sandbox, beneath the services; free of the engine.

``BaseSandbox`` runs Python and shell commands in processes of their own, ``FilesystemSandbox`` is a folder. Other types, such as browsers
and containers, are plug-ins: ``register`` their factories. docs/howto/sandboxes.md says what a local sandbox does not hold back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from versioned_state.lazy import lazy_names

if TYPE_CHECKING:
    from versioned_state.sandbox.enums import SandboxType
    from versioned_state.sandbox.local.base_sandbox import BaseSandbox
    from versioned_state.sandbox.local.filesystem_sandbox import FilesystemSandbox
    from versioned_state.sandbox.local.protocol import Isolation
    from versioned_state.sandbox.registry import register, unregister
    from versioned_state.sandbox.sandbox import Sandbox

__all__ = ["BaseSandbox", "FilesystemSandbox", "Isolation", "Sandbox", "SandboxType", "register", "unregister"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "BaseSandbox": "local.base_sandbox",
        "FilesystemSandbox": "local.filesystem_sandbox",
        "Isolation": "local.protocol",
        "Sandbox": "sandbox",
        "SandboxType": "enums",
        "register": "registry",
        "unregister": "registry",
    },
)
