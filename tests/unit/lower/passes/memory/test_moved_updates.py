"""Updates of scattered tensors: rewrites keep all digits of the program as written, where sums cancel and places repeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.lower.phases import SIMPLIFYING, names_of
from tests.sampling import sampled
from tests.unit.lower.passes.tools import evaluate, names, run

SHAPES = ((40, 3), (67, 5), (33, 1), (129,))
DTYPES = ("float32", "bfloat16", "float64")
ELEMENTWISE: dict[str, Callable[[Any, Any], Any]] = {
    "twice": lambda h, o: h * 0.3,
    "negation": lambda h, o: -h,
    "sum": lambda h, o: h + o,
    "sum to": lambda h, o: o + h,
    "difference": lambda h, o: h - o,
    "difference from": lambda h, o: o - h,
    "product": lambda h, o: h * o,
    "square": lambda h, o: h * h,
    "cube": lambda h, o: h * h * h,
    "quotient": lambda h, o: h / (o * o + 1),
    "root": lambda h, o: nnp.sqrt(abs(h)),
    "choice": lambda h, o: nnp.where(o > 0, h, -h),
    "infinite factor": lambda h, o: h * nnp.inf,
}


def _inputs(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> list[Any]:
    """A tensor, updates that all but cancel its elements or one another, indices that repeat, and another tensor."""
    wide = np.dtype(dtype) if dtype != "bfloat16" else np.dtype(ml_dtypes.bfloat16)
    count = int(rng.integers(1, shape[0] // 4))
    index = rng.integers(0, shape[0], count).astype(np.int32)
    x, other = (rng.normal(size=shape).astype(wide) for _ in range(2))
    tiny = 1 - {"float32": 1e-6, "float64": 1e-14, "bfloat16": 2**-7}[dtype]
    updates = -x[index] * np.asarray(tiny, wide)
    if rng.random() < 0.5 and count > 1:
        half = count // 2
        index[half : 2 * half] = index[:half]
        updates[half : 2 * half] = -updates[:half] * np.asarray(tiny, wide)
    return [x, index, updates, other]


def _program(rng: np.random.Generator) -> tuple[list[str], Callable[..., Any]]:
    """A chain of commands that begins with scattered updates, maybe of zeros, and may share values of the way."""
    steps = [str(rng.choice(list(ELEMENTWISE))) for _ in range(rng.integers(1, 5))]
    of_zeros, twice, shares = (bool(rng.random() < p) for p in (0.6, 0.3, 0.4))

    def program(x: Any, i: Any, u: Any, other: Any) -> Any:
        x, other = nnp.asarray(x), nnp.asarray(other)
        base = nnp.zeros_like(x) if of_zeros else x
        h = base.at[i].add(u)
        g = h + nnp.zeros_like(x).at[i].add(u * 0.7) if twice else h
        for step in steps:
            g = ELEMENTWISE[step](g, other)
        return (g, h * h) if shares else g

    return [*steps, f"{of_zeros=}", f"{twice=}", f"{shares=}"], program


def _check(found: Any, wanted: Any, told: object) -> None:
    for x, y in zip(nnc.tree.leaves(found), nnc.tree.leaves(wanted), strict=True):
        wide = (np.asarray(value).astype(np.float64) for value in (x, y))
        np.testing.assert_array_equal(*wide, err_msg=str(told))


@pytest.mark.parametrize("seed", range(150))
def test_generated_programs_of_scattered_updates_keep_every_bit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    told, program = _program(rng)
    inputs = _inputs(rng, SHAPES[seed % len(SHAPES)], DTYPES[seed % len(DTYPES)])
    graph = nnc.make_graph(program)(*inputs)
    with np.errstate(all="ignore"):
        _check(evaluate(run(graph, *names_of(SIMPLIFYING)), inputs), evaluate(graph, inputs), told)


@pytest.mark.parametrize("seed", sampled(range(0, 150, 6), 4))
def test_compiled_programs_of_scattered_updates_are_as_eager_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    told, program = _program(rng)
    inputs = _inputs(rng, SHAPES[seed % len(SHAPES)], DTYPES[seed % len(DTYPES)])
    with np.errstate(all="ignore"):
        _check(nnc.compile(program)(*inputs), program(*inputs), told)


X = np.random.default_rng(1).normal(size=(64, 6)).astype(np.float32)
INDEX = np.asarray([3, 40, 3], np.int32)
UPDATES = -X[INDEX] * np.float32(1 - 1e-6)


def _graph(function: Callable[..., Any], *inputs: Any) -> Any:
    graph = nnc.make_graph(function)(*inputs)
    after = run(graph, *names_of(SIMPLIFYING))
    _check(evaluate(after, inputs), evaluate(graph, inputs), after)
    return after


def test_a_difference_of_updates_of_zeros_is_scattered_once_with_its_sign() -> None:
    def function(x: Any, i: Any, u: Any) -> Any:
        zeros = nnp.zeros_like(x)
        return x - (zeros.at[i].add(u) - zeros.at[i].add(3 * u))

    graph = _graph(function, X, INDEX, UPDATES)
    assert [n.outputs[0].shape for n in graph.nodes if n.command.name == "scatter"].count(X.shape) == 1


def test_a_difference_of_updates_in_different_places_takes_both_with_their_signs() -> None:
    def function(x: Any, i: Any, u: Any) -> Any:
        zeros = nnp.zeros_like(x)
        return (x - zeros.at[i].add(u)) - zeros.at[i + 1].add(u)

    assert names(_graph(function, X, INDEX, UPDATES))[-1] == "scatter"


def test_updates_that_the_user_calls_unique_are_moved_as_they_are() -> None:
    def function(x: Any, i: Any, u: Any) -> Any:
        return x - 0.1 * nnp.zeros_like(x).at[i].add(u, unique_indices=True)

    assert names(_graph(function, X, np.asarray([3, 40, 7]), UPDATES)).count("scatter") == 1


@pytest.mark.parametrize("sign", [1, -1])
def test_updates_are_subtracted_where_the_scattered_tensor_is(sign: int) -> None:
    def function(x: Any, i: Any, u: Any) -> Any:
        h = nnp.zeros_like(x).at[i].add(u)
        return x - h if sign > 0 else h - x

    assert names(_graph(function, X, INDEX, UPDATES))[-1] == "scatter"


def test_batched_and_doubly_indexed_updates_of_one_place_are_added_first() -> None:
    rows = np.asarray([[0, 2, 0], [1, 1, 1]], np.int32)
    columns = np.asarray([5, 1, 5], np.int32)
    u = np.asarray([[1e6, 3, -1e6 + 1], [2.5, -2.5, 1e-3]], np.float32)

    def of_pairs(x: Any, u: Any) -> Any:
        return x - 0.1 * nnp.zeros_like(x).at[rows[0], columns].add(u[0])

    def of_rows(x: Any, u: Any) -> Any:
        one = lambda x, i, u: x - 0.1 * nnp.zeros_like(x).at[i].add(u)
        return nnc.vmap(one)(x, rows, u)

    pairs, batch = X[:16], np.stack([X[:8, 0], X[:8, 1]]).repeat(3, axis=1)
    assert "scatter" in names(_graph(of_pairs, pairs, u))
    assert "scatter" in names(_graph(of_rows, batch, u))


def test_a_scattered_tensor_that_is_needed_whole_is_made_once() -> None:
    """Adam squares the gradient of a table: the square reads all of it."""

    def moments(m: Any, v: Any, i: Any, u: Any) -> Any:
        gradient = nnp.zeros_like(m).at[i].add(u)
        return 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient * gradient

    graph = _graph(moments, X, X * X, INDEX, UPDATES)
    assert names(graph).count("scatter") == 1


def test_logits_far_from_zero_leave_their_log_probabilities_their_digits() -> None:
    x = (1e4 + np.random.default_rng(0).normal(size=(64, 50))).astype(np.float32)
    index = np.arange(64)
    wanted = x[index, index % 50].astype(np.float64)
    wide = x.astype(np.float64)
    top = wide.max(-1)
    wanted = wanted - top - np.log(np.exp(wide - top[:, None]).sum(-1))
    found = nnc.compile(lambda x: nnp.log(nnp.exp(nnc.nn.log_softmax(x * 1.0 + 0.0)))[index, index % 50])(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    found = nnc.compile(lambda x: nnc.nn.log_softmax(x - 0.5)[index, index % 50])(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_rows_and_columns_of_one_index_are_other_places() -> None:
    def function(x: Any, i: Any, u: Any) -> Any:
        zeros = nnp.zeros_like(x)
        return x + (zeros.at[i].add(u) + zeros.at[:, i].add(u.T * 2))

    _graph(function, X[:6], np.asarray([1, 4, 1], np.int32), UPDATES)
    _graph(function, np.tile(X[:16], (1, 3))[:, :16], np.asarray([1, 4, 1], np.int32), np.tile(UPDATES, 3)[:, :16])
