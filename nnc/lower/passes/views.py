"""Finds the symbols that need no memory, since they view others."""

from __future__ import annotations

from nnc.graph import Graph, register_pass
from nnc.lower.views import find_views
from nnc.options import Options


@register_pass("views", provides=("views",))
def add_views(graph: Graph, options: Options) -> Graph:
    """Computes the attribute "views": symbol → SymbolView, a base symbol with offset and strides.

    Requires: nothing.
    Ensures:  the node that writes a symbol whose base is another one need not run.
    Example:  y = transpose(x) of float32[2,3]  →  views[y] = (x, offset 0, strides (4, 12))
    """
    return graph.with_attrs(views=find_views(graph))
