"""The readable form of a graph."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nnc.graph.spec import TensorSpec

if TYPE_CHECKING:
    from nnc.graph.graph import Graph, Node, Symbol

__all__ = ["node_texts", "symbol_numbers", "to_text", "value_text"]

_INDENT = "  "
_SHOWN_ELEMENTS = 8
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def to_text(graph: Graph, *, sources: bool = True) -> str:
    """Returns the readable form of `graph`: inputs, constants, a line for each node with its sub-graphs beneath, outputs.

    Symbols are numbered in the order in which they appear, through all sub-graphs; the text of equal graphs is equal. A `?`
    marks a symbol that is read before it is written, which a verified graph never has.

    Args:
        graph: any graph, also one that breaks its invariants.
        sources: show the user's line that made each node.

    Example:
        >>> print(to_text(make_graph(lambda x: x + x)(nnp.ones(2)), sources=False))
        <lambda>(%0: float32[2])
          %1: float32[2] = add(%0, %0)
          return %1
    """
    return "\n".join(_graph_lines(graph, _Numbers(), "", sources))


def symbol_numbers(graph: Graph) -> Mapping[Symbol, int]:
    """Returns the number that the readable form gives each symbol of `graph` and of its sub-graphs.

    Args:
        graph: any graph.

    Example:
        >>> graph = make_graph(nnp.sin)(1.0)
        >>> symbol_numbers(graph)[graph.outputs[0]]
        1
    """
    numbers = _Numbers()
    for _ in _graph_lines(graph, numbers, "", False):
        pass
    return numbers.known


def node_texts(graph: Graph) -> Mapping[Node, str]:
    """Returns the line that the readable form has for each node of `graph` and of its sub-graphs, without the user's line.

    Args:
        graph: any graph.

    Example:
        >>> list(node_texts(make_graph(nnp.sin)(nnp.ones(()))).values())
        ['%1: float32[] = sin(%0)']
    """
    numbers = _Numbers()
    for _ in _graph_lines(graph, numbers, "", False):
        pass
    return {node: _node_text(node, numbers, False) for node in graph.walk()}


class _Numbers:
    """Numbers symbols as they appear."""

    def __init__(self) -> None:
        self.known: dict[Symbol, int] = {}

    def define(self, symbol: Symbol) -> str:
        name = f" {symbol.name}" if symbol.name else ""
        return f"%{self.known.setdefault(symbol, len(self.known))}{name}: {symbol.spec}"

    def use(self, symbol: Symbol) -> str:
        if symbol in self.known:
            return f"%{self.known[symbol]}"
        return f"%{self.known.setdefault(symbol, len(self.known))}?"


def _graph_lines(graph: Graph, numbers: _Numbers, indent: str, sources: bool) -> Iterator[str]:
    yield f"{indent}{graph.name}({', '.join(map(numbers.define, graph.inputs))})"
    indent += _INDENT
    for symbol, value in graph.constants.items():
        yield f"{indent}{numbers.define(symbol)} = constant({_array_text(value)})"
    for node in graph.nodes:
        yield indent + _node_text(node, numbers, sources)
        for sub_graph in node.graphs:
            yield from _graph_lines(sub_graph, numbers, indent + _INDENT, sources)
    outputs = ", ".join(map(numbers.use, graph.outputs))
    yield f"{indent}return {outputs}".rstrip()


def _node_text(node: Node, numbers: _Numbers, sources: bool) -> str:
    operands = ", ".join(map(numbers.use, node.inputs))
    text = f"{', '.join(map(numbers.define, node.outputs))} = ".removeprefix(" = ") + f"{node.command.name}({operands})"
    if node.params:
        text += f"  {{{', '.join(f'{name}={value_text(value)}' for name, value in node.params.items())}}}"
    return f"{text}  # {node.source}" if sources and node.source is not None else text


def value_text(value: Any) -> str:
    """Returns a static parameter as text that is the same in every process.

    Args:
        value: a static parameter.

    Example:
        >>> value_text((1, True))
        '(1, True)'
    """
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, TensorSpec):
        return str(value)
    if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
        items = ", ".join(map(value_text, value))
        if isinstance(value, list):
            return f"[{items}]"
        return f"({items},)" if len(value) == 1 else f"({items})"
    if isinstance(value, np.ndarray):
        return _array_text(value)
    if callable(value) and hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    return _ADDRESS.sub("", repr(value))


def _array_text(value: np.ndarray[Any, Any]) -> str:
    return str(value.tolist()) if value.size <= _SHOWN_ELEMENTS else "..."
