"""The structural hash: equal for equal graphs, in every process and for every hash seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

import numpy as np

from nnc.errors import GraphError, user_error
from nnc.graph.graph import Graph, Node, Symbol
from nnc.graph.serialize import KNOWN_DTYPES, encode_value
from nnc.graph.spec import TensorSpec

__all__ = ["same_params", "structural_hash", "structurally_equal"]


def structural_hash(graph: Graph) -> str:
    """Returns the SHA-256, in hexadecimal, of the computation of `graph`.

    Depends on commands, parameters, specs, wiring, order of the nodes, bytes of the constants and sub-graphs; not on names,
    source lines, attributes, or the identity of symbols.

    Args:
        graph: any graph.

    Raises:
        GraphError: a parameter is of a type without a stable form (see `storable`).

    Example:
        >>> a, b = (make_graph(f)(nnp.ones(2)) for f in (lambda x: x + x, lambda y: y + y))
        >>> structural_hash(a) == structural_hash(b)
        True
    """
    return _digest(graph, {})


def _digest(graph: Graph, known: dict[Graph, str]) -> str:
    if graph not in known:
        lines = [token if type(token) is str else _digest(token, known) for token in _tokens(graph, _strict)]
        known[graph] = hashlib.sha256("\n".join([*lines, ""]).encode()).hexdigest()
    return known[graph]


def structurally_equal(a: Graph, b: Graph) -> bool:
    """Whether two graphs are equal in all that `structural_hash` depends on; parameters without a stable form by `==`.

    Args:
        a: a graph.
        b: another graph.

    Example:
        >>> structurally_equal(make_graph(nnp.sin)(1.0), make_graph(nnp.sin)(2.0))
        True
    """
    return _equal(a, b, {})


def _equal(a: Graph, b: Graph, known: dict[tuple[Graph, Graph], bool]) -> bool:
    if a is not b and (a, b) not in known:
        if len(a.nodes) != len(b.nodes):
            return False
        pairs = zip_longest(_tokens(a, _lenient), _tokens(b, _lenient))
        both = (_equal(x, y, known) if isinstance(x, Graph) and isinstance(y, Graph) else x == y for x, y in pairs)
        known[a, b] = all(both)
    return a is b or known[a, b]


def same_params(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two nodes' parameters are equal in value and type, so that 1, 1.0 and True differ, and 0.0 and -0.0.

    Args:
        a: parameters by name.
        b: parameters by name.

    Example:
        >>> same_params({"axis": 1}, {"axis": 1}), same_params({"axis": 1}, {"axis": True})
        (True, False)
    """
    return a.keys() == b.keys() and all(_same(value, b[name]) for name, value in a.items())


_PLAIN = frozenset({int, str, bool, type(None)})  # equal values of one type are the same
_SPELLED = _PLAIN | {float}  # whose `repr` says all


def _same(a: Any, b: Any) -> bool:
    if type(a) is type(b):
        if type(a) in _PLAIN:
            return bool(a == b)
        if type(a) is tuple:
            return len(a) == len(b) and all(map(_same, a, b))
    return bool(_lenient(None, "", a) == _lenient(None, "", b))


Encode = Callable[[Node | None, str, Any], Any]


def _strict(node: Node | None, name: str, value: Any) -> str:
    text = _plain_text(value)
    if text is not None:
        return f"{name}:{text}"
    try:
        return f"{name}={json.dumps(encode_value(value))}"
    except TypeError as error:
        where = f"a {node.command.name} node" if node is not None else "a node"
        problem = f"parameter {name!r} of {where} has no stable form: {error}."
        fix = "use plain values, tuples, dtypes, arrays or dataclasses marked with storable."
        raise user_error(
            GraphError, "structural_hash", problem, fix=fix, source=node.source if node is not None else None
        ) from error


def _lenient(node: Node | None, name: str, value: Any) -> Any:
    try:
        return f"{name}={json.dumps(encode_value(value))}"
    except TypeError:
        return name, value


def _plain_text(value: Any) -> str | None:
    """Returns a text that tells a value from all others, of types whose `repr` does; most parameters are of these. None for
    others.
    """
    kind = type(value)
    if kind in _SPELLED or (kind is tuple and _is_spelled(value)):
        return repr(value)
    return f"dtype {value.name}" if isinstance(value, np.dtype) and value in KNOWN_DTYPES else None


def _is_spelled(values: tuple[Any, ...]) -> bool:
    """Whether the `repr` of a tuple says all."""
    return all(type(x) in _SPELLED or (type(x) is tuple and _is_spelled(x)) for x in values)


def _tokens(graph: Graph, encode: Encode) -> list[Any]:
    """Returns the graph as a sequence in which symbols are numbered by first appearance; a sub-graph is one token."""
    constants = graph.constants
    numbers: dict[Symbol, str] = {}
    specs: dict[TensorSpec, str] = {}
    settings: dict[int, list[Any]] = {}  # by the identity of the parameters, which many nodes share

    def number(symbol: Symbol) -> str:
        """Returns the number of a symbol that appears; its spec is beside it, and of a constant the elements."""
        numbers[symbol] = found = str(len(numbers))
        spec = symbol.spec
        text = specs.get(spec)
        if text is None:
            text = specs[spec] = f"{spec.dtype.name}{list(spec.shape)}{spec.layout!r}"
        if symbol not in constants:
            return f"{found} {text}"
        return f"{found} {text} {hashlib.sha256(np.asarray(constants[symbol]).tobytes()).hexdigest()}"

    tokens: list[Any] = [f"graph {len(graph.inputs)} {len(constants)} {len(graph.nodes)} {len(graph.outputs)}"]
    tokens += [f"input {number(symbol)}" for symbol in graph.inputs]
    for node in graph.nodes:
        params, graphs = node.params, node.graphs
        read = ";".join([numbers.get(symbol) or number(symbol) for symbol in node.inputs])
        written = ";".join([number(symbol) for symbol in node.outputs])
        tokens.append(f"node {node.command.name} {len(params)} {len(graphs)} {read} to {written}")
        if params:
            told = settings.get(id(params))
            if told is None:
                told = settings[id(params)] = [encode(node, name, params[name]) for name in sorted(params)]
            tokens += told
        if graphs:
            tokens += graphs
    tokens += [f"return {numbers.get(symbol) or number(symbol)}" for symbol in graph.outputs]
    tokens += [f"unread {number(symbol)}" for symbol in constants if symbol not in numbers]
    return tokens
