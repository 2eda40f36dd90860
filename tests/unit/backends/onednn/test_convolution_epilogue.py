"""Convolutions with post-ops of oneDNN agree with the reference of their sub-graph; commands that the library lacks stay apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.loaded import choose_kernel
from nnc.backends.onednn import matmul
from nnc.backends.onednn.convolution import _native_joined, _supports_joined, _workspace_joined
from nnc.backends.onednn.library import library
from nnc.base import dtypes
from nnc.base.options import Options
from nnc.commands.control import with_epilogue
from nnc.compiled.pipeline import lower
from nnc.device.cpu import aligned_bytes
from nnc.graph import Graph, GraphBuilder, Symbol, TensorSpec, command, reference
from nnc.lower.plan.stages import Step, View
from tests.figures import HERE

pytestmark = pytest.mark.skipif(
    library() is None or compiler() is None, reason="oneDNN or the compiler is not installed"
)

NDArray = np.ndarray[Any, Any]
Body = Callable[..., Symbol]
WINDOWS: dict[str, Any] = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
LAST: dict[str, Any] = {**WINDOWS, "channels_last": True}
TOLERANCE = {"float32": 1e-4, "bfloat16": 1e-1}
IMAGE, KERNEL, CHANNELS = (2, 6, 7, 16), (24, 16, 3, 3), 24


def numbers(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> NDArray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtypes.BY_NAME[dtype])


def graph_of(inputs: Sequence[NDArray], params: dict[str, Any], body: Body) -> Graph:
    builder = GraphBuilder("with_epilogue")
    x, w, *others = (builder.input(array.shape, array.dtype) for array in inputs)
    return builder.build(body(builder, builder.add("conv", x, w, **params), *others))


def by_channel(b: GraphBuilder, x: Symbol, like: Symbol, axis: int) -> Symbol:
    return b.add("broadcast_to", x, shape=like.shape, axes=(axis,))


def by_reference(graph: Graph, inputs: Sequence[NDArray]) -> NDArray:
    def run(target: Any, operands: Sequence[Any], params: dict[str, Any], graphs: Any) -> list[Any]:
        return [reference[target](*operands, **params)]

    return np.asarray(graph.evaluate(inputs, run)[0])


def check(inputs: Sequence[NDArray], params: dict[str, Any], body: Body, out: NDArray | None = None) -> None:
    graph = graph_of(inputs, params, body)
    wanted = by_reference(graph, inputs)
    out = np.empty(wanted.shape, wanted.dtype) if out is None else out
    specs = tuple(TensorSpec(x.shape, x.dtype) for x in inputs)
    facts = MappingProxyType({"overwrite": ()})
    assert _supports_joined(HERE, specs, {**facts, "graphs": (graph,)})
    assert _workspace_joined(HERE, specs, {**facts, "graphs": (graph,)}) >= 0
    views = [View(0, TensorSpec(x.shape, x.dtype), 0, x.strides) for x in (*inputs, out)]
    native = _native_joined(HERE, Step(with_epilogue, tuple(views[:-1]), (views[-1],), facts, (graph,)))
    jit = compiler()
    assert native is not None and native.state is not None and jit is not None
    (function,) = jit.load([native])
    scratch = aligned_bytes(native.scratch)
    state = native.state(scratch.ctypes.data)
    assert jit.caller(len(views), True, 0)(function.address, state.address, *inputs, out) == 0
    tolerance = TOLERANCE[wanted.dtype.name]
    np.testing.assert_allclose(out.astype(np.float64), wanted.astype(np.float64), tolerance, tolerance)


def scale_bias_residual(b: GraphBuilder, y: Symbol, scale: Symbol, bias: Symbol, residual: Symbol) -> Symbol:
    scaled = b.add("add", b.add("mul", y, by_channel(b, scale, y, 3)), by_channel(b, bias, y, 3))
    return b.add("add", residual, scaled)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_scale_bias_and_residual_where_channels_are_last(dtype: str) -> None:
    if dtype == "bfloat16" and not matmul._has_instructions():
        pytest.skip("oneDNN has no convolutions of bfloat16 for this processor")
    residual = numbers((2, 6, 7, CHANNELS), dtype, 3)
    vectors = [numbers((CHANNELS,), dtype, seed) for seed in (1, 2)]
    check([numbers(IMAGE, dtype), numbers(KERNEL, dtype), *vectors, residual], LAST, scale_bias_residual)


def test_post_ops_follow_a_convolution_of_single_elements_too() -> None:
    """Without post-ops such a convolution is a product of matrices."""
    vectors = [numbers((CHANNELS,), seed=seed) for seed in (1, 2)]
    inputs = [numbers(IMAGE), numbers((CHANNELS, 16, 1, 1)), *vectors, numbers((2, 6, 7, CHANNELS), seed=3)]
    check(inputs, {**LAST, "padding": ((0, 0), (0, 0))}, scale_bias_residual)


SUMMED: dict[str, tuple[Any, ...]] = {  # shapes of the input and the weight, padding
    "many channels, summed share by share": ((1, 7, 7, 1024), (64, 1024, 3, 3), ((1, 1), (1, 1))),
    "windows without an element": ((1, 1, 16, 8), (16, 8, 1, 3), ((0, 0), (3, 3))),
}


@pytest.mark.parametrize("case", SUMMED)
def test_a_residual_is_read_before_sums_are_written(case: str) -> None:
    """The result must not take the residual's memory where that becomes free."""
    image, kernel, padding = SUMMED[case]
    x, w = numbers(image), numbers(kernel)

    def conv(x: Any, w: Any) -> Any:
        return nn.conv(x, w, padding=padding, layout="NHWC")

    program = nnc.compile(lambda x, y, w: conv(x, w) + conv(y, w)).lower(x, x, w).compile()
    assert "with_epilogue" in program.as_text()
    y = numbers(image, seed=1)
    expected = conv(nnc.asarray(x), nnc.asarray(w)) + conv(nnc.asarray(y), nnc.asarray(w))
    np.testing.assert_allclose(np.asarray(program(x, y, w)), np.asarray(expected), 1e-4, 1e-3)


@pytest.mark.parametrize("name", ["abs", "sqrt", "square"])
def test_functions_keep_nan_where_channels_are_first(name: str) -> None:
    bias = numbers((CHANNELS,))
    bias[:2] = np.nan, np.inf

    def body(b: GraphBuilder, y: Symbol, bias: Symbol) -> Symbol:
        return b.add(name, b.add("sub", b.add("abs", y), by_channel(b, bias, y, 1)))

    with np.errstate(invalid="ignore"):
        check([numbers((2, 16, 6, 7)), numbers(KERNEL), bias], WINDOWS, body)


def test_an_operand_that_is_read_twice_is_one_input() -> None:
    def body(b: GraphBuilder, y: Symbol, bias: Symbol) -> Symbol:
        stretched = by_channel(b, bias, y, 1)
        return b.add("sub", b.add("mul", y, stretched), stretched)

    check([numbers((2, 16, 6, 7)), numbers(KERNEL), numbers((CHANNELS,))], WINDOWS, body)


def test_groups_and_strides() -> None:
    params = {"stride": (2, 1), "padding": ((1, 0), (0, 2)), "dilation": (1, 2), "groups": 4}

    def body(b: GraphBuilder, y: Symbol, bias: Symbol) -> Symbol:
        return b.add("add", by_channel(b, bias, y, 1), y)

    check([numbers((2, 32, 9, 11)), numbers((24, 8, 3, 3)), numbers((CHANNELS,))], params, body)


@pytest.mark.parametrize("function", ["relu", "scale", "rows", "both"])
def test_nodes_that_form_no_chain_of_post_ops_stay_apart(function: str) -> None:
    """A maximum makes NaN 0; no post-op takes an operand that varies along rows, or the product on the right of a difference."""
    bodies: dict[str, Body] = {
        "relu": lambda b, y, v: b.add("maximum", y, by_channel(b, v, y, 1)),
        "scale": lambda b, y, v: b.add("sub", by_channel(b, v, y, 1), y),
        "rows": lambda b, y, v: b.add("add", y, by_channel(b, v, y, 2)),
        "both": lambda b, y, v: b.add("mul", y, b.add("abs", y)),
    }
    size = 6 if function == "rows" else CHANNELS
    inputs = [numbers((2, 16, 6, 7)), numbers(KERNEL), numbers((size,))]
    graph = graph_of(inputs, WINDOWS, bodies[function])
    specs = tuple(TensorSpec(x.shape, x.dtype) for x in inputs)
    assert not _supports_joined(HERE, specs, {"graphs": (graph,), "overwrite": ()})


def test_a_zero_times_an_infinite_result_is_zero_where_the_command_says_so() -> None:
    """oneDNN's product is NaN."""

    def f(x: Any, w: Any, scale: Any) -> Any:
        y = nn.conv(x, w, padding="SAME")
        return command("safe_mul")(y, nnp.broadcast_to(scale[:, None, None], y.shape))

    x = np.full((1, 16, 6, 7), np.inf, np.float32)
    np.testing.assert_array_equal(nnc.compile(f)(x, np.ones_like(numbers(KERNEL)), np.zeros(CHANNELS, np.float32)), 0)


def test_a_program_runs_them_and_agrees_with_the_steps_one_by_one() -> None:
    def f(x: Any, w: Any, v: Any, scale: Any, bias: Any) -> Any:
        y = nnp.abs(nn.conv(x, w, padding="SAME") + bias[:, None, None])
        return nnp.square(nn.conv(y, v, padding="SAME") * scale[:, None, None])

    args = [
        numbers((2, 16, 6, 7)),
        numbers((16, 16, 3, 3)),
        numbers(KERNEL),
        numbers((CHANNELS,)),
        numbers((16,), seed=1),
    ]
    graph = nnc.make_graph(f)(*args)
    made = lower(graph, Options(), choose_kernel, compiler())
    assert [step.command.name for step in made.bound.steps] == ["with_epilogue"] * 2
    assert [made.kernel_of(step).backend for step in made.bound.steps] == ["onednn"] * 2
    wanted = graph.evaluate(args, lambda target, xs, params, graphs: [np.asarray(reference[target](*xs, **params))])
    for program in (made, lower(graph, Options(), choose_kernel)):  # without a compiler, the sub-graphs run from Python
        np.testing.assert_allclose(program.run(args)[0], wanted[0], 1e-3, 1e-3)
