"""Printed convolutions and both their gradients, for programs that call no library: as products of matrices, without copies.

Along each axis, positions of the result that have the same terms are a run: those whose windows lie within the input, and each
of those that reach into the padding; with strides, the gradient of the input has runs for each remainder. A box of runs is a
product whose operands are views that overlap. No zeros are multiplied in the place of padding, so an infinite weight makes no NaN.

Where few positions read a large weight, each box would read it again: there, the image is copied between zeros, and all positions
make one product. Where its result is not finite, the boxes compute it once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from nnc.backends.cpu.kernels.products.dot import print_product
from nnc.backends.native_runs import run_native
from nnc.backends.printer import Printer, in_blocks, over, over_vectors
from nnc.base import dtypes
from nnc.base.target import Target
from nnc.commands.contract import dot
from nnc.commands.pack import Blocks
from nnc.device import CPU
from nnc.graph import Attribute, Kernel, TensorSpec, add_kernel, command, infer_specs
from nnc.graph.kernels import KernelFactory
from nnc.lower.kernels.axes import Axes, word_of
from nnc.lower.kernels.builder import Code, Value, has_code
from nnc.lower.kernels.native import Native, Remembered
from nnc.lower.plan.stages import Step, Strides, View

# (position of the result, term) -> position in the left operand; negative where there is none
Place = Callable[[int, int], int]


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
    blocks: tuple[int, int]  # columns of a block of the right operand, and from block to block
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


def _channels_first(view: View, channels_last: bool) -> tuple[tuple[int, ...], Strides]:
    """Returns shape and strides as (N, C, *spatial)."""
    shape, strides = view.spec.shape, view.strides
    if channels_last:
        return (shape[0], shape[-1], *shape[1:-1]), (strides[0], strides[-1], *strides[1:-1])
    return shape, strides


def _weight(view: View, packed: str | None) -> tuple[tuple[int, ...], Strides, tuple[int, int] | None]:
    """Returns shape and strides of a weight, and the size of blocks of one axis with the bytes from block to block. A layout has
    the axes in another order, and that one in blocks.
    """
    if packed is None:
        return view.spec.shape, view.strides, None
    blocks, unit = Blocks.of(packed), view.spec.dtype.itemsize
    ((blocked, size),) = blocks.blocks or ((0, 1),)
    strides, step = {}, unit * size
    for axis in reversed(blocks.order):
        strides[axis] = step
        step *= blocks.sizes[axis] // (size if axis == blocked else 1)
    block = (size, strides[blocked]) if blocks.blocks else None
    if block is not None:
        strides[blocked] = unit
    return blocks.sizes, tuple(strides[axis] for axis in range(len(blocks.sizes))), block


_Tensors = tuple[_ConvolutionStrides, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _gradient_tensors(step: Step) -> _Tensors:
    groups, last = step.params["groups"], step.params.get("channels_last", False)
    (x, xs), (ct, cs) = (_channels_first(view, last) for view in step.inputs)
    out = step.outputs[0]
    w, ws = out.spec.shape, out.strides
    o, c = w[0] // groups, w[1]
    strides = _ConvolutionStrides(
        (c * xs[1], o * cs[1], o * ws[0]), (xs[1], ws[1]), (cs[1], ws[0]), (o, 0), (xs[0], cs[0]),
        (xs[2:], cs[2:], ws[2:]), (groups, c, o, x[0]),
    )  # fmt: skip
    return strides, w[2:], ct[2:], x[2:]


def _activation_tensors(step: Step, is_forward: bool) -> _Tensors:
    groups, last = step.params["groups"], step.params.get("channels_last", False)
    left, right, out = (*step.inputs, step.outputs[0])
    (x, xs), (y, ys) = _channels_first(left, last), _channels_first(out, last)
    w, ws, block = _weight(right, step.params.get("packed"))
    o, c = w[0] // groups, w[1]
    summed, columns = (c, o) if is_forward else (o, c)
    along_summed, along_columns = (ws[1], ws[0]) if is_forward else (ws[0], ws[1])
    blocks = (columns, 0) if block is None else block
    group = o // block[0] * block[1] if block is not None and is_forward else o * ws[0]
    strides = _ConvolutionStrides(
        (summed * xs[1], group, columns * ys[1]), (xs[0], ys[0]), (along_columns, ys[1]), blocks, (xs[1], along_summed),
        (xs[2:], ws[2:], ys[2:]), (groups, x[0], columns, summed),
    )  # fmt: skip
    return strides, y[2:], w[2:], x[2:]


class _ConvolutionForm(NamedTuple):
    """One of the three commands: where its terms lie, and the strides of its tensors with its spatial sizes: of the result, the
    terms, and the left operand; and the order of a weight's last two axes in memory, where columns of the result are neighbours.
    """

    place: Callable[[int, int, int], Place]
    tensors: Callable[[Step], _Tensors]
    channels: str = ""


_forms: Attribute[_ConvolutionForm] = Attribute(
    "printed_convolution", "the form in which a convolution, or a gradient of one, is printed"
)
_forms.set("conv", _ConvolutionForm(_forward, partial(_activation_tensors, is_forward=True), "ba"))
_forms.set("conv_input_grad", _ConvolutionForm(_input_gradient, partial(_activation_tensors, is_forward=False), "ab"))
_forms.set("conv_weight_grad", _ConvolutionForm(_weight_gradient, _gradient_tensors))


class _SpatialAxis(NamedTuple):
    """A spatial axis: its positions in the result, the terms of each, the size of the left operand, and where the terms lie."""

    positions: int
    terms: int
    size: int
    place: Place


class _ConvolutionSums(NamedTuple):
    """A convolution, or a gradient of one, as sums over terms: its strides, its spatial axes, and the runs of their positions."""

    tensors: _ConvolutionStrides
    axes: list[_SpatialAxis]
    cut: list[list[_AlikePositions]]

    @property
    def has_padding(self) -> bool:
        """Whether a position has fewer terms than there are."""
        return any(run.terms < axis.terms for runs, axis in zip(self.cut, self.axes, strict=True) for run in runs)


def _sums_of(step: Step) -> _ConvolutionSums:
    form = _forms[step.command]
    tensors, positions, terms, sizes = form.tensors(step)
    windows = (step.params[key] for key in ("stride", "dilation", "padding"))
    places = [form.place(s, d, low) for s, d, (low, _) in zip(*windows, strict=True)]
    axes = [_SpatialAxis(*each) for each in zip(positions, terms, sizes, places, strict=True)]
    return _ConvolutionSums(tensors, axes, [list(_axis_runs(*axis)) for axis in axes])


def _box_product(step: Step, tensors: _ConvolutionStrides, runs: Sequence[_AlikePositions]) -> Step:
    """Returns the product that computes a box of the result, on operands that begin at its first elements."""
    groups, rows, columns, summed = tensors.sizes
    lefts, rights, outs = tensors.spatial
    dtype, axes = step.inputs[0].spec.dtype, len(runs)
    size, apart = tensors.blocks
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
        (groups, columns // size, size, summed, *terms),
        (
            tensors.groups[1], apart, tensors.columns[0], tensors.summed[1],
            *(run.term_step * s for run, s in zip(runs, rights, strict=True)),
        ),
    )  # fmt: skip
    out = view(
        (groups, rows, *positions, columns // size, size),
        (
            tensors.groups[2], tensors.rows[1], *(run.step * s for run, s in zip(runs, outs, strict=True)),
            size * tensors.columns[1], tensors.columns[1],
        ),
    )  # fmt: skip
    contract = tuple(range(2 + axes, 3 + 2 * axes)), tuple(range(3, 4 + axes))
    return Step(dot, (left, right), (out,), {"contract": contract, "batch": ((0,), (0,))}, source=step.source)


def _native(step: Step, machine: Target) -> Native | None:
    sums = _sums_of(step)
    axes = _padded(sums, step.outputs[0].spec.dtype.itemsize, machine)
    printer = Printer(step, machine, workspace=axes is not None)
    if not step.outputs[0].spec.size:
        return printer.native(inline=True)
    if axes is None:
        return printer.native(light=True) if _print_boxes(printer, step, sums, machine) else None
    if not _print_padded(printer, step, sums, axes, machine):
        return None
    if dtypes.is_inexact(step.outputs[0].spec.dtype):
        code = printer.main
        with code.when(code.not_(_is_finite(code, step.outputs[0], machine))):  # zeros may have met an infinite weight
            if not _print_boxes(printer, step, sums, machine):
                return None
    return printer.native(light=True)


def _print_boxes(printer: Printer, step: Step, sums: _ConvolutionSums, machine: Target) -> bool:
    """Prints a product for each box of runs; returns whether all have kernels."""
    code, tensors = printer.main, sums.tensors
    for runs in product(*sums.cut):
        box = _box_product(step, tensors, runs)
        left, right, out = (
            code.offset(p, at) for p, at in zip(("%in0", "%in1", "%out0"), _starts(tensors, runs), strict=True)
        )
        if not math.prod((tensors.sizes[3], *(run.terms for run in runs))):
            view = box.outputs[0]
            with over(code, Axes(view.spec.shape, (view.strides,)).merged(), [out]) as (at,):
                code.store(at, code.constant(0, view.spec.dtype))
            continue
        native = print_product(box, machine)
        if native is None:
            return False
        printer.call(code, native, left, right, out)
    return True


def _starts(tensors: _ConvolutionStrides, runs: Sequence[_AlikePositions]) -> list[int]:
    """Returns the offsets in bytes of a box in the left operand, the right one and the result."""
    numbers = [run.at for run in runs], [run.term for run in runs], [run.first for run in runs]
    return [
        sum(number * stride for number, stride in zip(each, strides, strict=True))
        for each, strides in zip(numbers, tensors.spatial, strict=True)
    ]


# -- few positions -----------------------------------------------------------------------------------------------------


class _PaddedAxis(NamedTuple):
    """A spatial axis of the left operand between zeros: `low` of them before it, `size` elements in all. The first term of the
    first position is element `at`; a position begins `along` elements further than its neighbour, its terms lie `across` apart.
    """

    low: int
    size: int
    at: int
    along: int
    across: int


def _padded_axis(axis: _SpatialAxis) -> _PaddedAxis | None:
    """Returns the axis between zeros; None where terms of a position lie unevenly."""
    place, first = axis.place, axis.place(0, 0)
    along, across = place(1, 0) - first, place(0, 1) - first
    each = [(r, t) for r in range(axis.positions) for t in range(axis.terms)]
    places = [place(*at) for at in each]
    if places != [first + along * r + across * t for r, t in each]:
        return None
    low = -min(0, *places)
    return _PaddedAxis(low, max(axis.size - 1, *places) + low + 1, first + low, along, across)


def _padded(sums: _ConvolutionSums, itemsize: int, machine: Target) -> list[_PaddedAxis] | None:
    """Returns the axes of the left operand between zeros, where a copy of it pays: few positions read a large right operand, which
    a product for each box of them reads again. None where it does not.
    """
    groups, rows, columns, summed = sums.tensors.sizes
    nbytes = itemsize * groups * columns * summed * math.prod(axis.terms for axis in sums.axes)
    few = rows * math.prod(axis.positions for axis in sums.axes) <= machine.convolutions.padded_positions
    if not (few and sums.has_padding and nbytes > machine.memory.second_cache_bytes):
        return None
    axes = [_padded_axis(axis) for axis in sums.axes]
    return None if None in axes else [axis for axis in axes if axis is not None]


def _copy_strides(sums: _ConvolutionSums, axes: Sequence[_PaddedAxis], itemsize: int) -> Strides:
    """Returns the strides in bytes of the copy: along its rows, spatial axes, groups and summed channels."""
    groups, rows, _, summed = sums.tensors.sizes
    sizes = (rows, *(axis.size for axis in axes), groups, summed)
    return tuple(itemsize * math.prod(sizes[i + 1 :]) for i in range(len(sizes)))


def _copied_bytes(sums: _ConvolutionSums, itemsize: int, machine: Target) -> int:
    axes = _padded(sums, itemsize, machine)
    return 0 if axes is None else _copy_strides(sums, axes, itemsize)[0] * sums.tensors.sizes[1]


def _print_padded(
    printer: Printer, step: Step, sums: _ConvolutionSums, axes: Sequence[_PaddedAxis], machine: Target
) -> bool:
    """Prints the copy between zeros, and one product; returns whether that has a kernel."""
    tensors, dtype = sums.tensors, step.inputs[0].spec.dtype
    groups, rows, _, summed = tensors.sizes
    word, strides = word_of(dtype), _copy_strides(sums, axes, dtype.itemsize)
    along_rows, *along, along_groups, along_summed = strides
    count = rows * along_rows // dtype.itemsize
    inner = (rows, *(axis.size for axis in sums.axes), groups, summed)
    source = (tensors.rows[0], *tensors.spatial[0], tensors.groups[0], tensors.summed[0])
    start = sum(axis.low * stride for axis, stride in zip(axes, along, strict=True))
    code = printer.main

    def zero(i: Value, lanes: int) -> None:
        place = code.offset("%workspace", code.mul(i, code.integer(dtype.itemsize)))
        code.store(place, code.constant(0, word, lanes))

    in_blocks(code, 0, count, machine.vector_bytes // dtype.itemsize, zero)
    with over(code, Axes(inner, (source, strides)), ["%in0", code.offset("%workspace", start)]) as (x, y):
        code.store(y, code.load(x, word))
    first = sum(axis.at * stride for axis, stride in zip(axes, along, strict=True))
    runs = [
        _AlikePositions(0, 1, axis.positions, 0, 1, axis.terms, 0, padded.along, padded.across)
        for axis, padded in zip(sums.axes, axes, strict=True)
    ]
    copied = tensors._replace(
        groups=(along_groups, *tensors.groups[1:]), rows=(along_rows, tensors.rows[1]),
        summed=(along_summed, tensors.summed[1]), spatial=(tuple(along), *tensors.spatial[1:]),
    )  # fmt: skip
    native = print_product(_box_product(step, copied, runs), machine)
    if native is None:
        return False
    printer.call(code, native, code.offset("%workspace", first), "%in1", "%out0")
    return True


def _is_finite(code: Code, out: View, machine: Target) -> Value:
    """Whether all elements of the result are finite: with a sum of differences from themselves."""
    dtype, axes = out.spec.dtype, Axes(out.spec.shape, (out.strides,)).ordered(0)
    wide, lanes = dtypes.accumulator(dtype), machine.vector_bytes // dtype.itemsize
    sums = {n: code.slot(code.constant(0, wide, n)) for n in (lanes, 0)}

    def add(pointers: list[str], n: int) -> None:
        x = code.convert(code.load(pointers[0], dtype, n), wide)
        code.write(sums[n], code.add(code.read(sums[n]), code.sub(x, x)))

    over_vectors(code, axes, ["%out0"], [dtype.itemsize], None, lanes, add)
    total = code.reduce("fadd", code.read(sums[lanes]), code.read(sums[0]))
    return code.compare("eq", total, total)


# -- the kernel --------------------------------------------------------------------------------------------------------


def _workspace(name: str, machine: Target, specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> int:
    outs = infer_specs(command(name), specs, params)
    if not _supports(machine, specs, params) or not outs[0].size:
        return 0
    views = [View.whole(0, spec) for spec in (*specs, *outs)]
    sums = _sums_of(Step(command(name), tuple(views[:2]), tuple(views[2:]), params))
    return _copied_bytes(sums, specs[0].dtype.itemsize, machine)


def _supports(machine: Target, specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    """Takes convolutions of programs without libraries; elsewhere the reference, with BLAS, runs those oneDNN lacks."""
    return bool(machine.backends) and has_code(specs[0].dtype)


def _layouts(
    name: str, machine: Target, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], once: bool
) -> Mapping[int, str]:
    """Wants a weight whose columns are neighbours, in panels where there are whole ones."""
    channels = _forms[command(name)].channels
    if not channels or "packed" in params:
        return {}
    shape, columns = specs[1].shape, channels[1]
    block = 2 * machine.vector_bytes // specs[1].dtype.itemsize
    count = shape[1] if columns == "b" else shape[0] // params["groups"]
    order = "".join(chr(ord("c") + i) for i in range(len(shape) - 2)) + channels
    if count % block == 0:
        order = f"{columns.upper()}{order[:-1]}{block}{columns}"
    return {1: f"{'x'.join(map(str, shape))}:{order}"}


def _kernel(name: str, machine: Target) -> Kernel:
    native = partial(_native, machine=machine)
    workspace = partial(_workspace, name, machine)
    able = partial(_supports, machine)
    layouts = partial(_layouts, name, machine)
    return Kernel(CPU, run_native(native, name), able, workspace=workspace, native=Remembered(native), layouts=layouts)


for _command in _forms:
    add_kernel(_command.name, KernelFactory(CPU, partial(_kernel, _command.name)))
