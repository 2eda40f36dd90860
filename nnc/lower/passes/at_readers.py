"""Makes values that are no more work than a read where they are read, so that memory does not hold them, too."""

from __future__ import annotations

from nnc.graph import Graph, Node, Symbol, register_pass
from nnc.lower.codegen.domain import can_fuse, is_view
from nnc.options import Options

_COMMANDS = frozenset({"add", "sub", "mul", "safe_mul", "neg", "convert"})
_LEAST = 1 << 18  # bytes; smaller values stay in the caches
_SMALL = 64  # a value that takes this part of another's bytes is read for nothing


@register_pass("at_readers")
def at_readers(graph: Graph, options: Options) -> Graph:
    """Gives each reader its own copy of what one command makes of a value in memory and of few numbers.

    The centred activations of a batch norm are the case in point: the variance, the result and the gradient read x and its mean
    instead, and the centred values are never written. In memory is what no elementwise command makes, and what is read again behind
    a command that cannot be part of a kernel. Sub-graphs stay as they are.

    Requires: `fuse` follows, which takes copies into the kernels that read them.
    Ensures:  the same values bit for bit; no more bytes are live, but for the few numbers.
    Example:  y = sub(x, m); … a = square(y); … b = mul(y, s)  →  y1 = sub(x, m); a = square(y1); … y2 = sub(x, m); b = mul(y2, s)
    """
    return _Spread(graph).result() if options.native else graph


def key_of(node: Node) -> tuple[object, ...]:
    """What two nodes that compute the same agree in."""
    return node.command, node.inputs, tuple(sorted(node.params.items()))


def repeated(graph: Graph) -> set[Node]:
    """The nodes of such commands that compute what another one does."""
    found: dict[tuple[object, ...], list[Node]] = {}
    for node in graph.nodes:
        if node.command.name in _COMMANDS and node.outputs[0].spec.nbytes >= _LEAST:
            found.setdefault(key_of(node), []).append(node)
    return {node for nodes in found.values() if len(nodes) > 1 for node in nodes}


class _Spread:
    """One run of the pass."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.writer = {symbol: node for node in graph.nodes for symbol in node.outputs}
        self.readers: dict[Symbol, list[Node]] = {}
        self.stage: dict[Node, int] = {}  # how many nodes that cannot be in a kernel stand before
        stage = 0
        for node in graph.nodes:
            self.stage[node] = stage
            stage += not can_fuse(node)
            for symbol in dict.fromkeys(node.inputs):
                self.readers.setdefault(symbol, []).append(node)

    def result(self) -> Graph:
        """The new graph; the same where there is no such value."""
        chosen: dict[Symbol, Node] = {}
        for node in self.graph.nodes:
            if chosen.keys().isdisjoint(node.inputs) and self._is_chosen(node):
                chosen[node.outputs[0]] = node
        if not chosen:
            return self.graph
        nodes: list[Node] = []
        for node in self.graph.nodes:
            if any(symbol in chosen for symbol in node.outputs):
                continue
            copies: dict[Symbol, Symbol] = {}
            for symbol in dict.fromkeys(node.inputs):
                if symbol in chosen:
                    copies[symbol] = Symbol(symbol.spec, symbol.name)
                    nodes.append(chosen[symbol].update(outputs=(copies[symbol],)))
            nodes.append(node.update(inputs=tuple(copies.get(s, s) for s in node.inputs)) if copies else node)
        return self.graph.update(nodes=tuple(nodes))

    def _is_chosen(self, node: Node) -> bool:
        if node.command.name not in _COMMANDS or len(node.outputs) != 1 or not can_fuse(node):
            return False
        (out,) = node.outputs
        readers = self.readers.get(out, ())
        if out.spec.nbytes < _LEAST or out in self.graph.outputs:
            return False
        if any(is_view(reader) or not can_fuse(reader) for reader in readers):
            return False
        large = [s for s in dict.fromkeys(node.inputs) if self._root(s).spec.nbytes * _SMALL > out.spec.nbytes]
        if len(large) != 1 or large[0].spec.nbytes > out.spec.nbytes:
            return False
        return self._is_in_memory(large[0]) if len(readers) > 1 else self._is_kept(large[0])

    def _root(self, symbol: Symbol) -> Symbol:
        """What a symbol is a view of."""
        node = self.writer.get(symbol)
        while node is not None and is_view(node):
            symbol = node.inputs[0]
            node = self.writer.get(symbol)
        return symbol

    def _is_in_memory(self, symbol: Symbol) -> bool:
        """Whether there is no kernel of elementwise commands that makes it and might keep it to itself."""
        node = self.writer.get(symbol)
        return node is None or not can_fuse(node) or self._is_kept(symbol)

    def _is_kept(self, symbol: Symbol) -> bool:
        """Whether a kernel makes it that others must read later."""
        node = self.writer.get(symbol)
        last = self.readers[symbol][-1]
        return node is not None and can_fuse(node) and self.stage[node] < self.stage[last]
