"""Printed convolutions and both their gradients, for programs that call no library, and convolutions of one image to few channels:
as products of matrices, without copies.

Along each axis, positions of the result that have the same terms are a run: those whose windows lie within the input, and each
of those that reach into the padding; with strides, the gradient of the input has runs for each remainder. A box of runs is a
product whose operands are views that overlap. No zeros are multiplied in the place of padding, so an infinite weight makes no NaN.

Rows of small images are too short for vectors. There, windows are copied, with zeros for padding, so that all positions make one
row of a single product ("im2col"). Where its result is not finite, the boxes compute it once more.
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
from nnc.backends.printer import Bound, Printer, grain_of, in_blocks, over, over_vectors, times
from nnc.base import dtypes
from nnc.commands.contract import dot
from nnc.commands.conv import conv
from nnc.commands.windows import is_narrow
from nnc.device import CPU
from nnc.device.target import Target
from nnc.graph import Attribute, Kernel, TensorSpec, add_kernel, command, infer_specs
from nnc.graph.kernels import KernelFactory
from nnc.lower.kernels.axes import Axes, word_of
from nnc.lower.kernels.builder import Code, Value, has_code
from nnc.lower.kernels.native import Native, Remembered
from nnc.lower.plan.stages import Step, Strides, View, row_major

Windows = tuple[int, int, int]  # stride, dilation, and padding before the first element
PlaceRule = Callable[
    [Any, Any, Windows], Any
]  # (positions, terms, windows) -> positions in the left operand, < 0: none
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


def _channels_first(view: View, channels_last: bool) -> tuple[tuple[int, ...], Strides]:
    """Returns shape and strides as (N, C, *spatial)."""
    shape, strides = view.spec.shape, view.strides
    if channels_last:
        return (shape[0], shape[-1], *shape[1:-1]), (strides[0], strides[-1], *strides[1:-1])
    return shape, strides


_Tensors = tuple[_ConvolutionStrides, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _gradient_tensors(step: Step) -> _Tensors:
    groups, last = step.params["groups"], step.params.get("channels_last", False)
    (x, xs), (ct, cs) = (_channels_first(view, last) for view in step.inputs)
    out = step.outputs[0]
    w, ws = out.spec.shape, out.strides
    o, c = w[0] // groups, w[1]
    strides = _ConvolutionStrides(
        (c * xs[1], o * cs[1], o * ws[0]), (xs[1], ws[1]), (cs[1], ws[0]), (xs[0], cs[0]), (xs[2:], cs[2:], ws[2:]),
        (groups, c, o, x[0]),
    )  # fmt: skip
    return strides, w[2:], ct[2:], x[2:]


def _activation_tensors(step: Step, is_forward: bool) -> _Tensors:
    groups, last = step.params["groups"], step.params.get("channels_last", False)
    left, right, out = (*step.inputs, step.outputs[0])
    (x, xs), (y, ys) = _channels_first(left, last), _channels_first(out, last)
    w, ws = right.spec.shape, right.strides
    o, c = w[0] // groups, w[1]
    summed, columns = (c, o) if is_forward else (o, c)
    along_summed, along_columns = (ws[1], ws[0]) if is_forward else (ws[0], ws[1])
    strides = _ConvolutionStrides(
        (summed * xs[1], o * ws[0], columns * ys[1]), (xs[0], ys[0]), (along_columns, ys[1]), (xs[1], along_summed),
        (xs[2:], ws[2:], ys[2:]), (groups, x[0], columns, summed),
    )  # fmt: skip
    return strides, y[2:], w[2:], x[2:]


class _ConvolutionForm(NamedTuple):
    """One of the three commands: where its terms lie, and the strides of its tensors with its spatial sizes: of the result, the
    terms, and the left operand.
    """

    place: PlaceRule
    tensors: Callable[[Step], _Tensors]
    pads: bool = False  # whether the left operand may be copied with zeros around it


_forms: Attribute[_ConvolutionForm] = Attribute(
    "printed_convolution", "the form in which a convolution, or a gradient of one, is printed"
)
_forms.set("conv", _ConvolutionForm(_forward, partial(_activation_tensors, is_forward=True), pads=True))
_forms.set("conv_input_grad", _ConvolutionForm(_input_gradient, partial(_activation_tensors, is_forward=False)))
_forms.set("conv_weight_grad", _ConvolutionForm(_weight_gradient, _gradient_tensors))


class _ConvolutionSums(NamedTuple):
    """A convolution, or a gradient of one, as sums over terms: its strides, the positions and terms along each spatial axis, and
    the runs of positions.
    """

    tensors: _ConvolutionStrides
    positions: tuple[int, ...]
    terms: tuple[int, ...]
    cut: list[list[_AlikePositions]]

    @property
    def has_padding(self) -> bool:
        """Whether a position has fewer terms than there are."""
        return any(run.terms < n for runs, n in zip(self.cut, self.terms, strict=True) for run in runs)

    @property
    def boxes(self) -> int:
        """The number of products that compute it where the operands lie."""
        return math.prod(map(len, self.cut))


def _sums_of(step: Step) -> _ConvolutionSums:
    form = _forms[step.command]
    tensors, positions, terms, sizes = form.tensors(step)
    windows = (step.params[key] for key in ("stride", "dilation", "padding"))
    cut = [
        _axis_runs(n, k, size, form.place, (stride, dilation, low))
        for n, k, size, stride, dilation, (low, _) in zip(positions, terms, sizes, *windows, strict=True)
    ]
    return _ConvolutionSums(tensors, positions, terms, cut)


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
    sums, form = _sums_of(step), _forms[step.command]
    unfolds = _unfolded_bytes(sums, step.outputs[0].spec.dtype.itemsize, machine) > 0
    pads = not unfolds and _is_padded(form, sums, machine)
    printer = Printer(step, machine, workspace=unfolds or pads)
    if not step.outputs[0].spec.size:
        return printer.native(inline=True)
    if pads:
        return printer.native(light=True) if _print_padded(printer, step, sums, machine) else None
    if not unfolds:
        return printer.native(light=True) if _print_boxes(printer, step, sums, machine) else None
    if not _print_unfolded(printer, step, sums, machine):
        return None
    if sums.has_padding and dtypes.is_inexact(step.outputs[0].spec.dtype):
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


# -- small images ------------------------------------------------------------------------------------------------------


def _unfolded_bytes(sums: _ConvolutionSums, itemsize: int, machine: Target) -> int:
    """Returns the bytes of the left operand's windows, where it pays to copy them: rows of the result are short, so that all its
    positions make one long row, and many columns read a copy. 0 where it does not.
    """
    figures, (groups, rows, columns, summed) = machine.convolutions, sums.tensors.sizes
    nbytes = itemsize * groups * rows * summed * math.prod((*sums.positions, *sums.terms))
    is_short = len(sums.positions) > 1 and sums.positions[-1] < figures.unfolded_row
    pays = is_short and columns >= figures.unfolded_columns and math.prod(sums.terms) > 1
    return nbytes if pays and nbytes <= figures.unfolded_bytes else 0


def _print_unfolded(printer: Printer, step: Step, sums: _ConvolutionSums, machine: Target) -> bool:
    """Prints the copy of all windows, with zeros in the place of padding, and one product; returns whether that has a kernel."""
    (groups, rows, _, summed), view = sums.tensors.sizes, step.inputs[0]
    word, dtype = word_of(view.spec.dtype), view.spec.dtype
    shape = (groups, summed, *sums.terms, rows, *sums.positions)
    strides = row_major(TensorSpec(shape, dtype))
    at_terms, at_rows = 2, 2 + len(sums.terms)
    along_terms, along_positions = strides[at_terms:at_rows], strides[at_rows + 1 :]
    tensors = sums.tensors

    def copy(code: Code, begin: Bound, end: Bound) -> None:
        part = 1, begin, end
        if sums.has_padding:
            filled = Axes(shape, (strides,))
            with over(code, Axes(shape[:2], (strides[:2],)), ["%workspace"], part) as (start,):
                count = math.prod(filled.shape[2:])
                lanes = machine.vector_bytes // dtype.itemsize

                def zero(i: Value, lanes: int) -> None:
                    place = code.offset(start, code.mul(i, code.integer(dtype.itemsize)))
                    code.store(place, code.constant(0, word, lanes))

                in_blocks(code, 0, count, lanes, zero)
        for runs in product(*sums.cut):
            box = (groups, summed, *(run.terms for run in runs), rows, *(run.places for run in runs))
            if not math.prod(box):
                continue
            source = (
                tensors.groups[0], tensors.summed[0],
                *(run.across * s for run, s in zip(runs, tensors.spatial[0], strict=True)),
                tensors.rows[0], *(run.along * s for run, s in zip(runs, tensors.spatial[0], strict=True)),
            )  # fmt: skip
            target = (
                *strides[:2], *(run.term_step * s for run, s in zip(runs, along_terms, strict=True)),
                strides[at_rows], *(run.step * s for run, s in zip(runs, along_positions, strict=True)),
            )  # fmt: skip
            first = sum(run.term * s for run, s in zip(runs, along_terms, strict=True))
            first += sum(run.first * s for run, s in zip(runs, along_positions, strict=True))
            pointers = [code.offset("%in0", _starts(tensors, runs)[0]), code.offset("%workspace", first)]
            with over(code, Axes(box, (source, target)), pointers, part) as (x, y):
                code.store(y, code.load(x, word))

    printer.parts(summed, grain_of(summed, 2 * math.prod(shape) * dtype.itemsize, machine), copy)
    whole = [
        _AlikePositions(0, 1, n, 0, 1, terms, 0, along, across)
        for n, terms, along, across in zip(sums.positions, sums.terms, along_positions, along_terms, strict=True)
    ]
    unfolded = tensors._replace(
        groups=(strides[0], *tensors.groups[1:]), rows=(strides[at_rows], tensors.rows[1]),
        summed=(strides[1], tensors.summed[1]), spatial=((1,) * len(whole), *tensors.spatial[1:]),
    )  # fmt: skip
    native = print_product(_box_product(step, unfolded, whole), machine)
    if native is None:
        return False
    printer.call(printer.main, native, "%workspace", "%in1", "%out0")
    return True


# -- wide windows ------------------------------------------------------------------------------------------------------


def _is_padded(form: _ConvolutionForm, sums: _ConvolutionSums, machine: Target) -> bool:
    """Whether a copy of the left operand with zeros around it takes the place of many products."""
    return form.pads and not machine.backends and sums.boxes > machine.convolutions.most_boxes


def _padded_view(step: Step) -> View:
    """The left operand with zeros around it, without gaps."""
    (n, c, *sizes), _ = _channels_first(step.inputs[0], step.params.get("channels_last", False))
    padded = (size + low + high for size, (low, high) in zip(sizes, step.params["padding"], strict=True))
    return View.whole(0, TensorSpec((n, c, *padded), step.inputs[0].spec.dtype))


def _print_padded(printer: Printer, step: Step, sums: _ConvolutionSums, machine: Target) -> bool:
    """Prints the copy of a convolution's operand with zeros around it, and one product; returns whether that has a kernel.

    Windows that reach into the padding in many ways would need as many products: 117 of a window of 3 × 39. Where the result is
    not finite, plain loops compute it once more.
    """
    code, padded = printer.main, _padded_view(step)
    _, strides = _channels_first(step.inputs[0], step.params.get("channels_last", False))
    lows = [low for low, _ in step.params["padding"]]
    within = (*padded.spec.shape[:2], *_channels_first(step.inputs[0], step.params.get("channels_last", False))[0][2:])
    with over(code, Axes(padded.spec.shape, (padded.strides,)).merged(), ["%workspace"]) as (at,):
        code.store(at, code.constant(0, padded.spec.dtype))
    first = sum(low * stride for low, stride in zip(lows, padded.strides[2:], strict=True))
    with over(code, Axes(within, (strides, padded.strides)), ["%in0", code.offset("%workspace", first)]) as (x, y):
        code.store(y, code.load(x, padded.spec.dtype))
    windows = zip(step.params["stride"], step.params["dilation"], sums.positions, sums.terms, strict=True)
    whole = [_AlikePositions(0, 1, n, 0, 1, terms, 0, along, across) for along, across, n, terms in windows]
    tensors, own = sums.tensors, padded.strides
    tensors = tensors._replace(
        groups=(tensors.sizes[3] * own[1], *tensors.groups[1:]), rows=(own[0], tensors.rows[1]),
        summed=(own[1], tensors.summed[1]), spatial=(own[2:], *tensors.spatial[1:]),
    )  # fmt: skip
    native = print_product(_box_product(step, tensors, whole), machine)
    if native is None:
        return False
    printer.call(code, native, "%workspace", "%in1", "%out0")
    with code.when(code.not_(_is_finite(code, step.outputs[0], machine))):  # zeros may have met an infinite weight
        _print_loops(code, step, sums)
    return True


def _print_loops(code: Code, step: Step, sums: _ConvolutionSums) -> None:
    """Prints plain loops over the elements of a convolution's result and their terms."""
    tensors, params, dtype = sums.tensors, step.params, step.outputs[0].spec.dtype
    lefts, rights, outs = tensors.spatial
    sizes = _channels_first(step.inputs[0], params.get("channels_last", False))[0][2:]
    wide = dtypes.float64 if dtypes.is_float(dtype) else dtype
    with ExitStack() as stack:
        x, w, y = "%in0", "%in1", "%out0"

        def moved(pointer: str, index: Value, stride: int) -> str:
            return code.offset(pointer, times(code, index, stride))

        for size, moves in zip(
            tensors.sizes[:3],
            (tensors.groups, (tensors.rows[0], 0, tensors.rows[1]), (0, *tensors.columns)), strict=True,
        ):  # fmt: skip
            index = stack.enter_context(code.loop(0, size))
            x, w, y = (moved(p, index, stride) for p, stride in zip((x, w, y), moves, strict=True))
        places = [stack.enter_context(code.loop(0, n)) for n in sums.positions]
        total = code.slot(code.constant(0, wide))
        with ExitStack() as inner:
            c = inner.enter_context(code.loop(0, tensors.sizes[3]))
            a, b = moved(x, c, tensors.summed[0]), moved(w, c, tensors.summed[1])
            for axis, (place, size) in enumerate(zip(places, sizes, strict=True)):
                k = inner.enter_context(code.loop(0, sums.terms[axis]))
                at = code.add(
                    code.integer(times(code, place, params["stride"][axis])),
                    code.integer(times(code, k, params["dilation"][axis])),
                )
                at = code.sub(at, code.integer(params["padding"][axis][0]))
                inner.enter_context(code.when(code.compare("ge", at, code.integer(0))))
                inner.enter_context(code.when(code.compare("lt", at, code.integer(size))))
                a, b = moved(a, at, lefts[axis]), moved(b, k, rights[axis])
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
    step = Step(command(name), tuple(views[:2]), tuple(views[2:]), params)
    sums = _sums_of(step)
    unfolded = _unfolded_bytes(sums, specs[0].dtype.itemsize, machine)
    if unfolded or not _is_padded(_forms[step.command], sums, machine):
        return unfolded
    return _padded_view(step).spec.nbytes


def _supports(name: str, machine: Target, specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    """Takes narrow convolutions, and those of programs without libraries; elsewhere the reference, with BLAS, runs those oneDNN
    lacks.
    """
    if not machine.backends:
        return name == conv.name and is_narrow(specs[0], specs[1], params, machine.convolutions)
    return "packed" not in params and has_code(specs[0].dtype)


def _kernel(name: str, machine: Target) -> Kernel:
    native = partial(_native, machine=machine)
    workspace = partial(_workspace, name, machine)
    able = partial(_supports, name, machine)
    return Kernel(CPU, run_native(native, name), able, workspace=workspace, native=Remembered(native))


for _command in _forms:
    add_kernel(_command.name, KernelFactory(CPU, partial(_kernel, _command.name)))
