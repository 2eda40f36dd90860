"""Building graphs by hand, and the meaning of aliases."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, GraphError, NncError, ShapeError
from nnc.graph import (
    Command,
    Graph,
    GraphBuilder,
    Symbol,
    TensorSpec,
    command,
    infer,
    infer_specs,
    reference,
    verify,
)
from nnc.graph.rules import Rules


def evaluate(graph: Graph, *args: Any) -> list[Any]:
    """The outputs of `graph` by the references of its commands."""
    values: dict[Symbol, Any] = dict(zip(graph.inputs, args, strict=True)) | dict(graph.constants)
    for node in verify(graph).nodes:
        result = reference[node.command](*(values[symbol] for symbol in node.inputs), **node.params)
        values.update(zip(node.outputs, result if isinstance(result, tuple) else (result,), strict=True))
    return [values[symbol] for symbol in graph.outputs]


def test_nodes_stand_in_the_order_in_which_they_were_added_with_the_line_that_added_them() -> None:
    b = GraphBuilder()
    x, y = b.input((2,), "float32", name="x"), b.input(TensorSpec((2,), "float32"))
    total = b.add("add", x, y)
    graph = verify(b.build(b.add(command("mul"), total, total), total))
    assert [node.command.name for node in graph.nodes] == ["add", "mul"]
    assert graph.inputs == (x, y) and graph.outputs[1] is total
    source = graph.nodes[0].source
    assert (
        source is not None and source.text == 'total = b.add("add", x, y)' and source.function.startswith("test_nodes")
    )


def test_commands_called_within_the_builder_are_recorded_and_numbers_become_constants() -> None:
    b = GraphBuilder()
    x = b.input((), "float32")
    with b:
        doubled = command("mul")(x, np.float32(2))
    graph = verify(b.build(doubled))
    assert [node.command.name for node in graph.nodes] == ["mul"]
    assert [float(value) for value in graph.constants.values()] == [2.0]


def test_the_inner_of_two_nested_builders_records() -> None:
    outer = GraphBuilder("outer")
    with outer:
        inner = GraphBuilder("inner")
        with inner:
            command("full")(shape=(), dtype=np.dtype("int8"), value=0)
        command("full")(shape=(), dtype=np.dtype("int8"), value=1)
    assert [node.params["value"] for node in inner.build().nodes] == [0]
    assert [node.params["value"] for node in outer.build().nodes] == [1]


def test_a_constant_does_not_change_with_the_array_it_was_made_of() -> None:
    b, array = GraphBuilder(), np.ones(2)
    symbol = b.constant(array)
    array[0] = 7
    assert b.build(symbol).constants[symbol].tolist() == [1, 1]


def test_reading_an_alias_slices_the_original_once() -> None:
    b = GraphBuilder()
    x = b.input((4, 4), "int32")
    inner = b.alias(b.alias(x, (1, 0), (3, 4)), (1, 2), (2, 2))  # an alias of an alias views the original
    graph = b.build(b.add("add", inner, inner))
    assert [node.command.name for node in graph.nodes] == ["slice", "add"]
    values = np.arange(16, dtype="int32").reshape(4, 4)
    assert (evaluate(graph, values)[0] == 2 * values[2:4, 2:4]).all()


def test_parts_that_are_written_through_aliases_make_up_the_tensor_and_the_rest_is_zero() -> None:
    b = GraphBuilder()
    x = b.input((2, 2), "float32")
    whole = b.tensor((2, 5), "float32", name="whole")
    left, right = b.alias(whole, (0, 0), (2, 2)), b.alias(whole, (0, 3), (2, 2))
    b.add("neg", x, out=left)
    b.add("add", x, x, out=right)
    graph = b.build(whole, left)
    values = np.asarray([[1, 2], [3, 4]], np.float32)
    expected = np.concatenate([-values, np.zeros((2, 1)), 2 * values], axis=1)
    assert (evaluate(graph, values)[0] == expected).all()
    assert graph.outputs == (whole, left)


def test_a_declared_tensor_can_be_written_as_a_whole_and_read_through_an_alias() -> None:
    b = GraphBuilder()
    x = b.input((3,), "float32")
    whole = b.tensor((3,), "float32")
    last = b.alias(whole, (2,), (1,))
    assert b.add("neg", x, out=whole) is whole
    assert evaluate(b.build(last), np.asarray([1, 2, 3], np.float32))[0].tolist() == [-3]


def test_a_tensor_that_nothing_writes_is_zero() -> None:
    b = GraphBuilder()
    assert evaluate(b.build(b.tensor((2,), "int8")))[0].tolist() == [0, 0]


def test_a_second_write_to_a_symbol_names_the_first() -> None:
    b = GraphBuilder()
    x, whole = b.input((2,), "float32"), b.tensor((2,), "float32")
    b.add("neg", x, out=whole)
    with pytest.raises(GraphError, match=r"is written or read already at .*test_builder.py:\d+ in test_a_second_write"):
        b.add("exp", x, out=whole)


def test_writing_an_alias_that_overlaps_a_written_one_is_an_error() -> None:
    b = GraphBuilder()
    x, whole = b.input((2,), "float32"), b.tensor((3,), "float32")
    b.add("neg", x, out=b.alias(whole, (0,), (2,)))
    with pytest.raises(GraphError, match=r"overlaps an alias that is written already, at .*\[1:3\] and \[0:2\]"):
        b.add("neg", x, out=b.alias(whole, (1,), (2,)))
    b.add("slice", x, out=b.alias(whole, (2,), (1,)), start=(0,), limit=(1,), stride=(1,))
    assert evaluate(b.build(whole), np.asarray([5, 6], np.float32))[0].tolist() == [-5, -6, 5]


def test_a_tensor_cannot_be_written_after_it_was_read_nor_when_it_has_a_value() -> None:
    b = GraphBuilder()
    x, whole = b.input((2,), "float32"), b.tensor((4,), "float32")
    late = b.alias(whole, (0,), (2,))
    b.add("neg", whole)
    with pytest.raises(GraphError, match="which has its value already"):
        b.add("neg", x, out=late)
    with pytest.raises(GraphError, match="which has its value already"):
        b.add("neg", x, out=b.alias(x, (0,), (2,)))
    with pytest.raises(GraphError, match="is written or read already"):
        b.add("neg", x, out=x)


def test_an_alias_of_another_shape_or_dtype_than_the_output_is_refused() -> None:
    b = GraphBuilder()
    x, whole = b.input((2,), "float32"), b.tensor((4,), "float64")
    with pytest.raises(GraphError, match="another shape or dtype than the command yields"):
        b.add("neg", x, out=b.alias(whole, (0,), (2,)))


def test_an_alias_outside_the_tensor_is_refused() -> None:
    b = GraphBuilder()
    with pytest.raises(ShapeError, match="axis 1: 2:5 is not within 0:4"):
        b.alias(b.input((4, 4), "int32"), (0, 2), (4, 3))


def test_a_symbol_of_another_graph_and_a_value_are_refused_as_inputs() -> None:
    b, other = GraphBuilder(), GraphBuilder()
    x = b.input((2,), "float32")
    for foreign in (other.input((2,), "float32"), 3.0):
        with pytest.raises(GraphError, match="add: input 1 is .*no symbol of the graph being built"):
            b.add("add", x, foreign)
    with pytest.raises(GraphError, match="build: input 0"):
        b.build(other.input((), "int8"))


def test_wrong_operands_raise_with_the_specs() -> None:
    b = GraphBuilder()
    x = b.input((2,), "float32")
    with pytest.raises(ArgumentError, match="add: it takes 2 inputs, 1 were given"):
        b.add("add", x)
    with pytest.raises(DTypeError, match="dtypes differ: float32, float64"):
        b.add("add", x, b.input((2,), "float64"))
    with pytest.raises(NncError, match="shapes differ"):
        b.add("add", x, b.input((3,), "float32"))
    with pytest.raises(ArgumentTypeError, match="parameters do not fit"):
        b.add("add", x, x, axis=0)


def test_a_node_may_read_seventy_thousand_others_and_tensors_may_have_thirty_three_axes(gather_all: Command) -> None:
    b = GraphBuilder()
    x = b.input((1,) * 33, "float32")
    many = [b.add("neg", x) for _ in range(70_000)]
    graph = verify(b.build(b.add(gather_all, *many)))
    assert len(graph.nodes[-1].inputs) == 70_000
    assert graph.output_specs[0].ndim == 33


def test_specs_are_found_out_anew_when_the_rule_of_a_command_is_replaced(new_command: Callable[..., Command]) -> None:
    new = new_command("test_widen", Rules(infer=lambda x, *, by: x))
    spec = TensorSpec((2,), "float32")
    assert infer_specs(new, (spec,), {"by": 2}) == infer_specs(new, (spec,), {"by": 2}) == (spec,)
    infer.set(new, lambda x, *, by: x.update(shape=(*x.shape, by)), priority=11)
    assert infer_specs(new, (spec,), {"by": 2}) == (TensorSpec((2, 2), "float32"),)


def test_parameters_of_equal_value_and_other_type_have_rules_of_their_own(new_command: Callable[..., Command]) -> None:
    new = new_command("test_typed", Rules(infer=lambda x, *, by: x.update(dtype=np.dtype(type(by)))))
    spec = TensorSpec((), "float32")
    found = [infer_specs(new, (spec,), {"by": by})[0].dtype.name for by in (1, 1.0, True, 1)]
    assert found == ["int64", "float64", "bool", "int64"]


def test_functions_among_the_parameters_are_not_kept(new_command: Callable[..., Command]) -> None:
    new = new_command("test_keeper", Rules(infer=lambda x, *, function: x))

    class Held:
        def __call__(self) -> None: ...

    held = Held()
    gone = weakref.ref(held)
    infer_specs(new, (TensorSpec((), "float32"),), {"function": held})
    del held
    assert gone() is None
