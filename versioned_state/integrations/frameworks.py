"""The frameworks that versioned-state has adapters for, and which of them are installed. Layer: integrations."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final


@dataclass(frozen=True, slots=True)
class Framework:
    """One framework.

    Attributes:
        module: the adapter's module, within ``versioned_state.integrations``.
        distribution: what is installed, and whose version decides.
        oldest, below: the versions that the tests ran with: from ``oldest`` on, and less than ``below``.
        extra: the extra of this package that installs it.
    """

    module: str
    distribution: str
    oldest: str
    below: str
    extra: str

    @property
    def installed(self) -> str | None:
        """The installed version. None if there is none."""
        try:
            return version(self.distribution)
        except PackageNotFoundError:
            return None

    @property
    def tested(self) -> bool:
        """Whether the installed version is one that the tests ran with."""
        installed = self.installed
        return installed is not None and _order(self.oldest) <= _order(installed) < _order(self.below)


FRAMEWORKS: Final[tuple[Framework, ...]] = (
    Framework("agent_framework", "agent-framework-core", "1.20", "1.24", "agent-framework"),
    Framework("agentscope", "agentscope", "1.0.21", "1.1", "agentscope"),
    Framework("crewai", "crewai", "1.15", "1.16", "crewai"),
    Framework("google_adk", "google-adk", "2.13", "2.14", "google-adk"),
    Framework("langchain", "langchain-core", "1.0", "2.0", "langchain"),
    Framework("langgraph", "langgraph-checkpoint", "4.3", "5", "langgraph"),
    Framework("llama_index", "llama-index-core", "0.14.20", "0.15", "llama-index"),
    Framework("openai_agents", "openai-agents", "0.22", "0.25", "openai-agents"),
    Framework("opentelemetry", "opentelemetry-sdk", "1.30", "1.46", "opentelemetry"),
    Framework("pydantic_ai", "pydantic-ai-slim", "2.66", "2.69", "pydantic-ai"),
)
"""All of them, by module."""


def check_version(module: str) -> None:
    """Warn if the installed version of a framework is outside of the tested range.

    Each adapter calls this when it is imported.
    """
    framework = next(each for each in FRAMEWORKS if each.module == module)
    if framework.installed is not None and not framework.tested:
        warnings.warn(
            f"versioned_state.integrations.{module} was tested with {framework.distribution} "
            f"{framework.oldest} to below {framework.below}, and {framework.installed} is installed",
            stacklevel=3,
        )


def _order(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, without the text after them: a pre-release counts as its release."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()
