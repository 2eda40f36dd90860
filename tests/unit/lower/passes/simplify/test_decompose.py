"""Attention and convolutions by other commands, for devices without kernels of them."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.base.options import Options
from nnc.commands.attention import attention, attention_gradient, attention_tangent
from nnc.commands.conv import conv, conv_input_grad, conv_weight_grad
from nnc.commands.linalg import triangular_solve
from nnc.commands.loop import run_graph
from nnc.commands.rules import decomposition
from nnc.errors import LinAlgError
from nnc.graph import Graph, GraphBuilder, TensorSpec, command, run_passes
from nnc.lower.passes.simplify.decompose import decompose

ON_GPU = Options.from_environment().update(device="ptx:0")


def graph_of(name: str, operands: list[Any], **params: Any) -> Graph:
    builder = GraphBuilder(name)
    inputs = [builder.input(TensorSpec(x.shape, x.dtype)) for x in operands]
    with builder:
        found = command(name)(*inputs, **params)
    return builder.build(*(found if isinstance(found, tuple) else (found,)))


def drawn(seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Operands and parameters of a random attention."""
    draw = np.random.default_rng(seed)
    batch = tuple(draw.integers(1, 3, draw.integers(0, 2)))
    count, keys, own, features = draw.integers(1, 9, 4)
    heads, dtype = own * draw.integers(1, 3), draw.choice(["float32", "float64"])
    q, k, v = (
        draw.normal(size=(*batch, *shape)).astype(dtype)
        for shape in ((count, heads, features), (keys, own, features), (keys, own, draw.integers(1, 5)))
    )
    scores = (*batch, heads, count, keys)

    def extra() -> tuple[int, ...]:
        return tuple(n if draw.random() < 0.6 else 1 for n in scores)

    biased = bool(draw.random() < 0.5)
    operands = [q, k, v] + [draw.normal(size=extra()).astype(dtype)] * biased
    operands += [draw.random(extra()) < 0.6 for _ in range(draw.integers(0, 3))]
    reach = tuple(None if draw.random() < 0.5 else int(draw.integers(0, 5)) for _ in range(2))
    return operands, {"scale": 0.7, "reach": reach, "biased": biased}


def near(found: Any, wanted: Any) -> None:
    for x, y in zip(found, wanted, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        tolerance = 1e-5 if x.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=tolerance, atol=tolerance)


def check(name: str, operands: list[Any], wanted: Any, **params: Any) -> None:
    graph = graph_of(name, operands, **params)
    made = decompose(graph, ON_GPU)
    assert all(node.command not in decomposition for node in made.walk())
    near(run_graph(made, operands), wanted)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("scores", [1 << 30, 1])  # bytes: all queries at once, or blocks of the smallest size
def test_generated_attentions_have_the_values_of_the_commands(
    seed: int, scores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("nnc.commands.attention"), "_SCORES", scores)
    monkeypatch.setattr(importlib.import_module("nnc.commands.attention"), "QUERIES", 2)
    operands, params = drawn(seed)
    draw = np.random.default_rng(seed)
    results = attention(*operands, **params)
    check("attention", operands, results, **params)
    floats = 3 + params["biased"]
    wrt = tuple(i for i in range(floats) if draw.random() < 0.7) or (0,)
    tangents = [draw.normal(size=operands[i].shape).astype(operands[i].dtype) for i in wrt]
    given = [*operands, *map(np.asarray, results)]
    check(
        "attention_tangent",
        [*tangents, *given],
        attention_tangent(*tangents, *given, wrt=wrt, **params),
        wrt=wrt,
        **params,
    )
    cotangents = [draw.normal(size=x.shape).astype(x.dtype) for x in results]
    found = attention_gradient(*cotangents, *given, wrt=wrt, **params)
    check(
        "attention_gradient", [*cotangents, *given], found if isinstance(found, tuple) else (found,), wrt=wrt, **params
    )


def test_programs_of_the_cpu_and_empty_operands_keep_the_command() -> None:
    x = np.ones((4, 2, 3), np.float32)
    params: dict[str, Any] = {"scale": 1.0, "reach": (None, None), "biased": False}
    graph = graph_of("attention", [x, x, x], **params)
    assert run_passes(graph, ["decompose"], Options.from_environment()).nodes is graph.nodes
    empty = graph_of("attention", [x, x[:0], x[:0]], **params)
    assert decompose(empty, ON_GPU) is empty


def drawn_convolution(draw: np.random.Generator) -> tuple[Any, Any, dict[str, Any]]:
    """An input, a weight and the parameters of a random convolution."""
    rank, groups = int(draw.integers(1, 4)), int(draw.integers(1, 3))
    kernel, stride, dilation = (tuple(map(int, draw.integers(1, 4, rank))) for _ in range(3))
    padding = tuple((int(a), int(b)) for a, b in draw.integers(0, 4, (rank, 2)))
    least = [d * (k - 1) + 1 - sum(p) for k, d, p in zip(kernel, dilation, padding, strict=True)]
    spatial = [int(draw.integers(max(n, 1), max(n, 1) + 4)) for n in least]
    x = draw.normal(size=(draw.integers(1, 4), groups * draw.integers(1, 4), *spatial))
    w = draw.normal(size=(groups * draw.integers(1, 4), x.shape[1] // groups, *kernel))
    return x, w, {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


@pytest.mark.parametrize("seed", range(80))
def test_generated_convolutions_have_the_values_of_the_commands(seed: int) -> None:
    draw = np.random.default_rng(seed)
    x, w, params = drawn_convolution(draw)
    out = conv(x, w, **params)
    ct, spatial, kernel = draw.normal(size=out.shape), x.shape[2:], w.shape[2:]
    last = bool(draw.random() < 0.3)
    if last:
        params["channels_last"] = True
        x, ct = (np.moveaxis(z, 1, -1).copy() for z in (x, ct))
        out = conv(x, w, **params)
    check("conv", [x, w], (out,), **params)
    of_input = conv_input_grad(ct, w, spatial=spatial, **params)
    check("conv_input_grad", [ct, w], (of_input,), spatial=spatial, **params)
    of_weight = conv_weight_grad(x, ct, kernel=kernel, **params)
    check("conv_weight_grad", [x, ct], (of_weight,), kernel=kernel, **params)


def test_large_windows_and_packed_weights_stay_with_the_command() -> None:
    draw = np.random.default_rng(0)
    params: dict[str, Any] = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}
    long = graph_of("conv", [draw.normal(size=(1, 2, 200)), draw.normal(size=(3, 2, 65))], **params)
    assert decompose(long, ON_GPU) is long


def test_the_columns_of_the_forward_pass_are_not_kept_for_the_gradient() -> None:
    draw = np.random.default_rng(0)
    x, w = draw.normal(size=(4, 8, 16, 16)).astype(np.float32), draw.normal(size=(8, 8, 3, 3)).astype(np.float32)

    def loss(weights: list[Any], x: Any) -> Any:
        for each in weights:
            x = nnp.tanh(nn.conv(x, each, padding="same"))
        return nnp.sum(x)

    step = nnc.compile(nnc.grad(loss), device="ptx:0")
    few, many = (step.lower([w] * count, x).compile().memory_plan.arena_bytes for count in (3, 9))
    assert many - few < 6 * 3 * x.nbytes  # a layer keeps its result, and no columns, which are 9 times as large


@pytest.mark.parametrize("n", [31, 32, 33, 64, 65, 100])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("transpose_a", [False, True])
def test_large_triangular_systems_are_halved(n: int, lower: bool, transpose_a: bool) -> None:
    draw = np.random.default_rng(n)
    a, b = draw.normal(size=(2, n, n)) / n + 2 * np.eye(n), draw.normal(size=(2, n, 3))
    for has_ones in (False, True):
        params = {"lower": lower, "transpose_a": transpose_a, "unit_diagonal": has_ones}
        graph = graph_of("triangular_solve", [a, b], **params)
        made = decompose(graph, ON_GPU)
        sizes = [node.inputs[0].shape[-1] for node in made.nodes if node.command.name == "triangular_solve"]
        assert sum(sizes) == n and max(sizes) <= 32 and (made is graph) == (n <= 32)
        near(run_graph(made, [a, b]), run_graph(graph, [a, b]))
        there = nnc.compile(lambda a, b, params=params: triangular_solve(a, b, **params), device="ptx:0")(a, b)
        near([np.asarray(there)], run_graph(graph, [a, b]))


def test_rows_before_one_that_is_not_a_number_stay_free_of_it_and_zeros_on_the_diagonal_are_refused() -> None:
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(70, 70)) + 9 * np.eye(70), draw.normal(size=(70, 2))
    b[50, 1] = np.nan
    solve = nnc.compile(lambda a, b: triangular_solve(a, b, lower=True), device="ptx:0")
    near([np.asarray(solve(a, b))[:50]], [np.asarray(triangular_solve(a, b, lower=True))[:50]])
    a[60, 60] = 0
    with pytest.raises(LinAlgError, match="triangular_solve: a matrix is singular"):
        nnc.block_until_ready(solve(a, b))
