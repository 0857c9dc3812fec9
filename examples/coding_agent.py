"""A coding agent whose files and memory go back together.

    python examples/coding_agent.py

The agent edits a program until its test passes. A script stands for the model. An attempt that breaks the test leaves
neither files nor messages; two ideas are tried in folders of their own, and the faster one is merged.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from versioned_state import Versioned, Workspace, task

TEST = "from fib import fib\nassert [fib(n) for n in range(7)] == [0, 1, 1, 2, 3, 5, 8]\n"

SIMPLE = '''"""Fibonacci numbers."""


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
'''
LOOP = SIMPLE.replace(
    "    return n if n < 2 else fib(n - 1) + fib(n - 2)\n",
    "    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n",
)
CACHED = SIMPLE.replace("\n\ndef", "\nfrom functools import cache\n\n\n@cache\ndef")

REPLIES = {
    "write fib": {"fib.py": SIMPLE, "test_fib.py": TEST},
    # which is wrong
    "make it faster": {"fib.py": SIMPLE.replace("n < 2", "n < 3"), "notes/tried.txt": "base case of 3"},
    "use a loop": {"fib.py": LOOP},
    "use a cache": {"fib.py": CACHED},
}
"""What the model answers: the files that it writes."""


class BrokenError(Exception):
    """The test fails."""


@task
def work(request: str, state: Versioned, folder: Path) -> None:
    """One request: the model's edits, and the test."""
    state.setdefault("messages", []).append({"role": "user", "content": request})
    for name, content in REPLIES[request].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    state["messages"].append({"role": "assistant", "content": f"wrote {', '.join(REPLIES[request])}"})
    command = [sys.executable, "-B", "test_fib.py"]
    if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode:
        raise BrokenError(request)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        state = Versioned()
        workspace = Workspace(state, root / "project")
        work("write fib", state=state, folder=root / "project")
        first = state.head
        print(f"after {first.message!r}: {sorted(state['workspace'])}, {len(state['messages'])} messages")

        try:
            work("make it faster", state=state, folder=root / "project")
        except BrokenError as error:
            print(f"{error!s} broke the test, and left {sorted(workspace.files)} and {len(state['messages'])} messages")

        for idea in ("use a loop", "use a cache"):
            fork = state.fork(idea.replace(" ", "-"))
            with Workspace(fork, root / idea):
                work(idea, state=fork, folder=root / idea)
            print(f"{idea}: {len(fork.diff(first, fork.head))} changes on {fork.branch}")
        state.merge("use-a-loop")
        print((root / "project" / "fib.py").read_text())
        print("which commit each line is from:")
        for part in state.blame('workspace["fib.py"]'):
            print(f"  {part.commit.short}  {part.value}")

        state.undo()
        assert (root / "project" / "fib.py").read_text() == SIMPLE
        assert len(state["messages"]) == 2
        print(f"undone: {len(state['messages'])} messages, and fib.py as it was")


if __name__ == "__main__":
    main()
