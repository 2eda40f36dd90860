"""Printed convolutions and both their gradients, for programs that call no library: as products of matrices, without copies.

Along each axis, positions of the result that have the same terms are a run: those whose windows lie within the input, and each
of those that reach into the padding; with strides, the gradient of the input has runs for each remainder. A box of runs is a
product whose operands are views that overlap. No zeros are multiplied in the place of padding, so an infinite weight makes no NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from nnc.backends.cpu.kernels.products.dot import print_product
from nnc.backends.native_runs import run_native
from nnc.backends.printer import Printer, over
from nnc.commands.contract import dot
from nnc.device import CPU
from nnc.device.target import Target
from nnc.graph import Kernel, TensorSpec, add_kernel
from nnc.graph.kernels import KernelFactory
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import has_code
from nnc.lower.kernels.native import Native, Remembered
from nnc.lower.plan.stages import Step, Strides, View

Place = Callable[
    [int, int], int
]  # (position of the result, term) -> position in the left operand; negative where there is none


class _AlikePositions(NamedTuple):
    """Positions of the result along one axis: `places` from `first` on, `step` apart. Each has the `terms` from `term` on,
    `term_step` apart. In the left operand they lie from `at` on, `along` further for each position and `across` for each term.
    """

    first: int
    step: int
    places: int
    term: int
    term_step: int
    terms: int
    at: int
    along: int
    across: int


class _ConvolutionStrides(NamedTuple):
    """Strides in bytes of the left operand, the right one and the result: along groups, rows, columns, summed channels, and the
    spatial axes.
    """

    groups: tuple[int, int, int]
    rows: tuple[int, int]  # of the left operand and the result
    columns: tuple[int, int]  # of the right operand and the result
    summed: tuple[int, int]  # of both operands
    spatial: tuple[Strides, Strides, Strides]
    sizes: tuple[int, int, int, int]  # groups, rows, columns, summed


def _axis_runs(positions: int, terms: int, size: int, place: Place) -> Iterator[_AlikePositions]:
    """Cuts one axis of the result into runs."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for r in range(positions):
        found = tuple(t for t in range(terms) if 0 <= place(r, t) < size)
        alike.setdefault(found, []).append(r)
    for found, rows in alike.items():
        term, term_step = (found[0] if found else 0), (found[1] - found[0] if len(found) > 1 else 1)
        while rows:
            step = rows[1] - rows[0] if len(rows) > 1 else 1
            count = 1
            while count < len(rows) and rows[count] - rows[count - 1] == step:
                count += 1
            at = place(rows[0], term) if found else 0
            along = place(rows[1], term) - at if found and count > 1 else 0
            across = place(rows[0], found[1]) - at if len(found) > 1 else 0
            yield _AlikePositions(rows[0], step, count, term, term_step, len(found), at, along, across)
            rows = rows[count:]


def _forward(stride: int, dilation: int, low: int) -> Place:
    return lambda p, k: stride * p + dilation * k - low


def _input_gradient(stride: int, dilation: int, low: int) -> Place:
    def place(q: int, k: int) -> int:
        p, left = divmod(q + low - dilation * k, stride)
        return -1 if left else p

    return place


def _weight_gradient(stride: int, dilation: int, low: int) -> Place:
    return lambda k, p: stride * p + dilation * k - low


_FORMS: Mapping[str, Callable[[int, int, int], Place]] = {
    "conv": _forward, "conv_input_grad": _input_gradient, "conv_weight_grad": _weight_gradient,
}  # fmt: skip


def _channels_first(view: View, channels_last: bool) -> tuple[tuple[int, ...], Strides]:
    """Returns shape and strides as (N, C, *spatial)."""
    shape, strides = view.spec.shape, view.strides
    if channels_last:
        return (shape[0], shape[-1], *shape[1:-1]), (strides[0], strides[-1], *strides[1:-1])
    return shape, strides


def _tensors(step: Step) -> tuple[_ConvolutionStrides, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Returns the strides of a convolution, and its spatial sizes: of the result, the terms, and the left operand."""
    groups, last = step.params["groups"], step.params.get("channels_last", False)
    left, right, out = (*step.inputs, step.outputs[0])
    if step.command.name == "conv_weight_grad":
        (x, xs), (ct, cs) = _channels_first(left, last), _channels_first(right, last)
        w, ws = out.spec.shape, out.strides
        o, c = w[0] // groups, w[1]
        strides = _ConvolutionStrides(
            (c * xs[1], o * cs[1], o * ws[0]), (xs[1], ws[1]), (cs[1], ws[0]), (xs[0], cs[0]), (xs[2:], cs[2:], ws[2:]),
            (groups, c, o, x[0]),
        )  # fmt: skip
        return strides, w[2:], ct[2:], x[2:]
    (x, xs), (y, ys) = _channels_first(left, last), _channels_first(out, last)
    w, ws = right.spec.shape, right.strides
    o, c = w[0] // groups, w[1]
    forward = step.command.name == "conv"
    summed, columns = (c, o) if forward else (o, c)
    along_summed, along_columns = (ws[1], ws[0]) if forward else (ws[0], ws[1])
    strides = _ConvolutionStrides(
        (summed * xs[1], o * ws[0], columns * ys[1]), (xs[0], ys[0]), (along_columns, ys[1]), (xs[1], along_summed),
        (xs[2:], ws[2:], ys[2:]), (groups, x[0], columns, summed),
    )  # fmt: skip
    return strides, y[2:], w[2:], x[2:]


def _box_product(step: Step, tensors: _ConvolutionStrides, runs: Sequence[_AlikePositions]) -> Step:
    """Returns the product that computes a box of the result, on operands that begin at its first elements."""
    groups, rows, columns, summed = tensors.sizes
    lefts, rights, outs = tensors.spatial
    dtype, axes = step.inputs[0].spec.dtype, len(runs)
    positions, terms = tuple(run.places for run in runs), tuple(run.terms for run in runs)

    def view(shape: Sequence[int], strides: Sequence[int]) -> View:
        return View(0, TensorSpec(tuple(shape), dtype), 0, tuple(strides))

    left = view(
        (groups, rows, *positions, summed, *terms),
        (
            tensors.groups[0], tensors.rows[0], *(run.along * s for run, s in zip(runs, lefts, strict=True)),
            tensors.summed[0], *(run.across * s for run, s in zip(runs, lefts, strict=True)),
        ),
    )  # fmt: skip
    right = view(
        (groups, columns, summed, *terms),
        (
            tensors.groups[1], tensors.columns[0], tensors.summed[1],
            *(run.term_step * s for run, s in zip(runs, rights, strict=True)),
        ),
    )  # fmt: skip
    out = view(
        (groups, rows, *positions, columns),
        (
            tensors.groups[2], tensors.rows[1], *(run.step * s for run, s in zip(runs, outs, strict=True)),
            tensors.columns[1],
        ),
    )  # fmt: skip
    contract = tuple(range(2 + axes, 3 + 2 * axes)), tuple(range(2, 3 + axes))
    return Step(dot, (left, right), (out,), {"contract": contract, "batch": ((0,), (0,))}, source=step.source)


def _native(step: Step, machine: Target) -> Native | None:
    tensors, positions, terms, sizes = _tensors(step)
    params, printer = step.params, Printer(step, machine)
    code = printer.main
    if not step.outputs[0].spec.size:
        return printer.native(inline=True)
    form = _FORMS[step.command.name]
    places = [
        form(s, d, low) for s, d, (low, _) in zip(params["stride"], params["dilation"], params["padding"], strict=True)
    ]
    cut = [list(_axis_runs(*each)) for each in zip(positions, terms, sizes, places, strict=True)]
    for runs in product(*cut):
        box = _box_product(step, tensors, runs)
        starts = [
            sum(number * stride for number, stride in zip(numbers, strides, strict=True))
            for numbers, strides in zip(
                ([run.at for run in runs], [run.term for run in runs], [run.first for run in runs]),
                tensors.spatial, strict=True,
            )
        ]  # fmt: skip
        left, right, out = (code.offset(p, at) for p, at in zip(("%in0", "%in1", "%out0"), starts, strict=True))
        if not math.prod((tensors.sizes[3], *(run.terms for run in runs))):
            view = box.outputs[0]
            with over(code, Axes(view.spec.shape, (view.strides,)).merged(), [out]) as (at,):
                code.store(at, code.constant(0, view.spec.dtype))
            continue
        native = print_product(box, machine)
        if native is None:
            return None
        printer.call(code, native, left, right, out)
    return printer.native(light=True)


def _supports(machine: Target, specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    """Takes convolutions of programs without libraries; elsewhere the reference, with BLAS, runs those oneDNN lacks."""
    return not machine.libraries and "packed" not in params and has_code(specs[0].dtype)


def _kernel(name: str, machine: Target) -> Kernel:
    native = partial(_native, machine=machine)
    return Kernel(CPU, run_native(native, name), partial(_supports, machine), native=Remembered(native))


for _name in _FORMS:
    add_kernel(_name, KernelFactory(CPU, partial(_kernel, _name)))
