from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.base.options import Options
from nnc.compiled.pipeline import plan
from nnc.graph import Graph, GraphBuilder, Node, TensorSpec, verify
from nnc.lower.passes.fusion.prefuse import members, prefuse
from nnc.lower.passes.memory.order import Description, order
from nnc.lower.phases import ORDER, PACK, SIMPLIFYING, names_of
from tests.fuzz.programs.test_passes import arrays, graphs
from tests.unit.lower.passes.tools import check_same_bits, names, record, run

VECTOR = TensorSpec((1024,), "float32")
X = np.linspace(-1, 1, 1024, dtype=np.float32)
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optim.sgd(0.1),
    "momentum": lambda: optim.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optim.adam(0.1),
    "adamw": lambda: optim.adamw(0.1),
    "clipped": lambda: optim.chain(optim.clip_by_global_norm(1.0), optim.adam(0.1)),
}


def units_of(graph: Graph) -> list[Node]:
    """The units of a graph."""
    return [node for node in graph.nodes if node.command.name == "unit"]


def inside(graph: Graph) -> list[list[str]]:
    """The commands of each unit, apart from views and commands without operands."""
    given = ("broadcast_to", "full")
    return [
        [node.command.name for node in members(unit)[0] if node.command.name not in given] for unit in units_of(graph)
    ]


def with_units(function: Callable[..., Any], *args: Any) -> Graph:
    """The graph of a function, with units; both compute the same bits."""
    graph = run(nnc.make_graph(function)(*args), "inline_calls", "dce")
    after = verify(run(graph, "prefuse"))
    check_same_bits(graph, after, list(args))
    return after


def largest_live(graph: Graph) -> int:
    """The largest live set."""
    return max(Description(graph, free=graph.outputs).live_bytes())


def training_step(optimizer: Any, layers: int = 4) -> tuple[Graph, list[Any]]:
    """A step of a network of square layers with biases, and its arguments."""
    random = np.random.default_rng(0)

    def loss(params: Any, x: Any) -> Any:
        for w, b in params:
            x = nnp.tanh(x @ w + b)
        return nnp.sum(x * x)

    def step(params: Any, state: Any, x: Any) -> Any:
        updates, state = optimizer.update(nnc.grad(loss)(params, x), state, params)
        return optim.apply_updates(params, updates), state

    params = [(random.standard_normal((64, 64), np.float32) / 8, np.zeros(64, np.float32) + i) for i in range(layers)]
    args = params, optimizer.init(params), random.standard_normal((8, 64), np.float32)
    return run(nnc.make_graph(step)(*args), *names_of(SIMPLIFYING)), nnc.tree.leaves(args)


# -- nodes that are a unit ---------------------------------------------------------------------------------------------


# The clipped update multiplies by two numbers, one after the other, and so waits for one more before its second product.
@pytest.mark.parametrize("name", sorted(OPTIMIZERS.keys() - {"clipped"}))
def test_the_update_of_each_parameter_is_one_node(name: str) -> None:
    graph, args = training_step(OPTIMIZERS[name]())
    after = verify(run(graph, "prefuse"))
    found = units_of(after)
    assert len(found) == 8  # four layers, each with weights and biases
    results = {symbol for unit in found for symbol in unit.outputs}
    assert results >= {*graph.outputs[:8]}
    assert all(symbol in results for symbol in graph.outputs if symbol.spec.size > 1)
    check_same_bits(graph, after, args)
    ordered = order(after, Options(donated=tuple(range(8))))
    check_same_bits(graph, verify(ordered), args)


def test_units_alike_share_a_graph() -> None:
    graph, _ = training_step(optim.adam(0.1))
    found = units_of(run(graph, "prefuse"))
    assert len({unit.graphs for unit in found}) == len({unit.outputs[0].shape for unit in found}) == 2


def test_units_that_differ_in_a_number_do_not_share_a_graph() -> None:
    def function(x: Any, y: Any) -> Any:
        x, y = nnp.cumsum(x), nnp.cumsum(y)
        return nnp.exp(x) * 2.0, nnp.exp(y) * 3.0, nnp.exp(x * y) * 2.0

    first, second, third = units_of(with_units(function, X, X))
    assert first.graphs != second.graphs
    assert third.graphs not in (first.graphs, second.graphs)


def test_nodes_that_can_run_before_the_rest_are_in_no_unit() -> None:
    def function(x: Any, y: Any) -> Any:
        return nnp.exp(nnp.cumsum(x)) * 2.0 + nnp.exp(nnp.cumsum(y)) * 3.0

    graph = run(nnc.make_graph(function)(X, X), "inline_calls", "dce")
    assert run(graph, "prefuse").nodes is graph.nodes


def test_nodes_that_wait_for_a_number_are_a_unit_if_all_do() -> None:
    def early(g: Any, m: Any, p: Any) -> Any:
        g, number = nnp.cumsum(g), nnp.sum(nnp.cumsum(m))
        m = m * 0.5 + g  # needs no number, and g would be free
        return m, p - m * number

    def late(g: Any, m: Any, p: Any) -> Any:
        g, number = nnp.cumsum(g), nnp.sum(nnp.cumsum(m))
        m = m * 0.5 + g * number
        return m, p - m

    assert [len(units_of(with_units(f, X, X, X))) for f in (early, late)] == [0, 1]


def test_nodes_that_wait_for_nothing_stand_first_and_after_the_numbers_they_read() -> None:
    def step(g: Any, m: Any, count: Any) -> Any:
        g = nnp.cumsum(g) * 3.0
        number = nnp.exp(nnp.square(count))  # recorded after g
        return g + m * number

    graph = with_units(step, X, X, np.float32(1))
    assert inside(graph) == [["mul", "mul", "add"]]
    (unit,) = units_of(graph)
    nodes, constants = members(unit)
    first, second, _ = [node for node in nodes if node.command.name in ("mul", "add")]
    assert first.inputs[0] in graph.inputs
    assert second.inputs[0] in unit.inputs
    assert [float(value) for value in constants.values()] == [3.0]
    check_same_bits(graph, run(graph, "order"), [X, X, np.float32(1)])


def test_nodes_without_operands_are_not_waited_for_and_taken_along() -> None:
    b = GraphBuilder()
    x, w = b.input(VECTOR), b.input(VECTOR)
    g = b.add("cumsum", x, axis=0)
    ones = b.add("full", shape=(1024,), dtype=np.dtype("float32"), value=1.0)
    twos = b.add("full", shape=(1024,), dtype=np.dtype("float32"), value=2.0)
    read_elsewhere = b.add("cumsum", ones, axis=0)
    graph = b.build(b.add("add", b.add("sub", w, g), b.add("mul", g, b.add("add", ones, twos))), read_elsewhere)
    after = verify(run(graph, "prefuse"))
    assert inside(after) == [["sub", "add", "mul", "add"]] or inside(after) == [["add", "sub", "mul", "add"]]
    (unit,) = units_of(after)
    assert {*unit.inputs} == {w, g}
    assert names(after) == ["cumsum", "full", "cumsum", "unit"]
    check_same_bits(graph, after, [X, X])


def test_sums_of_values_are_in_the_unit_that_reads_them_alone() -> None:
    def function(number: int) -> Any:
        def step(x: Any, w: Any) -> Any:
            return w - 0.5 * sum([nnp.cumsum(x * i) for i in range(2, number)], start=nnp.cumsum(x))

        return with_units(step, X, X)

    two, three = function(3), function(4)
    assert inside(two) == [["add", "mul", "sub"]]
    assert not units_of(three)  # of three values two can be added before the third exists


def test_nodes_that_read_one_value_in_several_forms_are_a_unit() -> None:
    def function(x: Any, w: Any) -> Any:
        g = nnp.cumsum(x)
        return w + nnp.reshape(g, (32, 32)) * 2.0 - nnp.reshape(g, (32, 32)).T

    x, w = X, X.reshape(32, 32)
    graph = run(nnc.make_graph(function)(x, w), "inline_calls", "dce", "cse")
    after = verify(run(graph, "prefuse"))
    assert [sorted(unit) for unit in inside(after)] == [["add", "mul", "sub"]]
    check_same_bits(graph, after, [x, w])


def test_values_that_others_read_are_in_no_unit() -> None:
    def function(x: Any) -> Any:
        y = nnp.exp(nnp.cumsum(x))
        z = y * 2.0 + 1.0
        return nnp.cumsum(y), z

    assert inside(with_units(function, X)) == [["mul", "add"]]


def test_nodes_that_nobody_reads_may_be_a_unit() -> None:
    graph = run(record(lambda x: (nnp.exp(nnp.sin(x)), x)[1], VECTOR), "inline_calls")
    assert names(graph) == ["sin", "exp"]
    assert inside(verify(run(graph, "prefuse", "order"))) == [["sin", "exp"]]


def test_numbers_and_nodes_that_no_kernel_computes_are_in_no_unit() -> None:
    graph = run(record(lambda x: nnp.exp(nnp.sin(nnp.sum(x))), VECTOR), "inline_calls", "dce")
    assert not units_of(run(graph, "prefuse"))
    graph = run(record(lambda x: nnp.exp(nnp.sin(x)), TensorSpec((8,), "complex64")), "inline_calls", "dce")
    assert not units_of(run(graph, "prefuse"))


def test_nodes_that_no_single_kernel_takes_are_no_unit() -> None:
    def chain(length: int) -> Any:
        def function(x: Any) -> Any:
            for _ in range(length):
                x = nnp.sin(x)
            return x

        return run(record(function, VECTOR), "inline_calls", "dce", "prefuse")

    assert [len(names) for names in inside(chain(96))] == [96]
    assert not units_of(chain(97))


def test_without_compiled_programs_there_are_no_units() -> None:
    graph, _ = training_step(optim.adam(0.1))
    assert prefuse(graph, Options(native=False)) is graph


# -- passes that follow ------------------------------------------------------------------------------------------------


def test_kernels_take_units_in() -> None:
    graph, args = training_step(optim.adam(0.1))
    before, after = run(graph, "order", "fuse"), run(graph, "prefuse", "order", "fuse")
    assert not units_of(verify(after))
    assert names(after).count("fused") <= names(before).count("fused")
    check_same_bits(before, after, args)


def test_a_unit_that_is_a_kernel_by_itself_is_unchanged() -> None:
    graph = with_units(lambda x: nnp.exp(nnp.cumsum(x)) * 2.0, X)
    after = run(graph, "fuse")
    assert names(after) == ["cumsum", "fused"]
    assert after.nodes[-1].graphs == graph.nodes[-1].graphs
    check_same_bits(graph, after, [X])


def test_units_join_the_kernel_of_their_operands() -> None:
    def function(x: Any, w: Any) -> Any:
        g = nnp.exp(nnp.cumsum(x, axis=0))
        return w - 0.5 * (g - nnp.sum(g, axis=0)), nnp.cumsum(g, axis=0)

    x = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    graph = with_units(function, x, x)
    assert inside(graph) == [["sub", "mul", "sub"]]
    after = verify(run(graph, "fuse"))
    assert names(after).count("fused") == 1
    check_same_bits(run(graph, "inline_calls"), after, [x, x])


def test_two_units_alike_in_one_kernel_keep_their_values_apart() -> None:
    def function(x: Any, a: Any, b: Any) -> Any:
        g = nnp.cumsum(x)
        return a * 2.0 - nnp.sin(g), b * 2.0 - nnp.sin(g * 0.5)

    graph, args = run(nnc.make_graph(function)(X, X, X + 1), "inline_calls", "dce"), [X, X, X + 1]
    after = verify(run(graph, "prefuse", "fuse"))
    assert names(after) == ["cumsum", "fused"]
    check_same_bits(graph, after, args)


def test_kernels_that_differ_in_the_sign_of_a_zero_do_not_share_a_graph() -> None:
    b = GraphBuilder()
    x = b.input(VECTOR)
    zeros = [b.add("full", shape=(1024,), dtype=np.dtype("float32"), value=value) for value in (0.0, -0.0, 0.0)]
    sums = [b.add("cumsum", x, axis=0) for _ in zeros]
    graph = b.build(*(b.add("div", y, zero) for y, zero in zip(sums, zeros, strict=True)))
    after = verify(run(graph, "fuse"))
    first, second, third = [node for node in after.nodes if node.command.name == "fused"]
    assert first.graphs == third.graphs != second.graphs
    with np.errstate(divide="ignore"):
        check_same_bits(graph, after, [np.ones(1024, np.float32)])


def test_updates_are_counted_without_values_that_their_kernels_never_write() -> None:
    graph, _ = training_step(optim.adam(0.1), layers=1)
    after = run(graph, "prefuse")
    assert largest_live(after) < largest_live(graph)
    assert len(after.nodes) < len(graph.nodes) - 15


def test_the_memory_of_a_step_is_that_of_a_step_ordered_node_by_node_or_less(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, make in OPTIMIZERS.items():
        graph, _ = training_step(make())
        options = Options(donated=tuple(range(8)))
        peak = plan(graph, options).peak
        with monkeypatch.context() as patch:
            patch.setattr("nnc.compiled.pipeline.PLACING", (ORDER.without("prefuse"), PACK))
            assert peak <= plan(graph, options).peak, name


def test_units_read_rematerialized_values() -> None:
    def late_update(x: Any, w: Any) -> Any:
        """Reads exp(x) before and, in a unit, after something large."""
        y = nnp.exp(x)
        large = nnp.concatenate([x, x, x, x]) * nnp.sum(nnp.cumsum(y, axis=0))
        return w - y * nnp.sum(nnp.cumsum(large, axis=0))

    x = np.random.default_rng(0).standard_normal((256, 1024), np.float32)
    graph = run(nnc.make_graph(late_update)(x, x), "inline_calls", "dce", "prefuse", "order")
    assert units_of(graph)
    after = run(graph, "rematerialize_after_peak")
    assert (names(graph).count("exp"), names(after).count("exp")) == (1, 2)
    check_same_bits(graph, after, [x, x])


def test_a_unit_of_known_numbers_alone_is_a_kernel() -> None:
    @nnc.checkpoint
    def held(*xs: Any) -> Any:
        return tuple(map(nnc.stop_gradient, xs))

    def pulled(x: Any) -> Any:
        """Adds zeros of the backward pass, which are made where the checkpointed function runs again."""
        y, pull = nnc.vjp(lambda x: held(x, x, x)[0], x)
        return y, pull(y)[0]

    y, ct = nnc.compile(pulled)(np.ones((1, 2)))
    assert np.array_equal(y, np.ones((1, 2))) and np.array_equal(ct, np.zeros((1, 2)))


@given(graphs())
def test_units_of_random_graphs_compute_the_same(graph: Graph) -> None:
    after = verify(run(graph, "prefuse"))
    check_same_bits(graph, after, arrays(graph))
    assert largest_live(run(after, "order")) <= largest_live(after)
    check_same_bits(run(graph, "fuse"), verify(run(after, "fuse")), arrays(graph))
