"""Which form a nest takes on a GPU, and that each form moves no more bytes than it must and gives the reference's results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nnc.backends.cuda.kernels import operands
from nnc.backends.cuda.kernels.nests import print_nest, workspace_bytes
from nnc.graph import Graph, GraphBuilder, Symbol, reference, spec_of
from nnc.lower.plan.stages import View
from tests.unit.backends.cuda.launching import GPU, Ran, run_nest, run_nests
from tests.unit.lower.kernels.test_conformance import graph_of

NDArray = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def forms(ran: Ran) -> list[str]:
    """The names of the functions that a kernel launches."""
    return [launch.function.removeprefix("@KERNEL_") for launch in ran.kernel.launches]


def expected(graph: Graph, inputs: Sequence[NDArray]) -> list[NDArray]:
    """The results of a graph by the references of its commands."""

    def run(command: Any, operands: Sequence[Any], params: Any, graphs: Any) -> list[NDArray]:
        with np.errstate(all="ignore"):
            return [np.asarray(reference[command](*operands, **params))]

    return [np.asarray(x) for x in graph.evaluate([x.copy() for x in inputs], run)]


def check(body: Callable[..., Any], *inputs: NDArray, bound: float = 2e-6, outputs: Sequence[NDArray] = ()) -> Ran:
    """Runs a nest, holds its results against the references, and returns its counts."""
    graph = graph_of(inputs, body)
    wanted = expected(graph, inputs)
    found = list(outputs) or [np.zeros(spec.shape, spec.dtype) for spec in graph.output_specs]
    ran = run_nest(graph, inputs, found)
    for out, want in zip(found, wanted, strict=True):
        assert (out.shape, out.dtype) == (want.shape, want.dtype)
        if bound:
            scale = np.abs(want.astype(np.float64)).max(initial=0)
            np.testing.assert_allclose(out.astype(np.float64), want.astype(np.float64), rtol=bound, atol=bound * scale)
        else:
            np.testing.assert_array_equal(out, want)
    return ran


def ideal(ran: Ran, *arrays: NDArray) -> float:
    """The bytes that a kernel moved, in times of the bytes of its operands."""
    return ran.sector_bytes / sum(x.nbytes for x in arrays)


def normal(*shape: int, dtype: Any = np.float32) -> NDArray:
    return np.asarray(RNG.normal(size=shape)).astype(dtype)


def widened(b: GraphBuilder, x: Symbol, like: Symbol, axes: tuple[int, ...]) -> Symbol:
    """Spreads a value with one element a row."""
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(like.shape))
    return b.add("broadcast_to", b.add("reshape", x, shape=shape), shape=like.shape)


def centred(axes: tuple[int, ...], b: GraphBuilder, x: Symbol) -> list[Symbol]:
    """A row without its largest element, as shares of its sum, and the sum: three phases."""
    less = b.add("sub", x, widened(b, b.add("reduce_max", x, axes=axes), x, axes))
    total = b.add("reduce_sum", less, axes=axes)
    return [b.add("div", less, widened(b, total, x, axes)), total]


def sums(axes: tuple[int, ...], b: GraphBuilder, x: Symbol) -> Symbol:
    return b.add("reduce_sum", x, axes=axes)


# -- elements ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int8", "bool"])
@pytest.mark.parametrize("shape", [(8192,), (64, 256), (33, 64)])
def test_dense_elements_are_read_16_bytes_at_a_time(dtype: str, shape: tuple[int, ...]) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x, y = normal(*shape).astype(kind), normal(*shape).astype(kind)
    ran = check(lambda b, x, y: b.add("maximum", x, y) if dtype != "bool" else b.add("bitwise_or", x, y), x, y, bound=0)
    assert forms(ran) == ["elements"]
    assert ideal(ran, x, y, x) <= 1.05
    accesses = sum(n for name, n in ran.counts[0].opcodes.items() if name.startswith("ld.global"))
    assert accesses == 2 * -(-x.nbytes // 16)


def test_operands_of_several_widths_share_the_lanes_of_the_widest() -> None:
    x, flags = normal(4096), RNG.integers(0, 2, 4096).astype(bool)
    ran = check(lambda b, f, x: b.add("select", f, x, b.add("neg", x)), flags, x, bound=0)
    assert ideal(ran, x, flags, x) <= 1.05


def test_rows_that_begin_anywhere_are_read_element_by_element() -> None:
    room = normal(64, 1031)
    x = room[:, 3:1028]
    ran = check(lambda b, x: b.add("neg", x), x, bound=0)
    assert not any(".v" in name for name in ran.counts[0].opcodes if name.startswith("ld.global"))


def test_a_small_operand_at_strides_leaves_the_others_their_vectors() -> None:
    x, scale = normal(64, 256), normal(256, 3)[:, 1]
    wide = lambda b, s, x: b.add("broadcast_to", b.add("reshape", s, shape=(1, 256)), shape=(64, 256))
    ran = check(lambda b, x, s: b.add("mul", x, wide(b, s, x)), x, scale, bound=0)
    assert ran.counts[0].opcodes["st.global.v4.b32"] == x.size // 4
    sums_at_strides = np.zeros((256, 3), np.float32)[:, 1]
    assert forms(check(partial(sums, (0,)), np.abs(x), outputs=[sums_at_strides])) == ["rows"]


def test_a_nest_without_loops_is_done_by_one_thread() -> None:
    x = np.array(2, np.float32)
    ran = check(lambda b, x: [b.add("exp", x), b.add("neg", x)], x)
    assert ran.kernel.launches[0].grid == (1, 1, 1)


def test_constants_are_written_without_operands() -> None:
    ran = check(lambda b: b.add("full", shape=(1025,), dtype=np.dtype("float32"), value=3.0), bound=0)
    assert forms(ran) == ["elements"]


# -- rows ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [8, 24, 100, 128, 1024, 1028, 4096, 16384, 20000])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_along_memory_are_read_once_where_registers_hold_them(n: int, dtype: str) -> None:
    x = (np.abs(normal(5, n)) + 1).astype(getattr(ml_dtypes, dtype, dtype))
    ran = check(partial(centred, (1,)), x, bound=3e-6 if dtype == "float32" else 2e-2)
    assert forms(ran) == ["rows"]
    if 128 <= n <= 16384 and n % 8 == 0:
        assert ideal(ran, x, x) <= 1.05


@pytest.mark.parametrize("n", [20000, 30000])
def test_rows_beyond_registers_are_read_in_each_phase(n: int) -> None:
    x = np.abs(normal(2, n)) + 1
    ran = check(partial(centred, (1,)), x)
    assert forms(ran) == ["rows"]
    assert 1.9 <= ideal(ran, x, x) <= 2.1


@pytest.mark.parametrize(("rows", "n"), [(1, 5), (3, 31), (300, 4), (5, 64), (70, 33), (9, 1000)])
def test_several_short_rows_share_a_block(rows: int, n: int) -> None:
    check(partial(centred, (1,)), np.abs(normal(rows, n)) + 1)


@pytest.mark.parametrize("shape", [(5, 64), (40, 256), (33, 512), (100, 48), (7, 1000), (2, 12)])
def test_rows_across_memory_are_read_in_whole_sectors(shape: tuple[int, int]) -> None:
    x = np.abs(normal(*shape)) + 1
    assert forms(check(partial(centred, (0,)), x)) == ["rows"]
    ran = check(partial(sums, (0,)), x)
    if shape[1] >= 64:
        assert ideal(ran, x, x[0]) <= 1.05


@pytest.mark.parametrize("axes", [(0, 2), (1, 3), (0, 1, 3), (0, 2, 3), (1,), (2,), (0, 1, 2, 3)])
def test_rows_of_several_loops(axes: tuple[int, ...]) -> None:
    check(partial(centred, axes), np.abs(normal(9, 6, 10, 20)) + 1)


# -- parts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((300_000,), (0,)), ((4000, 64), (0,)), ((3000, 30), (0,)), ((2, 80_000), (1,)), ((64, 4, 2000), (0, 2)), ((2000, 3), (0,))],
)  # fmt: skip
def test_few_long_rows_are_cut_into_parts(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = np.abs(normal(*shape))
    ran = check(partial(sums, axes), x)
    assert forms(ran) == ["part0", "finish"]
    assert ran.kernel.launches[0].grid[1] > 1
    if shape[-1] % 16 == 0:
        assert ideal(ran, x) <= 1.05


def test_each_phase_of_parts_is_a_launch() -> None:
    x = np.abs(normal(4000, 64)) + 1
    assert forms(check(partial(centred, (0,)), x)) == ["part0", "part1", "part2", "finish"]
    flat = np.abs(normal(200_000)) + 1
    assert forms(check(partial(centred, (0,)), flat)) == ["part0", "part1", "part2", "finish"]


def test_the_workspace_follows_from_sizes_alone() -> None:
    x = normal(4000, 64)
    graph = graph_of([x], partial(sums, (0,)))
    nbytes = workspace_bytes(graph, [spec_of(x)], GPU)
    assert nbytes > 0
    turned = np.asfortranarray(x)
    outs = [np.zeros(64, np.float32) for _ in range(2)]
    run_nests([(graph, [x], outs[:1]), (graph, [turned], outs[1:])])
    np.testing.assert_allclose(outs[0], outs[1], rtol=1e-5, atol=1e-3)
    small = graph_of([x[:9]], partial(sums, (0,)))
    assert workspace_bytes(small, [spec_of(x[:9])], GPU) == 0


def test_rows_stay_whole_without_a_workspace() -> None:
    x = normal(4000, 64)
    graph = graph_of([x], partial(sums, (0,)))
    views = [View.whole(0, spec_of(x)), View.whole(1, graph.output_specs[0])]
    assert len(print_nest(graph, views[:1], views[1:], GPU).launches) == 1


def test_long_sums_of_equal_terms_lose_no_digits() -> None:
    x = np.full((70_000, 2), 0.1, np.float32)
    out = np.zeros(2, np.float32)
    run_nest(graph_of([x], partial(sums, (0,))), [x], [out])
    np.testing.assert_allclose(out, np.full(2, x[0, 0].astype(np.float64) * 70_000), rtol=5e-7)
    several = np.full((300, 40_000), 0.1, np.float32)
    ran = np.zeros(40_000, np.float32)
    run_nest(graph_of([several], partial(sums, (0,))), [several], [ran])
    np.testing.assert_allclose(ran, np.full(40_000, x[0, 0].astype(np.float64) * 300), rtol=5e-7)


# -- operands in place ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 7), (5, 1000), (3, 20_000), (1, 200_000), (300, 3)])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_are_written_where_they_are_read(shape: tuple[int, ...], axis: int) -> None:
    x = np.abs(normal(*shape)) + 1
    total = np.zeros(x.sum(axis).shape, np.float32)
    ran = check(partial(centred, (axis,)), x, outputs=[x, total])
    text = ran.kernel.text
    assert "ptr %p0" in text and "noalias" not in text


@pytest.mark.parametrize("shape", [(5, 7), (5, 1000), (64, 4000), (2, 100_000), (300, 3)])
@pytest.mark.parametrize("axis", [0, 1])
def test_results_of_rows_are_written_over_operands_of_rows(shape: tuple[int, ...], axis: int) -> None:
    x = normal(*shape)
    y = normal(*x.sum(axis).shape)

    def body(b: GraphBuilder, x: Symbol, y: Symbol) -> Symbol:
        scaled = b.add("mul", x, widened(b, y, x, (axis,)))
        return b.add("add", b.add("reduce_sum", scaled, axes=(axis,)), y)

    check(body, x, y, outputs=[y], bound=1e-5)


def test_operands_elsewhere_are_read_as_constant() -> None:
    x = normal(64, 64)
    graph = graph_of([x], lambda b, x: b.add("neg", x))
    apart = [View.whole(i, spec_of(x)) for i in range(2)]
    assert "noalias readonly" in print_nest(graph, apart[:1], apart[1:], GPU).text
    assert "noalias" not in print_nest(graph, apart[:1], apart[:1], GPU).text


# -- limits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [None, (0,), (1,), (0, 1)])
@pytest.mark.parametrize("shape", [(0, 5), (5, 0)])
def test_operands_without_elements(axes: tuple[int, ...] | None, shape: tuple[int, int]) -> None:
    x = np.zeros(shape, np.float32)
    ran = check((lambda b, x: b.add("neg", x)) if axes is None else partial(sums, axes), x, bound=0)
    writes = axes is not None and x.sum(axes).size > 0
    assert forms(ran) == (["rows"] if writes else [])


@pytest.mark.parametrize("count", [5, 7, 12, 30])
@pytest.mark.parametrize("axis", [0, 1])
def test_many_sums_fit_shared_memory(count: int, axis: int) -> None:
    x = np.abs(normal(300, 64)).astype(ml_dtypes.bfloat16)

    def body(b: GraphBuilder, x: Symbol) -> list[Symbol]:
        found = []
        for number in range(count):
            power = b.add("integer_pow", x, exponent=number % 3)
            found.append(b.add("reduce_sum", b.add("neg", power) if number % 2 else power, axes=(axis,)))
        return found

    check(body, x, bound=2e-2)


@pytest.mark.parametrize("shape", [(33, 70), (5, 6, 64), (200_000,), (3000, 30)])
def test_numbers_of_threads_beyond_32_bits(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    monkeypatch.setattr(operands, "_SHORT", 1)
    x = np.abs(normal(*shape)) + 1
    for axis in range(x.ndim):
        check(partial(centred, (axis,)), x)
    check(lambda b, x: b.add("neg", x), x, bound=0)
    turned = lambda b, x: b.add("neg", b.add("transpose", x, permutation=tuple(reversed(range(x.spec.ndim)))))
    check(turned, x, bound=0)
    check(partial(centred, tuple(range(x.ndim))), x)


def test_rows_of_few_are_shared_by_many_threads() -> None:
    x = np.abs(normal(4, 16384)) + 1
    launch = check(partial(centred, (1,)), x).kernel.launches[0]
    assert launch.block == (1024, 1, 1) and launch.grid == (4, 1, 1)
