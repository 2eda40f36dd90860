"""Moves gathers and scatters: a tensor that is read in few places is computed only there, and a tensor that differs in few places
is changed last.

So neither the log-probabilities of labels nor the gradients of their sum need tensors as large as the logits, however a cross
entropy is spelled, and a step of plain gradient descent on a table of embeddings touches the rows that were read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from nnc.base import dtypes
from nnc.base.options import Options
from nnc.base.source import SourceLine
from nnc.commands.normalize import PICK_MODES
from nnc.commands.rules import scalar
from nnc.graph import Graph, Node, Symbol, command, register_pass
from nnc.graph.graph import NDArray
from nnc.lower.passes.once import OncePerGraph
from nnc.lower.passes.remake import Remake

_FEW = 4  # times fewer elements are read, or changed, than there are
_LEAVES = 4  # tensors that are read in place of one
_NODES = 32  # commands that run on chosen elements in place of all
_PRODUCTS = ("mul", "safe_mul")
_SOFTMAX = ("softmax", "log_softmax")
_PICK = command("pick_log_softmax")
_CHECKED = ("gather", "scatter", _PICK.name)

Check = tuple[tuple[Symbol, ...], tuple[int, ...]]


@register_pass("sink_gathers")
def sink_gathers(graph: Graph, options: Options) -> Graph:
    """Moves `gather` up and `scatter` down through elementwise commands and sums, in sub-graphs, too.

    Results of elementwise commands, softmax and log-softmax are computed for the elements that are read, where those are few.
    Updates of few elements are added last, so that products and sums need not wait for them. The values are the same up to rounding
    and the sign of zero. An index out of range raises as before.

    Requires: `combine`, which recognises softmax.
    Ensures:  no `gather` reads few elements of the result of an elementwise command, or softmax or its logarithm, that has no other
        reader.

    Example:
        p = softmax(x); l = log(p); y = gather(l, i)  →  y = log(exp(pick_log_softmax(x, i)))
    """
    return _Picks().graph(graph)


class _Picks(OncePerGraph):
    def rewrite(self, graph: Graph) -> Graph:
        """Goes on until nothing changes: a tensor that a new `gather` reads is in memory, so others are chosen from it."""
        present = graph
        while (found := self._once(present)) is not present:
            present = found.restrict(found.outputs)
        return present

    def _once(self, graph: Graph) -> Graph:
        for keeps_checks in (False, True):  # a `scatter` may have been the only check of indices
            found = _Picker(self, graph, keeps_checks).result()
            if found is graph or _checks(graph) <= _checks(found):
                return found
        return graph


def _checks(graph: Graph) -> set[Check]:
    """The indices that commands with needed results check against sizes."""
    found: set[Check] = set()
    if not any(map(_is_checked, graph.nodes)):
        return found
    nodes = graph.restrict(graph.outputs).nodes
    reshaped = {node.outputs[0]: node.inputs[0] for node in nodes if node.command.name == "reshape"}
    for node in nodes:
        if _is_checked(node):
            x, *operands = node.inputs
            indices = operands[1:] if node.command.name == "scatter" else operands
            axes = node.params.get("axes", (x.spec.ndim - 1,))
            indices = [_root(index, reshaped) for index in indices]
            found.add((tuple(indices), tuple(x.shape[axis] for axis in axes)))
    return found


def _is_checked(node: Node) -> bool:
    """Whether a command checks indices against sizes."""
    return node.command.name in _CHECKED and node.params["mode"] == "error"


def _root(symbol: Symbol, reshaped: Mapping[Symbol, Symbol]) -> Symbol:
    while symbol in reshaped:
        symbol = reshaped[symbol]
    return symbol


@dataclass(frozen=True)
class _Place:
    """The places at which elements of tensors of one shape are read or written: the parameters that `gather` and `scatter`
    share.
    """

    shape: tuple[int, ...]
    indices: tuple[Symbol, ...]
    axes: tuple[int, ...]
    batch: int
    mode: str
    source: SourceLine | None = field(default=None, compare=False)

    @classmethod
    def of(cls, node: Node) -> _Place:
        """Makes the place of a node's elements."""
        x, *operands = node.inputs
        indices = tuple(operands[1:] if node.command.name == "scatter" else operands)
        params = node.params
        return cls(x.shape, indices, params["axes"], params["batch"], params["mode"], node.source)

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of a `gather`."""
        return {"axes": self.axes, "batch": self.batch, "mode": self.mode}

    @property
    def chosen(self) -> tuple[int, ...]:
        """The shape of the indices."""
        return self.indices[0].shape

    @property
    def where(self) -> dict[int, int]:
        """For each axis that is not indexed, its place in the elements that are read."""
        rest = [axis for axis in range(self.batch, len(self.shape)) if axis not in self.axes]
        first = len(self.chosen)
        return {**{axis: axis for axis in range(self.batch)}, **{axis: first + i for i, axis in enumerate(rest)}}

    @property
    def read(self) -> tuple[int, ...]:
        """The shape of the elements that are read."""
        rest = tuple(n for axis, n in enumerate(self.shape) if axis >= self.batch and axis not in self.axes)
        return (*self.chosen, *rest)

    @property
    def is_few(self) -> bool:
        """Whether the elements are few, and all within the tensor."""
        return self.mode in PICK_MODES and _FEW * math.prod(self.read) <= math.prod(self.shape)

    @property
    def is_last(self) -> bool:
        """Whether elements of rows are chosen, as `pick_log_softmax` does."""
        return self.axes == (len(self.shape) - 1,) and self.batch == len(self.shape) - 1


class _Picker(Remake):
    """The new form of one graph.

    Args:
        keeps_checks: the use of scattered elements otherwise than by `scatter` stays.
    """

    def __init__(self, passes: OncePerGraph, graph: Graph, keeps_checks: bool) -> None:
        super().__init__(passes, graph)
        self.keeps_checks = keeps_checks
        self.known: dict[tuple[Symbol, _Place], Symbol] = {}
        self.scattered: set[Symbol] = set()

    @cached_property
    def readers(self) -> Mapping[Symbol, Sequence[Node | None]]:
        """The nodes of the old graph that read a symbol; None for an output."""
        readers: dict[Symbol, list[Node | None]] = {symbol: [None] for symbol in self.graph.outputs}
        for node in self.graph.nodes:
            for symbol in set(node.inputs):
                readers.setdefault(symbol, []).append(node)
        return readers

    def new_form(self, node: Node) -> Symbol | None:
        """Returns the replacement of a node's result; None where the node stays."""
        name = node.command.name
        if name == "gather":
            place = _Place.of(node)
            x = node.inputs[0]
            return self._chosen(x, place) if self._is_worth_it(x, place) else None
        if node.command is _PICK:
            logits, index = node.inputs
            return self._pick(logits, index, node.params["mode"], node.source)
        if self.scattered.isdisjoint(node.inputs):
            return None
        if name in ("add", "sub"):
            return self._sum(name, *node.inputs)
        if name in _PRODUCTS:
            return self._product(name, *node.inputs)
        change = {"neg": self._negation, "reduce_sum": self._total, "convert": self._narrowed}.get(name)
        scattered = self._scattered(node.inputs[0]) if change is not None else None
        return change(node, *scattered) if change is not None and scattered is not None else None

    def _append(self, node: Node) -> None:
        super()._append(node)
        if node.command.name == "scatter":
            self.scattered.update(node.outputs)

    def _is_worth_it(self, symbol: Symbol, place: _Place) -> bool:
        """Whether chosen elements of a tensor are better computed by themselves; log-probabilities always are."""
        node = self.writers.get(symbol)
        is_softmax = node is not None and node.command.name in _SOFTMAX
        return place.mode in PICK_MODES and (is_softmax or place.is_few) and self._may_choose(symbol, place)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _may_choose(self, symbol: Symbol, place: _Place) -> bool:
        """Whether elements can be computed by themselves, from few tensors, none of which would have to stay in memory for it."""
        leaves: set[Symbol] = set()
        inner: dict[Symbol, None] = {}
        waiting = [symbol]
        while waiting:
            at = waiting.pop()
            node = self.writers.get(at)
            if at in inner or self._is_known(at, place):
                continue
            if node is not None and self._is_passed(node, place):
                inner[at] = None
                waiting += node.inputs
            else:
                leaves.add(at)
        return bool(inner) and 0 < len(leaves) <= _LEAVES and len(inner) <= _NODES

    def _is_passed(self, node: Node, place: _Place) -> bool:
        """Whether chosen elements of a result are computed from chosen elements of the operands."""
        if node.command.name in _SOFTMAX:
            return _is_over_rows(node, place)
        if not _is_elementwise(node):
            return False
        if node.command.name == "convert" and node.inputs[0].dtype.itemsize < node.outputs[0].dtype.itemsize:
            return True
        return len(self.readers.get(node.outputs[0], ())) <= 1 or all(self._stays(x, place) for x in node.inputs)

    def _stays(self, symbol: Symbol, place: _Place) -> bool:
        """Whether a tensor is in memory for others than elementwise commands, or made of such tensors, which softmax reads, too."""
        node = self.writers.get(symbol)
        if node is None or self._is_known(symbol, place):
            return True
        if any(reader is None or not _is_elementwise(reader) for reader in self.readers.get(symbol, ())):
            return True
        if not _is_elementwise(node):
            return _is_over_rows(node, place)
        return all(self._stays(x, place) for x in node.inputs)

    def _is_known(self, symbol: Symbol, place: _Place) -> bool:
        """Whether the chosen elements are spread from elements of a smaller tensor."""
        node = self.writers.get(symbol)
        return node is not None and node.command.name == "broadcast_to" and _smaller(node, place) is not None

    def _chosen(self, symbol: Symbol, place: _Place) -> Symbol:
        """The chosen elements of a tensor."""
        key = symbol, place
        if key not in self.known:
            self.known[key] = self._choose(symbol, place)
        return self.known[key]

    def _choose(self, symbol: Symbol, place: _Place) -> Symbol:
        node = self.writers.get(symbol)
        if node is not None and self._is_known(symbol, place):
            return self._respread(node, place)
        if node is None or not self._is_passed(node, place):
            return self._make_at(place, "gather", symbol, *place.indices, **place.params)
        if node.command.name in _SOFTMAX:
            (x,), (index,) = node.inputs, place.indices
            flat = self.reshape(index, (*index.shape[: place.batch], math.prod(index.shape[place.batch :])))
            picked = self._pick(x, flat, place.mode, place.source) or self._make_at(
                place, _PICK.name, x, flat, mode=place.mode
            )
            picked = self.reshape(picked, place.read)
            return picked if node.command.name == "log_softmax" else self.make("exp", picked)
        return self.make(node.command.name, *(self._chosen(x, place) for x in node.inputs), **node.params)

    def _pick(self, x: Symbol, index: Symbol, mode: str, source: SourceLine | None) -> Symbol | None:
        """The log-probabilities that are read, where elements of the logits are better computed by themselves; else None.

        Such logits are rounded as the logarithm of the sum is, which is as large as they are.
        """
        place = _Place(x.shape, (index,), (x.spec.ndim - 1,), x.spec.ndim - 1, mode, source)
        if x.dtype not in (dtypes.float32, dtypes.float64) or not self._is_worth_it(x, place):
            return None
        chosen = self._chosen(x, place)
        logarithm = self.make("logsumexp", x, axes=place.axes)
        zero, least = (self.number(value, x, logarithm.shape) for value in (0, -math.inf))
        safe = self.make("select", self.make("equal", logarithm, least), zero, logarithm)
        spread = self.make("broadcast_to", safe, shape=chosen.shape, axes=tuple(range(place.batch)))
        return self.make("sub", chosen, spread)

    def _respread(self, node: Node, place: _Place) -> Symbol:
        """The chosen elements of a tensor that is spread from a smaller one."""
        (x,), axes, smaller = node.inputs, _spread_axes(node), _smaller(node, place)
        if smaller is not None and smaller.axes:
            x, first = self._chosen(x, smaller), (*range(len(place.chosen)),)
            rest = [p for p in axes if p >= place.batch and p not in place.axes]
        else:
            x, first = self.reshape(x, tuple(n for p, n in zip(axes, x.shape, strict=True) if p not in place.axes)), ()
            rest = [p for p in axes if p not in place.axes]
        return self.make("broadcast_to", x, shape=place.read, axes=(*first, *(place.where[p] for p in rest)))

    # -- writing -------------------------------------------------------------------------------------------------------

    def _scattered(self, symbol: Symbol) -> tuple[Symbol, Symbol, _Place] | None:
        """(x, updates, place) of a tensor x to which something is added in few places; None for any other."""
        node = self.writers.get(symbol)
        if (
            node is None
            or node.command.name != "scatter"
            or node.params["op"] != "add"
            or not dtypes.is_inexact(symbol.dtype)
        ):
            return None
        place = _Place.of(node)
        return (node.inputs[0], node.inputs[1], place) if place.mode in PICK_MODES else None

    def _scatter(self, x: Symbol, updates: Symbol, place: _Place) -> Symbol:
        return self._make_at(place, "scatter", x, updates, *place.indices, op="add", **place.params)

    def _make_at(self, place: _Place, name: str, *inputs: Symbol, **params: Any) -> Symbol:
        """A command that checks indices against sizes; its error names the line where they were written."""
        present, self.source = self.source, place.source or self.source
        try:
            return self.make(name, *inputs, **params)
        finally:
            self.source = present

    def _number(self, symbol: Symbol) -> float | None:
        """Returns the number that a tensor holds everywhere; None if it is not known."""
        node = self.writers.get(symbol)
        if node is None or node.command.name != "broadcast_to":
            return None
        value: NDArray | None = self.constants.get(node.inputs[0])
        return float(value) if value is not None and value.ndim == 0 and not dtypes.is_complex(value.dtype) else None

    def _sum(self, name: str, x: Symbol, y: Symbol) -> Symbol | None:
        """Scatters updates of an operand into the sum instead; zeros that they are scattered into are not added."""
        pair = self._scattered(x), self._scattered(y)
        if pair[0] is not None and pair[1] is not None and pair[0][2] == pair[1][2]:
            return self._merged(name, *pair[0], *pair[1][:2])
        for operand, other in ((x, y), (y, x)):
            scattered = self._scattered(operand)
            if scattered is None:
                continue
            base, updates, place = scattered
            is_zero = self._number(base) == 0
            if operand is y and name == "sub":
                rest = other if is_zero else self._added("sub", other, base)
                return self._scatter(rest, self.make("neg", updates), place)
            if is_zero:
                rest = self.make("neg", other) if name == "sub" else other
            else:
                rest = self._added(name, *((base, other) if operand is x else (other, base)))
            return self._scatter(rest, updates, place)
        return None

    def _merged(self, name: str, base: Symbol, updates: Symbol, place: _Place, other: Symbol, others: Symbol) -> Symbol:
        """Scatters once, where updates of both operands go to the same places."""
        if self._number(other) != 0:
            base = self._added(name, base, other)
        return self._scatter(base, self.make(name, updates, others), place)

    def _added(self, name: str, x: Symbol, y: Symbol) -> Symbol:
        return self._sum(name, x, y) or self.make(name, x, y)

    def _product(self, name: str, x: Symbol, y: Symbol) -> Symbol | None:
        """Multiplies scattered updates as it multiplies the tensor that they are scattered into."""
        for operand, other in ((x, y), (y, x)):
            scattered = self._scattered(operand)
            if scattered is None or not scattered[2].is_few:
                continue
            base, updates, place = scattered
            is_zero = name == "safe_mul" and self._number(base) == 0
            chosen = self._chosen(other, place)
            pairs = [(updates, chosen)] if is_zero else [(updates, chosen), (base, other)]
            products = [self.make(name, *(pair if operand is x else pair[::-1])) for pair in pairs]
            return self._scatter(base if is_zero else products[1], products[0], place)
        return None

    def _negation(self, node: Node, base: Symbol, updates: Symbol, place: _Place) -> Symbol:
        rest = base if self._number(base) == 0 else self.make("neg", base)
        return self._scatter(rest, self.make("neg", updates), place)

    def _total(self, node: Node, base: Symbol, updates: Symbol, place: _Place) -> Symbol | None:
        """The sum over the axes that are indexed, and maybe others: each update is in it, wherever it went."""
        summed = set(node.params["axes"])
        if summed.isdisjoint((*range(place.batch), *place.axes)):
            return self._sums(node, base, updates, place)
        if self.keeps_checks or not summed.issuperset(place.axes):
            return None
        axes = [*range(place.batch, len(place.chosen)), *(place.where[axis] for axis in summed.difference(place.axes))]
        total = self._reduced(updates, tuple(sorted(axes)))
        if self._number(base) == 0:
            return total
        return self.make("add", self.make("reduce_sum", base, axes=node.params["axes"]), total)

    def _sums(self, node: Node, base: Symbol, updates: Symbol, place: _Place) -> Symbol:
        """Scatters sums of updates over axes that are not indexed into sums."""
        axes = node.params["axes"]
        kept = [axis for axis in range(len(place.shape)) if axis not in axes]
        shape = tuple(place.shape[axis] for axis in kept)
        rest = self.number(0, base, shape) if self._number(base) == 0 else self.make("reduce_sum", base, axes=axes)
        total = self._reduced(updates, tuple(sorted(place.where[axis] for axis in axes)))
        return self._scatter(rest, total, replace(place, shape=shape, axes=tuple(map(kept.index, place.axes))))

    def _narrowed(self, node: Node, base: Symbol, updates: Symbol, place: _Place) -> Symbol | None:
        """In a shorter dtype, before which a label of each row is compared with all classes: so nothing is made in the long one."""
        (x,), (out,) = node.inputs, node.outputs
        is_label = place.is_last and place.mode == "error" and math.prod(place.chosen[place.batch :]) == 1
        if self.keeps_checks or not is_label or out.dtype.itemsize >= x.dtype.itemsize:
            return None
        rows = tuple(range(place.batch))
        label = self.make("convert", place.indices[0], dtype=dtypes.int64)
        index, update = (
            self.make("broadcast_to", self.reshape(y, x.shape[:-1]), shape=x.shape, axes=rows) for y in (label, updates)
        )
        count = self.make("iota", shape=x.shape, dtype=dtypes.int64, axis=place.batch)
        added = self.make("select", self.make("equal", index, count), update, self.number(0, x, x.shape))
        return self.make("convert", self.make("add", base, added), **node.params)

    def _reduced(self, x: Symbol, axes: tuple[int, ...]) -> Symbol:
        if any(x.shape[axis] != 1 for axis in axes):
            return self.make("reduce_sum", x, axes=axes)
        return self.reshape(x, tuple(n for axis, n in enumerate(x.shape) if axis not in axes))


def _spread_axes(node: Node) -> tuple[int, ...]:
    """The axes of a broadcast tensor along which its operand lies."""
    (x,), (out,) = node.inputs, node.outputs
    axes: tuple[int, ...] | None = node.params.get("axes")
    return axes if axes is not None else tuple(range(out.spec.ndim - x.spec.ndim, out.spec.ndim))


def _smaller(node: Node, place: _Place) -> _Place | None:
    """The places of a broadcast tensor's operand for chosen elements; without axes if those are the same along all of these.

    None if the operand has some of these axes alone, or is not much smaller.
    """
    (x,), axes = node.inputs, _spread_axes(node)
    sizes = dict(zip(axes, x.shape, strict=True))
    if all(sizes.get(p, 1) == 1 for p in place.axes):
        return replace(place, shape=x.shape, axes=())
    is_whole = all(sizes.get(p) == place.shape[p] for p in (*range(place.batch), *place.axes))
    if not is_whole or _FEW * math.prod(x.shape) > math.prod(place.shape):
        return None
    return replace(place, shape=x.shape, axes=tuple(map(axes.index, place.axes)))


def _is_over_rows(node: Node, place: _Place) -> bool:
    """Whether a node is a softmax, or its logarithm, of rows of which elements are chosen."""
    return node.command.name in _SOFTMAX and place.is_last and tuple(node.params["axes"]) == place.axes


def _is_elementwise(node: Node) -> bool:
    return (
        node.command in scalar
        and len(node.outputs) == 1
        and bool(node.inputs)
        and all(x.shape == node.outputs[0].shape for x in node.inputs)
    )
