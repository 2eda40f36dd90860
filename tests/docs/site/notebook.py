"""Runs the code cells of notebooks in this process, without Jupyter, and holds their outputs against the stored ones.

Two tags of cells, which Jupyter's own tools know by these names, change that: `nbval-ignore-output` for outputs that differ from
run to run (times, bytes of a machine), `raises-exception` for a cell that shows an error.
"""

from __future__ import annotations

import ast
import io
import json
import linecache
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import CodeType
from typing import Any

VARIES, RAISES = "nbval-ignore-output", "raises-exception"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def write(path: Path, notebook: dict[str, Any]) -> None:
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def tags(cell: dict[str, Any]) -> list[str]:
    return cell["metadata"].get("tags", [])


def code_of(source: str, file: str) -> tuple[CodeType, CodeType | None]:
    """The statements of a cell, and its last expression, which is displayed."""
    body = ast.parse(source, file).body
    last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
    return compile(ast.Module(body, []), file, "exec"), last and compile(last, file, "eval")


def shown(value: Any, count: int) -> dict[str, Any]:
    """The output in which Jupyter displays a value."""
    data = {"text/plain": lines(repr(value))}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = lines(value._repr_html_())
    return {"output_type": "execute_result", "execution_count": count, "data": data, "metadata": {}}


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def run_cell(source: str, count: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs a cell with the names of the cells before it, and returns its outputs."""
    file = f"cell {count}"  # errors and graphs name the lines of a cell by it
    linecache.cache[file] = (len(source), None, lines(source), file)
    printed, outputs = io.StringIO(), []
    try:
        statements, last = code_of(source, file)
        with redirect_stdout(printed), redirect_stderr(io.StringIO()):
            exec(statements, names)
            value = None if last is None else eval(last, names)
        if value is not None:
            outputs.append(shown(value, count))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        outputs.append(
            {"output_type": "error", "ename": type(error).__name__, "evalue": str(error), "traceback": text.split("\n")}
        )
    if printed.getvalue():
        outputs.insert(0, {"output_type": "stream", "name": "stdout", "text": lines(printed.getvalue())})
    return outputs


def text_of(output: dict[str, Any]) -> str:
    """The words of an output that a run must give again."""
    if output["output_type"] == "error":
        return f"{output['ename']}: {output['evalue']}".strip()
    text = output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
    return COLOURS.sub("", "".join(text)).strip()


def run(notebook: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yields each code cell and its outputs of today."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(cells, 1):
        yield cell, run_cell("".join(cell["source"]), count, names)


def failures(path: Path) -> list[str]:
    """Runs a notebook, and returns the cells whose outputs are not the stored ones."""
    found = []
    for count, (cell, outputs) in enumerate(run(read(path)), 1):
        now, stored = "\n".join(map(text_of, outputs)), "\n".join(map(text_of, cell["outputs"]))
        raised = any(output["output_type"] == "error" for output in outputs)
        if raised != (RAISES in tags(cell)) or (now != stored and VARIES not in tags(cell)):
            found.append(f"{path.name}, cell {count}\nstored:\n{stored}\nnow:\n{now}")
    return found


def renew(path: Path) -> None:
    """Stores the outputs of today."""
    notebook = read(path)
    for count, (cell, outputs) in enumerate(run(notebook), 1):
        if RAISES not in tags(cell) and any(output["output_type"] == "error" for output in outputs):
            raise RuntimeError(f"{path}, cell {count}: {text_of(outputs[-1])}")
        cell["execution_count"], cell["outputs"] = count, outputs
    write(path, notebook)
