from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.graph import Graph, GraphBuilder, TensorSpec, command, register
from nnc.graph.rules import Rules
from tests.unit.lower.passes.tools import check_after, check_same_bits, names, record, run

VECTOR = TensorSpec((3,), "float32")
X = np.asarray([1.0, -0.0, np.nan], np.float32)
add, mul, sub, exp, full = (command(name) for name in ("add", "mul", "sub", "exp", "full"))


def test_equal_nodes_are_merged_and_the_first_stays() -> None:
    graph = record(lambda x: add(exp(x), exp(x)), VECTOR)
    after = check_after(graph, ["cse"], [X], 2)
    assert after.nodes[0] is graph.nodes[0]


def test_operands_may_change_places_where_that_changes_no_bit() -> None:
    check_after(record(lambda x, y: sub(mul(x, y), mul(y, x)), VECTOR, VECTOR), ["cse"], [X, X[::-1]], 2)
    check_after(record(lambda x, y: add(sub(x, y), sub(y, x)), VECTOR, VECTOR), ["cse"], [X, X[::-1]], 3)


def test_parameters_are_told_apart_by_type_and_sign() -> None:
    def f() -> Any:
        kind = np.dtype("float32")
        return tuple(full(shape=(), dtype=kind, value=value) for value in (1, 1.0, True, 0.0, -0.0, 1))

    assert len(run(record(f), "cse").nodes) == 5


def test_constants_are_merged_by_their_bytes() -> None:
    values = [np.asarray(v, np.float32) for v in ([0, 1, 2], [0, 1, 2], [-0.0, 1, 2])]
    graph = record(lambda x: add(mul(x, values[0]), add(mul(x, values[1]), mul(x, values[2]))), VECTOR)
    assert len(check_after(graph, ["cse"], [X], 4).constants) == 2


def test_draws_are_not_merged() -> None:
    key, start = np.asarray([1, 2], np.uint32), np.asarray(0, np.uint64)
    draw = lambda: command("random_bits")(key, start, shape=(2,), width=32)
    assert names(run(record(lambda: (draw(), draw())), "cse")) == ["random_bits"] * 2


@pytest.mark.usefixtures("own_registries")
def test_effects_are_not_merged_nor_loops_that_contain_them() -> None:
    show = register("test_show", Rules(infer=lambda x: x, reference=lambda x: x, effect="debug"))
    assert names(run(record(lambda x: (show(x), show(x)), VECTOR), "cse")) == ["test_show"] * 2

    def branch() -> Graph:
        return record(lambda x: show(x), VECTOR)

    b = GraphBuilder()
    x, zero = b.input(VECTOR), b.input((), "int64")
    outs = [b.add("case_of", zero, x, graphs=(branch(),))[0] for _ in range(2)]
    assert names(run(b.build(*outs), "cse")) == ["case_of"] * 2


def test_barriers_stay_and_are_inlined_afterwards() -> None:
    inner = record(lambda x: exp(exp(x)), VECTOR)
    b = GraphBuilder()
    x = b.input(VECTOR)
    first = b.add("exp", b.add("exp", x))
    again = b.add("call", x, graphs=(inner,), barrier=True)[0]
    graph = b.build(b.add("add", first, again))
    assert names(run(graph, "inline_calls", "cse")) == ["exp", "exp", "call", "add"]
    assert names(check_after(graph, ["inline_calls", "cse", "inline_barriers"], [X], 5)) == ["exp"] * 4 + ["add"]


def loop(scale: float) -> Any:
    return lambda x: nnc.fori_loop(0, 4, lambda i, c: nnp.sin(c) * scale + x, x)


def test_equal_loops_are_merged_and_unequal_ones_are_not() -> None:
    same = nnc.make_graph(lambda x: loop(2.0)(x) + loop(2.0)(x))(X)
    other = nnc.make_graph(lambda x: loop(2.0)(x) + loop(2.5)(x))(X)
    for graph, count in ((same, 1), (other, 2)):
        after = run(graph, "dce", "fold", "cse")
        check_same_bits(graph, after, [X])
        assert names(after).count("scan") == count


def test_an_operand_given_twice_to_a_loop_is_one_value_inside() -> None:
    def f(x: Any) -> Any:
        a, b = nnp.exp(x), nnp.exp(x)
        return nnc.fori_loop(0, 3, lambda i, c: c * (a + 1) - (b + 1), x)

    graph = nnc.make_graph(f)(X)
    after = run(graph, "dce", "fold", "simplify", "cse")
    check_same_bits(graph, after, [X])
    (node,) = (node for node in after.nodes if node.graphs)
    assert len(node.inputs) == 2
    assert names(node.graphs[0]).count("add") == 1


def test_a_loop_yields_each_value_once() -> None:
    def f(x: Any) -> Any:
        return nnc.scan(lambda c, _: (c * 2, (nnp.sin(c), nnp.sin(c))), x, None, length=3)[1]

    graph = nnc.make_graph(f)(X)
    after = run(graph, "cse")
    check_same_bits(graph, after, [X])
    (node,) = (node for node in after.nodes if node.graphs)
    assert len(node.outputs) == 2
    assert after.outputs[0] is after.outputs[1]


def test_equal_loops_that_yield_values_twice_are_merged() -> None:
    def rows(x: Any) -> Any:
        return nnc.scan(lambda c, _: (c * 2, (nnp.sin(c), nnp.sin(c))), x, None, length=3)[1]

    graph = nnc.make_graph(lambda x: (*rows(x), *rows(x)))(X)
    after = run(graph, "cse")
    check_same_bits(graph, after, [X])
    assert names(after) == ["scan"] and len(set(after.outputs)) == 1


def test_the_test_of_a_while_keeps_its_place() -> None:
    def f(x: Any) -> Any:
        return nnc.while_loop(lambda c: nnp.sin(c).sum() < 1, lambda c: c + nnp.sin(c).sum(), x)

    x = np.zeros(2, np.float32) + 0.1
    graph = nnc.make_graph(f)(x)
    after = run(graph, "cse", "dce")
    check_same_bits(graph, after, [x])
    (node,) = (node for node in after.nodes if node.graphs)
    body = node.graphs[0]
    assert names(body).count("sin") == 1
    assert "less" in [n.command.name for n in body.nodes[: node.params["before"]]]
    assert "add" not in [n.command.name for n in body.nodes[: node.params["before"]]]


def test_a_shared_sub_graph_stays_shared() -> None:
    inner = record(lambda x: add(exp(x), exp(x)), VECTOR)
    b = GraphBuilder()
    x, zero = b.input(VECTOR), b.input((), "int64")
    y = b.add("case_of", zero, x, graphs=(inner, inner))[0]
    after = run(b.build(b.add("case_of", zero, y, graphs=(inner, inner))[0]), "cse")
    assert len({id(graph) for node in after.nodes for graph in node.graphs}) == 1


def test_constants_of_equal_bytes_and_other_dtypes_are_two() -> None:
    ones, bits = np.ones(3, np.float32), np.ones(3, np.float32).view(np.int32)
    graph = record(lambda x: (add(x, ones), command("convert")(bits, dtype=np.dtype("float32"))), VECTOR)
    check_same_bits(graph, run(graph, "cse"), [X])


@pytest.mark.parametrize("turned", [False, True])
def test_results_that_one_branch_alone_yields_twice_stay_two(turned: bool) -> None:
    branches = [lambda x: (x + 1, x + 1), lambda x: (x * 2, nnp.sin(x))][:: -1 if turned else 1]
    graph = nnc.make_graph(lambda x: nnc.cond(x[0] > 0, *branches, x))(X)
    for sign in (1, -1):
        check_same_bits(graph, run(graph, "cse"), [np.float32(sign) * X])
