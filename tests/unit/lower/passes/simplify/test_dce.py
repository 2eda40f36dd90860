from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.graph import Graph, Node, TensorSpec, command, register
from nnc.graph.rules import Rules
from nnc.lower.passes.simplify.dce import narrow
from tests.unit.lower.passes.tools import EXACT, check_same_bits, names, record, run

X = np.asarray([1.0, -0.5, 2.0], np.float32)
VECTOR = TensorSpec((3,), "float32")


def only_loop(graph: Graph) -> Node:
    (node,) = (node for node in graph.nodes if node.graphs)
    return node


def swept(function: Any, *inputs: Any) -> Graph:
    graph = nnc.make_graph(function)(*inputs)
    after = run(graph, "dce")
    check_same_bits(graph, after, inputs)
    return after


def test_a_scan_loses_the_rows_carried_values_and_captured_values_that_nobody_wants() -> None:
    def f(x: Any, unread: Any) -> Any:
        def step(c: Any, row: Any) -> Any:
            a, b, n = c
            return (a + row[0], b * unread + n, n + 1), (a * 2, nnp.exp(b))

        (a, _, _), (rows, _) = nnc.scan(step, (x, x, 0.0), (nnp.ones((4, 3)), nnp.ones((4, 2))))
        return a, rows

    node = only_loop(swept(f, X, X))
    assert (node.params["carries"], node.params["xs"], len(node.outputs)) == (1, 1, 2)
    assert len(node.inputs) == 2
    assert names(node.graphs[0]).count("exp") == 0


def test_carried_values_that_only_feed_each_other_go_and_those_of_the_test_stay() -> None:
    def f(x: Any) -> Any:
        def step(c: Any) -> Any:
            n, a, b, y = c
            return n + 1, b * 2, a + 1, y * 1.5

        return nnc.while_loop(lambda c: c[0] < 5, step, (0, x, x, x))[3]

    node = only_loop(swept(f, X))
    assert node.params["carries"] == 2
    assert sorted(names(node.graphs[0])) == ["add", "broadcast_to", "less", "mul"] or node.params["before"] >= 1


def test_a_value_that_a_later_round_needs_stays() -> None:
    def f(x: Any) -> Any:
        return nnc.fori_loop(0, 5, lambda i, c: (c[1], c[2], nnp.sin(c[0])), (x, x + 1, x + 2))[0]

    assert only_loop(swept(f, X)).params["carries"] == 3


def test_branches_lose_results_and_operands() -> None:
    def f(x: Any, y: Any) -> Any:
        return nnc.cond(x[0] > 0, lambda a, b: (a + 1, nnp.exp(b)), lambda a, b: (a - 1, b), x, y)[0]

    node = only_loop(swept(f, X, X))
    assert len(node.outputs) == 1 and len(node.inputs) == 2
    assert all("exp" not in names(branch) for branch in node.graphs)


def test_nested_loops_are_swept_from_the_outside() -> None:
    def f(x: Any) -> Any:
        def inner(i: Any, c: Any) -> Any:
            return c[0] + 1, nnp.exp(c[1])

        return nnc.fori_loop(0, 3, lambda i, c: nnc.fori_loop(0, 2, inner, c), (x, x))[0]

    node = only_loop(swept(f, X))
    assert node.params["carries"] == 1
    assert only_loop(node.graphs[0]).params["carries"] == 1


def test_tapes_that_nothing_reads_are_not_written() -> None:
    graph = nnc.make_graph(nnc.value_and_grad(lambda x: nnc.while_loop(lambda c: c < 9, lambda c: nnp.sin(c) + c, x)))(
        X[0]
    )
    value_only = graph.update(outputs=graph.outputs[:1])
    assert only_loop(run(value_only, "dce")).params.get("tapes", 0) == 0
    assert max(node.params.get("tapes", 0) for node in run(graph, "dce").nodes) > 0


@pytest.mark.usefixtures("own_registries")
def test_effects_of_an_iteration_keep_their_operands() -> None:
    show = register("test_show", Rules(infer=lambda x: x, reference=lambda x: x, effect="debug"))
    b = nnc.graph.GraphBuilder("round")
    step, a, c = b.input((), "int64"), b.input(VECTOR), b.input(VECTOR)
    with b:
        show(c)
    body = b.build(command_add(b, a), command_add(b, c))
    outer = nnc.graph.GraphBuilder()
    x = outer.input(VECTOR)
    result, _ = outer.add("scan", x, x, graphs=(body,), xs=0, carries=2, length=3)
    after = run(outer.build(result), "dce")
    assert only_loop(after).params["carries"] == 2
    assert "test_show" in names(only_loop(after).graphs[0])
    assert step in body.inputs


def command_add(b: Any, x: Any) -> Any:
    return b.add("add", x, x)


@pytest.mark.usefixtures("own_registries")
def test_a_command_may_have_a_form_with_fewer_results() -> None:
    both = register("test_both", Rules(infer=lambda x: (x, x), reference=lambda x: (-x, abs(x))), outputs=2)
    narrow.set(
        both,
        lambda node, read: (
            node
            if read[0]
            else node.update(command=command("abs"), outputs=node.outputs[1:], params=MappingProxyType({}))
        ),
    )
    first, second = record(lambda x: both(x)[0], VECTOR), record(lambda x: both(x)[1], VECTOR)
    assert names(run(first, "dce")) == ["test_both"]
    after = run(second, "dce")
    assert names(after) == ["abs"]
    check_same_bits(second, after, [X])


@pytest.mark.usefixtures("own_registries")
def test_effects_before_the_test_of_a_while_stay_before_it() -> None:
    register("test_look", Rules(infer=lambda x: (), reference=lambda x: (), effect="debug"), outputs=0)
    b = nnc.graph.GraphBuilder("round")
    b.input((), "int64")
    c = b.input((), "float32")
    unused = b.add("exp", c)
    goes_on = b.add("less", c, b.constant(2.0, "float32"))
    b.add("test_look", c)
    following = b.add("add", c, b.constant(1.0, "float32"))
    b.add("test_look", following)
    body = b.build(goes_on, following)
    outer = nnc.graph.GraphBuilder()
    result, _ = outer.add("while", outer.input((), "float32"), graphs=(body,), carries=1, before=3)
    after = run(outer.build(result), *EXACT)
    assert only_loop(after).params["before"] == 2
    assert unused not in [symbol for node in only_loop(after).graphs[0].nodes for symbol in node.outputs]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("wanted", [0, 1])
def test_a_result_of_a_branch_that_a_loop_uses_keeps_the_carried_values_that_either_branch_reads(
    wanted: int, turned: bool
) -> None:
    """Each result of the branch has its own operands: those of the other result serve nobody."""
    branches = [lambda p, q, r: (p + 1, q * r), lambda p, q, r: (p * q, q + 1)][:: -1 if turned else 1]

    def f(x: Any) -> Any:
        def step(i: Any, c: Any) -> Any:
            p, q, r = c
            p, q = nnc.cond(i % 2 == 0, *branches, p, q, r)
            return p, q, r * 0.5 + 1

        return nnc.fori_loop(0, 5, step, (x, x + 1, x - 1))[wanted]

    assert only_loop(swept(f, X)).params["carries"] == (3 if wanted == 0 else 2)


def test_the_index_of_a_branch_and_the_bounds_of_an_inner_loop_are_needed_for_any_of_their_results() -> None:
    def f(x: Any) -> Any:
        def step(i: Any, c: Any) -> Any:
            p, q, n, flag = c
            p, q = nnc.cond(flag > 2, lambda p, q: (p + 1, q + 1), lambda p, q: (p * 2, q), p, q)
            p, q = nnc.while_loop(lambda c: nnp.sum(c[0]) < n, lambda c: (c[0] + 1, nnp.sin(c[1])), (p, q))
            return p, q, n + 1, flag + 1

        return nnc.fori_loop(0, 4, step, (x, x, nnp.asarray(3.0), nnp.asarray(0)))[0]

    assert only_loop(swept(f, X)).params["carries"] == 3


def test_a_sequence_that_the_second_branch_alone_reads_stays() -> None:
    def f(x: Any) -> Any:
        return nnc.cond(x[0] > 1, lambda a, b: a * 2, lambda a, b: b - 1, x, nnp.exp(x))

    for sign in (1, -1):
        graph = nnc.make_graph(f)(X)
        check_same_bits(graph, run(graph, "dce"), [sign * 2 * X])
