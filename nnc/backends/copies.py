"""Which views of operands and results the commands copy that move elements without computing."""

from __future__ import annotations

from collections.abc import Iterator

from nnc.lower.plan.stages import Step, View, is_contiguous, row_major
from nnc.lower.plan.views import restride


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
