"""Within lowering, running and backends a class's name tells which class is meant."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2] / "nnc"


def test_no_two_classes_of_lowering_running_and_backends_share_a_name() -> None:
    trees = [
        ast.parse(path.read_text()) for room in ("lower", "run", "backends") for path in (ROOT / room).rglob("*.py")
    ]
    classes = [node.name.lstrip("_") for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert not {name for name, count in Counter(classes).items() if count > 1}
