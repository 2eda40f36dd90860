"""The readable form of graphs."""

from __future__ import annotations

import numpy as np

from nnc.base.source import SourceLine
from nnc.graph import Command, Graph, GraphBuilder, Node, Symbol, TensorSpec, command, to_text, value_text


def test_a_graph_prints_inputs_constants_nodes_and_outputs_numbered_by_appearance(squares: Graph) -> None:
    assert to_text(squares, sources=False) == (
        "squares(%0 x: float32[2,3], %1: float32[2,3])\n"
        "  %2 weights: float32[2,3] = constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])\n"
        "  %3: float32[2,3] = add(%0, %1)\n"
        "  %4: float32[2,3] = mul(%3, %3)\n"
        "  %5: float32[2,3] = mul(%4, %2)\n"
        "  return %5"
    )


def test_nodes_show_parameters_and_the_line_that_made_them() -> None:
    b = GraphBuilder()
    x = b.input((4,), "bfloat16")
    out = b.add("slice", x, start=(1,), limit=(3,), stride=(1,), source=SourceLine("model.py", 12, "f"))
    text = str(b.build(out))
    assert "%1: bfloat16[2] = slice(%0)  {start=(1,), limit=(3,), stride=(1,)}  # model.py:12 in f" in text


def test_sub_graphs_stand_indented_beneath_their_node(squares: Graph, call: Command) -> None:
    b = GraphBuilder("outer")
    x = b.input((2, 3), "float32")
    (out,) = b.add(call, x, x, graphs=(squares,))
    lines = to_text(b.build(out), sources=False).splitlines()
    assert lines[1:3] == ["  %1: float32[2,3] = test_call(%0, %0)", "    squares(%2 x: float32[2,3], %3: float32[2,3])"]
    assert lines[-2:] == ["      return %7", "  return %1"]


def test_a_graph_that_reads_an_unwritten_symbol_can_still_be_printed() -> None:
    spec = TensorSpec((), "int32")
    lost, out = Symbol(spec), Symbol(spec)
    node = Node(command("neg"), (lost,), (out,))
    assert to_text(Graph((), (out,), (node,))).splitlines()[1] == "  %1: int32[] = neg(%0?)"


def test_parameters_print_the_same_in_every_process() -> None:
    assert value_text((np.dtype("float16"), None, 1.5, [TensorSpec((2,), "int8")])) == "(float16, None, 1.5, [int8[2]])"
    assert value_text(to_text) == "to_text"
    assert "0x" not in value_text((object(),))
    assert value_text(np.arange(100)) == "..."
