"""Variables that view others: slices, reshapes and transposes, which are read again when their base is re-bound.

A view of a view is one of the base as long as the view between them is contiguous: then both are described by an offset and a
shape. A view of a value that is not contiguous is a value of its own, which follows no base.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nnc.base.records import record
from nnc.commands.shape import reshape, slice_, transpose
from nnc.graph import TensorSpec
from nnc.trace.core.eager import Plan

VIEWS = frozenset({reshape, slice_, transpose})


@record
class View:
    """The view of an alias: elements of the flat base from `offset` on in `shape`; then `last`, where they lie apart."""

    base: weakref.ref[Any]
    of: Any  # the binding of the base that the alias shows now
    offset: int
    shape: tuple[int, ...]
    last: tuple[Plan, ...] = ()

    def read(self, base: Any) -> Any:
        """Returns the present elements of the view."""
        whole = base.shape == self.shape and self.offset == 0
        x = base
        if not whole:
            size = math.prod(self.shape)
            flat = reshape(x, shape=(x.size,))
            x = reshape(slice_(flat, start=(self.offset,), limit=(self.offset + size,), stride=(1,)), shape=self.shape)
        for plan in self.last:
            x = plan.command(x, **plan.params)
        return x


def view_of(variable: Any, plans: Sequence[Plan]) -> View | None:
    """Returns the view that commands make of a variable, one after the other; None where their result is a value of its own."""
    view: View | None = variable.view or View(weakref.ref(variable), variable.binding, 0, variable.shape)
    for plan in plans:
        view = _through(view, plan) if view is not None else None
    return view


def _through(view: View, plan: Plan) -> View | None:
    """Returns the view that one more command makes of a view."""
    if view.last:  # an index such as [:, 0] is a slice and a reshape
        is_index = plan.command is reshape and len(view.last) == 1
        return replace(view, last=(*view.last, plan)) if is_index else None
    found = _contiguous(plan, plan.specs[0])
    if found is None:
        return replace(view, last=(plan,))
    return View(view.base, view.of, view.offset + found, plan.outputs[0].shape)


def _contiguous(plan: Plan, spec: TensorSpec) -> int | None:
    """Returns the first element of the result within the operand, if the result is one run of elements."""
    if plan.command is reshape:
        return 0
    if plan.command is transpose:
        moved = [axis for axis in plan.params["permutation"] if spec.shape[axis] != 1]
        return 0 if moved == sorted(moved) else None
    start, stride = plan.params["start"], plan.params["stride"]
    shape = plan.outputs[0].shape
    offset, step, open_ended = 0, 1, True
    for axis in reversed(range(spec.ndim)):
        offset += start[axis] * step
        if shape[axis] != 1 and (not open_ended or (stride[axis] != 1)):
            return None
        open_ended = open_ended and shape[axis] == spec.shape[axis]
        step *= spec.shape[axis]
    return offset
