"""Printed convolutions and both their gradients, for programs that call no library, and convolutions of one image to few channels:
as products of matrices, without copies.

Along each axis, positions of the result that have the same terms are a run: those whose windows lie within the input, and each
of those that reach into the padding; with strides, the gradient of the input has runs for each remainder. A box of runs is a
product whose operands are views that overlap. No zeros are multiplied in the place of padding, so an infinite weight makes no NaN.

Where few positions read a large weight, or windows reach into the padding in many ways, the image is copied between zeros, and all
positions make one product. Where its result is not finite, plain loops compute it once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from nnc.backends.cpu.kernels.products.dot import print_product
from nnc.backends.native_runs import run_native
from nnc.backends.printer import Printer, in_blocks, over, over_vectors, times
from nnc.base import dtypes
from nnc.base.target import Target
from nnc.commands.contract import dot
from nnc.commands.pack import Blocks
from nnc.commands.windows import is_narrow
from nnc.device import CPU
from nnc.graph import Attribute, Kernel, TensorSpec, add_kernel, command, infer_specs
from nnc.graph.kernels import KernelFactory
from nnc.lower.kernels.axes import Axes, word_of
from nnc.lower.kernels.builder import Code, Value, has_code
from nnc.lower.kernels.native import Native, Remembered
from nnc.lower.plan.stages import Step, Strides, View, row_major

Windows = tuple[int, int, int]  # stride, dilation, and padding before the first element
# (positions, terms, windows) -> positions in the left operand, < 0: none
PlaceRule = Callable[[Any, Any, Windows], Any]
_PLACES_AT_ONCE = 1 << 20


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


@lru_cache(maxsize=256)
def _axis_runs(positions: int, terms: int, size: int, rule: PlaceRule, windows: Windows) -> list[_AlikePositions]:
    """Cuts one axis of the result into runs; `windows` are its stride, dilation and padding before the first element."""
    alike: dict[bytes, list[int]] = {}
    for begin in range(0, positions, most := max(1, _PLACES_AT_ONCE // max(terms, 1))):
        rows = np.arange(begin, min(begin + most, positions))
        places = rule(rows[:, None], np.arange(terms), windows)
        for r, found in zip(rows.tolist(), np.packbits((places >= 0) & (places < size), axis=1), strict=True):
            alike.setdefault(found.tobytes(), []).append(r)
    cut = []
    for bits, rows_alike in alike.items():
        found = np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), count=terms)).tolist()
        term, term_step = (found[0] if found else 0), (found[1] - found[0] if len(found) > 1 else 1)
        left = rows_alike
        while left:
            step = left[1] - left[0] if len(left) > 1 else 1
            count = 1
            while count < len(left) and left[count] - left[count - 1] == step:
                count += 1
            at = int(rule(left[0], term, windows)) if found else 0
            along = int(rule(left[1], term, windows)) - at if found and count > 1 else 0
            across = int(rule(left[0], found[1], windows)) - at if len(found) > 1 else 0
            cut.append(_AlikePositions(left[0], step, count, term, term_step, len(found), at, along, across))
            left = left[count:]
    return cut


class _Steps(NamedTuple):
    """Terms that lie evenly: position p's term k is element first + along · p + across · k of the left operand."""

    first: int
    along: int
    across: int


def _forward(p: Any, k: Any, windows: Windows) -> Any:
    stride, dilation, low = windows
    return stride * p + dilation * k - low


def _input_gradient(q: Any, k: Any, windows: Windows) -> Any:
    stride, dilation, low = windows
    p, left = np.divmod(q + low - dilation * k, stride)
    return np.where(left, -1, p)


def _weight_gradient(k: Any, p: Any, windows: Windows) -> Any:
    stride, dilation, low = windows
    return stride * p + dilation * k - low


def _is_last(step: Step) -> bool:
    """Whether activations have their channels last."""
    return bool(step.params.get("channels_last", False))


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
    terms, and the left operand; where terms lie evenly; and the order of a weight's last two axes in memory such that columns of
    the result are neighbours.
    """

    place: PlaceRule
    tensors: Callable[[Step], _Tensors]
    steps: Callable[[int, int, int], _Steps | None]
    channels: str = ""
    is_forward: bool = False


_forms: Attribute[_ConvolutionForm] = Attribute(
    "printed_convolution", "the form in which a convolution, or a gradient of one, is printed"
)
_forms.set(
    "conv",
    _ConvolutionForm(
        _forward,
        partial(_activation_tensors, is_forward=True),
        lambda s, d, low: _Steps(-low, s, d),
        "ba",
        is_forward=True,
    ),
)
_forms.set(
    "conv_input_grad",
    _ConvolutionForm(
        _input_gradient, partial(_activation_tensors, is_forward=False),
        lambda s, d, low: _Steps(low, 1, -d) if s == 1 else None, "ab",
    ),
)  # fmt: skip
_forms.set(
    "conv_weight_grad",
    _ConvolutionForm(_weight_gradient, _gradient_tensors, lambda s, d, low: _Steps(-low, d, s)),
)


class _SpatialAxis(NamedTuple):
    """A spatial axis: its positions in the result, the terms of each, the size of the left operand, and where terms lie evenly."""

    positions: int
    terms: int
    size: int
    steps: _Steps | None


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
    tensors, *sizes = form.tensors(step)
    axes, cut = [], []
    windows = (step.params[key] for key in ("stride", "dilation", "padding"))
    for positions, terms, size, stride, dilation, (low, _) in zip(*sizes, *windows, strict=True):
        axes.append(_SpatialAxis(positions, terms, size, form.steps(stride, dilation, low)))
        cut.append(_axis_runs(positions, terms, size, form.place, (stride, dilation, low)))
    return _ConvolutionSums(tensors, axes, cut)


def _box_product(step: Step, tensors: _ConvolutionStrides, runs: Sequence[_AlikePositions]) -> Step:
    """Returns the product that computes a box of the result, on operands that begin at its first elements.

    Each block of columns is a matrix of its own, even where there are more blocks than columns in one.
    """
    groups, rows, columns, summed = tensors.sizes
    lefts, rights, outs = tensors.spatial
    dtype, axes = step.inputs[0].spec.dtype, len(runs)
    size, apart = tensors.blocks
    blocks = columns // size
    positions, terms = tuple(run.places for run in runs), tuple(run.terms for run in runs)

    def view(shape: Sequence[int], strides: Sequence[int]) -> View:
        return View(0, TensorSpec(tuple(shape), dtype), 0, tuple(strides))

    left = view(
        (groups, blocks, rows, *positions, summed, *terms),
        (
            tensors.groups[0], 0, tensors.rows[0], *(run.along * s for run, s in zip(runs, lefts, strict=True)),
            tensors.summed[0], *(run.across * s for run, s in zip(runs, lefts, strict=True)),
        ),
    )  # fmt: skip
    right = view(
        (groups, blocks, size, summed, *terms),
        (
            tensors.groups[1], apart, tensors.columns[0], tensors.summed[1],
            *(run.term_step * s for run, s in zip(runs, rights, strict=True)),
        ),
    )  # fmt: skip
    out = view(
        (groups, blocks, rows, *positions, size),
        (
            tensors.groups[2], size * tensors.columns[1], tensors.rows[1],
            *(run.step * s for run, s in zip(runs, outs, strict=True)), tensors.columns[1],
        ),
    )  # fmt: skip
    contract = tuple(range(3 + axes, 4 + 2 * axes)), tuple(range(3, 4 + axes))
    return Step(dot, (left, right), (out,), {"contract": contract, "batch": ((0, 1), (0, 1))}, source=step.source)


def _native(step: Step, machine: Target) -> Native | None:
    sums = _sums_of(step)
    axes = _padded(sums, step.inputs[0].spec.dtype.itemsize, machine)
    printer = Printer(step, machine, workspace=axes is not None)
    if not step.outputs[0].spec.size:
        return printer.native(inline=True)
    if axes is not None:
        return printer.native(light=True) if _print_padded(printer, step, sums, axes, machine) else None
    return printer.native(light=True) if _print_boxes(printer, step, sums, machine) else None


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


# -- copies between zeros ----------------------------------------------------------------------------------------------


class _PaddedAxis(NamedTuple):
    """A spatial axis of the left operand between zeros: `low` of them before it, `size` elements in all. The first term of the
    first position is element `at`; a position begins `along` elements further than its neighbour, its terms lie `across` apart.
    """

    low: int
    size: int
    at: int
    along: int
    across: int

    @classmethod
    def of(cls, axis: _SpatialAxis, steps: _Steps) -> _PaddedAxis:
        """Returns the axis with the zeros that its terms reach."""
        reach = steps.along * max(axis.positions - 1, 0), steps.across * max(axis.terms - 1, 0)
        low = max(0, -(steps.first + sum(min(0, step) for step in reach)))
        high = max(axis.size - 1, steps.first + sum(max(0, step) for step in reach))
        return cls(low, low + high + 1, steps.first + low, steps.along, steps.across)


def _padded(sums: _ConvolutionSums, itemsize: int, machine: Target) -> list[_PaddedAxis] | None:
    """Returns the axes of the left operand between zeros, where a copy of it pays; None where it does not.

    Few positions read a large right operand, which a product for each box of them reads again. Windows that reach into the padding
    in many ways need as many products: 117 of a window of 3 × 39.
    """
    groups, rows, columns, summed = sums.tensors.sizes
    steps = [axis.steps for axis in sums.axes]
    if None in steps or not sums.has_padding:
        return None
    nbytes = itemsize * groups * columns * summed * math.prod(axis.terms for axis in sums.axes)
    few = rows * math.prod(axis.positions for axis in sums.axes) <= machine.convolutions.padded_positions
    reads_once = few and nbytes > machine.memory.second_cache_bytes
    if not reads_once and math.prod(map(len, sums.cut)) <= machine.convolutions.most_boxes:
        return None
    return [_PaddedAxis.of(axis, step) for axis, step in zip(sums.axes, steps, strict=True) if step is not None]


def _copy_strides(step: Step, sums: _ConvolutionSums, axes: Sequence[_PaddedAxis]) -> tuple[int, ...]:
    """Returns the strides in bytes of the copy, which lies like the left operand: along its rows, spatial axes, groups and summed
    channels.
    """
    groups, rows, _, summed = sums.tensors.sizes
    spatial = [axis.size for axis in axes]
    sizes = [rows, *spatial, groups, summed] if _is_last(step) else [rows, groups, summed, *spatial]
    strides = row_major(TensorSpec(tuple(sizes), step.inputs[0].spec.dtype))
    return strides if _is_last(step) else (strides[0], *strides[3:], *strides[1:3])


def _copied_bytes(step: Step, machine: Target) -> int:
    """Bytes of the copy; 0 where there is none."""
    sums = _sums_of(step)
    axes = _padded(sums, step.inputs[0].spec.dtype.itemsize, machine)
    return 0 if axes is None else _copy_strides(step, sums, axes)[0] * sums.tensors.sizes[1]


def _print_padded(
    printer: Printer, step: Step, sums: _ConvolutionSums, axes: Sequence[_PaddedAxis], machine: Target
) -> bool:
    """Prints the copy between zeros, and one product; returns whether that has a kernel.

    Where the result is not finite, plain loops compute it once more: zeros may have met an infinite weight.
    """
    tensors, dtype, code = sums.tensors, step.inputs[0].spec.dtype, printer.main
    groups, rows, _, summed = tensors.sizes
    word, strides = word_of(dtype), _copy_strides(step, sums, axes)
    along_rows, *along, along_groups, along_summed = strides
    inner = (rows, *(axis.size for axis in sums.axes), groups, summed)
    source = (tensors.rows[0], *tensors.spatial[0], tensors.groups[0], tensors.summed[0])
    start = sum(axis.low * stride for axis, stride in zip(axes, along, strict=True))

    def zero(i: Value, lanes: int) -> None:
        place = code.offset("%workspace", code.mul(i, code.integer(dtype.itemsize)))
        code.store(place, code.constant(0, word, lanes))

    in_blocks(code, 0, rows * along_rows // dtype.itemsize, machine.vector_bytes // dtype.itemsize, zero)
    copied = Axes(inner, (source, strides)).ordered(0)
    with over(code, copied, ["%in0", code.offset("%workspace", start)]) as (x, y):
        code.store(y, code.load(x, word))
    first = sum(axis.at * stride for axis, stride in zip(axes, along, strict=True))
    runs = [
        _AlikePositions(0, 1, axis.positions, 0, 1, axis.terms, 0, padded.along, padded.across)
        for axis, padded in zip(sums.axes, axes, strict=True)
    ]
    moved = tensors._replace(
        groups=(along_groups, *tensors.groups[1:]), rows=(along_rows, tensors.rows[1]),
        summed=(along_summed, tensors.summed[1]), spatial=(tuple(along), *tensors.spatial[1:]),
    )  # fmt: skip
    native = print_product(_box_product(step, moved, runs), machine)
    if native is None:
        return False
    printer.call(code, native, code.offset("%workspace", first), "%in1", "%out0")
    if dtypes.is_inexact(dtype):
        with code.when(code.not_(_is_finite(code, step.outputs[0], machine))):
            _print_loops(code, step, sums, axes)
    return True


def _print_loops(code: Code, step: Step, sums: _ConvolutionSums, axes: Sequence[_PaddedAxis]) -> None:
    """Prints plain loops over the elements of a convolution's result and their terms."""
    tensors, dtype = sums.tensors, step.outputs[0].spec.dtype
    lefts, rights, outs = tensors.spatial
    groups, rows, columns, summed = tensors.sizes
    width, apart = tensors.blocks
    wide = dtypes.float64 if dtypes.is_float(dtype) else dtype
    with ExitStack() as stack:
        x, w, y = "%in0", "%in1", "%out0"

        def moved(pointer: str, index: Value, stride: int) -> str:
            return code.offset(pointer, times(code, index, stride))

        around = (
            (groups, tensors.groups), (rows, (tensors.rows[0], 0, tensors.rows[1])),
            (columns // width, (0, apart, width * tensors.columns[1])), (width, (0, *tensors.columns)),
        )  # fmt: skip
        for size, moves in around:
            index = stack.enter_context(code.loop(0, size))
            x, w, y = (moved(p, index, stride) for p, stride in zip((x, w, y), moves, strict=True))
        places = [stack.enter_context(code.loop(0, axis.positions)) for axis in sums.axes]
        total = code.slot(code.constant(0, wide))
        with ExitStack() as inner:
            c = inner.enter_context(code.loop(0, summed))
            a, b = moved(x, c, tensors.summed[0]), moved(w, c, tensors.summed[1])
            for place, axis, zeros, left, right in zip(places, sums.axes, axes, lefts, rights, strict=True):
                k = inner.enter_context(code.loop(0, axis.terms))
                at = code.integer(zeros.at - zeros.low)
                for index, apart in ((place, zeros.along), (k, zeros.across)):
                    at = code.add(at, code.integer(times(code, index, apart)))
                inner.enter_context(code.when(code.compare("ge", at, code.integer(0))))
                inner.enter_context(code.when(code.compare("lt", at, code.integer(axis.size))))
                a, b = moved(a, at, left), moved(b, k, right)
            terms = [code.convert(code.load(p, dtype), wide) for p in (a, b)]
            code.write(total, code.add(code.read(total), code.mul(*terms)))
        for place, stride in zip(places, outs, strict=True):
            y = moved(y, place, stride)
        code.store(y, code.convert(code.read(total), dtype))


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
    if not _supports(name, machine, specs, params) or not outs[0].size:
        return 0
    views = [View.whole(0, spec) for spec in (*specs, *outs)]
    return _copied_bytes(Step(command(name), tuple(views[:2]), tuple(views[2:]), params), machine)


def _supports(name: str, machine: Target, specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    """Takes narrow convolutions, and those of programs without libraries; elsewhere the reference, with BLAS, runs those oneDNN
    lacks.
    """
    if not machine.backends:
        return _forms[command(name)].is_forward and is_narrow(specs[0], specs[1], params, machine.convolutions)
    return has_code(specs[0].dtype)


def _layouts(
    name: str, machine: Target, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], once: bool
) -> Mapping[int, str]:
    """Wants a weight whose columns are neighbours, in panels where there are whole ones; narrow convolutions read it as it lies."""
    channels = _forms[command(name)].channels
    if not channels or "packed" in params or not machine.backends:
        return {}
    shape, columns = specs[1].shape, channels[1]
    block = 2 * machine.vector_bytes // specs[1].dtype.itemsize
    count = shape[1] if columns == "b" else shape[0] // params["groups"]
    order = "".join(chr(ord("c") + i) for i in range(len(shape) - 2)) + channels
    if count % block == 0:
        order = f"{columns.upper()}{order[:-1]}{block}{columns}"
    return {1: f"{'x'.join(map(str, shape))}:{order}"}


def _lanes(machine: Target, specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> int:
    """Vectors of narrow convolutions hold places, so few channels take the time of a part of a vector of them."""
    return 0 if machine.backends else machine.vector_bytes // specs[0].dtype.itemsize


def _kernel(name: str, machine: Target) -> Kernel:
    native = partial(_native, machine=machine)
    workspace = partial(_workspace, name, machine)
    able = partial(_supports, name, machine)
    layouts = partial(_layouts, name, machine)
    return Kernel(
        CPU, run_native(native, name), able, workspace=workspace, native=Remembered(native), layouts=layouts,
        lanes=partial(_lanes, machine),
    )  # fmt: skip


for _command in _forms:
    add_kernel(_command.name, KernelFactory(CPU, partial(_kernel, _command.name)))
