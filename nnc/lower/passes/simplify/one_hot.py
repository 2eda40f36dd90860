"""Products with one-hot tensors read or add up rows; sums of products element by element are no matrix products.

Labels are compared with a count of the classes in any form; the tensor that multiplies the result is then looked up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nnc.base import dtypes
from nnc.base.options import Options
from nnc.commands.normalize import PICK_MODES
from nnc.commands.rules import expansion
from nnc.graph import Graph, Node, Symbol
from nnc.graph.registry import scalar
from nnc.graph.remake import Remake, rewritten
from nnc.lower.passes.simplify.algebra import is_lossless

_LEAST = 16  # with fewer classes, a product is faster than adding up rows one by one


def one_hot(graph: Graph, options: Options) -> Graph:
    """Replaces products with one-hot tensors by `gather`, or `scatter` in their gradients, and inner products by sums.

    A label that is no class has a row of zeros, as before. The values are the same up to the order of sums and the sign of zero;
    rows that no label names take no part, so that an infinite element of one does not make NaN of all others.

    Ensures: no `dot` has a one-hot operand that it contracts over the classes alone, or over all but the classes; none
    contracts all
        axes of 32 or 64 bit floats that elementwise commands make.

    Example:
        h = equal(broadcast(y), count); t = convert(h); z = dot(t, table)  →  z = gather(table, y)
    """
    return rewritten(graph, _OneHotProducts)


class _Labels(NamedTuple):
    """The origin of a one-hot tensor: labels, which are the same along `axis`, and the axis of the tensor for each axis of the
    labels.
    """

    labels: Symbol
    places: tuple[int | None, ...]
    axis: int


class _OneHotProducts(Remake):
    def new_form(self, node: Node) -> Symbol | None:
        """See the base."""
        if node.command.name == "gather":
            return self._rows(node)
        if node.command.name != "dot":
            return None
        for side in (0, 1):
            hot = self._one_hot(node.inputs[side])
            found = self._product(node, hot, side) if hot is not None else None
            if found is not None:
                return found
        return self._inner_product(node)

    # -- one-hot tensors -----------------------------------------------------------------------------------------------

    def _one_hot(self, symbol: Symbol) -> _Labels | None:
        """Returns the labels of a tensor that is 1 at one place of each row, or at none."""
        node = self.writers.get(symbol)
        if node is not None and node.command.name == "convert" and dtypes.is_bool(node.inputs[0].dtype):
            node = self.writers.get(node.inputs[0])
        if node is None or node.command.name != "equal":
            return None
        for x, count in (node.inputs, node.inputs[::-1]):
            axis = self._counted(count)
            base, places = self._base(x)
            if axis is not None and axis in places:
                base, places = self._short_count(base, places)
            if axis is not None and axis not in places and dtypes.is_integer(base.dtype):
                return _Labels(base, places, axis)
        return None

    def _short_count(self, symbol: Symbol, places: tuple[int | None, ...]) -> tuple[Symbol, tuple[int | None, ...]]:
        """Returns a count that lies along one of several axes, without the others."""
        node = self.writers.get(symbol)
        if node is None or node.command.name != "iota":
            return symbol, places
        at = node.params["axis"]
        return self.make("iota", shape=symbol.shape[at : at + 1], dtype=symbol.dtype, axis=0), (places[at],)

    def _counted(self, symbol: Symbol) -> int | None:
        """Returns the axis along which a tensor holds 0, 1, 2, …, and the same elsewhere."""
        base, places = self._base(symbol)
        node, value = self.writers.get(base), self.constants.get(base)
        if node is not None and node.command.name == "iota":
            at: int = node.params["axis"]
            return places[at]
        if value is None or value.ndim != 1 or not np.array_equal(value, np.arange(value.size)):
            return None
        return places[0]

    def _base(self, symbol: Symbol) -> tuple[Symbol, tuple[int | None, ...]]:
        """Finds the tensor that a tensor of integers shows in another form, and where its axes lie; None for axes of size 1 that
        are spread.
        """
        base, places = symbol, tuple[int | None, ...](range(symbol.spec.ndim))
        while (node := self.writers.get(base)) is not None:
            name = node.command.name
            if (
                name == "convert"
                and dtypes.is_integer(node.inputs[0].dtype)
                and is_lossless(node.inputs[0].dtype, base.dtype)
            ):
                (base,) = node.inputs
            elif name == "broadcast_to":
                (x,) = node.inputs
                axes = node.params.get("axes")
                axes = range(base.spec.ndim - x.spec.ndim, base.spec.ndim) if axes is None else axes
                places = tuple(places[p] if n == base.shape[p] else None for p, n in zip(axes, x.shape, strict=True))
                base = x
            elif name == "reshape" and _long(node.inputs[0].shape) == _long(base.shape):
                (x,) = node.inputs
                rest = iter([place for place, n in zip(places, base.shape, strict=True) if n != 1])
                places = tuple(next(rest) if n != 1 else None for n in x.shape)
                base = x
            else:
                break
        return base, places

    def _spread(self, hot: _Labels, shape: tuple[int, ...]) -> Symbol:
        """Makes the labels with all axes of a one-hot tensor of this shape, but for the axis of the classes."""
        kept = [(p - (p > hot.axis), n) for p, n in zip(hot.places, hot.labels.shape, strict=True) if p is not None]
        rest = tuple(n for i, n in enumerate(shape) if i != hot.axis)
        flat = self.reshape(hot.labels, tuple(n for _, n in kept))
        return (
            flat if flat.shape == rest else self.make("broadcast_to", flat, shape=rest, axes=tuple(p for p, _ in kept))
        )

    # -- products ------------------------------------------------------------------------------------------------------

    def _product(self, node: Node, hot: _Labels, side: int) -> Symbol | None:
        contract, batch = node.params["contract"], node.params.get("batch", ((), ()))
        tensor, other = node.inputs[side], node.inputs[1 - side]
        if batch[0]:
            return None
        if contract[side] == (hot.axis,):
            return self._looked_up(tensor, hot, other, contract[1 - side][0], turns=side == 1)
        classes = tensor.shape[hot.axis]
        is_sum = set(contract[side]) == set(range(tensor.spec.ndim)) - {hot.axis}
        if not is_sum or classes < _LEAST or tensor.dtype not in (dtypes.float32, dtypes.float64):
            return None
        pairs = sorted(zip(contract[side], contract[1 - side], strict=True))
        return self._added_up(tensor, hot, other, tuple(axis for _, axis in pairs), turns=side == 1)

    def _looked_up(self, tensor: Symbol, hot: _Labels, table: Symbol, axis: int, turns: bool) -> Symbol:
        """Returns the rows of a table that labels name. `turns`: the axes of the labels are last."""
        labels = self._spread(hot, tensor.shape)
        out = self.make("gather", table, labels, axes=(axis,), batch=0, mode="drop")
        first, n = labels.spec.ndim, out.spec.ndim
        return self.transpose(out, (*range(first, n), *range(first))) if turns else out

    def _added_up(self, tensor: Symbol, hot: _Labels, rows: Symbol, axes: tuple[int, ...], turns: bool) -> Symbol:
        """Sums the rows of each class; `axes` are the labels' axes. `turns`: the axis of the classes is last."""
        rest = tuple(axis for axis in range(rows.spec.ndim) if axis not in axes)
        updates = self.transpose(rows, (*axes, *rest))
        shape = (tensor.shape[hot.axis], *(rows.shape[axis] for axis in rest))
        labels = self._spread(hot, tensor.shape)
        out = self.make(
            "scatter", self.number(0, rows, shape), updates, labels, axes=(0,), batch=0, mode="drop", op="add"
        )
        return self.transpose(out, (*range(1, out.spec.ndim), 0)) if turns else out

    def _inner_product(self, node: Node) -> Symbol | None:
        """Returns a sum of products of elements, where one of the tensors need not be in memory for anything else."""
        (x, y), contract, batch = node.inputs, node.params["contract"], node.params.get("batch", ((), ()))
        is_inner = len(contract[0]) + len(batch[0]) == x.spec.ndim == y.spec.ndim > 0 and list(batch[0]) == sorted(
            batch[0]
        )
        if not is_inner or x.dtype not in (dtypes.float32, dtypes.float64):
            return None
        if not any(
            (w := self.writers.get(s)) is not None and (w.command in scalar or w.command in expansion) for s in (x, y)
        ):
            return None
        partner = dict(zip((*batch[0], *contract[0]), (*batch[1], *contract[1]), strict=True))
        turned = self.transpose(y, tuple(partner[axis] for axis in range(x.spec.ndim)))
        return self.make("reduce_sum", self.make("mul", x, turned), axes=tuple(sorted(contract[0])))

    # -- rows of an identity -------------------------------------------------------------------------------------------

    def _rows(self, node: Node) -> Symbol | None:
        """Rows of a one-hot matrix are one-hot: an identity need not be made for them."""
        x, *indices = node.inputs
        params = node.params
        if x.spec.ndim != 2 or params["axes"] != (0,) or params["batch"] or params["mode"] not in PICK_MODES:
            return None
        value = self.constants.get(x)
        if value is not None and value.shape[0] == value.shape[1] and np.array_equal(value, np.eye(value.shape[0])):
            labels = self.make("iota", shape=x.shape[:1], dtype=dtypes.int64, axis=0)
        else:
            hot = self._one_hot(x)
            if hot is None or hot.axis != 1:
                return None
            labels = self._spread(hot, x.shape)
        chosen = self.make("gather", labels, *indices, **params)
        (out,) = node.outputs
        spread = self.make("broadcast_to", chosen, shape=out.shape, axes=tuple(range(chosen.spec.ndim)))
        count = self.make("iota", shape=out.shape, dtype=labels.dtype, axis=chosen.spec.ndim)
        return self.make("convert", self.make("equal", spread, count), dtype=out.dtype)


def _long(shape: tuple[int, ...]) -> list[int]:
    return [n for n in shape if n != 1]
