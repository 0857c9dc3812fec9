"""Notebooks, run cell by cell as a kernel does, without one: only Python, what is printed, and each cell's last value.

``python -m tests.support.notebooks examples/debugging.ipynb`` runs one and stores the outputs in it.
"""

from __future__ import annotations

import ast
import json
import sys
import types
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

Output = dict[str, Any]


def read_notebook(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return notebook


def run_notebook(notebook: dict[str, Any]) -> list[list[Output]]:
    """Return the outputs of each cell of code. Its ``__main__`` is a module of its own, until the end."""
    own, main = types.ModuleType("__main__"), sys.modules["__main__"]
    sys.modules["__main__"] = own
    try:
        return [
            run_cell("".join(cell["source"]), own.__dict__, number)
            for number, cell in enumerate((cell for cell in notebook["cells"] if cell["cell_type"] == "code"), 1)
        ]
    finally:
        sys.modules["__main__"] = main


def run_cell(source: str, names: dict[str, Any], number: int) -> list[Output]:
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body else None
    shown = last.value if isinstance(last, ast.Expr) else None
    if shown is not None:
        tree.body.pop()
    printed, value = StringIO(), None
    with redirect_stdout(printed):
        exec(compile(tree, f"<cell {number}>", "exec"), names)
        if shown is not None:
            value = eval(compile(ast.Expression(shown), f"<cell {number}>", "eval"), names)
    outputs: list[Output] = []
    if printed.getvalue():
        outputs.append(
            {"name": "stdout", "output_type": "stream", "text": printed.getvalue().splitlines(keepends=True)}
        )
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        outputs.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return outputs


def store_outputs(path: Path) -> None:
    notebook = read_notebook(path)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, outputs) in enumerate(zip(code, run_notebook(notebook), strict=True), 1):
        cell["execution_count"], cell["outputs"] = number, outputs
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    store_outputs(Path(sys.argv[1]))
