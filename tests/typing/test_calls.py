"""What type checkers say of calls: nothing of those in ``right.py``, and in ``wrong.py`` the error that a line expects.

pyright comes as basedpyright, whose wheel brings the Node that it runs on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.typing import right
from versioned_state.integrations.frameworks import FRAMEWORKS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *args], cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_right_calls_do_what_their_types_say():
    right.main()


def test_mypy():
    done = run("mypy", str(HERE / "right.py"), str(HERE / "wrong.py"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright():
    done = run("basedpyright", "--project", str(HERE), "--pythonpath", sys.executable)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_a_wrong_call_without_its_expectation_is_an_error(checker, tmp_path):
    wrong = (HERE / "wrong.py").read_text(encoding="utf-8").splitlines()
    (call,) = (line.partition("#")[0].strip() for line in wrong if "book.on(state)(3)" in line)
    program = (
        f"from tests.typing.right import book\nfrom versioned_state import Versioned\nstate = Versioned()\n{call}\n"
    )
    (tmp_path / "wrong.py").write_text(program, encoding="utf-8")
    options = ["--project", str(HERE), "--pythonpath", sys.executable] if checker == "basedpyright" else []
    done = run(checker, *options, str(tmp_path / "wrong.py"))
    assert done.returncode == 1
    assert '"str"' in done.stdout


@pytest.mark.long
def test_every_public_type_is_known(tmp_path):
    """Reads the package as its users have it: in the site-packages of the interpreter that is first on the path."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = run("basedpyright", "--verifytypes", "versioned_state", "--ignoreexternal", "--outputjson", env=env)
    found = json.loads(done.stdout)["typeCompleteness"]
    doubtful = {each["name"] for each in found["symbols"] if each["isExported"] and not each["isTypeKnown"]}
    # The type of a class whose base is in a framework is known where that is installed.
    absent = [f"versioned_state.integrations.{each.module}." for each in FRAMEWORKS if each.installed is None]
    assert {
        name for name in doubtful if not any(name.startswith(prefix) and name.count(".") == 3 for prefix in absent)
    } == set()
