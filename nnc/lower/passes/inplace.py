"""Lets nodes write over inputs that nothing reads any more."""

from __future__ import annotations

from collections.abc import Mapping

from nnc.commands.rules import InPlace, inplace
from nnc.graph import Graph, Node, Symbol, register_pass
from nnc.lower.stages import SymbolView
from nnc.options import Options

_NOTHING = InPlace()
_FOREVER = 2**62


@register_pass("inplace", needs=("views",), provides=("inplace",))
def choose_inplace(graph: Graph, options: Options) -> Graph:
    """Computes the attribute "inplace": symbol → the base symbol whose memory it takes over.

    Requires: views; the order of the nodes is final.
    Ensures:  the memory taken over is read by no later node, holds as many bytes, and is no argument (unless donated),
              no constant and no output of the graph.
    Example:  a = exp(x); b = neg(a); return b  →  inplace[b] = a
    """
    views: Mapping[Symbol, SymbolView] = graph.attrs["views"]
    fixed = {*graph.inputs, *graph.constants} - {graph.inputs[i] for i in options.donated}
    owner: dict[Symbol, Symbol] = {}  # base -> the base whose memory it has taken over
    last = last_reads(graph, views)
    chosen: dict[Symbol, Symbol] = {}
    for position, node in enumerate(graph.nodes):
        for output, symbol in enumerate(node.outputs):
            if views[symbol].base is not symbol or symbol.spec.nbytes == 0:
                continue
            for i in _candidates(node, output):
                view = views[node.inputs[i]]
                memory = owner.get(view.base, view.base)
                free = memory not in fixed and last.get(memory, -1) == position
                if free and _fits(view, symbol) and _reads_alike(node, i, output, views, owner):
                    chosen[symbol], owner[symbol] = view.base, memory
                    last[memory] = last.get(symbol, position)
                    if last[memory] == position:
                        last[memory] = position + 1  # a dead output: no other output of this node may take it too
                    break
    return graph.with_attrs(inplace=chosen)


def last_reads(graph: Graph, views: Mapping[Symbol, SymbolView]) -> dict[Symbol, int]:
    """For each base, the position of the last node that reads it through any view; outputs are read for ever."""
    last: dict[Symbol, int] = {}
    for position, node in enumerate(graph.nodes):
        if runs(node, views):
            for symbol in node.inputs:
                last[views[symbol].base] = position
    for symbol in graph.outputs:
        last[views[symbol].base] = _FOREVER
    return last


def runs(node: Node, views: Mapping[Symbol, SymbolView]) -> bool:
    """Whether a node does something at run time: it is more than a view."""
    return not node.outputs or any(views[symbol].base is symbol for symbol in node.outputs)


def _candidates(node: Node, output: int) -> list[int]:
    pairs = inplace.get(node.command, _NOTHING).overwrite
    return [i for i, j in pairs if j == output and i < len(node.inputs)]


def _fits(view: SymbolView, symbol: Symbol) -> bool:
    return view.spec.shape == symbol.spec.shape and view.spec.dtype.itemsize == symbol.spec.dtype.itemsize


def _reads_alike(
    node: Node, chosen: int, output: int, views: Mapping[Symbol, SymbolView], owner: Mapping[Symbol, Symbol]
) -> bool:
    """Whether every input in that memory shows all of it in row-major order, and may be overwritten."""
    base = views[node.inputs[chosen]].base
    memory = owner.get(base, base)
    allowed = _candidates(node, output)
    for i, symbol in enumerate(node.inputs):
        view = views[symbol]
        if owner.get(view.base, view.base) is memory and not (i in allowed and view.is_whole):
            return False
    return True
