"""Runs an example as a user does: as a program, from another directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[3]
_SIMULATED = """
import os, runpy, sys
import nnc.testing.devices
del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(name: str, out: Path, *options: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Returns the program's output; it must end well where `check` is True."""
    first = ["-c", _SIMULATED] if any(option.startswith("sim:") for option in options) else []
    command = [sys.executable, *first, str(ROOT / "examples" / f"{name}.py"), "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=out.parent, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def table_below(text: str, first: str) -> dict[str, list[float]]:
    """The rows of the table whose header begins with `first`: the name in the first column, and the numbers after it."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(first))
    columns = [len(part) for part in lines[start + 1].split("  ")]
    rows = {}
    for line in lines[start + 2 :]:
        name, *rest = line[: columns[0]].strip(), *line[columns[0] :].split()
        if not rest or not all(_is_number(part) for part in rest):
            break
        rows[name] = [float(part) for part in rest]
    return rows


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def shapes(path: Path) -> dict[str, int]:
    """Counts the elements of each kind of an SVG, which must be well-formed."""
    counts: dict[str, int] = {}
    for element in ElementTree.parse(path).iter():
        kind = element.tag.split("}")[1]
        counts[kind] = counts.get(kind, 0) + 1
    return counts
