"""Functions of Python numbers give the same dtypes and weakness whether the numbers are known or stand for arguments of a trace."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
import nnc.scipy.linalg as linalg
from nnc import nn, optim
from nnc.scipy import special, stats

MODULES: tuple[ModuleType, ...] = (nnp, nnp.linalg, nnp.fft, nn, special, stats, optim, linalg)  # type: ignore[assignment]
PAIRS: tuple[tuple[Any, Any], ...] = ((2, 1), (0.5, 0.25), (0.5j, 0.25j), (np.float64(0.5), np.float64(0.25)))
HALF, SMALL = nnp.ones(2, "float16"), nnp.ones(2, "int8")


class Number:
    """The place of a number among arguments."""

    def __init__(self, index: int) -> None:
        self.index = index


A, B = Number(0), Number(1)
CALLS: tuple[tuple[Any, ...], ...] = (
    (A,), (A, B), (A, B, A), ([A, B],), ([A, B], [B, A]), (3, A), ([A, B], A), (A, [A, B]), ((2, 2), A), (HALF, A), (SMALL, A),
    (nnp.ones((2, 2), "float16"), A), (A, HALF), (A, B, HALF), (True, A, B), (HALF, A, B), (A, B, 3), ([[A, B], [B, A]],),
    (HALF, [A, B]), (SMALL, nnp.asarray([0]), A),
)  # fmt: skip

# Functions that are not called, or whose results are not compared, each for its reason.
LEFT_OUT = {
    "set_printoptions",  # changes NumPy for all later tests
    "broadcast_arrays",  # hands on Python's bools, which give way to all dtypes in any case
    "per_example_global_norm_clip",  # hands on leaves that are no arrays
}  # fmt: skip


def kinds(result: Any) -> list[tuple[str, bool]]:
    """The dtype and the weakness of each array of a result."""
    return [(str(x.dtype), bool(x.weak)) for x in nnc.tree.leaves(result) if hasattr(x, "spec")]


def traced(function: Any, call: tuple[Any, ...], pair: tuple[Any, Any]) -> list[tuple[str, bool]]:
    """The kinds of a function's results within a trace, with the numbers as arguments."""
    found: list[list[tuple[str, bool]]] = []

    def body(a: Any, b: Any) -> Any:
        found.append(kinds(function(*filled(call, (a, b)))))
        return a

    nnc.eval_shape(body, *pair)
    return found[0]


def filled(call: Any, pair: tuple[Any, Any]) -> Any:
    """Arguments with these numbers in their places."""
    if isinstance(call, Number):
        return pair[call.index]
    return type(call)(filled(x, pair) for x in call) if isinstance(call, (tuple, list)) else call


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: type(pair[0]).__name__)
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_results_have_the_same_dtype_and_weakness_eagerly_and_traced(module: ModuleType, pair: tuple[Any, Any]) -> None:
    wrong, count = [], 0
    for name in sorted(module.__all__):
        function = getattr(module, name)
        if not callable(function) or inspect.isclass(function) or name in LEFT_OUT:
            continue
        for call in CALLS:
            try:
                eager = kinds(function(*filled(call, pair)))
                within = traced(function, call, pair) if eager else []
            except Exception:  # the arguments do not fit, or the function asks for known values
                continue
            count += bool(eager)
            if eager != within:
                wrong.append((name, filled(call, pair), eager, within))
    assert wrong == [] and count > 5


@pytest.mark.parametrize(
    "wrap", [lambda f: f, nnc.compile, lambda f: lambda a, b: nnc.vmap(lambda _: f(a, b))(nnp.ones(1))[0]]
)
def test_numbers_of_a_list_keep_their_digits_beside_float64(wrap: Any) -> None:
    x, want = nnp.ones(2, "float64"), np.array([0.1, 0.2])
    for f in (
        lambda a, b: nnp.asarray([a, b], "float64"),
        lambda a, b: x * [a, b],
        lambda a, b: nnp.where(x > 0, [a, b], x),
        lambda a, b: nnp.append(x, [a, b])[2:],
        lambda a, b: x.at[:].set([a, b]),
        lambda a, b: nnp.full(2, [a, b], "float64"),
        lambda a, b: (x * [[a, b], [b, 0.2]])[0],
    ):
        found = wrap(f)(0.1, 0.2)
        assert found.dtype == nnp.float64 and (np.asarray(found) == want).all()


@pytest.mark.parametrize(
    "wrap", [lambda f: f, nnc.compile, lambda f: lambda a: nnc.vmap(lambda _, a: f(a), (0, None))(HALF, a)[0]]
)
def test_an_array_of_a_number_keeps_its_dtype_where_it_meets_others(wrap: Any) -> None:
    for f in (nnp.asarray, nnp.array, lambda a: nnp.asarray([a])[0], lambda a: nnp.full((), a)):
        assert wrap(lambda a, f=f: f(a) * HALF)(0.5).dtype == nnp.float32
        assert wrap(lambda a, f=f: f(a) + SMALL)(5).dtype == nnp.int64
    assert wrap(lambda a: a * HALF)(0.5).dtype == nnp.float16
