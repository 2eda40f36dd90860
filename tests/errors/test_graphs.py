"""Mistakes with hand-built graphs, the registry, passes and stored graphs."""

from __future__ import annotations

import json
from typing import Any

import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, GraphError, RegistryError, ShapeError
from nnc.graph import (
    Attribute,
    Graph,
    GraphBuilder,
    Kernel,
    add_kernel,
    attribute,
    command,
    from_json,
    register,
    register_pass,
    run_passes,
    to_json,
)
from nnc.graph.rules import Rules
from tests.errors.reports import reports


@pytest.fixture
def builder() -> GraphBuilder:
    return GraphBuilder("by_hand")


@pytest.fixture
def doubled() -> Graph:
    return nnc.make_graph(lambda x: x + x)(nnp.ones(2))


# -- building ----------------------------------------------------------------------------------------------------------


def test_writing_two_aliases_that_overlap(builder: GraphBuilder) -> None:
    x = builder.input((3,), "float32")
    whole = builder.tensor((5,), "float32")
    builder.add("neg", x, out=builder.alias(whole, (0,), (3,)))
    with reports(GraphError, "overlaps", "test_graphs.py", "[2:5]", "[0:3]"):
        builder.add("exp", x, out=builder.alias(whole, (2,), (3,)))


def test_an_alias_beyond_its_tensor(builder: GraphBuilder) -> None:
    whole = builder.tensor((5,), "float32")
    with reports(ShapeError, "[5]", "[4]", "3:7"):
        builder.alias(whole, (3,), (4,))


def test_writing_a_symbol_twice(builder: GraphBuilder) -> None:
    x = builder.input((3,), "float32")
    y = builder.add("neg", x)
    with reports(GraphError, "written exactly once", "float32[3]"):
        builder.add("exp", x, out=y)


def test_a_symbol_of_another_graph(builder: GraphBuilder) -> None:
    foreign = GraphBuilder().input((2,), "float32", name="theirs")
    with reports(GraphError, "neg", "theirs", "float32[2]", "no symbol of the graph"):
        builder.add("neg", foreign)


def test_a_value_where_a_symbol_is_due(builder: GraphBuilder) -> None:
    x = builder.input((2,), "float32")
    with reports(GraphError, "add", "input 1", "2.0", "builder.constant"):
        builder.add("add", x, 2.0)  # type: ignore[arg-type]


def test_a_command_with_too_many_inputs(builder: GraphBuilder) -> None:
    x = builder.input((2,), "float32")
    with reports(ArgumentError, "neg", "takes 1", "2 were given", "float32[2]"):
        builder.add("neg", x, x)


def test_a_misspelled_parameter_of_a_command(builder: GraphBuilder) -> None:
    x = builder.input((2, 3), "float32")
    with reports(ArgumentTypeError, "transpose", "permutaton"):
        builder.add("transpose", x, permutaton=(1, 0))


def test_a_hand_built_command_on_two_dtypes(builder: GraphBuilder) -> None:
    x, y = builder.input((2,), "float32"), builder.input((2,), "int32")
    with reports(DTypeError, "add", "float32[2]", "int32[2]", "astype"):
        builder.add("add", x, y)


def test_a_hand_built_command_on_two_shapes(builder: GraphBuilder) -> None:
    x, y = builder.input((2,), "float32"), builder.input((3,), "float32")
    with reports(ShapeError, "add", "float32[2]", "float32[3]", "broadcast"):
        builder.add("add", x, y)


# -- calling -----------------------------------------------------------------------------------------------------------


def test_a_graph_called_with_too_few_arrays(doubled: Graph) -> None:
    with reports(ArgumentError, "1 inputs", "0 were given"):
        doubled()


def test_a_graph_called_with_another_dtype(doubled: Graph) -> None:
    with reports(ShapeError, "float32[2]", "float64[2]"):
        doubled(nnp.ones(2, dtype="float64"))


# -- registry ----------------------------------------------------------------------------------------------------------


def test_a_command_that_is_not_registered(builder: GraphBuilder) -> None:
    x = builder.input((2,), "float32")
    with reports(RegistryError, "'softplas'", "import the package"):
        builder.add("softplas", x)


def test_a_command_registered_twice() -> None:
    with reports(RegistryError, "'exp'", "exists already"):
        register("exp", Rules())


def test_a_column_that_does_not_exist() -> None:
    with reports(RegistryError, "'latency'", "infer"):
        attribute("latency")


def test_a_column_made_twice() -> None:
    with reports(RegistryError, "'batch'", "exists already"):
        Attribute("batch")


def test_a_second_value_for_a_cell() -> None:
    with reports(RegistryError, "exp", "'infer'", "priority=11"):
        attribute("infer").set("exp", lambda x: x)


def test_an_empty_cell(own_registries: None) -> None:
    column: Attribute[int] = Attribute("test_latency")
    with reports(RegistryError, "exp", "'test_latency'", "test_latency.set('exp', ...)"):
        column[command("exp")]


def test_a_second_kernel_of_one_backend(own_registries: None) -> None:
    def run(inputs: Any, outputs: Any, params: Any) -> None: ...

    add_kernel("exp", Kernel("test_backend", run, priority=20))
    with reports(RegistryError, "exp", "'test_backend'", "priority 20"):
        add_kernel("exp", Kernel("test_backend", run, priority=20))


# -- passes ----------------------------------------------------------------------------------------------------------


def test_a_pass_that_does_not_exist(doubled: Graph) -> None:
    with reports(RegistryError, "'optimise'"):
        run_passes(doubled, ["optimise"])


def test_a_pass_whose_attribute_is_missing_names_the_pass_that_provides_it(
    doubled: Graph, own_registries: None
) -> None:
    register_pass("test_order", provides=["order"])(lambda graph, options: graph.with_attrs(order=1))
    register_pass("test_plan", needs=["order"])(lambda graph, options: graph)
    with reports(GraphError, "test_plan", "'order'", "run 'test_order' before it"):
        run_passes(doubled, ["test_plan"])


def test_a_pass_that_returns_no_graph(doubled: Graph, own_registries: None) -> None:
    register_pass("test_nothing")(lambda graph, options: None)  # type: ignore[arg-type, return-value]
    with reports(ArgumentTypeError, "test_nothing", "NoneType"):
        run_passes(doubled, ["test_nothing"])


# -- stored graphs -----------------------------------------------------------------------------------------------------


def test_a_stored_graph_that_is_no_json() -> None:
    with reports(GraphError, "from_json", "no JSON"):
        from_json("graph: lost")


def test_a_stored_graph_that_was_cut_short(doubled: Graph) -> None:
    text = to_json(doubled)
    with reports(GraphError, "from_json", "no JSON"):
        from_json(text[: len(text) // 2])


def test_a_stored_graph_that_was_damaged(doubled: Graph) -> None:
    document = json.loads(to_json(doubled))
    document["graphs"][0]["nodes"][0]["inputs"] = [0, 99]
    with reports(GraphError, "from_json", "damaged"):
        from_json(json.dumps(document))


def test_a_stored_graph_of_a_later_version(doubled: Graph) -> None:
    document = json.loads(to_json(doubled)) | {"version": 999}
    with reports(GraphError, "from_json", "999"):
        from_json(json.dumps(document))
