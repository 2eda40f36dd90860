"""Generated nests agree with the references on a GPU: any sizes and layouts, transposed and broadcast operands, some in place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from nnc.graph import Graph, GraphBuilder, Symbol
from nnc.lower.kernels.domain import Domain
from nnc.lower.kernels.row_phases import overwrites
from tests.unit.backends.cuda.launching import run_nests
from tests.unit.backends.cuda.test_conformance import LAYOUTS, SOURCES
from tests.unit.backends.cuda.test_forms import expected, widened
from tests.unit.lower.kernels.test_conformance import graph_of

NDArray = np.ndarray[Any, Any]
SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 40, 64, 65, 100, 128, 257)
NESTS = 12  # of a test, compiled together
MOST = 60_000  # elements


@dataclass(frozen=True)
class Drawn:
    """A nest on a tensor, on another one whose axes are turned, and on a third one with an element a row."""

    graph: Graph
    inputs: Sequence[NDArray]
    outputs: Sequence[NDArray]
    wanted: Sequence[NDArray]


def draw_shape(rng: np.random.Generator) -> tuple[int, ...]:
    shape = [int(n) for n in rng.choice(SIZES, size=rng.integers(1, 5))]
    if rng.random() < 0.25:  # few long rows
        shape = [int(rng.integers(1000, 40_000)), *shape[:1]]
        rng.shuffle(shape)
    while math.prod(shape) > MOST:
        shape = [max(n // 2, 1) for n in shape]
    return tuple(shape)


def draw_array(rng: np.random.Generator, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray:
    """An array of numbers from 1 on, somewhere in memory."""
    drawn = np.abs(rng.normal(size=shape)) + 1 if dtype.kind == "f" else rng.integers(1, 5, shape)
    return np.asarray(SOURCES[rng.integers(len(SOURCES))](np.array(drawn).astype(dtype)))


def draw(rng: np.random.Generator) -> Drawn:
    shape, dtype = draw_shape(rng), np.dtype(str(rng.choice(["float32", "float64", "int32", "int8"])))
    order = tuple(int(axis) for axis in rng.permutation(len(shape)))
    axes = tuple(sorted(int(axis) for axis in rng.choice(len(shape), rng.integers(len(shape) + 1), replace=False)))
    rows = [n for axis, n in enumerate(shape) if axis not in axes]
    turned = [shape[axis] for axis in np.argsort(order)]
    inputs = [draw_array(rng, each, dtype) for each in (shape, turned, rows)]
    form = int(rng.integers(4))

    def body(b: GraphBuilder, x: Symbol, y: Symbol, row: Symbol) -> list[Symbol]:
        value = b.add("maximum", x, b.add("transpose", y, permutation=order))
        value = b.add("add", value, widened(b, row, x, axes))
        if not axes:
            return [value, b.add("sub", value, x)]
        least = b.add("reduce_min", value, axes=axes)
        if form == 0:
            return [least, b.add("reduce_sum", value, axes=axes)]
        more = b.add("sub", value, widened(b, least, value, axes))
        total = b.add("reduce_sum", more, axes=axes)
        if form == 1:
            return [more, b.add("add", total, row)]
        return (
            [b.add("add", total, least)] if form == 2 else [b.add("add", value, widened(b, total, value, axes)), total]
        )

    graph = graph_of(inputs, body)
    assert Domain.of(graph).fits(graph.outputs)
    exact = [x.astype(np.float64) if dtype.kind == "f" else x for x in inputs]
    wanted = expected(graph, exact)
    outputs = [np.asarray(LAYOUTS[rng.integers(len(LAYOUTS))](np.ones(s.shape, s.dtype))) for s in graph.output_specs]
    return Drawn(graph, inputs, put_in_place(rng, graph, inputs, outputs), wanted)


def put_in_place(
    rng: np.random.Generator, graph: Graph, inputs: Sequence[NDArray], outputs: Sequence[NDArray]
) -> Sequence[NDArray]:
    """Lets some outputs lie where inputs do, as plans may."""
    found = list(outputs)
    free = {i for i, x in enumerate(inputs) if all(step or n == 1 for n, step in zip(x.shape, x.strides, strict=True))}
    for i, j in overwrites(graph, Domain.of(graph)).overwrite:
        if i in free and found[j] is outputs[j] and found[j].dtype == inputs[i].dtype and rng.random() < 0.5:
            found[j] = inputs[i]
            free.remove(i)
    return found


@pytest.mark.parametrize("seed", range(10))
def test_generated_nests_have_the_results_of_the_references(seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = [draw(rng) for _ in range(NESTS)]
    run_nests([(nest.graph, nest.inputs, nest.outputs) for nest in drawn])
    for nest in drawn:
        for out, want in zip(nest.outputs, nest.wanted, strict=True):
            if out.dtype.kind == "f":
                scale = float(np.abs(want).max(initial=0))
                np.testing.assert_allclose(out, want, rtol=2e-6, atol=2e-6 * scale)
            else:
                np.testing.assert_array_equal(out, want)
