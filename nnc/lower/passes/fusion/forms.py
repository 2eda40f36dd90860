"""Sub-graphs of kernels, which equal kernels share.

Layers and parameters repeat: most kernels of a training step equal another one. Facts about a shared sub-graph, and its
printed text, are found once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from nnc.graph import Command, Graph, Node, Symbol
from nnc.graph.graph import NDArray, new_node, new_symbol
from nnc.graph.hashing import same_params

Pairs = Iterable[tuple[int, int]]
_Form = tuple[Graph, Mapping[str, Any]]


class Forms:
    """Makes nodes that own others as a sub-graph of this name, one for all groups that differ in their operands alone."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._known: dict[Any, list[tuple[Sequence[Node], _Form]]] = {}

    def node(
        self, command: Command, nodes: Sequence[Node], constants: Mapping[Symbol, NDArray], outputs: Sequence[Symbol],
        overwrite: Callable[[Sequence[Symbol]], Pairs], of: Node,
    ) -> Node:  # fmt: skip
        """Makes the node of a command that replaces nodes with one result each.

        Args:
            constants: symbols that the nodes may read, and their values.
            outputs: the results of the new node.
            overwrite: returns, for the symbols that the node reads, the pairs (input, output) that may share memory.
            of: the node whose source line the new node gets.
        """
        number: dict[Symbol, int] = {}
        rows = []
        for node in nodes:
            reads = tuple([number.setdefault(symbol, len(number)) for symbol in node.inputs])
            number[node.outputs[0]] = len(number)
            rows.append((node.command, reads, tuple(node.params.items()) if node.params else ()))
        own = {node.outputs[0] for node in nodes}
        held = {symbol: constants[symbol] for symbol in number if symbol in constants}
        inputs = tuple([symbol for symbol in number if symbol not in own and symbol not in held])
        values = tuple([(number[symbol], value.tobytes()) for symbol, value in held.items()])
        key = tuple(rows), tuple([symbol.spec for symbol in number]), tuple([number[s] for s in outputs]), values
        graph, params = self._form(key, nodes, held, inputs, outputs, overwrite)
        return new_node(command, inputs, tuple(outputs), params, (graph,), of.source)

    def _form(
        self, key: Any, nodes: Sequence[Node], held: Mapping[Symbol, NDArray], inputs: Sequence[Symbol],
        outputs: Sequence[Symbol], overwrite: Callable[[Sequence[Symbol]], Pairs],
    ) -> _Form:  # fmt: skip
        """Returns the sub-graph and the parameters that nodes of this key have in common."""
        alike = self._known.setdefault(key, [])
        for others, form in alike:
            if all(
                same_params(a.params, b.params) for a, b in zip(nodes, others, strict=True) if a.params is not b.params
            ):
                return form
        renamed = {symbol: new_symbol(symbol.spec, symbol.name) for symbol in (*inputs, *held)}
        copies = tuple(copied(nodes, renamed))
        graph = Graph(
            tuple([renamed[symbol] for symbol in inputs]), tuple([renamed[symbol] for symbol in outputs]), copies,
            {renamed[symbol]: value for symbol, value in held.items()}, name=self.name,
        )  # fmt: skip
        form = graph, MappingProxyType({"overwrite": tuple(overwrite(inputs))})
        alike.append((nodes, form))
        return form


def of_one_shape(inputs: Sequence[Symbol], outputs: Sequence[Symbol]) -> Pairs:
    """Returns pairs that may share memory where each element is computed from operands' elements at the same place."""
    return [(i, j) for j, y in enumerate(outputs) for i, x in enumerate(inputs) if x.shape == y.shape]


def copied(nodes: Iterable[Node], renamed: dict[Symbol, Symbol]) -> Iterator[Node]:
    """Yields copies of nodes with one result each, with new symbols for symbols that have none so far."""
    for node in nodes:
        (out,) = node.outputs
        if out not in renamed:
            renamed[out] = new_symbol(out.spec, out.name)
        inputs = tuple([renamed[symbol] for symbol in node.inputs])
        yield new_node(node.command, inputs, (renamed[out],), node.params, (), node.source)
