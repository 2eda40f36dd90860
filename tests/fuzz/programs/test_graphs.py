"""Random graphs of views, joins, reductions and elementwise commands: a program agrees with its graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import nnc  # noqa: F401  (registers every command)
from nnc.array.array import Array
from nnc.backends.choose import choose_kernel
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.graph import Graph, GraphBuilder, Symbol

COMMANDS = (
    "neg", "tanh", "add", "mul", "add_itself", "transpose", "reshape", "slice", "flip", "broadcast_to", "reduce_max",
    "concatenate", "dot", "convert", "call",
)  # fmt: skip


def append(draw: Any, b: GraphBuilder, x: Symbol, pool: list[Symbol]) -> Symbol | None:
    """A new node that reads `x`, with parameters drawn; None where the command does not fit."""
    name = draw(st.sampled_from(COMMANDS))
    shape, ndim = x.spec.shape, x.spec.ndim
    if name in ("neg", "tanh"):
        return b.add(name, x)
    if name == "add_itself":
        return b.add("add", x, x)
    if name in ("add", "mul"):
        alike = [y for y in pool if y.spec == x.spec]
        return b.add(name, *draw(st.permutations([x, draw(st.sampled_from(alike))])))
    if name == "transpose":
        return b.add(name, x, permutation=tuple(draw(st.permutations(range(ndim)))))
    if name == "reshape":
        shapes = [(x.spec.size,), (1, *shape), shape[::-1], tuple(n for n in shape if n != 1)]
        if ndim > 1:
            shapes.append((shape[0] * shape[1], *shape[2:]))
        return b.add(name, x, shape=draw(st.sampled_from(shapes)))
    if name == "slice":
        start = tuple(draw(st.integers(0, n)) for n in shape)
        limit = tuple(draw(st.integers(a, n)) for a, n in zip(start, shape, strict=True))
        return b.add(name, x, start=start, limit=limit, stride=tuple(draw(st.integers(1, 2)) for _ in shape))
    if name == "flip":
        return b.add(name, x, axes=tuple(axis for axis in range(ndim) if draw(st.booleans())))
    if name == "broadcast_to":
        return b.add(name, x, shape=(2, *shape)) if x.spec.size < 500 else None
    if name == "reduce_max":
        return b.add(name, x, axes=(0,)) if ndim and shape[0] else None
    if name == "concatenate":
        axis = draw(st.integers(0, max(ndim - 1, 0)))
        return b.add(name, x, b.add("neg", x), x, axis=axis) if ndim and x.spec.size < 500 else None
    if name == "dot":
        return b.add(name, x, x, contract=((ndim - 1,), (ndim - 1,))) if 0 < ndim < 3 and x.spec.size < 100 else None
    if name == "convert":
        return b.add("tanh", b.add(name, x, dtype=np.dtype("float64" if x.dtype == np.float32 else "float32")))
    inner = GraphBuilder("inner")
    u = inner.input(x.spec)
    sub_graph = inner.build(inner.add("add", u, inner.add("tanh", u)), u)
    return b.add("call", x, graphs=(sub_graph,))[draw(st.integers(0, 1))]


@st.composite
def graphs(draw: Any) -> Graph:
    b = GraphBuilder("random")
    shapes = draw(
        st.lists(st.sampled_from([(2, 2), (2, 3), (2, 2, 2), (4,), (), (1, 3), (0, 2)]), min_size=1, max_size=3)
    )
    pool = [b.input(shape, "float32") for shape in shapes]
    pool.append(b.constant(np.arange(6.0).reshape(2, 3) / 6, "float32"))
    for _ in range(draw(st.integers(0, 12))):
        new = append(draw, b, draw(st.sampled_from(pool)), pool)
        if new is not None and new.spec.size <= 2000:
            pool.append(new)
    return b.build(*draw(st.lists(st.sampled_from(pool), max_size=5)))


@given(graphs(), st.sets(st.integers(0, 2)))
def test_a_program_agrees_with_its_graph(graph: Graph, donated: set[int]) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-1, 1, spec.shape).astype(spec.dtype) for spec in graph.input_specs]
    expected = [np.asarray(x) for x in graph.evaluate([Array(x.copy()) for x in inputs])]
    given_away = tuple(sorted(i for i in donated if i < len(inputs)))
    program = lower(graph, Options(verify_passes=True, donated=given_away), choose_kernel)
    for _ in range(2):
        given_inputs = [x.copy() for x in inputs]
        results = program.run(given_inputs)
        for result, wanted in zip(results, expected, strict=True):
            assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
        for i, x in enumerate(inputs):
            if i not in given_away:
                np.testing.assert_array_equal(given_inputs[i], x)
        for i, x in enumerate(results):
            assert not any(np.shares_memory(x, y) for y in results[:i])
            assert not any(np.shares_memory(x, y) for k, y in enumerate(given_inputs) if k not in given_away)
