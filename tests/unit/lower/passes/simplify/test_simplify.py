from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.commands.shape import pad
from nnc.graph import RewriteRule, check_rule
from nnc.lower.passes.simplify import algebra
from nnc.lower.passes.simplify.simplify import RULES
from tests.unit.lower.passes.tools import check_after, check_same_bits, names, run

X = np.asarray([[1.0, -0.0, np.nan], [np.inf, -2.5, 0.0]], np.float32)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_each_rule_holds_bit_for_bit(rule: RewriteRule) -> None:
    assert rule.exact
    check_rule(rule)


def test_no_two_rules_have_one_name() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x: nnp.negative(-x), 0),
        (lambda x: x * 1 / 1 - 0, 0),
        (lambda x: 1 * x + -0.0, 0),
        (lambda x: nnc.stop_gradient(nnp.copy(x)), 0),
        (lambda x: x.T.T, 0),
        (lambda x: x.reshape(3, 2).reshape(6).reshape(2, 3), 0),
        (lambda x: x.astype("float64").astype("float32"), 0),
        (lambda x: nnp.flip(nnp.flip(x, 1), 1)[:, 0:3], 0),
        (lambda x: nnp.where(True, x, 3.0), 0),
        (lambda x: nnp.where(x > 0, x, x), 0),
        (lambda x: nnp.pad(x, 0), 0),
        (lambda x: x + -x, 1),
        (lambda x: x * -1, 1),
        (lambda x: (-x) * (-x), 1),
        (lambda x: x / 4, 2),
        (lambda x: 1 / x, 1),
        (lambda x: x[1:, ::2][:, 1:], 1),
        (lambda x: nnp.maximum(x, x) ** 2, 1),
        (lambda x: nnp.broadcast_to(x[:, None], (2, 4, 3)), 1),
        (lambda x: x.T @ x, 1),
        (lambda x: (x @ x.T).T, 1),
    ],
)
def test_common_expressions_get_small(function: Callable[[Any], Any], count: int) -> None:
    graph = nnc.make_graph(function)(X)
    check_after(graph, ["dce", "fold", "simplify", "parts", "cse", "dce"], [X], count)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 0.0, lambda x: x * 0, lambda x: x - x, lambda x: x / 3, lambda x: x / x, lambda x: 0 - x,
        lambda x: x.astype("float16").astype("float32"), lambda x: x.astype("int64").astype("float32"),
        lambda x: x.sum(0, keepdims=True).sum(0),
    ],
)  # fmt: skip
def test_equations_that_fail_for_some_number_are_not_applied(function: Callable[[Any], Any]) -> None:
    graph = nnc.make_graph(function)(np.abs(np.nan_to_num(X, posinf=3)))
    before = [name for name in names(run(graph, "fold", "dce")) if name not in ("broadcast_to", "reshape")]
    after = [name for name in names(run(graph, "fold", "simplify", "dce")) if name not in ("broadcast_to", "reshape")]
    assert before == after != []


def test_new_nodes_have_the_line_of_the_node_that_they_replace() -> None:
    def f(x: Any) -> Any:
        y = -x
        return x + y  # the sum

    (node,) = run(nnc.make_graph(f)(X), "simplify", "dce").nodes
    assert node.command.name == "sub"
    assert node.source is not None and "the sum" in str(
        node.source.text if hasattr(node.source, "text") else node.source
    )


CLEAN = ("dce", "fold", "simplify", "parts", "cse", "dce")


def test_a_gradient_of_weights_lies_as_they_do() -> None:
    rng = np.random.default_rng(0)
    w, x = (rng.integers(-4, 4, shape).astype(np.float32) for shape in ((5, 3), (2, 4, 3)))
    graph = nnc.make_graph(nnc.grad(lambda w: nnp.sum((x @ w.T) ** 2)))(w)
    after = run(graph, *CLEAN)
    check_same_bits(graph, after, [w])
    assert "transpose" in names(graph) and "transpose" not in names(after)


def test_a_product_that_others_read_as_it_is_stays_one() -> None:
    def both(x: Any) -> Any:
        product = x @ x
        return product + 1, nnp.tanh(product.T)

    after = run(nnc.make_graph(both)(np.eye(3, dtype=np.float32)), *CLEAN)
    assert names(after).count("dot") == 1


def test_rules_reach_into_loops() -> None:
    graph = nnc.make_graph(lambda x: nnc.while_loop(lambda c: c[0, 0] < 9, lambda c: nnp.negative(-(c * 1)) + 1, x))(X)
    after = run(graph, "fold", "simplify", "dce")
    (loop,) = after.nodes
    assert [name for name in names(loop.graphs[0]) if name in ("neg", "mul")] == []


def test_lossless_conversions_are_those_that_hold_every_value() -> None:
    d = {
        name: np.dtype(name)
        for name in ("bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64", "complex64")
    }
    bfloat16 = nnp.bfloat16
    for a, b in (
        ("int8", "float16"),
        ("uint8", "float16"),
        ("int32", "float64"),
        ("float32", "complex64"),
        ("bool", "int8"),
    ):
        assert algebra.is_lossless(d[a], d[b])
    for a, b in (
        ("int32", "float32"),
        ("int64", "float64"),
        ("float64", "complex64"),
        ("int8", "uint8"),
        ("float32", "float16"),
    ):
        assert not algebra.is_lossless(d[a], d[b])
    assert algebra.is_lossless(bfloat16, d["float32"])
    assert not algebra.is_lossless(bfloat16, d["float16"]) and not algebra.is_lossless(d["float16"], bfloat16)


@pytest.mark.parametrize("dtype", ["uint8", "uint64", "int16", "bool"])
def test_one_is_all_bits_of_a_bool_alone(dtype: str) -> None:
    x = np.arange(4).astype(dtype)
    np.testing.assert_array_equal(nnc.compile(lambda x: x & nnp.ones_like(x))(x), x & np.ones_like(x))


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_padding_between_elements_goes_only_where_there_are_no_two(n: int) -> None:
    x = np.arange(1.0, n + 1)

    def spread(x: Any) -> Any:
        return pad(x, np.float64(7), low=(0,), high=(0,), interior=(2,))

    wanted = np.full(max(0, 3 * n - 2), 7.0)
    wanted[::3] = x
    np.testing.assert_array_equal(nnc.compile(spread)(x), wanted)
    assert names(run(nnc.make_graph(spread)(x), "simplify", "dce")).count("pad") == (n > 1)


def test_quotients_by_powers_of_two_are_products_in_loops_too() -> None:
    def f(x: Any) -> Any:
        return nnc.scan(lambda c, _: (nnp.sin(c) / 4, c / 3), x / 8, None, length=3)

    graph = nnc.make_graph(f)(X)
    after = run(graph, "simplify")
    check_same_bits(graph, after, [X])
    (loop,) = (node for node in after.nodes if node.graphs)
    assert names(after).count("div") == 0 and names(loop.graphs[0]).count("div") == 1
    assert names(loop.graphs[0]).count("mul") == 1
