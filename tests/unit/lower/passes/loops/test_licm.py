from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.commands.index import gather
from nnc.errors import OutOfBoundsError
from nnc.graph import Graph, Node
from tests.unit.lower.passes.tools import check_same_bits, names, run

X = np.asarray([1.0, -0.5, 2.0], np.float32)
PASSES = ("dce", "fold", "simplify", "cse", "licm", "dce")


def moved(function: Any, *inputs: Any) -> tuple[Graph, Node]:
    graph = nnc.make_graph(function)(*inputs)
    after = run(graph, *PASSES)
    check_same_bits(graph, after, inputs)
    (node,) = (node for node in after.nodes if node.graphs)
    return after, node


def test_invariant_values_of_a_scan_are_computed_once() -> None:
    after, node = moved(lambda x, y: nnc.fori_loop(0, 5, lambda i, c: c + nnp.exp(y) * nnp.sin(y), x), X, X)
    assert names(after) == ["exp", "sin", "mul", "scan"] or sorted(names(after)) == ["exp", "mul", "scan", "sin"]
    assert names(node.graphs[0]) == ["add"]


def test_inner_loops_come_first_so_that_values_leave_all_loops() -> None:
    def f(x: Any, y: Any) -> Any:
        return nnc.fori_loop(0, 3, lambda i, c: nnc.fori_loop(0, 2, lambda j, d: d + nnp.exp(y), c), x)

    after, node = moved(f, X, X)
    assert "exp" in names(after) and "exp" not in [n.command.name for n in node.graphs[0].walk()]


def test_a_carried_value_that_no_round_changes_is_captured() -> None:
    after, node = moved(lambda x, y: nnc.fori_loop(0, 3, lambda i, c: (c[0] + c[1], c[1]), (x, y)), X, X)
    assert node.params["carries"] == 1
    assert after.outputs[1] is after.inputs[1]


def test_rows_that_are_all_one_value_are_a_broadcast() -> None:
    after, node = moved(lambda x, y: nnc.scan(lambda c, _: (c + y, nnp.exp(y)), x, None, length=4), X, X)
    assert names(after) == ["exp", "scan", "broadcast_to"]
    assert len(node.outputs) == 1


def test_views_alone_stay_where_they_are() -> None:
    matrix = np.ones((3, 3), np.float32)
    _, node = moved(lambda x, y: nnc.fori_loop(0, 5, lambda i, c: c + y.T * c, x), matrix, matrix)
    assert "transpose" in names(node.graphs[0])


def test_before_the_test_of_a_while_everything_may_leave_and_behind_it_cheap_nodes() -> None:
    big = np.full((300, 300), 1e-3, np.float32)

    def f(x: Any, y: Any) -> Any:
        return nnc.while_loop(lambda c: c[0, 0] < (y @ y).sum(), lambda c: c + y @ nnp.sin(y) + 1 + nnp.exp(y[0, 0]), x)

    after, node = moved(f, big, big)
    assert names(after).count("dot") == 1 and "exp" in names(after)
    assert names(node.graphs[0]).count("dot") == 1


def test_a_loop_of_no_round_raises_nothing() -> None:
    def f(x: Any, table: Any, i: Any, stop: Any) -> Any:
        return nnc.while_loop(lambda c: c[0] < stop, lambda c: (c[0] + 1, c[1] + table[i]), (0, x))[1]

    compiled = nnc.compile(f)
    table = np.ones((4, 3), np.float32)
    np.testing.assert_array_equal(compiled(X, table, np.int64(9), np.int64(0)), X)
    with pytest.raises(OutOfBoundsError):
        compiled(X, table, np.int64(9), np.int64(1))
    graph = nnc.make_graph(f)(X, table, np.int64(9), np.int64(0))
    assert "gather" not in names(run(graph, *PASSES)) and "dynamic_slice" not in names(run(graph, *PASSES))


def test_a_branch_keeps_its_nodes() -> None:
    def f(x: Any, y: Any) -> Any:
        return nnc.cond(x[0] > 0, lambda c: c + nnp.exp(y), lambda c: c, x)

    after, _ = moved(f, X, X)
    assert "exp" not in names(after)


def test_draws_stay_in_their_iteration() -> None:
    def f(x: Any, key: Any) -> Any:
        return nnc.fori_loop(0, 3, lambda i, c: c + nnc.random.uniform(key, (3,)), x)

    after, node = moved(f, X, np.asarray(nnc.random.key(3)))
    assert "random_bits" not in names(after) and "random_bits" in names(node.graphs[0])


def test_a_loop_of_no_round_raises_nothing_where_its_first_node_would() -> None:
    def rows(table: Any, i: Any) -> Any:  # one node, the first of its round
        return gather(table, i, axes=(0,), batch=0, mode="error")

    def looped(x: Any, table: Any, i: Any) -> Any:
        return nnc.while_loop(lambda c: c[0] < 1.0, lambda c: rows(table, i) + c, x)

    def scanned(x: Any, table: Any, i: Any) -> Any:
        return nnc.scan(lambda c, y: (rows(table, i) + c, None), x, np.zeros((0, 3), np.float32))[0]

    table, index = np.ones((4, 3), np.float32), np.int64(9)
    for f in (looped, scanned):
        graph = nnc.make_graph(f)(X, table, index)
        assert "gather" not in names(run(graph, "licm", "dce"))
        np.testing.assert_array_equal(nnc.compile(f)(X, table, index), X)


def test_a_loop_of_no_round_raises_no_powers_that_are_no_integers() -> None:
    def looped(iterations: Any, x: Any, y: Any) -> Any:
        return nnc.while_loop(lambda s: s[0] < iterations, lambda s: (s[0] + 1, s[1] + x**y), (nnp.asarray(0), x))[1]

    assert nnc.compile(looped)(*map(nnp.asarray, (0, 2, -1))) == 2
    assert nnc.compile(looped)(*map(nnp.asarray, (2, 2, 3))) == 18
