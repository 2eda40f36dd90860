"""`nnc.debug.promotion` names the lines where floats of fewer bits meet float64."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.debug import PromotionWarning, promotion
from nnc.errors import ArgumentError, DTypeError

X, WIDE = nnp.ones(3), np.ones(3)


def scaled(x: Any) -> Any:
    y = x + 1
    return y * WIDE  # widens


def marked_line() -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if line.endswith("# widens"))


def lines_named(run: Any, times: int = 1) -> list[int]:
    with warnings.catch_warnings(record=True) as found, promotion():
        warnings.simplefilter("always")
        for _ in range(times):
            run()
    assert all(w.category is PromotionWarning and w.filename == __file__ for w in found)
    return [w.lineno for w in found]


RUNS = {
    "eagerly": lambda f: f(X), "compiled": lambda f: nnc.compile(f)(X), "in a graph": lambda f: nnc.make_graph(f)(X),
    "differentiated": lambda f: nnc.grad(lambda x: nnp.sum(f(x)))(X), "mapped": lambda f: nnc.vmap(lambda x: f(x)[0])(X[:, None]),
    "in a loop": lambda f: nnc.scan(lambda c, x: (c, f(x)[0]), 0.0, X[:, None]),
    "in a dynamic graph": lambda f: f(nnc.DynamicGraph().variable(X)),
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_the_line_that_widens_is_named_once(run):
    assert lines_named(lambda: run(scaled), times=3) == [marked_line()]


def test_each_line_is_named_though_calls_are_alike():
    def f(x: Any) -> Any:
        return nnp.sum(x * WIDE) + nnp.sum(
            x * WIDE)  # fmt: skip

    for run in (f, nnc.compile(f), lambda x: nnc.grad(f)(x)):
        assert len(lines_named(lambda run=run: run(X), times=5)) == 2


def test_calls_that_were_answered_from_memory_before_are_looked_at():
    for _ in range(6):
        scaled(X)
    assert lines_named(lambda: scaled(X)) == [marked_line()]


def test_a_function_that_was_compiled_before_is_traced_once_more():
    f = nnc.compile(scaled)
    for _ in range(4):
        f(X)
    for _ in range(2):  # of each block
        assert lines_named(lambda: f(X), times=3) == [marked_line()]
    for _ in range(2):
        with promotion("error"), pytest.raises(DTypeError, match="float64"):
            f(X)
    assert f(X).dtype == np.float64 and f.cache_info().misses == 1


@pytest.mark.parametrize("wide", [WIDE, np.asarray(1.0), nnp.ones(3, "float64"), np.ones(3, complex)], ids=repr)
@pytest.mark.parametrize("x", [X, nnp.ones(3, "float16"), nnp.ones(3, "bfloat16"), nnp.ones(3, "complex64")], ids=repr)
def test_all_that_widens_is_named(x, wide):
    for run in (
        lambda: x * wide, lambda: wide + x, lambda: nnp.where(True, x, wide), lambda: nnp.concatenate([x, nnp.ravel(wide)]),
        lambda: nnp.stack([x, x * 0 + wide]), lambda: wide * x,
    ):  # fmt: skip
        assert len(lines_named(run)) == 1


def test_weak_numbers_and_programs_of_one_width_are_not_named():
    wide = nnp.ones(3, "float64")
    for run in (
        lambda: X / np.sqrt(3), lambda: X * np.float64(2) + 1.5, lambda: X * np.arange(3), lambda: wide * WIDE, lambda: X * X,
        lambda: X.astype("float64") * WIDE, lambda: nnp.arange(3) * WIDE, lambda: nnp.where(X > 0, X, np.float64(0)),
        lambda: nnc.grad(lambda x: nnp.sum(nnp.tanh(x / np.sqrt(3))))(X), lambda: nnc.compile(scaled)(wide),
    ):  # fmt: skip
        assert lines_named(run) == []


def test_an_error_names_the_line_the_operands_and_the_fix():
    with promotion("error"), pytest.raises(DTypeError) as error:
        nnc.compile(scaled)(X)
    text = str(error.value)
    assert f"test_promotion.py:{marked_line()} in scaled" in text and "Fix: " in text
    assert "float32[3]" in text and "float64[3]" in text and "while tracing scaled for compile" in text
    assert scaled(X).dtype == np.float64  # the block has ended


def test_an_inner_block_takes_the_place_of_the_outer_one():
    with promotion("error"):
        assert lines_named(lambda: scaled(X)) == [marked_line()]
        with pytest.raises(DTypeError):
            scaled(X)


def test_an_action_that_does_not_exist():
    with pytest.raises(ArgumentError, match="action is .raise."):
        promotion("raise")
