"""Takes work out of a program that can be done once for many calls: packing arrays that are passed again and again."""

from __future__ import annotations

from collections.abc import Mapping

from nnc.base.options import Options
from nnc.commands.pack import pack
from nnc.graph import Graph, Symbol, register_pass
from nnc.graph.passes import Fact


@register_pass("keep_packed", provides=("kept",), requires=[Fact.PACKED, Fact.ORDERED])
def keep_packed(graph: Graph, options: Options) -> Graph:
    """Makes the results of `pack` nodes that read inputs further inputs, if the caller of the program can keep them between calls.

    Requires: nothing that follows tells these inputs from others.
    Ensures:  the attribute "kept": for each new input (they stand last) the position of the input that is packed, and its layout.

    Example:
        (x, w): p = pack(w){layout=…}; return conv(x, p)  →  (x, w, p): return conv(x, p)
    """
    positions = lasting_inputs(graph, options)
    kept = [node for node in graph.nodes if node.command is pack and node.inputs[0] in positions]
    kept.sort(key=lambda node: positions[node.inputs[0]])
    if not kept:
        return graph.with_attrs(kept=())
    made = {node.outputs[0]: (positions[node.inputs[0]], node.params["layout"]) for node in kept}
    nodes = tuple(node for node in graph.nodes if not made.keys() & node.outputs)
    return graph.update(inputs=(*graph.inputs, *made), nodes=nodes).with_attrs(kept=tuple(made.values()))


def lasting_inputs(graph: Graph, options: Options) -> Mapping[Symbol, int]:
    """Finds the inputs that are likely to be the same in many calls, and their positions.

    The caller can keep packed forms of them. An input with the shape and dtype of an output changes, in all likelihood: it is
    a parameter for which there is a gradient or a new value. A program that must fit into a budget keeps nothing, so that for it
    there are none.
    """
    if options.memory_budget is not None:
        return {}
    returned = {(symbol.spec.shape, symbol.spec.dtype) for symbol in graph.outputs}
    return {
        symbol: i
        for i, symbol in enumerate(graph.inputs)
        if i in options.keeps and (symbol.spec.shape, symbol.spec.dtype) not in returned
    }
