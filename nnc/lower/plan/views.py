"""Strides of views: finds results that need no memory of their own, since they show another tensor's elements in another order.

The column `restride` says how a view command moves offset and strides; the column `alias` says it for views that keep their
axes whole. A command with neither column runs, and copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import nnc.commands.shape  # noqa: F401  (registers the commands whose cells are filled here)
from nnc.commands.properties import axes_of
from nnc.commands.rules import in_place_of
from nnc.graph import Attribute, Command, Graph, Node, Symbol, TensorSpec
from nnc.graph.registry import alias, inplace
from nnc.lower.plan.stages import Step, Strides, SymbolView, View, is_contiguous, row_major

Axes = tuple[int, ...]
Restride = Callable[..., tuple[int, Strides] | None]
_EMPTY: Mapping[Symbol, SymbolView] = MappingProxyType({})

restride: Attribute[Restride] = Attribute(
    "restride", "(spec, out, strides, **params) -> (bytes to skip, strides), or None where only a copy will do"
)


def find_views(graph: Graph, known: Mapping[Symbol, SymbolView] = _EMPTY) -> dict[Symbol, SymbolView]:
    """Finds the view of each symbol of `graph` (without its sub-graphs'); symbols that own memory view themselves.

    Args:
        known: the views of symbols, some of which are in the graph; the result contains all of them.
    """
    given = [symbol for symbol in (*graph.inputs, *graph.constants) if symbol not in known]
    views = {**known, **{symbol: SymbolView.whole(symbol) for symbol in given}}
    shares: dict[Command, bool] = {}
    for node in graph.nodes:
        command, outputs = node.command, node.outputs
        if outputs and outputs[0] in known:
            continue
        if command not in shares:
            shares[command] = _ever_shares(command)
        shared = _shared_memory(node, views) if shares[command] else None
        if shared is not None:
            views[outputs[0]] = shared
        else:
            for symbol in outputs:
                views[symbol] = SymbolView.whole(symbol)
    return views


def _shared_memory(node: Node, views: Mapping[Symbol, SymbolView]) -> SymbolView | None:
    """Output 0 of a node as a view of an input's memory; None where the node must run."""
    sources = [views[symbol] for symbol in node.inputs]
    place = _shared_place(node, sources)
    return SymbolView(sources[place[0]].base, *place[1:]) if place is not None else None


def runs(node: Node, views: Mapping[Symbol, SymbolView]) -> bool:
    """Whether a node does something at run time: it is more than a view."""
    for symbol in node.outputs:
        if views[symbol].base is symbol:
            return True
    return not node.outputs


def _ever_shares(command: Command) -> bool:
    """Whether there are nodes of a command whose output may be a view of an input."""
    rule = inplace.get(command, None)
    return callable(rule) or bool(rule and rule.identity) or _is_view(command)


def _is_view(command: Command) -> bool:
    return command in alias and command in restride


def may_share(node: Node) -> bool:
    """Whether output 0 of a node may be a view of an input, according to the command."""
    if len(node.outputs) != 1 or node.graphs:
        return False
    return _is_view(node.command) or bool(in_place_of(node.command, node.params).identity)


def shared_view(node: Node, sources: Sequence[View]) -> View | None:
    """Returns output 0 of `node` as a view of its inputs' memory; None where the node must run.

    Args:
        sources: the place of each input of the node.
    """
    place = _shared_place(node, sources)
    return sources[place[0]].show(*place[1:]) if place is not None else None


def _shared_place(
    node: Node, sources: Sequence[View] | Sequence[SymbolView]
) -> tuple[int, TensorSpec, int, Strides] | None:
    """Returns the input in whose memory output 0 of `node` is a view, and its spec, offset and strides there; None where it
    must run.
    """
    if not may_share(node):
        return None
    identity = in_place_of(node.command, node.params).identity
    if identity:
        same = sources[identity[0]]
        return identity[0], same.spec, same.offset, same.strides
    source, out = sources[0], node.outputs[0].spec
    if out.size == 0:
        return None
    moved = restride[node.command](source.spec, out, source.strides, **node.params)
    if moved is None:
        return None
    skipped, strides = moved
    if is_contiguous(out, strides):
        strides = row_major(out)
    return 0, out, source.offset + skipped, strides


def within(view: View, place: View) -> View | None:
    """Returns a view of a tensor that lies at `place`, as a view of the enclosing tensor; None if its elements are not evenly
    spaced there.
    """
    if place.is_dense:
        return replace(view, buffer=place.buffer, offset=place.offset + view.offset)
    if view.advances:
        return None
    if view.covers(place.spec.nbytes):
        moved = _reshape(place.spec, view.spec, place.strides, shape=view.spec.shape)
        return place.show(view.spec, place.offset, moved[1]) if moved is not None else None
    at, rest = place.offset, view.offset
    # by a dense tensor's stride: elements left along that axis, the stride at `place`
    room: dict[int, tuple[int, int]] = {}
    for n, dense, stride in zip(place.spec.shape, row_major(place.spec), place.strides, strict=True):
        if n > 1:
            index, rest = divmod(rest, dense)
            at += index * stride
            room[dense] = n - index, stride
    strides = []
    for n, step in zip(view.spec.shape, view.strides, strict=True):
        if n == 1 or not step:
            strides.append(0)
            continue
        axes = [dense for dense in room if dense <= step and step % dense == 0]
        if not axes:
            return None
        times = step // max(axes)
        left, stride = room.pop(max(axes))
        if (n - 1) * times >= left:
            return None
        strides.append(stride * times)
    return place.show(view.spec, at, tuple(strides))


def _follow_axes(command: Command) -> None:
    """Has views that keep their axes whole restride by these."""
    axes = axes_of(command)
    if axes is None:
        return

    def rule(spec: TensorSpec, out: TensorSpec, strides: Strides, **params: Any) -> tuple[int, Strides] | None:
        pairs = axes(spec, out, **params)
        if pairs is None:
            return None
        result = [0] * out.ndim
        for axis, place in pairs:
            result[place] = strides[axis] if spec.shape[axis] == out.shape[place] else 0
        return 0, tuple(result)

    restride.set(command, rule, priority=0)


def _slice(
    spec: TensorSpec, out: TensorSpec, strides: Strides, *, start: Axes, limit: Axes, stride: Axes
) -> tuple[int, Strides]:
    skipped = sum(a * step for a, step in zip(start, strides, strict=True))
    return skipped, tuple(s * step for s, step in zip(stride, strides, strict=True))


def _flip(spec: TensorSpec, out: TensorSpec, strides: Strides, *, axes: Axes) -> tuple[int, Strides]:
    flipped = {axis % spec.ndim for axis in axes}
    skipped = sum((spec.shape[axis] - 1) * strides[axis] for axis in flipped)
    return skipped, tuple(-step if axis in flipped else step for axis, step in enumerate(strides))


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


alias.follow(_follow_axes)
restride.set("slice", _slice)
restride.set("flip", _flip)
restride.set("reshape", _reshape)


# -- of operands and results that commands copy which move elements without computing ------------------------------------


def shown(step: Step, in_order: bool) -> tuple[View, View] | None:
    """Returns the one operand of a step in the shape in which it is copied, and the result in that shape; None where only the
    reference can.

    View commands, where they must run, copy the operand as the view would show it.

    Args:
        in_order: whether the result has the operand's elements in their order.
    """
    if len(step.inputs) != 1:
        return None
    (x,), (out,), show = step.inputs, step.outputs, restride.get(step.command)
    offset, strides = 0, out.strides
    if show is None:
        strides = tuple(x.strides[axis] for axis in step.params.get("permutation", range(x.spec.ndim)))
    elif out.spec.size:
        found = show(x.spec, out.spec, x.strides, **step.params)
        if found is None and in_order and is_contiguous(out.spec, out.strides):
            return x, out.show(x.spec, out.offset, row_major(x.spec))
        if found is None and in_order:  # the result may have the operand's shape where it lies
            back = show(out.spec, x.spec, out.strides, shape=x.spec.shape)
            return None if back is None else (x, out.show(x.spec, out.offset + back[0], back[1]))
        if found is None:
            return None
        offset, strides = found
    return x.show(out.spec, x.offset + offset, strides), out


def joined(step: Step) -> Iterator[tuple[View, View]]:
    """Yields the operands of a `concatenate`, each with its part of the result."""
    (out,), at = step.outputs, 0
    axis = step.params["axis"] % out.spec.ndim
    for part in step.inputs:
        yield part, out.show(part.spec, out.offset + at * out.strides[axis], out.strides)
        at += part.spec.shape[axis]


def inner_part(step: Step) -> View:
    """Returns the part of a `pad`'s result where the operand's elements come to stand."""
    x, out = step.inputs[0], step.outputs[0]
    start = sum(low * stride for low, stride in zip(step.params["low"], out.strides, strict=True))
    strides = tuple((gap + 1) * stride for gap, stride in zip(step.params["interior"], out.strides, strict=True))
    return out.show(x.spec, out.offset + start, strides)
