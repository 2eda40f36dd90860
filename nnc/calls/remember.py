"""Caches results of functions of graphs, for as long as the graphs live."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from nnc.graph.graph import Graph

P = ParamSpec("P")
T = TypeVar("T")


def remembered(function: Callable[Concatenate[Graph, P], T]) -> Callable[Concatenate[Graph, P], T]:
    """Calls a function once for each graph and further arguments, which are given by position and have hashes.

    The result must not hold the graph, which would then live for ever.
    """
    known: WeakKeyDictionary[Graph, dict[tuple[object, ...], T]] = WeakKeyDictionary()

    @wraps(function)
    def ask(graph: Graph, /, *args: P.args, **kwargs: P.kwargs) -> T:
        found = known.get(graph)
        if found is None:
            found = known[graph] = {}
        if args not in found:
            found[args] = function(graph, *args, **kwargs)
        return found[args]

    return ask
