"""Nodes that become one kernel, and nodes that stay apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.base.options import Options
from nnc.commands import elementwise as ew
from nnc.errors import OutOfBoundsError
from nnc.graph import Graph, GraphBuilder, TensorSpec, register, run_passes
from nnc.graph.rules import Rules
from nnc.lower.passes.fusion.grouping import Grouping
from nnc.lower.phases import SIMPLIFYING, names_of
from tests.figures import HERE
from tests.fuzz.programs.test_passes import graphs
from tests.unit.lower.passes.tools import check_same_bits

X = np.linspace(-2, 2, 48, dtype=np.float32).reshape(6, 8)


def fused(function: Any, *args: Any) -> Graph:
    """The graph of a function after fusion."""
    return run_passes(
        nnc.make_graph(function)(*args), (*names_of(SIMPLIFYING), "order", "fuse"), Options(), verify=True
    )


def commands(graph: Graph) -> list[str]:
    """The commands of a graph that do something."""
    return [
        node.command.name for node in graph.nodes if node.command.name not in ("broadcast_to", "reshape", "transpose")
    ]


def test_a_chain_of_elementwise_commands_is_one_kernel() -> None:
    assert commands(fused(lambda x: nnp.tanh(x * 2 + 1) - x, X)) == ["fused"]


def test_layer_norm_gelu_and_softmax_are_one_kernel() -> None:
    graph = fused(lambda x, g, b: nn.softmax(nn.gelu(nn.layer_norm(x, g, b))), X, X[0], X[0])
    assert commands(graph) == ["fused"]


def test_sums_over_one_tensor_share_a_kernel_if_they_remove_the_same_axes() -> None:
    assert commands(fused(lambda x: (nnp.sum(x, 0), nnp.max(x, 0), nnp.sum(x * x, 0)), X)) == ["fused"]
    assert commands(fused(lambda x: (nnp.sum(x, 0), nnp.sum(x, 1)), X)) == ["fused", "fused"]


def test_a_tensor_and_its_transpose_are_one_kernel_that_reads_it_twice() -> None:
    graph = fused(lambda x: x + x.T, np.eye(5, dtype=np.float32))
    assert commands(graph) == ["fused"]
    (node,) = (node for node in graph.nodes if node.command.name == "fused")
    assert len(node.inputs) == 2


def test_a_transposed_result_is_not_mixed_with_the_original() -> None:
    """y and its transpose would need the same loop for both axes."""
    graph = fused(lambda x: nnp.tanh(x) + nnp.tanh(x).T, np.eye(5, dtype=np.float32))
    assert commands(graph) == ["fused", "fused"]


def test_an_optimizer_step_is_one_kernel_for_each_parameter() -> None:
    optimizer = nnc.optim.adam(1e-3)
    params = {"w": X, "b": X[0]}

    def step(params: Any, state: Any, grads: Any) -> Any:
        updates, state = optimizer.update(grads, state, params)
        return nnc.optim.apply_updates(params, updates), state

    graph = fused(step, params, optimizer.init(params), params)
    assert commands(graph).count("fused") <= 3  # and one for the bias corrections


def test_long_rows_are_not_gone_through_again_in_one_kernel() -> None:
    """The sum of a million elements is known before they are divided by it; two kernels can use all threads."""
    graph = fused(lambda x: x / nnp.sum(x), np.ones(1 << 20, np.float32))
    assert commands(graph) == ["fused", "fused"]
    assert commands(fused(lambda x: x / nnp.sum(x), np.ones(64, np.float32))) == ["fused"]


def test_values_that_others_read_in_between_stay_in_memory() -> None:
    graph = fused(lambda x: nnp.tanh((y := nnp.exp(x)) @ y.T) @ y, X)
    assert commands(graph) == ["fused", "dot", "fused", "dot"]


def test_rounds_of_loops_are_fused_and_nothing_crosses_the_test() -> None:
    def f(x: Any) -> Any:
        return nnc.while_loop(lambda c: nnp.sum(c) < 100, lambda c: nnp.exp(c) * 2 + 1, x)

    graph = fused(f, X)
    (loop,) = (node for node in graph.nodes if node.command.name == "while")
    assert commands(loop.graphs[0]) == ["fused", "fused"]
    assert loop.params["before"] == 1


def test_softmax_without_elements_is_no_step() -> None:
    assert commands(fused(lambda x: nn.softmax(x, axis=1), np.ones((0, 3), np.float32))) == []


def test_complex_numbers_are_not_fused() -> None:
    assert commands(fused(lambda x: nnp.exp(x) * x, np.ones(3, np.complex64))) == ["exp", "mul"]


@pytest.mark.parametrize("native", [True, False])
def test_without_compiled_programs_nothing_is_fused(native: bool) -> None:
    graph = nnc.make_graph(lambda x: nnp.exp(x) * x)(X)
    assert ("fused" in commands(run_passes(graph, ("fuse",), Options(native=native)))) is native


def test_inputs_may_be_written_over_only_where_they_are_read_for_the_last_time() -> None:
    """Softmax reads x in its first two phases and writes in the third."""

    def pairs(function: Any, *args: Any) -> Any:
        (node,) = (node for node in fused(function, *args).nodes if node.command.name == "fused")
        return node.params["overwrite"]

    assert pairs(lambda x: nn.softmax(x), X) == ((0, 0),)
    assert pairs(lambda x: (nnp.exp(x), x - nnp.sum(x, 1, keepdims=True)), X) == ((0, 1),)
    assert pairs(lambda x: nnp.sum(x, 0), X) == ()


def test_sums_over_axes_that_nothing_ties_together_are_kernels_of_their_own() -> None:
    """One nest of both would go through each tensor once for every element of the other."""
    w, b = np.full((4, 3), 2, np.float32), np.ones(5, np.float32)
    graph = fused(lambda w, b: nnp.sum(w * w) + nnp.sum(b * b), w, b)
    assert commands(graph) == ["fused", "fused"]
    assert nnc.compile(lambda w, b: nnp.sum(w * w) + nnp.sum(b * b))(w, b) == 53


def test_single_values_that_have_nothing_to_do_with_each_other_share_a_kernel() -> None:
    x, y = np.float32(2), np.float64(3)
    assert commands(fused(lambda x, y: (nnp.exp(x), nnp.sin(y)), x, y)) == ["fused"]


def test_counted_numbers_in_another_shape_are_right() -> None:
    """The loop of a counter must be the one that counts."""
    x = np.ones((4, 6), np.float32)
    np.testing.assert_array_equal(
        nnc.compile(lambda x: x + nnp.arange(24.0).reshape(4, 6))(x), x + np.arange(24.0).reshape(4, 6)
    )


def test_both_zeros_stay_apart_in_one_kernel() -> None:
    b = GraphBuilder()
    x = b.input((4,), "float32")
    zeros = [b.add("full", shape=(4,), dtype=np.dtype("float32"), value=value) for value in (0.0, -0.0)]
    graph = b.build(*(b.add("mul", x, zero) for zero in zeros))
    after = run_passes(graph, ("fuse",), Options(), verify=True)
    assert [node.command.name for node in after.nodes] == ["fused"]
    check_same_bits(graph, after, [np.asarray([0.0, -0.0, 1.0, -1.0], np.float32)])


def test_counted_numbers_that_do_not_fit_into_a_kernel_are_read_from_memory() -> None:
    """The numbers and their transpose would need the same loop for both axes; the sum of the two is in a kernel all the same."""

    def function(x: Any) -> Any:
        numbers = nnp.broadcast_to(nnp.arange(5.0), (5, 5))
        return nnp.tanh(numbers + numbers.T) * x

    x = np.eye(5, dtype=np.float32)
    graph = run_passes(nnc.make_graph(function)(x), ("order", "fuse"), Options(), verify=True)
    assert commands(graph) == ["fused", "fused"]
    (last,) = (node.graphs[0] for node in graph.nodes if node.outputs == graph.outputs)
    assert [node.command.name for node in last.nodes] == ["add", "tanh", "mul"]
    np.testing.assert_allclose(nnc.compile(function)(x), np.diag(np.tanh(2.0 * np.arange(5))), rtol=1e-5)


def test_a_sum_is_not_computed_again_for_each_element_that_reads_it() -> None:
    """The sums go over x alone; the operand that multiplies them has columns of its own."""
    graph = fused(lambda x, y: nnp.sum(x, 1, keepdims=True) * y, X, X)
    assert commands(graph) == ["fused", "fused"]
    assert commands(fused(lambda x: nnp.sum(x, 1, keepdims=True) * x, X)) == ["fused"]


def test_a_group_that_has_been_merged_is_not_found_again_by_the_next_single_value() -> None:
    """exp joins the sum; the product reads exp, so that the last sum must not join them both behind the product."""

    def f(x: Any) -> Any:
        mean_square = nnp.sum(x * x) * 2
        narrow = nnp.exp(x)
        return mean_square, narrow @ narrow.T, mean_square + 1

    graph = fused(f, X)
    written = [symbol for node in graph.nodes for symbol in node.outputs]
    assert len(written) == len(set(written))
    assert commands(graph) == ["fused", "dot", "fused"]


def test_a_result_that_was_made_anew_is_not_the_beginning_of_a_second_chain() -> None:
    builder = GraphBuilder("step")
    x = builder.input(TensorSpec((8,), np.dtype("float32")))
    with builder:
        first, again = ew.exp(x), ew.exp(x)
        total = ew.add(ew.sigmoid(first), ew.sigmoid(again))
    graph = run_passes(builder.build(again, total), ["fuse"], Options(), verify=True)
    (node,) = graph.nodes
    assert [inner.command.name for inner in node.graphs[0].nodes].count("sigmoid") == 1


def test_compact_kernels_keep_nothing_in_memory_for_longer() -> None:
    """Run late, the first kernel would keep x while the product runs; that is the price of one kernel less."""

    def f(x: Any, w: Any) -> Any:
        y = nnp.exp(x)
        return nnp.cumsum(w @ w, axis=0) + y

    x = np.ones((8, 8), np.float32)
    graph = run_passes(nnc.make_graph(f)(x, x), names_of(SIMPLIFYING), Options())
    order = {"exp": 0, "dot": 1, "cumsum": 2, "add": 3}
    graph = graph.update(nodes=tuple(sorted(graph.nodes, key=lambda node: order[node.command.name])))
    assert commands(run_passes(graph, ("fuse",), Options())) == ["dot", "cumsum", "fused"]
    assert commands(run_passes(graph, ("fuse",), Options(compact=True))) == ["fused", "dot", "cumsum", "fused"]


@given(graphs())
def test_each_group_is_one_loop_nest_whether_or_not_that_was_looked_at(graph: Graph) -> None:
    """Groups that go over elements of one shape are joined without a look at their loops."""
    grouping = Grouping(graph, 0, compact=False, machine=HERE)
    for i, group in enumerate(grouping.group):
        if group is not None:
            assert i in group.nodes
            assert group.members == sum(1 << j for j in group.nodes)
            group.domain = None
            assert grouping.domain_of(group).fits(grouping.written(group))


@pytest.mark.usefixtures("own_registries")
def test_a_step_that_raises_stays_before_an_effect_that_follows_it() -> None:
    """A kernel that takes the step along with its reader would run behind the effect."""
    show = register("test_show", Rules(infer=lambda x: (), reference=lambda x: (), effect="debug"), outputs=0)
    b = GraphBuilder("effect")
    x, i = b.input((64,), "float32"), b.input((50,), "int64")
    y = b.add("gather", x, i, axes=(0,), batch=0, mode="error")
    z = b.add("exp", y)
    b.add(show, x)
    graph = run_passes(b.build(b.add("mul", b.add("sin", y), z)), ("fuse",), Options(), verify=True)
    effect = next(k for k, node in enumerate(graph.nodes) if node.command is show)
    reads = [k for k, node in enumerate(graph.nodes) if x in node.inputs and node.command is not show]
    assert reads and max(reads) < effect


def test_a_step_that_raises_stays_behind_an_effect_that_precedes_it() -> None:
    seen: list[float] = []

    def f(x: Any, i: Any) -> Any:
        z = x * 3
        nnc.debug.callback(lambda value: seen.append(float(value)), x[0])
        return x[i] * 2 + 1, z

    compiled = nnc.compile(f)
    with pytest.raises(OutOfBoundsError):
        compiled(np.arange(64, dtype=np.float32), np.arange(50) + 30)
    assert len(seen) == 1


def test_numbers_that_differ_by_their_sign_are_two_in_a_kernel() -> None:
    b = GraphBuilder("zeros")
    x = b.input((3,), "float32")
    zeros = [b.add("full", shape=(3,), dtype=np.dtype("float32"), value=value) for value in (0.0, -0.0)]
    graph = b.build(*(b.add("mul", zero, b.add("exp", x)) for zero in zeros))
    after = run_passes(graph, ("fuse",), Options(), verify=True)
    assert [node.command.name for node in after.nodes] == ["fused"]
    check_same_bits(graph, after, [X[0, :3]])


def test_places_of_a_known_tensor_of_one_element_are_read_from_memory() -> None:
    """A known number is printed into a kernel's text, where no index finds it."""
    b = GraphBuilder("table")
    i = b.input((5,), "int64")
    table = b.constant(np.array([2.5], np.float32))
    graph = b.build(b.add("exp", b.add("gather", table, i, axes=(0,), batch=0, mode="clip")))
    after = run_passes(graph, ("fuse",), Options(), verify=True)
    check_same_bits(graph, after, [np.array([0, -1, 7, 0, 3])])
    assert [node.command.name for node in after.nodes] == ["gather", "fused"]
