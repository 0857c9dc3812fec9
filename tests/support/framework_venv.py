"""Environments for frameworks that are too large, or too particular about versions, for that of the tests."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

OWN_ENVIRONMENTS: Final = ("agentscope", "crewai", "google_adk")
"""The adapters whose framework is not in the extra ``test``: test_framework_venvs.py runs their tests and pages."""

ROOT: Final = Path(__file__).parents[2]
_ENVIRONMENTS: Final = ROOT / ".venv" / "frameworks"

_TOOLS: Final = ("hypothesis>=6.150", "pytest>=9.0", "pytest-xdist>=3.8", "sybil>=9.2")
_EXTRAS: Final = ("numpy", "postgres", "redis", "s3")
"""What the tests import whatever they test, and the extras of this project that have it: see tests/conftest.py."""


def framework_venv(*requirements: str, extras: Sequence[str] = ()) -> Path:
    """Return the Python of an environment with this project as it is here, some extras, and the requirements.

    It also has what tests need.

    Made once, and kept in ``.venv/frameworks``. Two processes that need one at once make it once.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    chosen = sorted({*_EXTRAS, *extras})
    wanted = [*sorted({*_TOOLS, *requirements}), "--editable", f"{ROOT}[{','.join(chosen)}]"]
    described = [
        sys.version,
        *wanted,
        *project["dependencies"],
        *(str(project["optional-dependencies"][extra]) for extra in chosen),
    ]
    name = hashlib.sha256("\n".join(described).encode()).hexdigest()[:16]
    folder = _ENVIRONMENTS / name
    _ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    with (_ENVIRONMENTS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python, ready = folder / "bin" / "python", folder / "ready"
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(folder))
            _run(str(python), "-m", "pip", "install", "--quiet", *wanted)
            ready.touch()
    return python


def needed_by(page: Path) -> list[str]:
    """Return the distributions that a page's code needs beyond those of all pages: ``<!-- needs: … -->`` names them."""
    found = re.search(r"^<!-- needs: (.+) -->$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].split() if found else []


def missing(distributions: Iterable[str]) -> list[str]:
    """Return those that are not installed here."""
    return [name for name in distributions if not any(metadata.distributions(name=name))]


def run_tests(python: Path, *arguments: str) -> None:
    """Run tests of this project in such an environment, those marked ``long`` too.

    They must pass, and there must be some.

    A warning is no error there: frameworks and what they bring warn while they are imported.
    """
    _run(
        str(python),
        "-m",
        "pytest",
        "--long",
        "--quiet",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-W",
        "default",
        *arguments,
    )


def _run(*command: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    done = subprocess.run(command, cwd=ROOT, env=inherited, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}"
