"""Services of AgentScope Runtime, loaded from a folder beside the environment without what the package depends on.

``scripts/bench services`` puts them there. Of the package itself only the modules of a service are imported: they need
redis-py, pydantic and openai.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(sys.prefix) / "agentscope-runtime"

_PACKAGES: Final = (
    "agentscope_runtime",
    "agentscope_runtime.engine",
    "agentscope_runtime.engine.schemas",
    "agentscope_runtime.engine.services",
)


def load(module: str, name: str) -> type[Any] | None:
    """A class of its services, by the module within them; None if the package is not there."""
    if not (FOLDER / "agentscope_runtime").is_dir():
        return None
    module = f"{_PACKAGES[-1]}.{module}"
    for each in (*_PACKAGES, module.rpartition(".")[0]):
        if each not in sys.modules:
            package = types.ModuleType(each)
            package.__path__ = [str(FOLDER.joinpath(*each.split(".")))]  # its own __init__ imports all of it
            sys.modules[each] = package
    found: type[Any] = getattr(importlib.import_module(module), name)
    return found
