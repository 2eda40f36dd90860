"""Every exact pass preserves the values of random graphs bit for bit: aliases, views, joins, numbers, loops and branches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
from nnc.base.options import Options
from nnc.graph import Graph, GraphBuilder, Symbol, find_pass, run_passes, structural_hash
from nnc.lower.phases import PHASES, SIMPLIFYING, names_of
from tests.fuzz.programs.test_control_flow import POINT, _program, loss, run_nnc
from tests.fuzz.programs.test_graphs import append
from tests.golden.programs import PROGRAMS
from tests.unit.lower.passes.tools import EXACT, check_same_bits, evaluate, run

FLOAT = np.dtype("float32")
NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.25, 3.0, np.inf, np.nan)
UNARY = ("neg", "abs", "square", "stop_gradient", "copy", "sign", "reciprocal", "exp")
BINARY = ("add", "sub", "mul", "div", "maximum", "safe_mul")


def append_algebra(draw: Any, b: GraphBuilder, x: Symbol, pool: list[Symbol]) -> Symbol:
    """A node of the kinds that rules look for: numbers, signs, choices, repeated nodes, aliases of a declared tensor."""
    kind = draw(
        st.sampled_from(["number", "unary", "binary", "select", "convert", "again", "aliases", "reduce", "slices"])
    )
    if kind == "number":
        number = b.add("full", shape=x.shape, dtype=x.dtype, value=draw(st.sampled_from(NUMBERS)))
        return b.add(draw(st.sampled_from(BINARY)), *draw(st.permutations([x, number])))
    if kind == "unary":
        return b.add(draw(st.sampled_from(UNARY)), x)
    if kind == "binary":
        return b.add(draw(st.sampled_from(BINARY)), x, draw(st.sampled_from([y for y in pool if y.spec == x.spec])))
    if kind == "select":
        mask = b.add("less", x, b.add("neg", x))
        mask = b.add("bitwise_not", mask) if draw(st.booleans()) else mask
        return b.add("select", mask, x, b.add("neg", b.add("neg", x)))
    if kind == "convert":
        wide = b.add("convert", x, dtype=np.dtype(draw(st.sampled_from(["float64", "float16", "bool"]))))
        return b.add("convert", wide, dtype=x.dtype)
    if kind == "again":
        return b.add("sub", b.add("mul", x, x), b.add("mul", x, x))
    if kind == "reduce":
        axes = tuple(axis for axis, n in enumerate(x.shape) if n == 1 or draw(st.booleans()))
        command = draw(st.sampled_from(["reduce_sum", "reduce_prod", "reduce_max"]))
        return b.add(command, x, axes=axes) if x.spec.size else b.add("neg", x)
    if not x.spec.ndim or x.shape[0] < 2:
        return b.add("neg", x)
    cut = draw(st.integers(0, x.shape[0]))
    low = b.alias(x, (0,) * x.spec.ndim, (cut, *x.shape[1:]))
    high = b.alias(x, (cut, *(0,) * (x.spec.ndim - 1)), (x.shape[0] - cut, *x.shape[1:]))
    if kind == "slices":
        return b.add("concatenate", *draw(st.permutations([low, high])), axis=0)
    base = b.tensor(x.spec)
    command = draw(st.sampled_from(["neg", "copy"]))
    b.add(command, low, out=b.alias(base, (0,) * x.spec.ndim, low.shape))
    if draw(st.booleans()):
        b.add(command, high, out=b.alias(base, (cut, *(0,) * (x.spec.ndim - 1)), high.shape))
    return b.add("copy", base)


@st.composite
def graphs(draw: Any) -> Graph:
    b = GraphBuilder("random")
    pool = [
        b.input(shape, FLOAT)
        for shape in draw(st.lists(st.sampled_from([(2, 3), (4,), (), (1, 3)]), min_size=1, max_size=3))
    ]
    pool.append(b.constant(np.asarray([[1.0, -0.0, 2.0], [0.5, 1.0, -3.0]]), FLOAT))
    for _ in range(draw(st.integers(1, 14))):
        x = draw(st.sampled_from(pool))
        floating = x.dtype == FLOAT
        new = append_algebra(draw, b, x, pool) if floating and draw(st.integers(0, 2)) else append(draw, b, x, pool)
        if new is not None and new.spec.size <= 500:
            pool.append(new)
    return b.build(*draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4)))


def arrays(graph: Graph) -> list[Any]:
    rng = np.random.default_rng(0)
    special = np.asarray([0.0, -0.0, 1.0, np.inf, np.nan])
    draws = [np.asarray(rng.normal(size=spec.shape)) for spec in graph.input_specs]
    return [np.where(rng.random(x.shape) < 0.3, rng.choice(special, x.shape), x).astype(FLOAT) for x in draws]


@given(graphs())
def test_each_exact_pass_and_all_together_preserve_every_bit(graph: Graph) -> None:
    inputs = arrays(graph)
    for name in sorted(set(EXACT)):
        check_same_bits(graph, run(graph, name), inputs)
    after = run(graph, *EXACT)
    check_same_bits(graph, after, inputs)
    assert sum(1 for _ in after.walk()) <= sum(1 for _ in run(graph, "inline_calls", "inline_barriers").walk())


@given(program=_program)
def test_loops_and_branches_and_their_gradients_keep_every_bit(program: Any) -> None:
    graph = nnc.make_graph(nnc.value_and_grad(loss(run_nnc, program), (0, 1)))(*POINT)
    for passes in (EXACT, EXACT[::-1]):
        check_same_bits(graph, run(graph, *passes), POINT)


@given(graphs())
def test_passes_are_deterministic(graph: Graph) -> None:
    assert structural_hash(run(graph, *EXACT)) == structural_hash(run(graph, *EXACT))


@pytest.mark.slow
@given(program=_program)
def test_the_whole_pipeline_keeps_values_of_mapped_gradients(program: Any) -> None:
    rows = np.array([-0.8, 0.37, 1.6])
    f = nnc.vmap(nnc.grad(loss(run_nnc, program)), (0, None))
    graph = nnc.make_graph(f)(rows, POINT[1])
    after = run(graph, *names_of(SIMPLIFYING))
    for x, y in zip(evaluate(graph, (rows, POINT[1])), evaluate(after, (rows, POINT[1])), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)


def check_skipped_passes(graph: Graph) -> None:
    """Runs the pipeline, and each pass also where it is skipped since no command of the graph concerns it."""
    options = Options()
    for name in names_of(PHASES):
        step = find_pass(name)
        present = {node.command for node in graph.walk()}
        if step.concerns and not any(each in step.concerns or each.name in step.concerns for each in present):
            assert structural_hash(step.function(graph, options)) == structural_hash(graph), name
        graph = run_passes(graph, [name], options)


@given(graphs())
def test_a_pass_leaves_graphs_alone_that_do_not_concern_it(graph: Graph) -> None:
    check_skipped_passes(graph)


@given(program=_program)
def test_a_pass_leaves_loops_and_gradients_alone_that_do_not_concern_it(program: Any) -> None:
    check_skipped_passes(nnc.make_graph(nnc.value_and_grad(loss(run_nnc, program), (0, 1)))(*POINT))


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_a_pass_leaves_golden_programs_alone_that_do_not_concern_it(make: Any) -> None:
    program = make()
    check_skipped_passes(nnc.make_graph(program.fun)(*program.arguments))
