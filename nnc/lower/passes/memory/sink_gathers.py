"""Moves gathers and scatters: a tensor that is read in few places is computed only there, and zeros that are changed in few places
are not made.

So neither the log-probabilities of labels nor the gradients of their sum need tensors as large as the logits, however a cross
entropy is spelled, and a step of plain gradient descent on a table of embeddings touches the rows that were read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from nnc.base import dtypes
from nnc.base.options import Options
from nnc.base.source import SourceLine
from nnc.commands.normalize import PICK_MODES
from nnc.graph import Graph, Node, Symbol, command
from nnc.graph.graph import NDArray
from nnc.graph.registry import scalar
from nnc.graph.remake import OncePerGraph, Remake

_FEW = 4  # times fewer elements are read, or changed, than there are
_LEAVES = 4  # tensors that are read in place of one
_NODES = 32  # commands that run on chosen elements in place of all
_PRODUCTS = ("mul", "safe_mul")
_SINKING = ("add", "sub", "neg", "safe_mul", "reduce_sum")
_SOFTMAX = ("softmax", "log_softmax")
_PICK = command("pick_log_softmax")
_CHECKED = ("gather", "scatter", _PICK.name)

Check = tuple[tuple[Symbol, ...], tuple[int, ...]]


def sink_gathers(graph: Graph, options: Options) -> Graph:
    """Moves `gather` up and `scatter` down through elementwise commands and sums, in sub-graphs, too.

    Results of elementwise commands, softmax and log-softmax are computed for the elements that are read, where those are few.
    Updates of zeros are multiplied, and added to the tensor that the zeros would be added to; those of one place are added up
    first. Only updates of zeros move: x + (y - x) loses the digits of a small y, and so does c·x + c·(y - x). Values are the same
    bit for bit, but for the order of sums over axes, the roundings of a softmax and the sign of zero. An index out of range raises
    as before.

    Ensures: no `gather` reads few elements of the result of an elementwise command, or softmax or its logarithm, that has no other
        reader.

    Example:
        p = softmax(x); l = log(p); y = gather(l, i)  →  y = log(exp(pick_log_softmax(x, i)))
    """
    return _Picks().graph(graph)


class _Picks(OncePerGraph):
    """Rewrites until nothing changes. `sums` are updates with at most one number other than 0 for each place."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: set[Symbol] = set()

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
    """Returns the indices that commands with needed results check against sizes."""
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
class _Places:
    """The places at which elements of tensors of one shape are read or written: the parameters that `gather` and `scatter`
    share.
    """

    shape: tuple[int, ...]
    indices: tuple[Symbol, ...]
    axes: tuple[int, ...]
    batch: int
    mode: str
    source: SourceLine | None = field(default=None, compare=False)
    is_unique: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, node: Node) -> _Places:
        """Makes the place of a node's elements."""
        x, *operands = node.inputs
        indices = tuple(operands[1:] if node.command.name == "scatter" else operands)
        params = node.params
        unique = params.get("unique", False)
        return cls(x.shape, indices, params["axes"], params["batch"], params["mode"], node.source, unique)

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
    def is_once(self) -> bool:
        """Whether no element is chosen twice, as the user says or as there is one for each place along the shared axes."""
        return self.is_unique or math.prod(self.chosen[self.batch :]) <= 1

    @property
    def is_last(self) -> bool:
        """Whether elements of rows are chosen, as `pick_log_softmax` does."""
        return self.axes == (len(self.shape) - 1,) and self.batch == len(self.shape) - 1

    @property
    def is_label(self) -> bool:
        """Whether one element of each row is chosen, with an index in range."""
        return self.is_last and self.mode == "error" and math.prod(self.chosen[self.batch :]) == 1


class _Scattered(NamedTuple):
    """A tensor with updates that are added in few places."""

    base: Symbol
    updates: Symbol
    place: _Places


class _Picker(Remake):
    """The rewritten form of one graph.

    Args:
        keeps_checks: whether uses of scattered elements other than by `scatter` stay.
    """

    def __init__(self, passes: _Picks, graph: Graph, keeps_checks: bool) -> None:
        super().__init__(passes, graph)
        self.picks = passes
        self.keeps_checks = keeps_checks
        self.old: dict[Symbol, Symbol] = {}  # for new symbols, those that they replace
        self.known: dict[tuple[Symbol, _Places], Symbol] = {}
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
            place = _Places.of(node)
            x = node.inputs[0]
            return self._chosen(x, place) if self._is_worth_it(x, place) else None
        if node.command is _PICK:
            logits, index = node.inputs
            return self._pick(logits, index, node.params["mode"], node.source)
        return None if self.scattered.isdisjoint(node.inputs) else self._moved(node) or self._compared(node)

    def _moved(self, node: Node) -> Symbol | None:
        """Returns a node that reads updates of zeros in place of a scattered tensor; None where it cannot."""
        name = node.command.name
        if name in ("add", "sub"):
            return self._sum(name, *node.inputs)
        if name in _PRODUCTS:
            return self._product(name, *node.inputs)
        if name == "reduce_sum":
            return self._total(node)
        return self._negation(node) if name == "neg" else None

    def take(self, old: Node) -> None:
        """See the base."""
        super().take(old)
        for symbol in old.outputs:
            self.old[self.renamed.get(symbol, symbol)] = symbol

    def add(self, node: Node) -> None:
        """See the base."""
        super().add(node)
        if node.command.name == "scatter":
            self.scattered.update(node.outputs)

    def _is_worth_it(self, symbol: Symbol, place: _Places) -> bool:
        """Whether chosen elements of a tensor are better computed by themselves; log-probabilities always are."""
        node = self.writers.get(symbol)
        is_softmax = node is not None and node.command.name in _SOFTMAX
        return place.mode in PICK_MODES and (is_softmax or place.is_few) and self._may_choose(symbol, place)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _may_choose(self, symbol: Symbol, place: _Places) -> bool:
        """Whether elements can be computed one by one from few tensors that need not stay in memory longer for this."""
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

    def _is_passed(self, node: Node, place: _Places) -> bool:
        """Whether chosen elements of a result are computed from chosen elements of the operands."""
        if node.command.name in _SOFTMAX:
            return _is_over_rows(node, place)
        if not _is_elementwise(node):
            return False
        if node.command.name == "convert" and node.inputs[0].dtype.itemsize < node.outputs[0].dtype.itemsize:
            return True
        return len(self.readers.get(node.outputs[0], ())) <= 1 or all(self._stays(x, place) for x in node.inputs)

    def _stays(self, symbol: Symbol, place: _Places) -> bool:
        """Whether a tensor is in memory for others than elementwise commands, or made of such tensors, which softmax reads, too."""
        node = self.writers.get(symbol)
        if node is None or self._is_known(symbol, place):
            return True
        if any(reader is None or not _is_elementwise(reader) for reader in self.readers.get(symbol, ())):
            return True
        if not _is_elementwise(node):
            return _is_over_rows(node, place)
        return all(self._stays(x, place) for x in node.inputs)

    def _is_known(self, symbol: Symbol, place: _Places) -> bool:
        """Whether the chosen elements are spread from elements of a smaller tensor."""
        node = self.writers.get(symbol)
        return node is not None and node.command.name == "broadcast_to" and _smaller(node, place) is not None

    def _chosen(self, symbol: Symbol, place: _Places) -> Symbol:
        """Returns the chosen elements of a tensor."""
        key = symbol, place
        if key not in self.known:
            self.known[key] = self._choose(symbol, place)
        return self.known[key]

    def _choose(self, symbol: Symbol, place: _Places) -> Symbol:
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
        """Returns the log-probabilities that are read, where elements of the logits are better computed by themselves; else
        None.

        The largest logit m is subtracted from those, as in `pick_log_softmax`, and not added to the logarithm of the sum of
        exp(x - m) first.
        """
        place = _Places(x.shape, (index,), (x.spec.ndim - 1,), x.spec.ndim - 1, mode, source)
        if x.dtype not in (dtypes.float32, dtypes.float64) or not self._is_worth_it(x, place):
            return None
        chosen = self._chosen(x, place)
        rows = tuple(range(place.batch))
        top = self.make("reduce_max", x, axes=place.axes)
        top = self._unless(self.make("isinf", top), 0, top)
        shifted = self.make("sub", x, self.make("broadcast_to", top, shape=x.shape, axes=rows))
        total = self.make("reduce_sum", self.make("exp", shifted), axes=place.axes)
        total = self._unless(self.make("equal", total, self.number(0, total, total.shape)), 1, total)
        for part in (top, self.make("log", total)):
            chosen = self.make("sub", chosen, self.make("broadcast_to", part, shape=chosen.shape, axes=rows))
        return chosen

    def _unless(self, condition: Symbol, value: float, x: Symbol) -> Symbol:
        return self.make("select", condition, self.number(value, x, x.shape), x)

    def _respread(self, node: Node, place: _Places) -> Symbol:
        """Returns the chosen elements of a tensor that is spread from a smaller one."""
        (x,), axes, smaller = node.inputs, _spread_axes(node), _smaller(node, place)
        if smaller is not None and smaller.axes:
            x, first = self._chosen(x, smaller), (*range(len(place.chosen)),)
            rest = [p for p in axes if p >= place.batch and p not in place.axes]
        else:
            x, first = self.reshape(x, tuple(n for p, n in zip(axes, x.shape, strict=True) if p not in place.axes)), ()
            rest = [p for p in axes if p not in place.axes]
        return self.make("broadcast_to", x, shape=place.read, axes=(*first, *(place.where[p] for p in rest)))

    # -- writing -------------------------------------------------------------------------------------------------------

    def _scattered(self, symbol: Symbol) -> _Scattered | None:
        """Returns a tensor to which something is added in few places; None for any other."""
        node = self.writers.get(symbol)
        if (
            node is None
            or node.command.name != "scatter"
            or node.params["op"] != "add"
            or not dtypes.is_inexact(symbol.dtype)
        ):
            return None
        place = _Places.of(node)
        return _Scattered(node.inputs[0], node.inputs[1], place) if place.mode in PICK_MODES else None

    def _in_zeros(self, symbol: Symbol) -> _Scattered | None:
        """Returns a tensor of zeros to which something is added in few places; None for any other, or where all of it is made
        anyway.

        Updates of a tensor of other numbers stay: changed apart from them, the sum of both could lose all digits.
        """
        found = self._scattered(symbol)
        return found if found is not None and self._number(found.base) == 0 and not self._is_made(symbol) else None

    def _is_made(self, symbol: Symbol) -> bool:
        """Whether a command that updates cannot pass reads a scattered tensor, which must then be made."""
        old = self.old.get(symbol, symbol)
        return any(reader is not None and not self._lets_pass(reader, old) for reader in self.readers.get(old, ()))

    def _lets_pass(self, reader: Node, symbol: Symbol) -> bool:
        if reader.command.name == "mul":
            return any(self._is_finite(other) for other in reader.inputs if other is not symbol)
        return reader.command.name in _SINKING and tuple(reader.inputs) != (symbol, symbol)

    def _is_finite(self, symbol: Symbol) -> bool:
        number = self._number(symbol)
        return number is not None and math.isfinite(number)

    def _scatter(self, x: Symbol, updates: Symbol, place: _Places) -> Symbol:
        return self._make_at(place, "scatter", x, updates, *place.indices, op="add", **place.params)

    def _make_at(self, place: _Places, name: str, *inputs: Symbol, **params: Any) -> Symbol:
        """Returns a command that checks indices against sizes; its error names the line where they were written."""
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

    def _sums(self, x: _Scattered) -> Symbol | None:
        """Returns updates with at most one number other than 0 for each place; None where finding them is more work than it
        saves.

        The updates of a place are added up in the row of its last one. A table of the places' last updates finds that.
        """
        place = x.place
        if place.is_once or x.updates in self.picks.sums:
            return x.updates
        if not place.is_few:
            return None
        lead, count = place.shape[: place.batch], math.prod(place.chosen[place.batch :])
        sizes = (*lead, *(place.shape[axis] for axis in place.axes))
        params = {**place.params, "axes": tuple(range(place.batch, len(sizes)))}
        numbers = self.make("iota", shape=(*lead, count), dtype=dtypes.int32, axis=place.batch)
        table = self._make_at(
            place, "scatter", self.number(0, numbers, sizes), self.reshape(numbers, place.chosen), *place.indices,
            op="set", **params,
        )  # fmt: skip
        last = self.reshape(self._make_at(place, "gather", table, *place.indices, **params), (*lead, count))
        rows = self.reshape(x.updates, (*lead, count, *place.read[len(place.chosen) :]))
        zeros = self.number(0, rows, rows.shape)
        added = self.make("scatter", zeros, rows, last, op="add", axes=(place.batch,), batch=place.batch, mode="clip")
        return self._noted(self.reshape(added, x.updates.shape))

    def _noted(self, sums: Symbol) -> Symbol:
        self.picks.sums.add(sums)
        return sums

    def _sum(self, name: str, x: Symbol, y: Symbol) -> Symbol | None:
        """Scatters updates of zeros into the other operand."""
        left, right = self._in_zeros(x), self._in_zeros(y)
        if left is not None and right is not None and left.place == right.place:
            if (updates := self._sums(left)) is None or (others := self._sums(right)) is None:
                return None
            return self._scatter(left.base, self._noted(self.make(name, updates, others)), left.place)
        scattered, rest = (right, x) if right is not None else (left, y)
        updates = self._sums(scattered) if scattered is not None else None
        if scattered is None or updates is None:
            return None
        if name == "sub":
            rest, updates = (
                (rest, self.make("neg", updates)) if right is not None else (self.make("neg", rest), updates)
            )
        return self._scatter(rest, updates, scattered.place)

    def _product(self, name: str, x: Symbol, y: Symbol) -> Symbol | None:
        """Multiplies updates of zeros by the elements of the other operand, where a product of 0 and that is 0."""
        for operand, other in ((x, y), (y, x)):
            scattered = self._in_zeros(operand)
            if scattered is None or not scattered.place.is_few:
                continue
            if name != "safe_mul" and not self._is_finite(other):
                continue
            updates = self._sums(scattered)
            if updates is not None:
                pair = updates, self._chosen(other, scattered.place)
                products = self.make(name, *(pair if operand is x else pair[::-1]))
                return self._scatter(scattered.base, self._noted(products), scattered.place)
        return None

    def _negation(self, node: Node) -> Symbol | None:
        x = self._in_zeros(node.inputs[0])
        if x is None:
            return None
        updates = self.make("neg", x.updates)
        if x.updates in self.picks.sums:
            self.picks.sums.add(updates)
        return self._scatter(x.base, updates, x.place)

    def _total(self, node: Node) -> Symbol | None:
        """Returns the sum over the axes that are indexed, and maybe others: each update is in it, wherever it went.

        Of few updates of one number c, too: there is more than that of c in the sum, so that c and an update cannot cancel it.
        """
        x, summed = self._scattered(node.inputs[0]), set(node.params["axes"])
        number = self._number(x.base) if x is not None else None
        if x is None or number is None:
            return None
        place = x.place
        if summed.isdisjoint((*range(place.batch), *place.axes)):
            return self._total_updates(node, x) if number == 0 else None
        if self.keeps_checks or not summed.issuperset(place.axes):
            return None
        if number and not (place.is_once and place.is_few):
            return None
        axes = [*range(place.batch, len(place.chosen)), *(place.where[axis] for axis in summed.difference(place.axes))]
        total = self._reduced(x.updates, tuple(sorted(axes)))
        return self.make("add", self.make("reduce_sum", x.base, axes=node.params["axes"]), total) if number else total

    def _total_updates(self, node: Node, x: _Scattered) -> Symbol:
        """Scatters sums of updates over axes that are not indexed into zeros."""
        axes, place = node.params["axes"], x.place
        kept = [axis for axis in range(len(place.shape)) if axis not in axes]
        shape = tuple(place.shape[axis] for axis in kept)
        total = self._reduced(x.updates, tuple(sorted(place.where[axis] for axis in axes)))
        if x.updates in self.picks.sums:
            self.picks.sums.add(total)
        place = replace(place, shape=shape, axes=tuple(map(kept.index, place.axes)))
        return self._scatter(self.number(0, x.base, shape), total, place)

    def _compared(self, node: Node) -> Symbol | None:
        """Returns a sum or an elementwise command that adds the update of a row where the row's label is an element's class.

        So the scattered tensor is not made, in a longer dtype than its reader's for instance.
        """
        if self.keeps_checks or not _adds_labels(node):
            return None
        inputs = [self._with_labels(x) or x for x in node.inputs]
        return self.make(node.command.name, *inputs, **node.params) if inputs != list(node.inputs) else None

    def _with_labels(self, symbol: Symbol) -> Symbol | None:
        scattered, readers = self._scattered(symbol), self.readers.get(self.old.get(symbol, symbol), ())
        if scattered is None or not scattered.place.is_label:
            return None
        if any(reader is None or not _adds_labels(reader) for reader in readers):
            return None
        place, x = scattered.place, scattered.base
        rows = tuple(range(place.batch))
        label = self.make("convert", place.indices[0], dtype=dtypes.int32)
        index, update = (
            self.make("broadcast_to", self.reshape(y, x.shape[:-1]), shape=x.shape, axes=rows)
            for y in (label, scattered.updates)
        )
        count = self.make("iota", shape=x.shape, dtype=dtypes.int32, axis=place.batch)
        added = self.make("select", self.make("equal", index, count), update, self.number(0, x, x.shape))
        return self.make("add", x, added)

    def _reduced(self, x: Symbol, axes: tuple[int, ...]) -> Symbol:
        if any(x.shape[axis] != 1 for axis in axes):
            return self.make("reduce_sum", x, axes=axes)
        return self.reshape(x, tuple(n for axis, n in enumerate(x.shape) if axis not in axes))


def _spread_axes(node: Node) -> tuple[int, ...]:
    """Returns the axes of a broadcast tensor along which its operand lies."""
    (x,), (out,) = node.inputs, node.outputs
    axes: tuple[int, ...] | None = node.params.get("axes")
    return axes if axes is not None else tuple(range(out.spec.ndim - x.spec.ndim, out.spec.ndim))


def _smaller(node: Node, place: _Places) -> _Places | None:
    """Returns the places of a broadcast tensor's operand for chosen elements; without axes if those are the same along all of
    these.

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


def _is_over_rows(node: Node, place: _Places) -> bool:
    """Whether a node is a softmax, or its logarithm, along rows from which elements are chosen."""
    return node.command.name in _SOFTMAX and place.is_last and tuple(node.params["axes"]) == place.axes


def _adds_labels(node: Node) -> bool:
    """Whether a node can be in a kernel that compares labels with classes."""
    return _is_elementwise(node) or node.command.name == "reduce_sum"


def _is_elementwise(node: Node) -> bool:
    return (
        node.command in scalar
        and len(node.outputs) == 1
        and bool(node.inputs)
        and all(x.shape == node.outputs[0].shape for x in node.inputs)
    )
