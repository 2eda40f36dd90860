"""Mistakes with nnc.export and nnc.load_exported; none of them leaves a file behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import (
    ArgumentError,
    ArgumentTypeError,
    BackendError,
    FileAccessError,
    FileFormatError,
    MemoryBudgetError,
    MissingFileError,
    ShapeError,
    UnsupportedError,
)
from tests.errors.reports import reports

X = nnc.ShapeDtypeStruct((3,), "float32")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "out"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a b", "", "1x", "int", "class", "xor", "main", "é", "_x", 3])
def test_a_name_that_is_no_c_identifier(folder: Path, name: Any) -> None:
    with reports(ArgumentError, "nnc.export", repr(name), "name="):
        nnc.export(nnp.square, X, path=folder, name=name)


@pytest.mark.parametrize("name", ["sin", "fmod", "fmodf", "erff", "memcpy", "index"])
def test_a_name_of_the_c_library(folder: Path, name: str) -> None:
    """Callers, and the object itself, would call the exported function instead."""
    with reports(ArgumentError, "nnc.export", "the C library has a function", repr(name), "name="):
        nnc.export(nnp.square, X, path=folder, name=name)


def test_a_lambda_without_a_name(folder: Path) -> None:
    with reports(ArgumentError, "'<lambda>'", "name="):
        nnc.export(lambda x: x, X, path=folder)


@pytest.mark.parametrize("target", ["z80", "", 3, None])
def test_an_unknown_target(folder: Path, target: Any) -> None:
    with reports(ArgumentError, "nnc.export", repr(target), "x86-64-v3", "wasm32", "LLVM"):
        nnc.export(nnp.square, X, path=folder, target=target)


@pytest.mark.parametrize("spec", ["hello", None, object()])
def test_specs_that_are_not_concrete(folder: Path, spec: Any) -> None:
    with reports(ArgumentTypeError, "x is"):
        nnc.export(nnp.square, spec, path=folder)


def test_no_function(folder: Path) -> None:
    with reports(ArgumentTypeError, "nnc.export", "must be a function"):
        nnc.export(nnp.ones(2), X, path=folder)  # type: ignore[arg-type]


def test_a_folder_that_exists(tmp_path: Path) -> None:
    with reports(FileAccessError, "nnc.export", "exists already"):
        nnc.export(nnp.square, X, path=tmp_path)


def test_a_folder_that_cannot_be_made() -> None:
    with reports(FileAccessError, "nnc.export", "/proc/none"):
        nnc.export(nnp.square, X, path="/proc/none/x")


def test_a_path_that_is_none() -> None:
    with reports(ArgumentTypeError, "path is 3"):
        nnc.export(nnp.square, X, path=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "setting",
    [{"threads": -1}, {"threads": 1.5}, {"threads": True}, {"constants": "nowhere"}, {"max_steps": 0}, {"lapack": "x"}],
)
def test_settings_that_are_none(folder: Path, setting: dict[str, Any]) -> None:
    with reports(ArgumentError, "nnc.export", next(iter(setting))):
        nnc.export(nnp.square, X, path=folder, **setting)


def test_threads_where_there_are_none(folder: Path) -> None:
    with reports(UnsupportedError, "threads", "wasm32"):
        nnc.export(nnp.square, X, path=folder, threads=2, target="wasm32")


def test_a_budget_that_no_plan_fits(folder: Path) -> None:
    def big(x: Any) -> Any:
        y = nnp.outer(x, x)
        return nnp.cumsum(y @ y, 0) @ y

    with reports(MemoryBudgetError, "memory_budget is 1.00 KiB"):
        nnc.export(big, nnc.ShapeDtypeStruct((100,), "float32"), path=folder, memory_budget="1KiB")


def test_constants_beyond_the_reach_of_an_object_file(folder: Path) -> None:
    table = nnp.asarray(np.zeros(1 << 31, np.uint8))
    with reports(ArgumentError, "2 GB", 'constants="file"'):
        nnc.export(lambda i: table[i], nnc.ShapeDtypeStruct((), "int32"), path=folder, name="f")


def test_every_line_that_needs_python_is_named(folder: Path) -> None:
    def f(x: Any) -> Any:
        nnc.debug.print("x is {}", x)
        y = nnc.pure_callback(np.sin, x, x)
        return nnp.linalg.svd(nnp.outer(y, y))[1]

    with reports(
        UnsupportedError, "3 steps need Python", "debug.print(", "pure_callback(np.sin", "svd at ", "linalg.svd("
    ):
        nnc.export(f, X, path=folder)


def test_a_gradient_of_a_loop_without_a_bound(folder: Path) -> None:
    def root(a: Any) -> Any:
        return nnc.while_loop(lambda s: nnp.abs(s * s - a) > 1e-5, lambda s: 0.5 * (s + a / s), a)

    with reports(UnsupportedError, "while_loop(", "max_steps="):
        nnc.export(nnc.grad(root), nnc.ShapeDtypeStruct((), "float32"), path=folder, name="root")


def test_factorizations_without_lapack(folder: Path) -> None:
    x = nnc.ShapeDtypeStruct((6, 6), "float64")
    with reports(UnsupportedError, "svd at ", 'lapack="link"'):
        nnc.export(nnp.linalg.svd, x, path=folder)
    with reports(UnsupportedError, "LAPACK is not linked on wasm32"):
        nnc.export(nnp.linalg.svd, x, path=folder, lapack="link", target="wasm32")


# -- loading -----------------------------------------------------------------------------------------------------------


def test_loading_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with reports(MissingFileError, "nnc.load_exported", "there is no folder"):
        nnc.load_exported(tmp_path / "none")


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"name": 3}'])
def test_loading_a_folder_without_an_exported_function(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "f.json").write_text(content)
    with reports(FileFormatError, "nnc.load_exported", "holds no exported function"):
        nnc.load_exported(tmp_path)


def test_loading_a_function_for_another_processor(tmp_path: Path) -> None:
    nnc.export(nnp.square, X, path=tmp_path / "out", target="wasm32")
    with reports(UnsupportedError, "nnc.load_exported", "wasm32"):
        nnc.load_exported(tmp_path / "out")


def test_loading_a_function_that_needs_lapack(tmp_path: Path) -> None:
    x = nnc.ShapeDtypeStruct((64, 64), "float64")
    nnc.export(nnp.linalg.inv, x, path=tmp_path / "out", lapack="link")
    with reports(BackendError, "nnc.load_exported", "dgesv_", "RTLD_GLOBAL"):
        nnc.load_exported(tmp_path / "out")


def test_calling_with_other_arrays(tmp_path: Path) -> None:
    nnc.export(nnp.square, X, path=tmp_path / "out")
    f = nnc.load_exported(tmp_path / "out")
    with reports(ArgumentError, "square", "it takes 1 arrays, 2 were given"):
        f(np.ones(3, np.float32), np.ones(3, np.float32))
    for x in (np.ones(4, np.float32), np.ones(3)):
        with reports(ShapeError, "x must be float32[3]"):
            f(x)


# -- errors of calls ---------------------------------------------------------------------------------------------------


def test_an_index_out_of_range_names_the_line(tmp_path: Path) -> None:
    def pick(x: Any, i: Any) -> Any:
        return x[i]

    exported = nnc.export(pick, X, np.int32(0), path=tmp_path / "out")
    f = nnc.load_exported(tmp_path / "out")
    assert f(np.array([1, 2, 4], np.float32), np.int32(2)) == 4
    with reports(BackendError, "an index is out of range", "return x[i]"):
        f(np.ones(3, np.float32), np.int32(7))
    listed = json.loads((tmp_path / "out" / "pick.json").read_text())["errors"]
    assert list(listed.values()) == list(exported.errors.values())


def test_a_loop_beyond_its_bound_names_the_line(tmp_path: Path) -> None:
    def count(x: Any) -> Any:
        return nnc.while_loop(lambda i: i < x, lambda i: i + 1, nnp.zeros_like(x), max_steps=5)

    nnc.export(count, np.int32(0), path=tmp_path / "out")
    f = nnc.load_exported(tmp_path / "out")
    assert f(np.int32(5)) == 5
    with reports(BackendError, "max_steps=5", "while_loop("):
        f(np.int32(6))


def test_a_branch_that_is_none_names_the_line(tmp_path: Path) -> None:
    def choose(i: Any, x: Any) -> Any:
        return nnc.switch(i, [nnp.sin, nnp.cos], x)

    nnc.export(choose, np.int32(0), X, path=tmp_path / "out")
    with reports(BackendError, "there is no branch of this number", "nnc.switch("):
        nnc.load_exported(tmp_path / "out")(np.int32(2), np.ones(3, np.float32))
