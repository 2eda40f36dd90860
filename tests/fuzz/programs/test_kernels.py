"""Random elementwise commands, broadcasts and reductions: fused and compiled, they give the same results as one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.backends.loaded import choose_kernel, compiler
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.graph import Graph, GraphBuilder, Symbol

SIZES = (1, 2, 3, 7, 17, 40, 130)
DTYPES = ("float32", "float64", "int32", "bool", "float16", "uint8")
COMMANDS = (
    "unary",
    "binary",
    "reduce",
    "broadcast",
    "transpose",
    "unit",
    "convert",
    "select",
    "iota",
    "softmax",
    "flip",
)


def append(draw: Any, b: GraphBuilder, x: Symbol, pool: list[Symbol]) -> Symbol | None:
    """A new node that reads `x`; None where the command does not fit."""
    name, ndim, kind = draw(st.sampled_from(COMMANDS)), x.spec.ndim, x.dtype.kind
    alike = [y for y in pool if y.spec == x.spec]
    if name == "unary" and kind == "f":
        return b.add(draw(st.sampled_from(["neg", "abs", "sigmoid", "square", "tanh"])), x)
    if name == "binary" and kind != "b":
        return b.add(
            draw(st.sampled_from(["add", "mul", "sub", "maximum", "minimum"])), x, draw(st.sampled_from(alike))
        )
    if name == "reduce" and ndim:
        axes = tuple(sorted(draw(st.sets(st.integers(0, ndim - 1), min_size=1))))
        commands = ["reduce_max", "reduce_min"] if kind == "b" else ["reduce_sum", "reduce_max", "reduce_min"]
        return b.add(draw(st.sampled_from(commands)), x, axes=axes)
    if name == "broadcast":
        like = draw(st.sampled_from(pool))
        if ndim == like.spec.ndim and all(a in (1, n) for a, n in zip(x.shape, like.shape, strict=True)):
            return b.add("broadcast_to", x, shape=like.shape)
        places = [i for i, n in enumerate(like.shape) if n in x.shape]
        if ndim < like.spec.ndim and tuple(like.shape[i] for i in places[:ndim]) == x.shape:
            return b.add("broadcast_to", x, shape=like.shape, axes=tuple(places[:ndim]))
        return b.add("broadcast_to", x, shape=(3, *x.shape)) if x.spec.size < 3000 else None
    if name == "transpose":
        return b.add(name, x, permutation=tuple(draw(st.permutations(range(ndim)))))
    if name == "unit":
        return b.add("reshape", x, shape=draw(st.sampled_from([(1, *x.shape), tuple(n for n in x.shape if n > 1)])))
    if name == "convert":
        return b.add(name, b.add("tanh", x) if kind == "f" else x, dtype=np.dtype(draw(st.sampled_from(DTYPES[:2]))))
    if name == "select":  # by exact values, since a rounding error must not choose
        given_ones = [y for y in pool[:3] if y.shape == x.shape]
        if given_ones:
            y = draw(st.sampled_from(given_ones))
            return b.add(name, b.add("less", y, b.add("minimum", y, y)), x, draw(st.sampled_from(alike)))
    if name == "iota" and ndim and kind in "fi":
        return b.add("add", x, b.add(name, shape=x.shape, dtype=x.dtype, axis=draw(st.integers(0, ndim - 1))))
    if name == "softmax" and kind == "f" and ndim:
        return b.add(draw(st.sampled_from(["softmax", "log_softmax"])), x, axes=(draw(st.integers(0, ndim - 1)),))
    return b.add("flip", x, axes=(0,)) if name == "flip" and ndim else None


@st.composite
def graphs(draw: Any) -> Graph:
    b = GraphBuilder("random")
    shape = tuple(draw(st.lists(st.sampled_from(SIZES), max_size=3)))
    pool = [b.input(shape, draw(st.sampled_from(DTYPES)))]
    pool += [b.input(shape[draw(st.integers(0, len(shape))) :], draw(st.sampled_from(DTYPES[:3]))) for _ in range(2)]
    for _ in range(draw(st.integers(1, 16))):
        new = append(draw, b, draw(st.sampled_from(pool)), pool)
        if new is not None and new.spec.size <= 20_000:
            pool.append(new)
    return b.build(*draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4)))


@given(graphs(), st.integers(0, 5))
def test_a_compiled_program_agrees_with_its_graph(graph: Graph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = [rng.uniform(-3, 3, spec.shape).astype(spec.dtype) for spec in graph.input_specs]
    expected = [np.asarray(x) for x in graph.evaluate([Array(x.copy()) for x in inputs])]
    program = lower(graph, Options(verify_passes=True), choose_kernel, compiler())
    for result, wanted in zip(program.run(inputs), expected, strict=True):
        assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
        if wanted.dtype.kind == "f":
            eps = 2e-2 if any(s.dtype == np.float16 for s in graph.symbols()) else 2e-5
            scale = max(1.0, float(np.max(np.abs(wanted), initial=0, where=np.isfinite(wanted))))
            np.testing.assert_allclose(result, wanted, rtol=eps, atol=eps * scale)
        else:
            np.testing.assert_array_equal(result, wanted)


def test_long_sums_of_columns_keep_their_digits() -> None:
    """A single float32 sum of 100,000 ones and a bit is off by 1e-5; sums of pieces are not."""
    x = np.random.default_rng(0).normal(1, 1, (100_000, 20)).astype(np.float32)
    total = np.asarray(nnc.compile(lambda x: nnc.numpy.sum(x, axis=0))(x))
    exact = np.sum(x, axis=0, dtype=np.float64)
    assert np.max(np.abs(total - exact) / exact) < 1e-6


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("shape", [(300, 1003), (2, 70, 517), (520, 1024)])
def test_columns_of_wide_rows_are_summed_beside_other_results_of_the_kernel(shape: tuple[int, ...], dtype: str) -> None:
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)
    axes = tuple(range(len(shape) - 1))

    def f(x: Any) -> Any:
        y = x * 2
        return nnp.sum(y, axis=axes), nnp.max(x, axis=axes), y, nnp.sum(x * x, axis=axes) + 1

    for result, wanted in zip(nnc.compile(f)(x), f(x), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=2e-2 if dtype == "float16" else 1e-6)


@pytest.mark.parametrize("shape", [(128, 96), (64, 48), (33, 64), (5, 32, 64)])
def test_a_tensor_and_another_ones_transpose_are_gone_through_in_tiles(shape: tuple[int, ...]) -> None:
    x, y = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)
    y = np.ascontiguousarray(np.swapaxes(y, -1, -2))
    result = nnc.compile(lambda x, y: x + nnp.swapaxes(y, -1, -2) * 2)(x, y)
    np.testing.assert_allclose(result, x + np.swapaxes(y, -1, -2) * 2, rtol=1e-6, atol=1e-6)
