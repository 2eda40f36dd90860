"""The tables of other libraries' names: each name of nnc in them is there, and takes the arguments that are written."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nnc
import nnc.typing
from nnc.errors.names import SOURCES, TABLES, Row, code_of, find_row, note_of

ROWS = [(source, name, row) for source, rows in TABLES.items() for name, row in rows.items()]
LEAST = 400
PEERS = {  # modules whose names mean the same in nnc
    "jax": "nnc", "jax.lax": "nnc", "jax.numpy": "nnc.numpy", "jax.random": "nnc.random", "jax.nn": "nnc.nn",
    "jax.tree_util": "nnc.tree",
    "optax": "nnc.optim", "torch.optim": "nnc.optim", "torch.nn.init": "nnc.nn.initializers",
}  # fmt: skip


def pieces(row: Row) -> Iterator[str]:
    """The code of a row, and the code in its note: between backticks, without file names and shell commands."""
    yield code_of(row)
    yield from (piece for piece in re.findall(r"`([^`]+)`", note_of(row)) if piece.startswith("nnc.") or "x." in piece)


def dotted(node: ast.expr) -> str | None:
    """The name a.b.c that an expression is."""
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return inner and f"{inner}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


def resolve(name: str) -> Any:
    """The object of a dotted name of nnc; submodules are imported.

    Raises:
        AttributeError: there is none.
    """
    parts, value = name.split("."), nnc
    for i, part in enumerate(parts[1:], 2):
        if inspect.ismodule(value) and not hasattr(value, part):
            importlib.import_module(".".join(parts[:i]))
        value = getattr(value, part)
    return value


def names_of_nnc(code: str) -> Iterator[str]:
    """The longest dotted names in code that begin with nnc, and the attributes of x."""
    inner = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and node not in inner:
            inner.update(part for part in ast.walk(node) if isinstance(part, ast.Attribute))
            name = dotted(node)
            if name is not None:
                yield name


@pytest.mark.parametrize(("source", "name", "row"), ROWS, ids=[f"{source}.{name}" for source, name, _ in ROWS])
def test_code_of_a_row_names_functions_that_take_its_arguments(source: str, name: str, row: Row) -> None:
    for code in pieces(row):
        for found in names_of_nnc(code):
            root, _, rest = found.partition(".")
            if root == "nnc":
                resolve(found)
            elif root == "x":
                assert hasattr(nnc.Array, rest.partition(".")[0]), found
            else:
                assert root in ("np", "y", "w", "functools", "logits", "optimizer"), (
                    f"{found} begins with an unknown name"
                )
        for call in (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)):
            function = dotted(call.func)
            if function is not None and function.startswith("nnc."):
                given = {keyword.arg: None for keyword in call.keywords if keyword.arg}
                inspect.signature(resolve(function)).bind(*call.args, **given)


@pytest.mark.parametrize(("source", "where"), PEERS.items())
def test_names_that_nnc_has_meanwhile_are_no_longer_answered_otherwise(source: str, where: str) -> None:
    known = importlib.import_module(where).__all__
    stale = [
        name for name, row in TABLES[source].items() if name in known and not code_of(row).startswith(f"{where}.{name}")
    ]
    assert not stale, f"drop the rows of {stale}: {where} has these names"


def test_there_are_many_rows_and_each_library_has_some() -> None:
    assert len(ROWS) >= LEAST
    assert min(len(rows) for rows in TABLES.values()) > 5
    assert set(SOURCES) >= {"nnc", "nnc.numpy", "nnc.nn", "nnc.optim", "nnc.random", "nnc.tree"}
    assert {source for sources in SOURCES.values() for source in sources} <= set(TABLES)


def test_each_file_is_a_table_and_names_nothing_twice() -> None:
    files = list((Path(nnc.errors.names.__file__).parent / "libraries").iterdir())
    assert {file.name for file in files} == {f"{source}.json" for source in TABLES}
    for file in files:
        names = [name for name, _ in json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=list)]
        assert len(names) == len(set(names)), file


def test_a_module_without_a_table_is_told() -> None:
    assert "numpy" not in TABLES and TABLES.get("numpy") is None
    with pytest.raises(KeyError, match="numpy"):
        TABLES["numpy"]


def test_a_row_of_the_module_that_its_users_come_from_is_found_first() -> None:
    assert find_row("nnc.optim", "Adam") == TABLES["torch.optim"]["Adam"]
    assert find_row("nnc.nn", "huber_loss") == TABLES["torch.nn.functional"]["huber_loss"]
    assert find_row("nnc.optim", "huber_loss") == TABLES["optax"]["huber_loss"]
    assert find_row("nnc.nn.initializers", "kaiming_normal_") == TABLES["torch.nn.init"]["kaiming_normal_"]
    assert find_row("nnc.numpy", "where") == TABLES["torch.Tensor"]["where"], "no row that only says the name itself"
    assert find_row("nnc.numpy", "nothing_of_this_name") is None
