"""Merges equal nodes, so that each value is computed once.

Nodes are equal that run one command with equal parameters on the same symbols and on sub-graphs of one structure; a hash finds
the candidates, a comparison decides. Parameters are compared by value and type, constants by their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnc.base.options import Options
from nnc.commands.roles import Inner, NodeRoles, Read, Yield, take_apart
from nnc.graph import Graph, Node, Symbol, TensorSpec, register_pass, structurally_equal
from nnc.graph.graph import NDArray
from nnc.graph.hashing import same_params
from nnc.graph.passes import Fact
from nnc.graph.registry import commutes, effect
from nnc.graph.remake import OncePerGraph, with_renamed


@register_pass("cse", requires=[Fact.BARRIERS, Fact.SIMPLIFIED], ensures=[Fact.MERGED])
def cse(graph: Graph, options: Options) -> Graph:
    """Merges equal nodes and equal constants, in sub-graphs, too, and values that a loop or branch is given twice.

    Random draws, effects and barriers (which recompute on purpose) are not merged, nor nodes that contain them.

    Ensures: no two nodes of one graph are equal, but for those; the first of equal ones stays.

    Example:
        a = exp(x); b = exp(x); return a + b  →  a = exp(x); return a + a
    """
    return _Merger().graph(graph)


class _Merger(OncePerGraph):
    """One run of the pass."""

    def __init__(self) -> None:
        super().__init__()
        self.joined: dict[Any, tuple[Graph, ...]] = {}
        self.unique: dict[Graph, bool] = {}

    def rewrite(self, graph: Graph) -> Graph:
        """`graph` with equal nodes merged; the graph itself where none are."""
        renamed = _equal_constants(graph)
        known: dict[Any, list[Node]] = {}
        nodes: list[Node] = []
        changed = bool(renamed)
        for old in graph.nodes:
            node, twice = self.merge_within(old, renamed) if old.graphs else (self.renew(old, renamed), None)
            twin = None
            if node.outputs and not self._is_unique(node):
                alike = known.setdefault(_key(node), [])
                twin = next((other for other in alike if _equal(node, other)), None) if alike else None
                if twin is None:
                    alike.append(node)
            changed |= node is not old or twin is not None
            if twin is None:
                nodes.append(node)
            else:
                renamed.update(zip(node.outputs, twin.outputs, strict=True))
            if twice:
                renamed.update((symbol, renamed.get(kept, kept)) for symbol, kept in twice.items())
        if not changed:
            return graph
        constants = {symbol: value for symbol, value in graph.constants.items() if symbol not in renamed}
        outputs = tuple(renamed.get(symbol, symbol) for symbol in graph.outputs)
        return graph.update(nodes=tuple(nodes), constants=constants, outputs=outputs)

    def merge_within(self, node: Node, renamed: dict[Symbol, Symbol]) -> tuple[Node, dict[Symbol, Symbol]]:
        """Returns the node on merged symbols, its sub-graphs merged; and for the results that it yielded twice, the ones that
        stay.
        """
        node = with_renamed(node, renamed)
        loop = take_apart(node)
        node = self.renew(node if loop is None else self._without_twins(loop), {})
        loop = take_apart(node)
        return self._without_twin_results(loop) if loop is not None else (node, {})

    def _without_twins(self, loop: NodeRoles) -> Node:
        """Returns the node without operands that it reads twice: captured values and sequences."""
        twins: list[dict[Symbol, Symbol]] = [{} for _ in loop.graphs]
        groups: dict[str, tuple[Read, ...]] = {}
        for name, reads in (("sequences", loop.sequences), ("captured", loop.captured)):
            first: dict[Symbol, Read] = {}
            for read in reads:
                kept = first.setdefault(read.operand, read)
                if kept is not read:
                    for same, a, b in zip(twins, read.inner, kept.inner, strict=True):
                        same[a] = b
            groups[name] = tuple(first.values())
        if not any(twins):
            return loop.node
        graphs = tuple(self._with_inputs_merged(graph, same) for graph, same in zip(loop.graphs, twins, strict=True))
        changed = take_apart(loop.node.update(graphs=graphs))
        assert changed is not None
        return changed.update(**groups).join(self.joined)

    def _with_inputs_merged(self, graph: Graph, same: dict[Symbol, Symbol]) -> Graph:
        key = graph, tuple(same.items())
        if key not in self.joined:
            self.joined[key] = (_rename(graph, same),)
        return self.joined[key][0]

    def _without_twin_results(self, loop: NodeRoles) -> tuple[Node, dict[Symbol, Symbol]]:
        """Returns the node with one result for each value that it yields, and the replacements of the other results."""
        twice: dict[Symbol, Symbol] = {}
        exits, rows = (_unlike(group, twice) for group in (loop.exits, loop.rows))
        return (loop.update(exits=exits, rows=rows).join(self.joined) if twice else loop.node), twice

    def _is_unique(self, node: Node) -> bool:
        """Whether the node must not be merged with an equal one."""
        if node.command in effect or node.params.get("barrier", False):
            return True
        return bool(node.graphs) and any(map(self._has_unique, node.graphs))

    def _has_unique(self, graph: Graph) -> bool:
        if graph not in self.unique:
            self.unique[graph] = any(map(self._is_unique, graph.nodes))
        return self.unique[graph]


def _unlike(group: Sequence[Yield], twice: dict[Symbol, Symbol]) -> tuple[Yield, ...]:
    """Returns the first of several equal yields; adds the results of the others to `twice`. Tapes may differ in handles."""
    first: dict[tuple[Inner, TensorSpec], Yield] = {}
    for item in group:
        kept = first.setdefault((item.inner, item.result.spec), item)
        if kept is not item:
            twice[item.result] = kept.result
    return tuple(first.values())


def _key(node: Node) -> Any:
    """Equal for equal nodes."""
    inputs = node.inputs
    if node.command in commutes:
        inputs = tuple(sorted(inputs, key=id))
    params = frozenset(node.params.items()) if node.params else ()
    return node.command, inputs, params, tuple([len(graph.nodes) for graph in node.graphs]) if node.graphs else ()


def _equal(a: Node, b: Node) -> bool:
    """Whether nodes with equal keys are equal."""
    if len(a.outputs) != len(b.outputs) or not same_params(a.params, b.params):
        return False
    return all(structurally_equal(x, y) for x, y in zip(a.graphs, b.graphs, strict=True))


def _equal_constants(graph: Graph) -> dict[Symbol, Symbol]:
    """Constants that have the bytes of an earlier one."""
    by_spec: dict[Any, list[tuple[Symbol, NDArray]]] = {}
    for symbol, value in graph.constants.items():
        by_spec.setdefault(symbol.spec, []).append((symbol, value))
    renamed: dict[Symbol, Symbol] = {}
    for group in by_spec.values():
        if len(group) > 1:
            first: dict[bytes, Symbol] = {}
            for symbol, value in group:
                kept = first.setdefault(np.ascontiguousarray(value).tobytes(), symbol)
                if kept is not symbol:
                    renamed[symbol] = kept
    return renamed


def _rename(graph: Graph, renamed: dict[Symbol, Symbol]) -> Graph:
    nodes = tuple(with_renamed(node, renamed) for node in graph.nodes)
    return graph.update(nodes=nodes, outputs=tuple(renamed.get(symbol, symbol) for symbol in graph.outputs))
