"""Pytrees without an end, and paths that are no files to read or to write."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import (
    ArgumentError,
    ArgumentTypeError,
    FileAccessError,
    MissingFileError,
    NncError,
    ShapeError,
    TreeError,
)
from nnc.graph import from_json, load_graph, save_graph, to_json
from tests.errors.reports import reports

X = nnp.ones(3)


def deep(kind: type, levels: int = 5_000) -> Any:
    value: Any = X
    for _ in range(levels):
        value = [value] if kind is list else {"a": value}
    return value


def cyclic() -> Any:
    value: dict[str, Any] = {"x": X}
    value["again"] = [value]
    return value


TAKERS: dict[str, Callable[[Any], object]] = {
    "compile": lambda v: nnc.compile(lambda p: p)(v),
    "a result": lambda v: nnc.compile(lambda p: v)(1.0),
    "grad": lambda v: nnc.grad(lambda p: 1.0)(v),
    "vmap": lambda v: nnc.vmap(lambda p: p)(v),
    "jvp": lambda v: nnc.jvp(lambda p: p, (v,), (v,)),
    "scan": lambda v: nnc.scan(lambda c, _: (c, None), v, None, length=2),
    "tree.map": lambda v: nnc.tree.map(lambda x: x, v),
    "an optimizer": lambda v: nnc.optim.adam(0.1).init(v),
    "save": lambda v: nnc.io.save("never_written.safetensors", v),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_a_tree_that_holds_itself(taker: str) -> None:
    with pytest.raises(
        TreeError, match=r"(?s)the dict at .*\['again'\]\[0\] holds itself.*test_trees_and_files.*Fix: "
    ):
        TAKERS[taker](cyclic())


@pytest.mark.parametrize("kind", [list, dict])
@pytest.mark.parametrize("taker", TAKERS)
def test_a_tree_of_five_thousand_levels(taker: str, kind: type) -> None:
    with pytest.raises(TreeError, match=r"(?s)nested more than 1000 deep.*test_trees_and_files.*Fix: "):
        TAKERS[taker](deep(kind))


def test_lists_that_no_array_is_made_of() -> None:
    with reports(ShapeError, "asarray", "nested deeper"):
        nnp.asarray(deep(list))
    with pytest.raises(NncError):
        nnp.sum(deep(dict))


def test_a_deep_container_that_a_function_captures() -> None:
    captured = deep(list)
    with reports(TreeError, "captured", "nested too deeply"):
        nnc.compile(lambda x: (captured, x)[1])(1.0)


# -- paths -------------------------------------------------------------------------------------------------------------


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "fifo")
    return folder / "fifo"


PATHS: dict[str, tuple[Callable[[Path], Any], type[NncError], str]] = {
    "a NUL": (lambda folder: "a\0b", ArgumentError, "NUL"),
    "half a character": (lambda folder: "a\ud800b", ArgumentError, "half a character"),
    "no path": (lambda folder: 3, ArgumentTypeError, "int"),
    "a device": (lambda folder: "/dev/null", FileAccessError, "a device"),
    "a FIFO": (fifo, FileAccessError, "a FIFO"),
    "too long": (lambda folder: folder / ("a" * 256), FileAccessError, "too long"),
    "much too long": (lambda folder: folder / "/".join(["a" * 200] * 30), NncError, "characters"),
    "no folder": (lambda folder: folder / "missing" / "x", MissingFileError, "there is no"),
}
USERS: dict[str, Callable[[Any], object]] = {
    "load": nnc.io.load,
    "save": lambda path: nnc.io.save(path, {"x": X}),
    "load_graph": load_graph,
    "save_graph": lambda path: save_graph(path, nnc.make_graph(lambda x: x + 1)(X)),
}


@pytest.mark.skipif(os.name == "nt", reason="paths of POSIX")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("user", USERS)
def test_paths_that_are_no_files(user: str, path: str, tmp_path: Path) -> None:
    make, kind, word = PATHS[path]
    with pytest.raises(kind) as caught:
        USERS[user](make(tmp_path))
    text = str(caught.value)
    assert word in text and "\nFix: " in text and "test_trees_and_files.py:" in text
    assert path not in ("a device", "a FIFO", "too long") or isinstance(caught.value, OSError)


@pytest.mark.parametrize("length", [200, 245, 255])
def test_long_names_are_names(length: int, tmp_path: Path) -> None:
    path = tmp_path / ("a" * length)
    nnc.io.save(path, {"x": X})
    assert nnc.io.load(path)["x"].tolist() == [1.0, 1.0, 1.0]


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    for read in (nnc.io.load, load_graph):
        with reports(MissingFileError, "is a directory"):
            read(tmp_path)
    with reports(ArgumentTypeError, "is a directory"):
        nnc.io.save(tmp_path, {"x": X})


# -- stored graphs -----------------------------------------------------------------------------------------------------

WRONG: list[Any] = [None, True, -1, 2**70, 0.5, "x", "", [], [0], [[None]], {}, {"x": 1}]


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, part in items:
        found += places(part, (*path, key))
    return found


def test_each_field_of_a_stored_graph_with_each_wrong_value_gives_an_error_of_nnc_or_a_sound_graph() -> None:
    def fun(x: Any, y: Any) -> Any:
        return nnc.cond(x[0] > 0, lambda v: v * y, lambda v: v + nnp.sum(v) * y, x), nnp.ones(2) @ np.ones((2, 2))

    text = to_json(nnc.make_graph(fun)(X, 2.0))
    refused = []
    for path in places(json.loads(text)):
        for wrong in WRONG:
            document = json.loads(text)
            at = document
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = wrong
            with contextlib.suppress(NncError):
                to_json(from_json(json.dumps(document)))
                continue
            refused.append((path, wrong))
    assert len(refused) > 500
