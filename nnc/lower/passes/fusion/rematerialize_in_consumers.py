"""Makes values that are no more work than a read where they are read, so that memory does not hold them, too."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

from nnc.base.options import Options
from nnc.base.size import hint
from nnc.base.target import Target
from nnc.device import machine_of
from nnc.graph import Graph, Node, Symbol, register_pass
from nnc.graph.passes import Fact
from nnc.graph.registry import weight
from nnc.lower.kernels.domain import can_fuse, is_view

_SMALL = 64  # a value that takes this part of another's bytes is read for nothing


@register_pass("rematerialize_in_consumers", requires=[Fact.ORDERED], invalidates=[Fact.KERNELS])
def rematerialize_in_consumers(graph: Graph, options: Options) -> Graph:
    """Gives each reader its own copy of a command that computes a value from one value in memory and few numbers.

    The centred activations of a batch norm are the case in point: the variance, the result and the gradient read x and its mean
    instead, and the centred values are never written. A value is in memory if no elementwise command makes it, or if it is read
    again behind a command that cannot be part of a kernel. Sub-graphs stay as they are.

    Provides: `_fusable`, the nodes of which it was found out whether they can be part of a kernel, if it was.
    Ensures: the same values bit for bit; no more bytes are live, but for the few numbers.

    Example:
        y = sub(x, m); … a = square(y); … b = mul(y, s)
        →  y1 = sub(x, m); a = square(y1); … y2 = sub(x, m); b = mul(y2, s)
    """
    if not options.native:
        return graph
    machine = machine_of(options)
    candidates = [node for node in graph.nodes if _is_light(node, machine)]
    return _Spread(graph, machine).result(candidates) if candidates else graph


def _is_light(node: Node, machine: Target) -> bool:
    """Whether a node makes something large by a command that is no work."""
    return weight.get(node.command) == 1 and hint(node.outputs[0].spec.nbytes) >= machine.memory.cached_bytes


def key_of(node: Node) -> tuple[object, ...]:
    """Returns a key that is equal for two nodes that compute the same; both zeros are equal as numbers, but not as keys."""
    return node.command, node.inputs, tuple([(name, repr(value)) for name, value in sorted(node.params.items())])


def repeated(graph: Graph, machine: Target) -> set[Symbol]:
    """Returns results of light commands that another node computes, too."""
    found: dict[tuple[object, ...], list[Symbol]] = {}
    for node in graph.nodes:
        if _is_light(node, machine):
            found.setdefault(key_of(node), []).append(node.outputs[0])
    return {symbol for symbols in found.values() if len(symbols) > 1 for symbol in symbols}


class _Spread:
    """One run of the pass."""

    def __init__(self, graph: Graph, machine: Target) -> None:
        self.graph, self.machine, self.outputs = graph, machine, frozenset(graph.outputs)
        self.fusable: dict[Node, bool] = {}
        self.writer = {symbol: i for i, node in enumerate(graph.nodes) for symbol in node.outputs}
        self.readers: dict[Symbol, list[int]] = {}
        for i, node in enumerate(graph.nodes):
            for symbol in node.inputs:
                self.readers.setdefault(symbol, []).append(i)

    def can_fuse(self, node: Node) -> bool:
        """Whether a node can be part of a kernel."""
        found = self.fusable.get(node)
        if found is None:
            found = self.fusable[node] = can_fuse(node, self.machine)
        return found

    @cached_property
    def stages(self) -> list[int]:
        """Counts, for each node, the nodes before it that cannot be in a kernel."""
        return list(accumulate([not self.can_fuse(node) for node in self.graph.nodes], initial=0))

    def result(self, candidates: Sequence[Node]) -> Graph:
        """Returns the new graph; the same where none of the candidates is such a value."""
        chosen: dict[Symbol, Node] = {}
        for node in candidates:
            if chosen.keys().isdisjoint(node.inputs) and self._is_chosen(node):
                chosen[node.outputs[0]] = node
        if not chosen:
            return self.graph.with_attrs(_fusable=self.fusable)
        nodes: list[Node] = []
        for node in self.graph.nodes:
            if not chosen.keys().isdisjoint(node.inputs):
                copies = {s: Symbol(s.spec, s.name) for s in node.inputs if s in chosen}
                nodes += [chosen[symbol].update(outputs=(copy,)) for symbol, copy in copies.items()]
                nodes.append(node.update(inputs=tuple([copies.get(s, s) for s in node.inputs])))
            elif chosen.keys().isdisjoint(node.outputs):
                nodes.append(node)
        return self.graph.update(nodes=tuple(nodes)).with_attrs(_fusable=self.fusable)

    def _is_chosen(self, node: Node) -> bool:
        (out,) = node.outputs
        if out in self.outputs or not self.can_fuse(node):
            return False
        readers = {self.graph.nodes[i] for i in self.readers.get(out, ())}
        if any(is_view(reader) or not self.can_fuse(reader) for reader in readers):
            return False
        large = [
            s for s in dict.fromkeys(node.inputs) if hint(self._root(s).spec.nbytes) * _SMALL > hint(out.spec.nbytes)
        ]
        if len(large) != 1 or hint(large[0].spec.nbytes) > hint(out.spec.nbytes):
            return False
        return self._is_in_memory(large[0]) if len(readers) > 1 else self._is_kept(large[0])

    def _root(self, symbol: Symbol) -> Symbol:
        """Returns the symbol that a view shows."""
        while (i := self.writer.get(symbol)) is not None and is_view(self.graph.nodes[i]):
            symbol = self.graph.nodes[i].inputs[0]
        return symbol

    def _is_in_memory(self, symbol: Symbol) -> bool:
        """Whether there is no kernel of elementwise commands that makes it and might keep it to itself."""
        i = self.writer.get(symbol)
        return i is None or not self.can_fuse(self.graph.nodes[i]) or self._is_kept(symbol)

    def _is_kept(self, symbol: Symbol) -> bool:
        """Whether a kernel makes it that others must read later."""
        i = self.writer.get(symbol)
        if i is None or not self.can_fuse(self.graph.nodes[i]):
            return False
        return self.stages[i] < self.stages[self.readers[symbol][-1]]
