from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.graph import Graph, GraphBuilder, TensorSpec, structural_hash, verify
from nnc.lower.passes.order import Description, order
from nnc.lower.passes.recompute import recompute
from nnc.lower.pipeline import REWRITES, plan
from nnc.lower.units import Units
from nnc.options import Options
from tests.lower.passes.test_generated import arrays, graphs
from tests.lower.passes.tools import check_same_bits, names, record, run

VECTOR = TensorSpec((1024,), "float32")
X = np.linspace(-1, 1, 1024, dtype=np.float32)
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optim.sgd(0.1),
    "momentum": lambda: optim.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optim.adam(0.1),
    "adamw": lambda: optim.adamw(0.1),
    "clipped": lambda: optim.chain(optim.clip_by_global_norm(1.0), optim.adam(0.1)),
}


def largest_live(graph: Graph) -> int:
    """The largest live set where units are operations."""
    return max(Description(Units.of(graph).graph, free=graph.outputs).live_bytes())


def training_step(optimizer: Any, layers: int = 4) -> tuple[Graph, list[Any]]:
    """A step of a network of square layers with biases, and what it is called with."""
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
    return run(nnc.make_graph(step)(*args), *REWRITES), nnc.tree.leaves(args)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_update_of_each_parameter_is_one_operation(name: str) -> None:
    graph, args = training_step(OPTIMIZERS[name]())
    units = Units.of(graph)
    assert len(units.members) == 8  # four layers, each with weights and biases
    parameters = graph.outputs[:8]
    assert {symbol for unit, _ in units.members.values() for symbol in unit.outputs} >= {*parameters}
    assert not any(s.spec.size > 1 for node in rest(units) for s in node.outputs if s in graph.outputs)
    after = order(graph, Options(donated=tuple(range(8))))
    verify(after)
    assert {*after.nodes} == {*graph.nodes}
    check_same_bits(graph, after, args)
    for _, members in units.members.values():
        places = [after.nodes.index(node) for node in members]
        assert places == list(range(places[0], places[0] + len(members)))


def rest(units: Units) -> list[Any]:
    """The nodes that are in no unit."""
    return [node for node in units.graph.nodes if not (node.outputs and node.outputs[0] in units.members)]


def test_what_can_run_before_the_rest_is_in_no_unit() -> None:
    def function(x: Any, y: Any) -> Any:
        return nnp.exp(nnp.cumsum(x)) * 2.0 + nnp.exp(nnp.cumsum(y)) * 3.0

    graph = run(nnc.make_graph(function)(X, X), "inline_calls", "dce")
    units = Units.of(graph)
    assert units.graph is graph
    assert not units.members


def test_what_waits_for_a_number_is_a_unit_if_all_of_it_does() -> None:
    def early(g: Any, m: Any, p: Any) -> Any:
        g, number = nnp.cumsum(g), nnp.sum(nnp.cumsum(m))
        m = m * 0.5 + g  # needs no number, and g would be free
        return m, p - m * number

    def late(g: Any, m: Any, p: Any) -> Any:
        g, number = nnp.cumsum(g), nnp.sum(nnp.cumsum(m))
        m = m * 0.5 + g * number
        return m, p - m

    counts = [len(Units.of(run(nnc.make_graph(f)(X, X, X), "inline_calls", "dce")).members) for f in (early, late)]
    assert counts == [0, 1]


def test_what_waits_for_nothing_stands_first_and_after_the_numbers_that_it_reads() -> None:
    def step(g: Any, m: Any, count: Any) -> Any:
        g = nnp.cumsum(g) * 3.0
        number = nnp.exp(nnp.square(count))  # recorded after g
        return g + m * number

    graph = run(nnc.make_graph(step)(X, X, np.float32(1)), "inline_calls", "dce")
    units = Units.of(graph)
    ((_, members),) = units.members.values()
    assert [node.inputs[0] in graph.inputs for node in members] == [True, False, False]
    assert [node.command.name for node in members] == ["mul", "mul", "add"]
    check_same_bits(graph, verify(units.apart(units.graph)), [X, X, np.float32(1)])
    check_same_bits(graph, run(graph, "order"), [X, X, np.float32(1)])


def test_what_is_made_of_nothing_is_not_waited_for() -> None:
    b = GraphBuilder()
    x, w = b.input(VECTOR), b.input(VECTOR)
    g = b.add("cumsum", x, axis=0)
    ones = b.add("full", shape=(1024,), dtype=np.dtype("float32"), value=1.0)
    graph = b.build(b.add("add", b.add("sub", w, g), b.add("mul", g, ones)), b.add("cumsum", ones, axis=0))
    ((_, members),) = Units.of(graph).members.values()
    assert [node.command.name for node in members] == ["sub", "mul", "add"]


def test_sums_of_values_are_in_the_unit_that_reads_them_alone() -> None:
    def function(number: int) -> Any:
        def step(x: Any, w: Any) -> Any:
            return w - 0.5 * sum([nnp.cumsum(x * i) for i in range(2, number)], start=nnp.cumsum(x))

        return run(nnc.make_graph(step)(X, X), "inline_calls", "dce")

    two, three = Units.of(function(3)), Units.of(function(4))
    ((unit, members),) = two.members.values()
    assert sorted(node.command.name for node in members) == ["add", "mul", "sub"]
    assert len(unit.inputs) >= 3
    assert not three.members  # of three values two can be added before the third exists


def test_what_reads_one_value_in_several_forms_is_a_unit() -> None:
    def function(x: Any, w: Any) -> Any:
        g = nnp.cumsum(x)
        return w + nnp.reshape(g, (32, 32)) * 2.0 - nnp.reshape(g, (32, 32)).T

    graph = run(nnc.make_graph(function)(X, X.reshape(32, 32)), "inline_calls", "dce", "cse")
    ((unit, members),) = Units.of(graph).members.values()
    assert sorted(node.command.name for node in members) == ["add", "mul", "sub"]
    assert unit.outputs == graph.outputs


def test_what_others_read_is_in_no_unit() -> None:
    def function(x: Any) -> Any:
        y = nnp.exp(nnp.cumsum(x))
        z = y * 2.0 + 1.0
        return nnp.cumsum(y), z

    graph = run(nnc.make_graph(function)(X), "inline_calls", "dce")
    ((_, members),) = Units.of(graph).members.values()
    assert [node.command.name for node in members] == ["mul", "add"]


def test_nodes_that_nobody_reads_may_be_a_unit() -> None:
    graph = run(record(lambda x: (nnp.exp(nnp.sin(x)), x)[1], VECTOR), "inline_calls")
    assert names(graph) == ["sin", "exp"]
    after = order(graph, Options())
    assert names(after) == ["sin", "exp"]


def test_numbers_and_what_no_kernel_computes_are_in_no_unit() -> None:
    graph = run(record(lambda x: nnp.exp(nnp.sin(nnp.sum(x))), VECTOR), "inline_calls", "dce")
    assert not Units.of(graph).members
    graph = run(record(lambda x: nnp.exp(nnp.sin(x)), TensorSpec((8,), "complex64")), "inline_calls", "dce")
    assert not Units.of(graph).members


def test_without_compiled_programs_each_node_is_an_operation() -> None:
    graph, _ = training_step(optim.adam(0.1))
    assert not order(graph, Options(native=False)).attrs["_units"].members
    assert order(graph, Options()).attrs["_units"].members


def test_updates_are_counted_without_what_their_kernels_never_write() -> None:
    graph, _ = training_step(optim.adam(0.1), layers=1)
    units = Units.of(graph)
    assert largest_live(graph) < max(Description(graph, free=graph.outputs).live_bytes())
    assert len(units.graph.nodes) < len(graph.nodes) - 15


def test_the_memory_of_a_step_is_that_of_a_step_ordered_node_by_node_or_less(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, make in OPTIMIZERS.items():
        graph, _ = training_step(make())
        options = Options(donated=tuple(range(8)))
        peak = plan(graph, options).peak
        with monkeypatch.context() as patch:
            patch.setattr(Units, "of", Units.none)
            assert peak <= plan(graph, options).peak, name


def late_update(x: Any, w: Any) -> Any:
    """Reads exp(x) before and, in a unit, after something large."""
    y = nnp.exp(x)
    large = nnp.concatenate([x, x, x, x]) * nnp.sum(nnp.cumsum(y, axis=0))
    return w - y * nnp.sum(nnp.cumsum(large, axis=0))


def test_units_read_what_is_made_anew() -> None:
    x = np.random.default_rng(0).standard_normal((256, 1024), np.float32)
    graph = run(nnc.make_graph(late_update)(x, x), "inline_calls", "dce", "order")
    assert graph.attrs["_units"].members
    after = run(graph, "recompute")
    assert (names(graph).count("exp"), names(after).count("exp")) == (1, 2)
    check_same_bits(graph, after, [x, x])


def test_a_note_of_units_of_another_graph_is_not_followed() -> None:
    x = np.random.default_rng(0).standard_normal((256, 1024), np.float32)
    graph = run(nnc.make_graph(late_update)(x, x), "inline_calls", "dce")
    ordered = order(graph, Options())
    other = ordered.update(nodes=graph.nodes)
    assert structural_hash(recompute(other, Options())) == structural_hash(recompute(graph, Options()))


@given(graphs())
def test_orders_of_random_graphs_need_no_more_memory_where_units_are_operations(graph: Graph) -> None:
    after = run(graph, "order")
    assert {*after.nodes} == {*graph.nodes}
    assert largest_live(after) <= largest_live(graph)
    units = Units.of(graph)
    check_same_bits(graph, verify(units.apart(units.graph)), arrays(graph))
    check_same_bits(graph, after, arrays(graph))
