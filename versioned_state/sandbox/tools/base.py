"""The tools of base sandboxes. Layer: sandbox."""

from __future__ import annotations

from typing import Final

from versioned_state.sandbox.enums import SandboxType
from versioned_state.sandbox.tools.tool import SandboxTool

__all__ = ["run_ipython_cell", "run_shell_command"]

run_ipython_cell: Final = SandboxTool(
    "run_ipython_cell", SandboxType.BASE, "Run a cell of Python, whose names persist."
)
run_shell_command: Final = SandboxTool("run_shell_command", SandboxType.BASE, "Run a shell command.")
