"""Joins reductions between processes into buckets: one message for the gradients of many weights.

A message costs some microseconds however short it is, and large ones are fastest in pieces that stay in the cache: an all-reduce
of 64 MiB between 2 processes took 63 ms at once and 45 to 50 ms in pieces of 1 to 16 MiB (MPICH, two cores, 2026-11-22). Buckets
fill in the order in which the backward pass makes gradients (Sergeev and Del Balso, "Horovod", 2018; Li et al., "PyTorch
Distributed", 2020). Since the graph is the same in all processes, they need not agree on buckets when the program runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from nnc.base.options import Options
from nnc.base.records import record
from nnc.commands.collective import BY_ELEMENTS
from nnc.graph import Graph, Node, Symbol, TensorSpec, command
from nnc.graph.builder import infer_specs
from nnc.graph.registry import effect
from nnc.graph.remake import OncePerGraph

BUCKET_BYTES = 1 << 21  # bytes of a bucket; see above


def buckets(graph: Graph, options: Options) -> Graph:
    """Joins sums, or other reductions element by element, over the same processes, as long as they fit a bucket.

    Only reductions that do not depend on one another are joined. Each stands where its operand is made, a bucket where the last one
    is, and the nodes that read earlier ones move behind it; other nodes with effects keep their order.

    Ensures: two reductions of a kind that are independent of each other and fit a bucket together, with those between, are one.

    Example:
        a = psum(x); b = psum(y)  →  j = psum(concatenate(x, y)); a = j[:n]; b = j[n:]
    """
    return _Buckets().graph(graph)


@record
class _Cluster:
    """Nodes that stay together, the symbols that they read and write, and whether they have an effect whose order counts."""

    nodes: tuple[Node, ...]
    reads: frozenset[Symbol]
    writes: frozenset[Symbol]
    acts: bool = False


class _Buckets(OncePerGraph):
    def rewrite(self, graph: Graph) -> Graph:
        nodes = _early([self.renew(node, {}) for node in graph.nodes])
        groups = [group for group in _groups(nodes) if len(group) > 1]
        if groups:
            nodes = _in_order(nodes, groups)
        if len(nodes) == len(graph.nodes) and all(a is b for a, b in zip(nodes, graph.nodes, strict=True)):
            return graph
        return graph.update(nodes=tuple(nodes))


def _is_reduction(node: Node) -> bool:
    """Whether a node reduces element by element between processes."""
    return node.command.name in BY_ELEMENTS and bool(node.params.get("stride", 0))


def _early(nodes: Sequence[Node]) -> list[Node]:
    """Returns the nodes with each reduction behind the node that makes its operand."""
    places: dict[Symbol, int] = {}
    keys: list[tuple[int, bool]] = []
    for i, node in enumerate(nodes):
        sends = _is_reduction(node)
        keys.append((max((places.get(symbol, -1) for symbol in node.inputs), default=-1) if sends else i, sends))
        places.update(dict.fromkeys(node.outputs, keys[-1][0]))
    return [nodes[i] for i in sorted(range(len(nodes)), key=keys.__getitem__)]


def _groups(nodes: Sequence[Node]) -> list[list[Node]]:
    """Reductions that become one each, in the order of the nodes.

    The level of a value is the number of reductions on the longest way to it: those of one level are independent.
    """
    levels: dict[Symbol, int] = {}
    open_groups: dict[Any, list[Node]] = {}
    groups: list[list[Node]] = []
    for node in nodes:
        level = max((levels.get(symbol, 0) for symbol in node.inputs), default=0)
        if _is_reduction(node):
            key = node.command, node.params["size"], node.params["stride"], node.outputs[0].dtype, level
            group = open_groups.get(key)
            if group is None or _bytes([*group, node]) > BUCKET_BYTES:
                group = open_groups[key] = []
                groups.append(group)
            group.append(node)
            level += 1
        levels.update(dict.fromkeys(node.outputs, level))
    return groups


def _bytes(group: Sequence[Node]) -> int:
    return sum(node.outputs[0].spec.nbytes for node in group)


def _in_order(nodes: Sequence[Node], groups: Sequence[Sequence[Node]]) -> list[Node]:
    """Returns the nodes with each group as one reduction at the place of its last node, and readers of the others behind it."""
    last = {id(group[-1]): group for group in groups}
    earlier = {id(node) for group in groups for node in group[:-1]}
    made: list[Node] = []
    deferred: list[_Cluster] = []
    missing: set[Symbol] = set()
    for node in nodes:
        if id(node) in earlier:
            missing.update(node.outputs)
            continue
        deferred.append(_bucket(last[id(node)]) if id(node) in last else _item(node))
        missing |= deferred[-1].writes
        while (ready := _first_ready(deferred, missing)) is not None:
            deferred.remove(ready)
            made += ready.nodes
            missing -= ready.writes
    return made


def _first_ready(deferred: Sequence[_Cluster], missing: set[Symbol]) -> _Cluster | None:
    """Returns the first item whose operands are all made, and whose effect is due."""
    acts = False
    for item in deferred:
        if item.reads.isdisjoint(missing) and not (item.acts and acts):
            return item
        acts = acts or item.acts
    return None


def _item(node: Node) -> _Cluster:
    inner = (each.command for graph in node.graphs for each in graph.walk())
    kinds = {effect.get(each, None) for each in (node.command, *inner)} - {None, "random", "collective"}
    return _Cluster((node,), frozenset(node.inputs), frozenset(node.outputs), bool(kinds))


def _bucket(group: Sequence[Node]) -> _Cluster:
    """Returns the nodes of one reduction of the joined operands, which yield the results of all."""
    made: list[Node] = []
    source = group[-1].source

    def make(name: str, *inputs: Symbol, out: Symbol | None = None, **params: Any) -> Symbol:
        if out is None:
            (spec,) = infer_specs(command(name), tuple(symbol.spec for symbol in inputs), params)
            out = Symbol(spec)
        made.append(Node(command(name), inputs, (out,), MappingProxyType(params), source=source))
        return out

    flat = [_flat(make, node.inputs[0]) for node in group]
    joined = make("concatenate", *flat, axis=0)
    total = make(group[0].command.name, joined, group[-1].inputs[1], **group[-1].params)
    at = 0
    for node in group:
        (out,) = node.outputs
        end = at + out.spec.size
        cut: dict[str, Any] = {"start": (at,), "limit": (end,), "stride": (1,)}
        if out.shape == (out.spec.size,):
            make("slice", total, out=out, **cut)
        else:
            make("reshape", make("slice", total, **cut), out=out, shape=out.shape)
        at = end
    reads = frozenset(symbol for node in group for symbol in node.inputs)
    return _Cluster(tuple(made), reads, frozenset(symbol for node in group for symbol in node.outputs))


def _flat(make: Any, x: Symbol) -> Symbol:
    spec: TensorSpec = x.spec
    return x if x.shape == (spec.size,) else make("reshape", x, shape=(spec.size,))
