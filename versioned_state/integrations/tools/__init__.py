"""Tools with which a model looks at a state and changes it: by MCP, or as definitions for three vendors' programs.

Layer: integrations.
"""

from versioned_state.integrations.tools.skill import skill_text
from versioned_state.integrations.tools.state_tools import StateTools
from versioned_state.integrations.tools.text import ToolError

__all__ = ["StateTools", "ToolError", "skill_text"]
