"""Parts of tensors that are joined and cut: slices of joins, joins of slices, and tensors that are overwritten entirely.

The commands take any number of parts, so these are no equations of a fixed number of variables; each function here is one.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from nnc.base.options import Options
from nnc.commands.index import dynamic_slice, dynamic_update_slice
from nnc.commands.properties import boxes_of, is_view
from nnc.commands.shape import assemble, concatenate, slice_
from nnc.graph import Attribute, Box, Graph, Node, Symbol, register_pass
from nnc.graph.graph import NDArray
from nnc.graph.passes import Fact
from nnc.graph.registry import joined
from nnc.graph.remake import NewGraph, OncePerGraph, rewritten

Found = Node | Symbol | None

shortened: Attribute[Callable[[Node, KnownJoins], Found]] = Attribute(
    "shortened",
    "(node, what is known of the graph) -> the symbol or node that stands for a node of parts of tensors; None where it stays",
)


@register_pass("parts", concerns=shortened, requires=[Fact.FOLDED], invalidates=[Fact.NO_DEAD])
def parts(graph: Graph, options: Options) -> Graph:
    """Reads a part where it was made instead of from the joined tensor, and joins no tensor that was whole before.

    Ensures: no slice lies within one part of a join; no join has one part, or the neighbouring slices of one tensor that make a
        slice of it; a join begins with another that is made anyway, so that both can lie in the same memory, and else has
        no joins as parts; no part of an assembled tensor is zeros, nor a whole of it.

    Example:
        a = concatenate(x, y); b = slice(a) of the rows of y  →  a = concatenate(x, y); b = y
    """
    return rewritten(graph, KnownJoins)


def _slice(node: Node, known: KnownJoins) -> Found:
    """Replaces a slice that lies within one part of a join by a slice of that part."""
    join = known.writers.get(node.inputs[0])
    if join is None or join.command not in joined or not node.outputs[0].spec.size:
        return None
    start, limit = node.params["start"], node.params["limit"]
    wanted = Box(start, tuple(b - a for a, b in zip(start, limit, strict=True)))
    for symbol, box in zip(join.inputs, boxes_of(join), strict=True):
        if box.contains(wanted):
            if box == wanted and all(s == 1 for s in node.params["stride"]):
                return symbol
            moved = {
                "start": tuple(a - b for a, b in zip(start, box.start, strict=True)),
                "limit": tuple(a - b for a, b in zip(limit, box.start, strict=True)),
                "stride": node.params["stride"],
            }
            return node.update(inputs=(symbol,), params=MappingProxyType(moved))
    return None


class KnownJoins(NewGraph):
    """The new graph so far: the writers of symbols, and the nodes that join tensors along an axis, found by their first part."""

    def __init__(self, passes: OncePerGraph, graph: Graph) -> None:
        super().__init__(passes, graph)
        self.writers: dict[Symbol, Node] = {}
        self._first: dict[Symbol, tuple[Symbol, ...]] = {}  # operands of a node when it was counted
        self._parts: dict[tuple[int, Symbol], tuple[Symbol, ...]] = {}
        self._whole: dict[tuple[int, tuple[Symbol, ...]], Symbol] = {}
        self._lengths: dict[tuple[int, Symbol, Symbol], list[int]] = {}  # of joins that begin with two symbols

    def add(self, node: Node) -> None:
        """Appends a node, or the one that stands for it, unless a symbol does."""
        found = self.shorter(node)
        while isinstance(found, Node):
            node, found = found, self.shorter(found)
        if isinstance(found, Symbol):
            self.renamed[node.outputs[0]] = found
        else:
            self.nodes.append(node)
            self._note(node)

    def _note(self, node: Node) -> None:
        """Takes note of a node."""
        self.writers.update(dict.fromkeys(node.outputs, node))
        if node.command is not concatenate:
            return
        (out,), axis, parts = node.outputs, _axis(node), self._flat(node)
        self._parts[axis, out] = parts
        if len(parts) > 1 and (axis, parts) not in self._whole:
            self._whole[axis, parts] = out
            insort(self._lengths.setdefault((axis, parts[0], parts[1]), []), len(parts))

    def shorter(self, node: Node) -> Found:
        """Returns the symbol or node that stands for a node; None where it stays."""
        rule = shortened.get(node.command)
        return rule(node, self) if rule is not None else None

    def join(self, node: Node) -> Found:
        """Empty parts go; neighbouring slices of one tensor become one slice; joined joins become one, but for a first part
        that other nodes read, too: it can lie in the same memory.
        """
        (out,), axis, flat = node.outputs, _axis(node), self._flat(node)
        whole = _as_one_slice(list(flat), axis, self.writers)
        if whole is not None:
            base, params = whole
            if base.shape == out.shape:
                return base
            return node.update(command=slice_, inputs=(base,), params=MappingProxyType(params))
        if len(flat) == 1:
            return flat[0]
        inputs = self._beginning(node, axis, flat)
        return node.update(inputs=inputs) if inputs and inputs != node.inputs else None

    def _flat(self, node: Node) -> tuple[Symbol, ...]:
        axis = _axis(node)
        parts = (self._parts.get((axis, symbol), (symbol,)) for symbol in node.inputs if symbol.shape[axis])
        return tuple(symbol for symbols in parts for symbol in symbols)

    def _beginning(self, node: Node, axis: int, flat: tuple[Symbol, ...]) -> tuple[Symbol, ...]:
        """Returns the parts of a join, where the longest other join whose result others read stands for its parts in front."""
        read = self._first.setdefault(node.outputs[0], node.inputs)
        for length in reversed(self._lengths.get((axis, flat[0], flat[1]), ()) if len(flat) > 2 else ()):
            join = self._whole.get((axis, flat[:length])) if length < len(flat) else None
            if join is not None and self.reads[join] > read.count(join):
                return (join, *flat[length:])
        return flat


def _axis(join: Node) -> int:
    axis: int = join.params["axis"] % join.outputs[0].spec.ndim
    return axis


def _as_one_slice(
    parts: list[Symbol], axis: int, writers: Mapping[Symbol, Node]
) -> tuple[Symbol, dict[str, Any]] | None:
    slices = [writers.get(symbol) for symbol in parts]
    first = slices[0] if slices else None
    if first is None or len(parts) < 2:
        return None
    at = first.params["start"][axis] if first.command is slice_ else 0
    for node in slices:
        if node is None or node.command is not slice_ or node.inputs != first.inputs:
            return None
        start, limit, stride = (node.params[name] for name in ("start", "limit", "stride"))
        aligned = all(
            i == axis or (start[i], limit[i]) == (first.params["start"][i], first.params["limit"][i])
            for i in range(len(start))
        )
        if not aligned or start[axis] != at or any(s != 1 for s in stride):
            return None
        at = limit[axis]
    limit = tuple(at if i == axis else n for i, n in enumerate(first.params["limit"]))
    return first.inputs[0], {**first.params, "limit": limit}


def _assemble(node: Node, known: KnownJoins) -> Found:
    """Parts that are zeros or empty go, since elements that no part covers are 0; a part that covers everything is the result."""
    kept = [
        (symbol, box)
        for symbol, box in zip(node.inputs, boxes_of(node), strict=True)
        if symbol.spec.size and not _is_zero(symbol, known)
    ]
    if len(kept) == 1 and kept[0][1].shape == node.outputs[0].shape:
        return kept[0][0]
    if len(kept) == len(node.inputs):
        return None
    params = {**node.params, "starts": tuple(box.start for _, box in kept)}
    return node.update(inputs=tuple(symbol for symbol, _ in kept), params=MappingProxyType(params))


def _is_zero(symbol: Symbol, known: KnownJoins) -> bool:
    """Whether a tensor is +0 everywhere, bit for bit."""
    node = known.writers.get(symbol)
    if node is not None and is_view(node):
        symbol = node.inputs[0]
    value = known.constants.get(symbol)
    return value is not None and value.ndim == 0 and not any(value.tobytes())


def _dynamic_slice(node: Node, known: KnownJoins) -> Found:
    """Returns a slice whose place is known is an ordinary one, which needs no memory."""
    x, sizes = node.inputs[0], node.params["sizes"]
    start = _places(node.inputs[1:], x.shape, sizes, node.params["mode"], known.constants)
    if start is None:
        return None
    limit = tuple(a + n for a, n in zip(start, sizes, strict=True))
    params = {"start": start, "limit": limit, "stride": (1,) * len(start)}
    return node.update(command=slice_, inputs=(x,), params=MappingProxyType(params))


def _dynamic_update_slice(node: Node, known: KnownJoins) -> Found:
    """Replaces a write that covers the whole tensor by the update."""
    x, update, *starts = node.inputs
    if x.shape != update.shape:
        return None
    clipped = node.params["mode"] == "clip"
    whole = clipped or _places(starts, x.shape, update.shape, node.params["mode"], known.constants) is not None
    return update if whole else None


def _places(
    starts: Sequence[Symbol], shape: Sequence[int], sizes: Sequence[int], mode: str, constants: Mapping[Symbol, NDArray]
) -> tuple[int, ...] | None:
    """Returns the place of a box; None where that is not known, or out of range (so that the command raises when it runs)."""
    if any(symbol not in constants for symbol in starts):
        return None
    places = [int(constants[symbol]) for symbol in starts]
    room = [n - m for n, m in zip(shape, sizes, strict=True)]
    if mode == "clip":
        places = [min(max(a, 0), n) for a, n in zip(places, room, strict=True)]
    return tuple(places) if all(0 <= a <= n for a, n in zip(places, room, strict=True)) else None


shortened.set(slice_, _slice)
shortened.set(assemble, _assemble)
shortened.set(dynamic_slice, _dynamic_slice)
shortened.set(dynamic_update_slice, _dynamic_update_slice)
shortened.set(concatenate, lambda node, known: known.join(node))
