"""Strides of views: which symbols need no memory of their own, since they show another's elements in another order.

The column `restride` says how a view command moves offset and strides; a command without a cell is run, and copies.
"""

from __future__ import annotations

from collections.abc import Callable

import nnc.commands.shape  # noqa: F401  (registers the commands whose cells are filled here)
from nnc.commands.rules import alias, inplace
from nnc.graph import Attribute, Graph, Node, Symbol, TensorSpec
from nnc.lower.stages import Strides, SymbolView, is_contiguous, row_major

Axes = tuple[int, ...]
Restride = Callable[..., tuple[int, Strides] | None]

restride: Attribute[Restride] = Attribute(
    "restride", "(spec, out, strides, **params) -> (bytes to skip, strides), or None where only a copy will do"
)


def find_views(graph: Graph) -> dict[Symbol, SymbolView]:
    """The view of each symbol of `graph` (without its sub-graphs'); those that own memory view themselves."""
    views = {symbol: SymbolView.whole(symbol) for symbol in (*graph.inputs, *graph.constants)}
    outputs = set(graph.outputs)
    for node in graph.nodes:
        for symbol in node.outputs:
            views[symbol] = SymbolView.whole(symbol)
        shared = _shared_view(node, views, outputs)
        if shared is not None:
            views[node.outputs[0]] = shared
    return views


def _shared_view(node: Node, views: dict[Symbol, SymbolView], outputs: set[Symbol]) -> SymbolView | None:
    """The view through which output 0 of `node` needs no memory; None where the node must run."""
    if len(node.outputs) != 1 or node.graphs:
        return None
    out = node.outputs[0]
    facts = inplace.get(node.command, None)
    if facts is not None and facts.identity and out not in outputs:  # a graph's output has memory of its own
        return views[node.inputs[facts.identity[0]]]
    if alias.get(node.command, None) != "view" or node.command not in restride:
        return None
    source = views[node.inputs[0]]
    if out.spec.size == 0:
        return None
    moved = restride[node.command](source.spec, out.spec, source.strides, **node.params)
    if moved is None:
        return None
    skipped, strides = moved
    if is_contiguous(out.spec, strides):
        strides = row_major(out.spec)
    return SymbolView(source.base, out.spec, source.offset + skipped, strides)


def _transpose(spec: TensorSpec, out: TensorSpec, strides: Strides, *, permutation: Axes) -> tuple[int, Strides]:
    return 0, tuple(strides[axis] for axis in permutation)


def _slice(
    spec: TensorSpec, out: TensorSpec, strides: Strides, *, start: Axes, limit: Axes, stride: Axes
) -> tuple[int, Strides]:
    skipped = sum(a * step for a, step in zip(start, strides, strict=True))
    return skipped, tuple(s * step for s, step in zip(stride, strides, strict=True))


def _flip(spec: TensorSpec, out: TensorSpec, strides: Strides, *, axes: Axes) -> tuple[int, Strides]:
    flipped = {axis % spec.ndim for axis in axes}
    skipped = sum((spec.shape[axis] - 1) * strides[axis] for axis in flipped)
    return skipped, tuple(-step if axis in flipped else step for axis, step in enumerate(strides))


def _broadcast(
    spec: TensorSpec, out: TensorSpec, strides: Strides, *, shape: Axes, axes: Axes | None = None
) -> tuple[int, Strides]:
    where = axes if axes is not None else range(out.ndim - spec.ndim, out.ndim)
    result = [0] * out.ndim
    for axis, n, step in zip(where, spec.shape, strides, strict=True):
        result[axis] = step if n == out.shape[axis] else 0
    return 0, tuple(result)


def _reshape(spec: TensorSpec, out: TensorSpec, strides: Strides, *, shape: Axes) -> tuple[int, Strides] | None:
    """Merges axes that lie evenly in memory into runs and cuts these into the new axes; None where one crosses runs."""
    runs: list[tuple[int, int]] = []
    for n, step in zip(spec.shape, strides, strict=True):
        if n == 1:
            continue
        if runs and runs[-1][1] == n * step:
            runs[-1] = (runs[-1][0] * n, step)
        else:
            runs.append((n, step))
    result: list[int] = []
    left, step, following = 1, spec.dtype.itemsize, iter(runs)
    for n in out.shape:
        if n == 1:
            result.append(left * step)
            continue
        if left == 1:
            left, step = next(following)
        if left % n:
            return None
        left //= n
        result.append(left * step)
    return 0, tuple(result)


for _name, _rule in (
    ("transpose", _transpose),
    ("slice", _slice),
    ("flip", _flip),
    ("broadcast_to", _broadcast),
    ("reshape", _reshape),
):
    restride.set(_name, _rule)
