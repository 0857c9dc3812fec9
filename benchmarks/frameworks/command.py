"""The command line of ``scripts/bench frameworks``; ``--framework`` and ``--part`` choose among the tables.

Frameworks that cannot be installed beside the others have an environment of their own, that of their tests: there the
module runs again.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from benchmarks import arguments, report
from benchmarks.frameworks.tables import COLUMNS
from benchmarks.measure import workplace
from tests.support.framework_venv import OWN_ENVIRONMENTS, framework_venv
from versioned_state.integrations import FRAMEWORKS
from versioned_state.values import accelerator

MODULES: Final = ("langgraph", "openai_agents", "google_adk", "llama_index", "agent_framework", "crewai", "agentscope")
"""A module for each.

``PARTS`` maps the name of a table to a function of a folder and ``quick``, which returns its title and its rows.
"""

_ALSO: Final = {"google_adk": ("sqlalchemy[asyncio]>=2.0",)}
"""What a framework's own store needs besides."""


def main(given: Sequence[str]) -> int:
    """Measure, print the tables, and return the exit code."""
    parser = arguments.parser("frameworks", "Adapters beside the frameworks' own stores.", quick="small sizes")
    parser.add_argument("--framework", choices=MODULES, help="one of them only")
    parser.add_argument("--part", help="one table only")
    options = parser.parse_args(given)
    started = time.perf_counter()
    code = 0
    for name in [options.framework] if options.framework else MODULES:
        if name in OWN_ENVIRONMENTS and not _is_installed(name):
            code |= _elsewhere(name, options)
        else:
            _measure(import_module(f"benchmarks.frameworks.{name}").PARTS, options)
    print(f"\n{time.perf_counter() - started:.0f} seconds in all")
    return code


def _measure(parts: dict[str, Any], options: argparse.Namespace) -> None:
    with workplace() as folder:
        for part, measure in parts.items():
            if options.part in (None, part):
                place = folder / part
                place.mkdir()
                title, rows = measure(place, quick=options.quick)
                print()
                report.print_table([title, *COLUMNS], rows)
                sys.stdout.flush()


def _is_installed(module: str) -> bool:
    return next(each for each in FRAMEWORKS if each.module == module).installed is not None


def _elsewhere(module: str, options: argparse.Namespace) -> int:
    """Run this program in the environment of a framework, with the accelerator of this one, if there is one."""
    extra = next(each for each in FRAMEWORKS if each.module == module).extra
    python = framework_venv(*_ALSO.get(module, ()), extras=[extra])
    chosen = [
        "--framework",
        module,
        *(["--part", options.part] if options.part else []),
        *(["--quick"] if options.quick else []),
    ]
    program = "import sys; from benchmarks.frameworks.command import main; sys.exit(main(sys.argv[1:]))"
    with tempfile.TemporaryDirectory(prefix="vstate-bench-") as name:
        found = importlib.util.find_spec("versioned_state_fast") if accelerator.status == "active" else None
        if found is not None and found.origin is not None:
            (Path(name) / Path(found.origin).name).symlink_to(found.origin)
        sys.stdout.flush()
        return subprocess.run(
            [str(python), "-c", program, *chosen], check=False, env={**os.environ, "PYTHONPATH": name}
        ).returncode
