from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.base import dtypes
from nnc.base.options import Options
from nnc.compiled.pipeline import plan
from nnc.graph import Graph, GraphBuilder, Node, Symbol, run_passes
from nnc.lower.passes.loops.rematerialize_residuals import _may_repeat
from tests.unit.lower.passes.tools import check_same_bits, names, run

BEFORE = ("dce", "fold", "simplify", "cse", "licm", "dce")
RNG = np.random.default_rng(4)
X, H, W = RNG.normal(size=(5, 2, 3)), RNG.normal(size=(2, 3)), RNG.normal(size=(3, 3))


def fewer(function: Any, *inputs: Any) -> tuple[Graph, list[Node], int]:
    """The graph after the pass, its loops, and how many bytes of rows a round of them writes less."""
    graph = nnc.make_graph(function)(*inputs)
    before = run(graph, *BEFORE)
    after = run(before, "rematerialize_residuals", "dce")
    check_same_bits(graph, after, nnc.tree.leaves(inputs))
    return after, [node for node in after.nodes if node.graphs], rows(before) - rows(after)


def rows(graph: Graph) -> int:
    """The bytes of rows that a round of each scan writes."""
    loops = (node for node in graph.nodes if node.command.name == "scan")
    return sum(s.spec.nbytes for node in loops for s in node.graphs[0].outputs[node.params["carries"] :])


def square_loss(cell: Any) -> Any:
    def loss(h: Any, x: Any, w: Any) -> Any:
        h, _ = nnc.scan(lambda h, x: (cell(h, x, w), None), h, x)
        return (h * h).sum()

    return loss


def test_a_derivative_is_made_from_the_value_that_is_kept() -> None:
    """tanh(z) and 1 - tanh(z)^2."""
    loss = square_loss(lambda h, x, w: nnp.tanh(h @ w) * x)
    _after, (forward, backward), _saved = fewer(nnc.grad(loss), H, X, W)
    assert "tanh" in names(forward.graphs[0])
    assert "tanh" not in names(backward.graphs[0])


def test_values_that_follow_from_one_are_made_anew_though_they_are_dear() -> None:
    loss = square_loss(lambda h, x, w: nnp.tanh(h @ w) * nnc.nn.sigmoid(h @ w))
    _after, (forward, backward), saved = fewer(nnc.grad(loss), H, X, W)
    assert saved > 0
    assert len(forward.graphs[0].outputs) == forward.params["carries"] + 1
    assert {"tanh", "sigmoid"} <= set(names(backward.graphs[0]))


def test_an_lstm_keeps_its_gates_and_its_carry() -> None:
    def loss(u: Any, h: Any, c: Any, x: Any) -> Any:
        def cell(carried: Any, x: Any) -> Any:
            h, c = carried
            i, f, g, o = nnp.split(x + h @ u, 4, -1)
            c = nnc.nn.sigmoid(f) * c + nnc.nn.sigmoid(i) * nnp.tanh(g)
            h = nnc.nn.sigmoid(o) * nnp.tanh(c)
            return (h, c), h

        return (nnc.scan(cell, (h, c), x)[1] ** 2).sum()

    u, x = RNG.normal(size=(3, 12)), RNG.normal(size=(5, 2, 12))
    _after, (forward, backward), saved = fewer(nnc.grad(loss), u, H, H, x)
    written = forward.graphs[0].outputs[forward.params["carries"] :]
    assert len(written) == 7  # the operands of four gates, h and c before the iteration, and the outputs
    assert all(symbol.spec == written[0].spec for symbol in written)
    assert names(backward.graphs[0]).count("tanh") == 2  # of the new c, and of a gate whose argument is kept
    assert saved == 6 * H.nbytes


def test_rows_that_something_else_reads_stay_and_serve_to_compute_others() -> None:
    def f(h: Any, x: Any) -> Any:
        def write(h: Any, x: Any) -> Any:
            s = nnp.tanh(h @ W + x)
            return s, (s, 1 - s, s * s)

        _, (s, rest, square) = nnc.scan(write, h, x)
        out, _ = nnc.scan(lambda c, xs: (c * xs[0] + xs[1] + xs[2], None), h, (s, rest, square))
        return out, s

    _after, (writer, reader), saved = fewer(f, H, X)
    assert len(writer.graphs[0].outputs) == 2
    assert reader.params["xs"] == 1
    assert saved == 2 * H.nbytes


def test_a_row_that_is_cheaper_than_its_operands_is_kept() -> None:
    """A sum of the carried values' size is made of two that nobody else needs."""

    def f(h: Any, x: Any) -> Any:
        def write(carried: Any, x: Any) -> Any:
            a, b = carried
            a, b = nnp.tanh(a @ W + b), nnp.sin(b @ W + a)
            return (a, b), a * b + a

        (_, _), ys = nnc.scan(write, (h, h), x)
        return nnc.scan(lambda c, y: (c * y, None), h, ys)[0]

    _after, (_writer, reader), saved = fewer(f, H, X)
    assert saved == 0
    assert names(reader.graphs[0]) == ["mul"]


def test_many_expensive_commands_for_one_row_are_not_run_again() -> None:
    def f(h: Any, x: Any) -> Any:
        def write(h: Any, x: Any) -> Any:
            y = h @ W
            z = nnp.exp(nnp.sin(nnp.cos(nnp.log(1 + nnp.exp(nnp.tanh(y))))))
            return nnp.tanh(y + x), (y, z)

        _, (y, z) = nnc.scan(write, h, x)
        return nnc.scan(lambda c, yz: (c * yz[0] + yz[1], None), h, (y, z))[0]

    _after, (_writer, _reader), saved = fewer(f, H, X)
    assert saved == 0


def test_the_sequences_of_the_writing_loop_are_read_again_while_they_live() -> None:
    def f(h: Any, x: Any) -> Any:
        _, ys = nnc.scan(lambda h, x: (nnp.tanh(h @ W + x), (nnp.sin(x) * 2)), h, x)
        return nnc.scan(lambda c, y: (c * y, None), h, ys)[0]

    after, loops, saved = fewer(f, H, X)
    assert saved == H.nbytes
    assert loops[-1].inputs[0] is after.inputs[1]


def test_the_number_of_the_round_and_captured_values_are_at_hand() -> None:
    def f(h: Any, v: Any) -> Any:
        def write(i: Any, h: Any) -> Any:
            return nnp.tanh(h @ W), nnp.sin(v * i)

        _, ys = nnc.scan(lambda h, i: write(i, h), h, nnp.arange(4.0, dtype="float64"), reverse=True)
        return nnc.scan(lambda c, y: (c * y, None), h, ys)[0]

    _after, _loops, saved = fewer(f, H, H)
    assert saved == H.nbytes


def test_loops_of_unknown_length_write_fewer_tapes() -> None:
    def loss(h: Any, w: Any) -> Any:
        def round_(carried: Any) -> Any:
            i, h = carried
            return i + 1, nnp.tanh(h @ w) * nnc.nn.sigmoid(h @ w)

        return (nnc.while_loop(lambda c: c[0] < 5.5, round_, (1.0, h))[1] ** 2).sum()

    graph = nnc.make_graph(nnc.grad(loss))(H, W)
    before = run(graph, *BEFORE)
    after = run(before, "rematerialize_residuals", "dce")
    check_same_bits(graph, after, (H, W))
    (was,), (now,) = ([x for x in g.nodes if x.command.name == "while"] for g in (before, after))
    assert now.params["tapes"] < was.params["tapes"]


@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_take_less_memory(order: int) -> None:
    def cell(h: Any, x: Any, w: Any) -> Any:
        return nnp.tanh(h @ w) * nnc.nn.sigmoid(h @ w + x)

    gradient = nnc.grad(square_loss(cell))
    if order == 2:
        first = gradient
        gradient = nnc.grad(lambda h, x, w: (first(h, x, w) ** 2).sum())
    h, x = RNG.normal(size=(40, 30)), RNG.normal(size=(50, 40, 30))
    graph = nnc.make_graph(gradient)(h, x, RNG.normal(size=(30, 30)))
    before = run(graph, *BEFORE)
    sizes = [plan(g, Options()).arena_bytes for g in (before, run(before, "rematerialize_residuals", "dce"))]
    assert rows(run(before, "rematerialize_residuals", "dce")) < rows(before)
    assert sizes[1] <= sizes[0]


# -- random loops ------------------------------------------------------------------------------------------------------

UNARY = ("neg", "tanh", "exp", "sin", "square", "abs", "sign")
BINARY = ("add", "mul", "sub", "maximum", "safe_mul")


def append(draw: Any, b: GraphBuilder, known: list[Symbol], count: int) -> None:
    """Elementwise commands, and products, which cannot be run again."""
    for _ in range(count):
        x, y = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        kind = draw(st.sampled_from(["unary", "binary", "binary", "view", "dot"]))
        if kind == "unary":
            known.append(b.add(draw(st.sampled_from(UNARY)), x))
        elif kind == "binary":
            known.append(b.add(draw(st.sampled_from(BINARY)), x, y))
        elif kind == "view":
            known.append(b.add("transpose", x, permutation=(1, 0)))
        else:
            known.append(b.add("tanh", b.add("dot", x, y, contract=((1,), (0,)))))


@st.composite
def chained_loops(draw: Any) -> Graph:
    """Loops that read elements of the sequences and rows of those before them; some rows are read elsewhere, too."""
    b = GraphBuilder("chained loops")
    length = draw(st.integers(0, 3))
    stacks, squares = (
        [b.input((length, 2, 2), "float64") for _ in range(2)],
        [b.input((2, 2), "float64") for _ in range(2)],
    )
    results: list[Symbol] = []
    for _ in range(draw(st.integers(2, 3))):
        read = draw(st.lists(st.sampled_from(stacks), min_size=1, max_size=4))
        carried = draw(st.lists(st.sampled_from(squares), min_size=1, max_size=2))
        captured = draw(st.lists(st.sampled_from(squares), max_size=1))
        body = GraphBuilder("round")
        number = body.add("convert", body.input((), "int64"), dtype=np.dtype("float64"))
        known = [body.input((2, 2), "float64") for _ in (*read, *carried, *captured)]
        known += [body.constant(np.full((2, 2), 0.5)), body.add("broadcast_to", number, shape=(2, 2))]
        append(draw, body, known, draw(st.integers(2, 8)))
        following = [draw(st.sampled_from(known)) for _ in carried]
        yielded = draw(st.lists(st.sampled_from(known), min_size=1, max_size=4))
        outputs = b.add(
            "scan", *read, *carried, *captured, graphs=(body.build(*following, *yielded),), xs=len(read),
            carries=len(carried), length=length, reverse=draw(st.booleans()),
        )  # fmt: skip
        squares += outputs[: len(carried)]
        stacks += outputs[len(carried) :]
        results += outputs[: len(carried)]
        if draw(st.booleans()):
            results.append(b.add("reduce_sum", stacks[-1], axes=(0,)))
    return b.build(*results)


@given(chained_loops())
def test_random_loops_that_read_each_others_rows_keep_their_values(graph: Graph) -> None:
    before = run_passes(graph, ("dce", "cse", "dce"), Options())
    after = run_passes(before, ("rematerialize_residuals", "dce"), Options(), verify=True)
    assert rows(after) <= rows(before)
    with np.errstate(all="ignore"):
        check_same_bits(graph, after, [RNG.uniform(-1, 1, spec.shape) for spec in graph.input_specs])


def test_residuals_that_a_fused_kernel_may_recompute() -> None:
    b = GraphBuilder()
    x = b.input((4,), "float32")
    identity = GraphBuilder()
    same = identity.build(identity.input((4,), "float32"))
    b.add("neg", x)
    b.add("reshape", x, shape=(2, 2))
    b.add("full", shape=(2,), value=1.0, dtype=dtypes.float32)
    b.add("reduce_sum", x, axes=(0,))
    b.add("case_of", b.constant(0, "int64"), x, graphs=(same,))
    may = {node.command.name: _may_repeat(node) for node in b.build(x).nodes}
    assert may == {"neg": True, "reshape": True, "full": True, "reduce_sum": False, "case_of": False}
