"""Steps whose operands have numbers for sizes: printers that take sizes from views need no code for those that vary."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from nnc.graph import TensorSpec
from nnc.lower.kernels.native import Native
from nnc.lower.kernels.sizes import Numbers, find_sized, is_number
from nnc.lower.plan.stages import Step, View


def sized_native(key: Any, step: Step, make: Callable[[Step], Native | None]) -> Native | None:
    """Returns the kernel of a step, which takes as numbers the sizes and strides of operands that differ in the step `like` it.

    Args:
        key: tells apart all that a text depends on beside the step.
        make: prints the kernel of a step with numbers.
    """
    if step.like is None or len(step.like.inputs) != len(step.inputs):
        return make(step)
    views = (*step.inputs, *step.outputs)

    def made(sized: tuple[Any, ...], numbers: Numbers) -> Native | None:
        given = [_view(view, *sizes) for view, sizes in zip(views, sized, strict=True)]
        at = len(step.inputs)
        return make(replace(step, inputs=tuple(given[:at]), outputs=tuple(given[at:]), like=None))

    params = repr(tuple(step.params.items()))  # repr tells 0.0 from -0.0
    kinds = tuple([(view.spec.dtype, view.spec.layout) for view in views])
    others = _sizes((*step.like.inputs, *step.like.outputs))
    return find_sized((key, params, len(step.inputs), kinds), _sizes(views), others, made)


def _sizes(views: Sequence[View]) -> tuple[Any, ...]:
    return tuple([(view.spec.shape, view.strides) for view in views])


def _view(view: View, shape: tuple[int, ...], strides: tuple[int, ...]) -> View:
    """Returns a view with other sizes, which may be numbers. Specs with numbers are none of those that are kept."""
    if not any(map(is_number, (*shape, *strides))):
        return view
    spec: Any = object.__new__(TensorSpec)
    size = math.prod(shape)
    fields = (shape, view.spec.dtype, view.spec.layout, len(shape), size, size * view.spec.dtype.itemsize)
    for name, value in zip(TensorSpec.__slots__, fields, strict=False):
        object.__setattr__(spec, name, value)
    return replace(view, spec=spec, strides=strides)


def fixed(step: Step) -> Step:
    """Returns a step with integers where the sizes of its operands are numbers."""
    inputs, outputs = (
        tuple([replace(view, spec=view.spec.update(), strides=tuple(map(int, view.strides))) for view in views])
        for views in (step.inputs, step.outputs)
    )
    return replace(step, inputs=inputs, outputs=outputs)


def numbers_of(step: Step) -> Numbers:
    """Returns the numbers among the sizes of a step's operands."""
    for view in (*step.inputs, *step.outputs):
        for x in (*view.spec.shape, *view.strides):
            if is_number(x):
                return x.home
    return Numbers()
