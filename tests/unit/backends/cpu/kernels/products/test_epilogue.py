"""Products with epilogues give the result of their sub-graph's reference, in all dtypes, strides and sizes."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.cpu.kernels.products.epilogue import print_epilogue
from nnc.base import dtypes
from nnc.base.target import Target
from nnc.commands.control import with_epilogue
from nnc.graph import Graph, GraphBuilder, Symbol, TensorSpec, reference
from nnc.lower.kernels.epilogue import Epilogue
from nnc.lower.plan.stages import Step, View
from tests.figures import HERE, with_figures
from tests.unit.backends.cpu.against_reference import backwards, columns, spaced

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no compiler")

NDArray = np.ndarray[Any, Any]
Body = Callable[..., Symbol | Sequence[Symbol]]
TOLERANCE = {"float16": 4e-3, "bfloat16": 4e-2, "float32": 1e-5, "float64": 1e-12}
MATRICES = {"contract": ((1,), (0,)), "batch": ((), ())}


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray:
    if dtypes.is_float(dtypes.BY_NAME[dtype]):
        return rng.normal(size=shape).astype(dtypes.BY_NAME[dtype])
    return rng.integers(0, 100, shape).astype(dtype)


def graph_of(inputs: Sequence[NDArray], params: dict[str, Any], body: Body) -> Graph:
    """The product of the first two, and the result of `body(builder, product, *others)`."""
    builder = GraphBuilder("with_epilogue")
    symbols = [builder.input(x.shape, x.dtype) for x in inputs]
    out = body(builder, builder.add("dot", *symbols[:2], **params), *symbols[2:])
    return builder.build(*(out if isinstance(out, Sequence) else [out]))


def by_reference(graph: Graph, inputs: Sequence[NDArray]) -> list[NDArray]:
    def run(command: Any, operands: Sequence[Any], params: dict[str, Any], graphs: Any) -> list[Any]:
        with np.errstate(all="ignore"):
            found = reference[command](*operands, **params)
        return list(found) if isinstance(found, (tuple, list)) else [found]

    return [np.asarray(x) for x in graph.evaluate(inputs, run)]


def call(graph: Graph, inputs: Sequence[NDArray], outputs: Sequence[NDArray], machine: Target = HERE) -> None:
    """Runs the kernel that is printed for these very strides."""

    def views(arrays: Sequence[NDArray]) -> tuple[View, ...]:
        return tuple(View(0, TensorSpec(x.shape, x.dtype), 0, x.strides) for x in arrays)

    params = MappingProxyType({"overwrite": ()})
    native = print_epilogue(Step(with_epilogue, views(inputs), views(outputs), params, (graph,)), machine)
    jit = compiler()
    assert jit is not None
    (function,) = jit.load([native])
    operands = [x.ctypes.data for x in (*inputs, *outputs)]
    assert ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * len(operands))(function.address)(*operands) == 0


def assert_close(found: NDArray, wanted: NDArray, terms: int, computed_in: str) -> None:
    if dtypes.is_float(wanted.dtype) and computed_in in TOLERANCE:
        tolerance = TOLERANCE[computed_in] * math.sqrt(terms)
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), tolerance, tolerance)
    else:
        np.testing.assert_array_equal(found, wanted)


def check(
    inputs: Sequence[NDArray],
    body: Body,
    params: dict[str, Any] | None = None,
    outputs: Sequence[NDArray] | None = None,
) -> None:
    params = params or MATRICES
    graph = graph_of(inputs, params, body)
    assert Epilogue.of(graph, HERE) is not None
    wanted = by_reference(graph, inputs)
    outputs = [np.full(x.shape, 7, x.dtype) for x in wanted] if outputs is None else outputs
    call(graph, inputs, outputs)
    terms = math.prod(inputs[0].shape[axis] for axis in params["contract"][0])
    for found, x in zip(outputs, wanted, strict=True):
        assert_close(found, x, terms, inputs[0].dtype.name)


def row(b: GraphBuilder, x: Symbol, like: Symbol) -> Symbol:
    """The same values for each row."""
    return b.add("broadcast_to", x, shape=like.shape, axes=(len(like.shape) - 1,))


def column(b: GraphBuilder, x: Symbol, like: Symbol) -> Symbol:
    """The same values for each column."""
    return b.add("broadcast_to", x, shape=like.shape, axes=(len(like.shape) - 2,))


def bias_and_residual(b: GraphBuilder, p: Symbol, bias: Symbol, scale: Symbol, residual: Symbol) -> Symbol:
    return b.add("add", b.add("mul", b.add("add", p, row(b, bias, p)), column(b, scale, p)), residual)


def several(b: GraphBuilder, p: Symbol, bias: Symbol) -> list[Symbol]:
    """A bool, the product itself, another dtype, and a transposed result."""
    y = b.add("add", p, row(b, bias, p))
    positive = b.add("greater", y, b.add("full", shape=y.shape, dtype=y.dtype, value=0))
    turned = b.add("transpose", b.add("maximum", y, p), permutation=(1, 0))
    return [positive, p, b.add("convert", y, dtype=dtypes.float64), turned]


# -- sizes and dtypes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "uint8"])
@pytest.mark.parametrize("size", [(9, 5, 9), (33, 17, 50), (1, 4, 1), (130, 70, 31)])
def test_bias_scale_and_residual(dtype: str, size: tuple[int, int, int]) -> None:
    m, k, n = size
    rng = np.random.default_rng(m)
    inputs = [numbers(rng, shape, dtype) for shape in ((m, k), (k, n), (n,), (m,), (m, n))]
    check(inputs, bias_and_residual)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_several_results_of_several_dtypes(dtype: str) -> None:
    rng = np.random.default_rng(0)
    check([numbers(rng, shape, dtype) for shape in ((45, 12), (12, 37), (37,))], several)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [(21, 2100, 40), (1500, 1030, 13)])
def test_sums_of_more_terms_than_a_panel_has_are_complete_before_the_epilogue(
    dtype: str, size: tuple[int, int, int]
) -> None:
    m, k, n = size
    assert k > HERE.products.panel_terms
    rng = np.random.default_rng(0)
    x = numbers(rng, (m, k), dtype)
    y = numbers(rng, (n, k), dtype).T  # packed, as it lies transposed
    bias, scale, residual = (numbers(rng, shape, dtype) for shape in ((n,), (m,), (m, n)))
    check([x, y, bias, scale, residual], bias_and_residual)


def test_several_contracted_axes_and_batches() -> None:
    rng = np.random.default_rng(0)
    x, y = numbers(rng, (3, 20, 4, 9), "float32"), numbers(rng, (4, 3, 9, 18), "float32")
    params = {"contract": ((2, 3), (0, 2)), "batch": ((0,), (1,))}
    bias, residual = numbers(rng, (18,), "float32"), numbers(rng, (3, 20, 18), "float32")

    def body(b: GraphBuilder, p: Symbol, bias: Symbol, residual: Symbol) -> Symbol:
        return b.add("sub", b.add("tanh", b.add("add", p, row(b, bias, p))), residual)

    check([x, y, bias, residual], body, params)
    check([x, y, bias, columns(residual)], body, params)


@pytest.mark.parametrize("size", [(70, 100, 90), (33, 1500, 64), (130, 70, 40)])
def test_shared_tiles_give_the_bits_that_a_kernels_own_do(size: tuple[int, int, int]) -> None:
    m, k, n = size
    rng = np.random.default_rng(1)
    inputs = [numbers(rng, shape, "float32") for shape in ((m, k), (n, k), (n,), (m,), (m, n))]
    inputs[1] = inputs[1].T
    graph, found = graph_of(inputs, MATRICES, bias_and_residual), []
    for limit in (math.inf, 0):
        found.append(np.full((m, n), 7, np.float32))
        call(graph, inputs, [found[-1]], with_figures("products", shared_volume=limit, shared_tile=0))
    np.testing.assert_array_equal(*found)
    assert_close(found[1], by_reference(graph, inputs)[0], k, "float32")


@pytest.mark.parametrize("size", [(73, 100, 90), (37, 1500, 64), (130, 70, 140)])
def test_copied_rows_give_the_bits_that_rows_where_they_lie_do(size: tuple[int, int, int]) -> None:
    m, k, n = size
    rng = np.random.default_rng(1)
    inputs = [numbers(rng, shape, "float32") for shape in ((k, m), (n, k), (n,), (m,), (m, n))]
    inputs[:2] = [x.T for x in inputs[:2]]
    graph, found = graph_of(inputs, MATRICES, bias_and_residual), list[NDArray]()
    for limit, step, near in ((math.inf, 1 << 40, 20), (math.inf, 1, 20), (0, 1, 20), (math.inf, 1, 17)):
        found.append(inputs[-1].copy())  # the residual is written over
        figures = {"shared_volume": limit, "shared_tile": 0, "displacing_bytes": step, "sum_bytes": 0, "far_rows": 1}
        machine = with_figures("memory", second_cache_bytes=1 << near)
        call(graph, [*inputs[:-1], found[-1]], [found[-1]], with_figures("products", machine, **figures))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    assert_close(found[0], by_reference(graph, inputs)[0], k, "float32")


def test_large_products_are_shared_by_threads() -> None:
    rng = np.random.default_rng(0)
    inputs = [numbers(rng, shape, "float32") for shape in ((260, 300), (300, 200), (200,), (260,), (260, 200))]
    check(inputs, bias_and_residual)


# -- where operands lie ------------------------------------------------------------------------------------------------

LAYOUTS = {"rows": np.ascontiguousarray, "columns": columns, "spaced": spaced, "backwards": backwards}


@settings(max_examples=25)
@given(
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 20), st.integers(1, 40)),
    layouts=st.tuples(*[st.sampled_from(sorted(LAYOUTS))] * 6),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_operands_and_results_lie_anywhere(sizes: tuple[int, int, int], layouts: tuple[str, ...], dtype: str) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(m * k * n)
    shapes = ((m, k), (k, n), (n,), (m,), (m, n))
    inputs = [
        LAYOUTS[how](numbers(rng, shape, dtype)) if len(shape) == 2 else numbers(rng, shape, dtype)
        for shape, how in zip(shapes, layouts, strict=False)
    ]
    out = LAYOUTS[layouts[-1]](np.zeros((m, n), dtype))
    check(inputs, bias_and_residual, outputs=[out])


@pytest.mark.parametrize("size", [(30, 20, 50), (50, 20, 30), (37, 1100, 21)])
def test_a_residual_is_read_before_it_is_written_over(size: tuple[int, int, int]) -> None:
    """Tiles do not overlap: the last rows would be added twice."""
    m, k, n = size
    rng = np.random.default_rng(0)
    x, y, residual = (numbers(rng, shape, "float32") for shape in ((m, k), (n, k), (m, n)))

    def body(b: GraphBuilder, p: Symbol, residual: Symbol) -> Symbol:
        return b.add("add", p, residual)

    for right in (y.T, np.ascontiguousarray(y.T)):
        out = residual.copy()
        check([x, right, residual], body, outputs=[out])  # apart, then in place
        out = residual.copy()
        call(graph_of([x, right, out], MATRICES, body), [x, right, out], [out])
        assert_close(out, x @ right + residual, k, "float32")


# -- sub-graphs that are no epilogue ---------------------------------------------------------------------------------


def test_sums_counters_and_other_products_are_no_epilogue() -> None:
    x = np.ones((9, 9), np.float32)

    def is_one(body: Body) -> bool:
        return Epilogue.of(graph_of([x, x, x], MATRICES, body), HERE) is not None

    assert is_one(lambda b, p, r: b.add("add", p, r))
    assert not is_one(lambda b, p, r: b.add("reduce_sum", p, axes=(0,)))
    assert not is_one(lambda b, p, r: b.add("add", p, b.add("iota", shape=(9, 9), axis=0, dtype=dtypes.float32)))
    assert not is_one(lambda b, p, r: b.add("dot", p, r, **MATRICES))
    assert not is_one(lambda b, p, r: b.add("add", p, b.add("transpose", p, permutation=(1, 0))))


def test_rows_of_a_table_of_one_row_are_added_to_a_product() -> None:
    rng = np.random.default_rng(0)
    x, y, table = (rng.normal(size=shape) for shape in ((40, 33), (33, 48), (1, 48)))
    f = nnc.compile(lambda x, y, table, i: nnp.tanh(x @ y) + table[i])  # no tile reads at computed places
    np.testing.assert_allclose(f(x, y, table, np.zeros(40, np.int64)), np.tanh(x @ y) + table, rtol=1e-12, atol=1e-14)
