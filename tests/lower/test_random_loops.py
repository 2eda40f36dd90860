"""Random graphs of nested loops and branches, bound into one arena: a program computes what its graph does."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

import nnc  # noqa: F401  (registers every command)
from nnc.array import Array
from nnc.backends.numpy_ref import choose_kernel
from nnc.graph import Graph, GraphBuilder, Symbol
from nnc.lower.pipeline import lower
from nnc.options import Options

SHAPE = (2, 3)
UNARY = ("neg", "tanh", "reverse", "cumsum", "transposed", "joined", "twice")


def unary(draw: Any, b: GraphBuilder, x: Symbol) -> Symbol:
    name = draw(st.sampled_from(UNARY))
    if name == "reverse":
        return b.add("flip", x, axes=(1,))
    if name == "cumsum":
        return b.add("cumsum", x, axis=1)
    if name == "transposed":  # a value in another order than its memory
        return b.add("reshape", b.add("transpose", x, permutation=(1, 0)), shape=SHAPE)
    if name == "joined":
        half = b.add("slice", x, start=(0, 0), limit=(1, 3), stride=(1, 1))
        return b.add("concatenate", b.add("neg", half), half, axis=0)
    if name == "twice":
        return b.add("add", x, x)
    return b.add(name, x)


def values(draw: Any, b: GraphBuilder, pool: list[Symbol], depth: int) -> None:
    """Appends some nodes, whose results join the pool."""
    for _ in range(draw(st.integers(1, 4))):
        pick = st.sampled_from(pool)
        kind = draw(st.sampled_from(("unary", "unary", "binary", "scan", "while", "case_of") if depth else ("unary", "binary")))
        if kind == "unary":
            pool.append(unary(draw, b, draw(pick)))
        elif kind == "binary":
            pool.append(b.add("tanh", b.add("add", draw(pick), draw(pick))))
        elif kind == "case_of":
            operands = [draw(pick) for _ in range(2)]
            index = b.constant(draw(st.integers(0, 1)), "int64")
            results = draw(st.integers(1, 2))
            branches = tuple(inner(draw, depth, 2, results) for _ in range(2))
            pool += outputs(b.add("case_of", index, *operands, graphs=branches))
        else:
            loop(draw, b, pool, depth, kind)


def outputs(result: Any) -> list[Symbol]:
    return list(result) if isinstance(result, tuple) else [result]


def inner(draw: Any, depth: int, inputs: int, results: int) -> Graph:
    b = GraphBuilder("branch")
    pool = [b.input(SHAPE, "float64") for _ in range(inputs)]
    values(draw, b, pool, depth - 1)
    return b.build(*(draw(st.sampled_from(pool)) for _ in range(results)))


def loop(draw: Any, b: GraphBuilder, pool: list[Symbol], depth: int, kind: str) -> None:
    pick = st.sampled_from(pool)
    carries, captured = draw(st.integers(1, 4)), draw(st.integers(0, 2))
    length = draw(st.integers(0, 6))
    body = GraphBuilder("round")
    number = body.input((), "int64")
    element = body.input(SHAPE, "float64") if kind == "scan" else None
    taken = [body.input(SHAPE, "float64") for _ in range(carries)]
    around = [*taken, *(body.input(SHAPE, "float64") for _ in range(captured))]
    around += [element] if element is not None else []
    if draw(st.booleans()):
        scale = body.add("convert", number, dtype=np.dtype("float64"))
        around.append(body.add("broadcast_to", scale, shape=SHAPE))
    operands = [draw(pick) for _ in range(carries + captured)]
    if kind == "scan":
        values(draw, body, around, depth - 1)
        rows = draw(st.integers(0, 2))
        given = [draw(st.sampled_from(around)) for _ in range(carries)]
        stacked = [draw(st.sampled_from([*given, *around])) for _ in range(rows)]
        xs = b.add("tanh", b.add("broadcast_to", draw(pick), shape=(length, *SHAPE)))
        result = b.add(
            "scan", xs, *operands, graphs=(body.build(*given, *stacked),), xs=1, carries=carries, length=length,
            reverse=draw(st.booleans()),
        )  # fmt: skip
        pool += outputs(result)[:carries]
        pool += [b.add("reduce_sum", stack, axes=(0,)) for stack in outputs(result)[carries:]]
        return
    limit = body.input((), "int64")
    early = draw(st.integers(0, 1))
    if early:
        around.append(unary(draw, body, draw(st.sampled_from(around))))
    condition = body.add("less", number, limit)
    before = len(body.build(condition).nodes)
    known = list(around)
    values(draw, body, around, depth - 1)
    given = [draw(st.sampled_from(around)) for _ in range(carries)]
    exits = [draw(st.sampled_from(known)) for _ in range(draw(st.integers(0, 1)))]
    bound = b.constant(length, "int64")
    graph = body.build(condition, *given, *exits)
    pool += outputs(b.add("while", *operands, bound, graphs=(graph,), carries=carries, before=before))[:-1]


@st.composite
def graphs(draw: Any) -> Graph:
    b = GraphBuilder("random loops")
    pool = [b.input(SHAPE, "float64") for _ in range(2)]
    values(draw, b, pool, 2)
    return b.build(*draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4)), pool[-1])


@given(graphs())
def test_a_program_of_loops_and_branches_computes_what_its_graph_does(graph: Graph) -> None:
    note(str(graph))
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-1, 1, spec.shape) for spec in graph.input_specs]
    expected = [np.asarray(x) for x in graph.evaluate([Array(x.copy()) for x in inputs])]
    program = lower(graph, Options(verify_passes=True), choose_kernel)
    for _ in range(2):
        arrays = [x.copy() for x in inputs]
        for result, wanted in zip(program.run(arrays), expected, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-9, atol=1e-9)
        for x, y in zip(arrays, inputs, strict=True):
            np.testing.assert_array_equal(x, y)
