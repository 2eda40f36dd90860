"""`while`, `scan` and `case_of` as nodes of graphs built by hand, and how passes may change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base.options import Options
from nnc.commands.tape import Tape, add_tapes
from nnc.errors import ArgumentError, ArgumentTypeError, GraphError, NncError, OutOfBoundsError, ShapeError
from nnc.graph import Graph, GraphBuilder, Symbol, from_json, reference, run_passes, structural_hash, to_json, verify
from nnc.lower.phases import BEFORE_FUSION, names_of

NUMBER = ((), "float64")
RUN = pytest.mark.parametrize("run", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
Build = Callable[..., Any]


def near(a: Any, b: Any) -> bool:
    return bool(np.allclose(np.asarray(a), np.asarray(b), rtol=1e-12, atol=1e-12))


def loop(carries: int, captured: int, iteration: Build, **params: Any) -> tuple[Graph, dict[str, Any]]:
    """An iteration of numbers, and its node's parameters: `iteration(builder, counter, *values)` yields (before, *outputs)."""
    b = GraphBuilder("round")
    counter = b.input((), "int64")
    before, *outputs = iteration(b, counter, *(b.input(*NUMBER) for _ in range(carries + captured)))
    return b.build(*outputs), {"carries": carries, "before": before, "max_steps": None, **params}


def whole(inputs: int, body: tuple[Graph, dict[str, Any]], *extra: Any) -> Graph:
    """A graph that does nothing but the loop; further inputs are constants."""
    b = GraphBuilder()
    given = [b.input(*NUMBER) for _ in range(inputs)]
    outputs = b.add("while", *given, *(b.constant(x) for x in extra), graphs=(body[0],), **body[1])
    return b.build(*outputs, *given)


def below(b: GraphBuilder, counter: Symbol, n: int) -> Symbol:
    return b.add("less", counter, b.constant(n, "int64"))


def product(b: GraphBuilder, counter: Symbol, x: Symbol, y: Symbol, place: str) -> Any:
    """x ← x·y while counter < 4, with the test before or behind the product."""
    if place == "first":
        condition, before = below(b, counter, 4), b.num_nodes
        return before, condition, b.add("mul", x, y)
    z = b.add("mul", x, y)
    return b.num_nodes + 1, below(b, counter, 4), z, z


@RUN
@pytest.mark.parametrize("place", ["first", "last"])
def test_the_test_may_stand_before_or_behind_the_work(run: Build, place: str) -> None:
    graph = whole(2, loop(1, 1, lambda b, i, x, y: product(b, i, x, y, place)))
    results = run(lambda x, y: graph(x, y))(np.float64(0.34), np.float64(1.11))
    assert near(results[0], 0.34 * 1.11**4)
    if place == "last":  # its exit is a value of the fifth iteration, computed before the loop was left
        assert near(results[1], 0.34 * 1.11**5) and int(results[2]) == 4
        slopes = run(nnc.grad(lambda x, y: graph(x, y)[1], (0, 1)))(np.float64(0.34), np.float64(1.11))
        assert near(slopes, (1.11**5, 0.34 * 5 * 1.11**4))
        second = run(nnc.jacfwd(nnc.grad(lambda x, y: graph(x, y)[1], 1), 1))(np.float64(0.34), np.float64(1.11))
        assert near(second, 0.34 * 20 * 1.11**3)
    assert near(results[-2:], (0.34, 1.11))  # the initial value


@RUN
def test_nodes_behind_the_test_do_not_run_in_the_last_iteration(run: Build) -> None:
    table = np.arange(3.0)

    def iteration(b: GraphBuilder, i: Symbol, x: Symbol) -> Any:
        condition, before = below(b, i, 3), b.num_nodes
        element = b.add("gather", b.constant(table), i, axes=(0,), batch=0, mode="error")  # fails in a fourth round
        return before, condition, b.add("add", x, element)

    graph = whole(1, loop(1, 0, iteration))
    assert near(run(lambda x: graph(x)[0])(np.float64(10)), 13)
    assert near(run(nnc.vmap(lambda x: graph(x)[0]))(np.array([10.0, 20.0])), [13, 23])
    assert near(run(nnc.grad(lambda x: graph(x)[0]))(np.float64(10)), 1)

    def too_late(b: GraphBuilder, i: Symbol, x: Symbol) -> Any:
        _, condition, y = iteration(b, i, x)
        return b.num_nodes, condition, y, y

    late = whole(1, loop(1, 0, too_late))
    with pytest.raises(OutOfBoundsError):
        run(lambda x: late(x)[0])(np.float64(10))


@RUN
def test_an_affine_loop_with_bound_constants(run: Build) -> None:
    def iteration(b: GraphBuilder, i: Symbol, x: Symbol, p: Symbol, q: Symbol) -> Any:
        z = b.add("add", b.add("mul", x, p), q)
        condition = below(b, i, 4)
        return b.num_nodes, condition, z, z

    graph = whole(1, loop(1, 2, iteration), np.float64(0.3), np.float64(1.1))
    assert abs(float(run(lambda x: graph(x)[1])(np.float64(0.88))) - 1.5697484) < 1e-6


@RUN
def test_an_inner_loop_reads_the_outer_counter_and_starts_anew_each_iteration(run: Build) -> None:
    inner = GraphBuilder("inner")
    j, x, i = inner.input((), "int64"), inner.input(*NUMBER), inner.input((), "int64")
    condition, before = inner.add("less_equal", j, i), inner.num_nodes
    step = inner.add("convert", inner.add("add", j, i), dtype=np.dtype("float64"))
    body = inner.build(condition, inner.add("add", x, step))

    def iteration(b: GraphBuilder, i: Symbol, x: Symbol) -> Any:
        go, at = below(b, i, 4), b.num_nodes
        y, iterations = b.add("while", x, i, graphs=(body,), carries=1, before=before, max_steps=None)
        return at, go, b.add("add", y, b.add("convert", iterations, dtype=np.dtype("float64")))

    graph = whole(1, loop(1, 0, iteration))
    wanted = 0.5 + sum(sum(j + i for j in range(i + 1)) + i + 1 for i in range(4))
    assert near(run(lambda x: graph(x)[0])(np.float64(0.5)), wanted)
    assert structural_hash(verify(from_json(to_json(graph)))) == structural_hash(graph)
    assert near(from_json(to_json(graph))(np.float64(0.5))[0], wanted)


@RUN
def test_lagging_carries_hold_the_values_of_the_last_iteration(run: Build) -> None:
    def iteration(b: GraphBuilder, i: Symbol, x0: Symbol, x1: Symbol, x2: Symbol) -> Any:
        go, at = below(b, i, 5), b.num_nodes
        return at, go, x1, x2, b.add("add", x0, b.add("sin", x2))

    graph = whole(3, loop(3, 0, iteration))
    x = [0.1, 0.2, 0.3]
    for _ in range(5):
        x = [x[1], x[2], x[0] + np.sin(x[2])]
    assert near(run(lambda *v: graph(*v)[:3])(*map(np.float64, (0.1, 0.2, 0.3))), x)


@RUN
def test_the_counter_comes_out_one_for_each_row(run: Build) -> None:
    def iteration(b: GraphBuilder, i: Symbol, x: Symbol, limit: Symbol) -> Any:
        go, at = b.add("less", x, limit), b.num_nodes
        return at, go, b.add("add", x, x)

    graph = whole(2, loop(1, 1, iteration))
    f = run(nnc.vmap(lambda x, limit: graph(x, limit)[:2], in_axes=(0, None)))
    values, iterations = f(np.array([1.0, 5.0, 40.0]), np.float64(20))
    assert near(values, [32, 20, 40]) and list(np.asarray(iterations)) == [5, 2, 0]
    values, iterations = run(nnc.vmap(lambda x, limit: graph(x, limit)[:2], in_axes=(None, 0)))(
        1.0 + np.float64(0), np.array([3.0, 9.0])
    )
    assert near(values, [4, 16]) and list(np.asarray(iterations)) == [2, 4]


# -- passes ------------------------------------------------------------------------------------------------------------


def commands(graph: Graph) -> list[str]:
    return [node.command.name for node in graph.nodes]


def test_loops_and_branches_that_nobody_reads_are_dropped() -> None:
    def f(x: Any) -> Any:
        nnc.fori_loop(0, 2, lambda i, c: c * 2, x)
        nnc.while_loop(lambda c: c < 3, lambda c: c * 2, x)
        nnc.cond(x > 0, nnp.sin, nnp.cos, x)
        nnc.while_loop(lambda _: False, lambda c: c, ())
        return x + 1

    graph = nnc.make_graph(f)(np.float64(1))
    assert {"scan", "while", "case_of"} <= set(commands(graph))
    assert set(commands(run_passes(graph, names_of(BEFORE_FUSION), Options(), verify=True))) <= {"add", "copy"}


def test_the_test_keeps_its_place_when_nodes_before_it_are_dropped() -> None:
    def iteration(b: GraphBuilder, i: Symbol, x: Symbol) -> Any:
        for _ in range(5):
            b.add("sin", x)
        condition, before = below(b, i, 3), b.num_nodes
        return before, condition, b.add("exp", b.add("neg", x))

    graph = whole(1, loop(1, 0, iteration))
    (node,) = run_passes(graph, ("dce",), Options(), verify=True).nodes
    assert node.params["before"] == 1 and commands(node.graphs[0]) == ["less", "neg", "exp"]


@RUN
@pytest.mark.parametrize("where", ["condition", "work", "both"])
def test_the_test_keeps_its_place_when_calls_are_inlined(run: Build, where: str) -> None:
    small = GraphBuilder("small")
    y = small.input(*NUMBER)
    called = small.build(small.add("add", small.add("mul", y, y), y))

    def iteration(b: GraphBuilder, i: Symbol, x: Symbol) -> Any:
        v = b.add("call", x, graphs=(called,))[0] if where != "work" else x
        condition, before = b.add("less", v, b.constant(np.float64(50))), b.num_nodes
        return before, condition, b.add("call", x, graphs=(called,))[0] if where != "condition" else b.add("add", x, x)

    graph = whole(1, loop(1, 0, iteration))
    (node,) = run_passes(graph, names_of(BEFORE_FUSION)[:3], Options(), verify=True).nodes
    assert "call" not in commands(node.graphs[0])
    assert node.params["before"] == (1 if where == "work" else 3)
    x = 1.5
    while (x if where == "work" else x * x + x) < 50:
        x = 2 * x if where == "condition" else x * x + x
    assert near(run(lambda x: graph(x)[0])(np.float64(1.5)), x)


# -- mistakes ----------------------------------------------------------------------------------------------------------


def plain(b: GraphBuilder, i: Symbol, x: Symbol) -> Any:
    condition, before = below(b, i, 3), b.num_nodes
    return before, condition, b.add("sin", x)


def with_params(**params: Any) -> Callable[[], Any]:
    def call() -> Any:
        graph, usual = loop(1, 0, plain)
        return whole(1, (graph, usual | params))

    return call


def with_iteration(iteration: Build) -> Callable[[], Any]:
    return lambda: whole(1, loop(1, 0, iteration))


@pytest.mark.parametrize(
    ("kind", "call", "said"),
    [
        (ArgumentError, with_params(carries=3), "cannot carry 3"),
        (ArgumentError, with_params(carries=-1), "cannot carry -1"),
        (ArgumentError, with_params(before=9), "test after 9 nodes"),
        (GraphError, with_params(before=0), "after the first 0 nodes"),
        (ShapeError, with_iteration(lambda b, i, x: (0, x, x)), "single bool"),
        (
            ShapeError,
            with_iteration(lambda b, i, x: (1, below(b, i, 3), b.add("convert", x, dtype=np.dtype("float32")))),
            "carried value 0 changes",
        ),
        (GraphError, with_iteration(lambda b, i, x: (1, below(b, i, 3), x, b.add("sin", x))), "exits must be known"),
        (ArgumentError, lambda: whole(2, loop(1, 0, plain)), "takes 2 inputs"),
    ],
)
def test_rounds_that_do_not_fit_are_refused_when_built(kind: type[NncError], call: Build, said: str) -> None:
    with pytest.raises(kind, match=said) as caught:
        call()
    assert "test_loop.py" in str(caught.value)


def test_branches_and_scans_that_do_not_fit_are_refused_when_built() -> None:
    b = GraphBuilder()
    x, index = b.input(*NUMBER), b.input((), "int64")
    small = GraphBuilder()
    branch = small.build(small.add("sin", small.input(*NUMBER)))
    other = GraphBuilder()
    wide = other.build(other.add("convert", other.input(*NUMBER), dtype=np.dtype("float32")))
    with pytest.raises(ArgumentTypeError, match="graphs"):
        b.add("case_of", index, x)
    with pytest.raises(ShapeError, match="branch 1 yields other"):
        b.add("case_of", index, x, graphs=(branch, wide))
    with pytest.raises(ShapeError, match="single int64"):
        b.add("case_of", x, x, graphs=(branch,))
    with pytest.raises(ArgumentError, match="branch 0 takes 1 inputs"):
        b.add("case_of", index, x, x, graphs=(branch,))
    with pytest.raises(ShapeError, match="does not have 3 rows"):
        b.add("scan", b.input((2,), "float64"), x, graphs=(branch,), xs=1, carries=1, length=3)


# -- tapes -------------------------------------------------------------------------------------------------------------


def test_a_tape_keeps_rows_and_grows_by_doubling() -> None:
    tape = Tape((2,), np.float64)
    sizes = set()
    for i in range(100):
        tape.write(i, np.array([i, -i], np.float64))
        sizes.add(tape.nbytes)
    assert tape.length == 100 and len(sizes) <= 6 and tape.nbytes <= 2 * 100 * 16
    assert near(tape.rows(), np.stack([np.arange(100.0), -np.arange(100.0)], 1))
    tape.write(3, np.zeros(2))
    assert near(tape.read(3), 0) and near(tape.read(99), [99, -99])


def test_rows_of_a_tape_are_written_in_any_order_and_the_rest_is_zero() -> None:
    tape = Tape((), np.float64, 8)
    for i, value in ((5, 0.32), (2, 0.11), (6, 0.58)):
        tape.write(i, np.float64(value))
    assert near(tape.rows(), [0, 0, 0.11, 0, 0, 0.32, 0.58]) and tape.nbytes == 64


def test_tapes_that_a_scan_stacked_are_added_one_by_one() -> None:
    x, y = (np.empty((2, 3), np.object_) for _ in range(2))  # two elements of a batch, three iterations
    for i in range(3):
        x[:, i], y[:, i] = Tape.of(np.full((4, 2), float(i))), Tape.of(np.full((4, 2), 10.0 * i))
    y[:, 2] = 0
    total = reference[add_tapes](x, y)
    assert [near(total[1, i].rows(), value) for i, value in enumerate([0, 11, 2])] == [True] * 3
    assert all(total[0, i] is total[1, i] for i in range(3))


def test_tapes_of_tapes_are_added_row_by_row_and_missing_rows_are_zero() -> None:
    def outer(*rows: Any) -> Any:
        content = Tape((), np.dtype(np.object_))
        for i, row in enumerate(rows):
            content.write(i, row)
        return np.array(content)

    x = outer(Tape.of(np.ones((2, 1))), 0, Tape.of(np.ones(3)))
    y = outer(Tape.of(np.full((3, 2), 5.0)), Tape.of(np.full(1, 7.0)))
    for total in (reference[add_tapes](x, y), reference[add_tapes](y, x)):
        first, second, third = (total.item().read(i).item() for i in range(3))
        assert (
            near(first.rows(), [[6, 6], [6, 6], [5, 5]]) and near(second.rows(), [7]) and near(third.rows(), [1, 1, 1])
        )
