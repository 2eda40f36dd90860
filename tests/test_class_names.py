"""Within lowering, running and backends a class's name tells which class is meant."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent / "nnc"
# Kernels' classes that still share a name; a name leaves this list with its last twin.
SHARED = {
    "Axis", "Block", "Call", "Combine", "Correction", "Finish", "Form", "Layout", "Matrix", "Plan", "Problem", "Product",
    "Products", "Rows", "Run", "Sum", "Terms", "Tiles",
}  # fmt: skip


def test_no_two_classes_of_lowering_running_and_backends_share_a_name() -> None:
    trees = [
        ast.parse(path.read_text()) for room in ("lower", "run", "backends") for path in (ROOT / room).rglob("*.py")
    ]
    classes = [node.name.lstrip("_") for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert {name for name, count in Counter(classes).items() if count > 1} == SHARED
