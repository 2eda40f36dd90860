"""Convolutions as oneDNN is told them, and the choice of a primitive with its layouts.

A primitive says which layouts it wants inside: layouts of operands whose channels are contiguous are kept, others are the
library's choice. The choices below follow measurements of oneDNN 3.2 on AVX-512.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from nnc.backends.onednn import library as dnnl
from nnc.backends.onednn.epilogue import Combine
from nnc.backends.onednn.library import (
    Attributes,
    Binary,
    Eltwise,
    MemoryDesc,
    PostOp,
    PrimitiveDesc,
    plain,
)
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.target import Convolutions, Target
from nnc.commands.pack import packed_shape
from nnc.commands.windows import Padding, Shape
from nnc.errors import BackendError
from nnc.graph import Attribute, TensorSpec, infer_specs
from nnc.graph import command as get_command
from nnc.lower.plan.stages import Strides, row_major

AllStrides = tuple[Strides, Strides, Strides]
_SomeStrides = tuple[Strides | None, Strides | None, Strides | None]

X, W, Y = range(3)  # the tensors of a convolution, whichever of them is sought
_DESCRIBED = 128  # convolutions whose descriptions are remembered, 25 KB each; a ResNet-50 has 70 in training


class PrimitiveForm(NamedTuple):
    """One of the three commands: which tensors it takes and gives, and their roles in the primitive."""

    operands: tuple[int, int, int]  # of the inputs and the output
    roles: tuple[int, int, int]  # of X, W and Y
    operation: str

    @property
    def sought(self) -> int:
        """The tensor that the command computes."""
        return self.operands[-1]


forms: Attribute[PrimitiveForm] = Attribute(
    "onednn_convolution", "the form in which oneDNN knows a convolution, or one of its gradients"
)
forms.set("conv", PrimitiveForm((X, W, Y), (dnnl.SRC, dnnl.WEIGHTS, dnnl.DST), "convolution_forward"))
forms.set(
    "conv_input_grad",
    PrimitiveForm((Y, W, X), (dnnl.DIFF_SRC, dnnl.WEIGHTS, dnnl.DIFF_DST), "convolution_backward_data"),
)
forms.set(
    "conv_weight_grad",
    PrimitiveForm((X, Y, W), (dnnl.SRC, dnnl.DIFF_WEIGHTS, dnnl.DIFF_DST), "convolution_backward_weights"),
)


class ConvolutionShape(NamedTuple):
    """A convolution without layouts. The weight's shape begins with the groups, where there are several."""

    figures: Convolutions
    form: PrimitiveForm
    shapes: tuple[Shape, Shape, Shape]
    dtype: DType
    stride: Shape
    padding: Padding
    dilation: Shape
    channels_last: bool = False  # how activations without gaps lie
    post_ops: tuple[Eltwise | Combine, ...] = ()
    packed: str | None = None  # the layout of the weight, if it is a blocked one
    is_widened: bool = False  # whether the primitive computes in float32, between conversions of shorter floats

    @property
    def computed(self) -> DType:
        """The dtype of the primitive's tensors."""
        return dtypes.float32 if self.is_widened else self.dtype

    @property
    def is_product(self) -> bool:
        """Whether it is one matrix product for each image."""
        window = self.shapes[W][2:]
        dense = len(self.shapes[W]) == len(self.shapes[X])
        return dense and set(window) == set(self.stride) == {1} and not any(map(sum, self.padding))

    @property
    def unpacked(self) -> ConvolutionShape:
        """The same where the weight lies in no blocked layout."""
        return self if self.packed is None else self._replace(packed=None)

    def spec(self, tensor: int) -> TensorSpec:
        """Returns the spec of a tensor: X, W or Y."""
        return TensorSpec(self.shapes[tensor], self.dtype)

    def desc(self, tensor: int, strides: Strides | None) -> MemoryDesc:
        """Describes a tensor of the primitive, in the order that strides of the problem's dtype give (None: any)."""
        if strides is None:
            return MemoryDesc.any(self.shapes[tensor], self.computed)
        size, wide = self.dtype.itemsize, self.computed.itemsize
        return MemoryDesc.strided(self.shapes[tensor], self.computed, tuple(n // size * wide for n in strides))

    def dense(self) -> AllStrides:
        """Returns the strides of tensors without gaps."""
        x, w, y = map(self.spec, (X, W, Y))
        if not self.channels_last:
            return row_major(x), row_major(w), row_major(y)
        return dense_channels_last(x), row_major(w), dense_channels_last(y)


@lru_cache(maxsize=1024)
def dense_channels_last(spec: TensorSpec) -> Strides:
    """Returns the strides of (N, C, *spatial) that lies as (N, *spatial, C)."""
    n, c, *spatial = spec.shape
    return channels_second(row_major(spec.update(shape=(n, *spatial, c))))


def channels_second(axes: tuple[int, ...]) -> tuple[int, ...]:
    """Turns sizes or strides in the order (N, *spatial, C) into the order (N, C, *spatial)."""
    return (axes[0], axes[-1], *axes[1:-1])


def problem_of(
    name: str, machine: Target, specs: Sequence[TensorSpec], params: Mapping[str, Any],
    post_ops: Sequence[Eltwise | Combine] = (),
) -> ConvolutionShape:  # fmt: skip
    """Returns the convolution that a command computes for operands of these specs."""
    return _make_problem(name, machine.convolutions, tuple(specs), tuple(params.items()), tuple(post_ops))


@lru_cache(maxsize=1024)
def _make_problem(
    name: str,
    figures: Convolutions,
    specs: tuple[TensorSpec, ...],
    named: tuple[tuple[str, Any], ...],
    post_ops: tuple[Eltwise | Combine, ...],
) -> ConvolutionShape:
    params = dict(named)
    (out,) = infer_specs(get_command(name), specs, params)
    form = forms[get_command(name)]
    shapes = dict(zip(form.operands, (spec.shape for spec in (*specs, out)), strict=True))
    groups, last, packed = params["groups"], params.get("channels_last", False), params.get("packed")
    w = shapes[W] if packed is None else packed_shape(packed, len(shapes[X]))
    if groups > 1:
        w = (groups, w[0] // groups, *w[1:])
    x, y = (channels_second(shapes[i]) if last else shapes[i] for i in (X, Y))
    windows = params["stride"], params["padding"], params["dilation"]
    return ConvolutionShape(figures, form, (x, w, y), specs[0].dtype, *windows, last, post_ops, packed)


# -- layouts -----------------------------------------------------------------------------------------------------------


def is_dense(spec: TensorSpec, strides: Strides, dense: Strides) -> bool:
    """Whether strides mean the same as those of a dense order; strides of axes of size 1 mean nothing."""
    return all(n == 1 or step == wanted for n, step, wanted in zip(spec.shape, strides, dense, strict=True))


def dense_in(spec: TensorSpec, strides: Strides) -> Strides | None:
    """Returns the strides of the order, rows first or channels last, in which an activation lies without gaps; None where it
    has some.
    """
    return next((d for d in (row_major(spec), dense_channels_last(spec)) if is_dense(spec, strides, d)), None)


@lru_cache(maxsize=_DESCRIBED)
def find_primitive(problem: ConvolutionShape, fixed: _SomeStrides) -> PrimitiveDesc | None:
    """The primitive for these strides (None: its own choice), if the library has a fast one. A tensor that is combined with the
    result must lie as that does, so that it has to be known how.
    """
    if problem.computed != dtypes.float32 and _has_empty_window(problem):
        return None
    if fixed[Y] is None and any(isinstance(op, Combine) and op.axes == "all" for op in problem.post_ops):
        return None
    x, w, y = (problem.desc(tensor, strides) for tensor, strides in enumerate(fixed))
    try:
        desc = _create(problem, (x, w, y), fixed[Y])
    except BackendError:  # the library has none for these layouts
        return None
    return None if desc.implementation.startswith("ref") or not _is_sound(problem, desc.implementation) else desc


def _create(
    problem: ConvolutionShape, tensors: Sequence[MemoryDesc], lying: Strides | None, *, is_plain: bool = False
) -> PrimitiveDesc:
    """Returns the library's first choice, or its plain loop, for tensors in these layouts, where the result has those strides.

    Raises:
        BackendError: the library has no implementation.
    """
    low, high = zip(*problem.padding, strict=True)
    windows = (problem.stride, tuple(d - 1 for d in problem.dilation), low, high)
    post_ops = [_post_op(problem, op, lying) for op in problem.post_ops]
    attributes = Attributes(post_ops) if post_ops else plain()
    (x, w, y), operation = tensors, problem.form.operation
    forward = PrimitiveDesc.create(
        "convolution_forward", dnnl.FORWARD_TRAINING, dnnl.CONVOLUTION_DIRECT, x, w, None, y, *windows, attributes
    )
    if problem.form.sought == Y:
        desc = forward
    else:
        bias = (None,) if problem.form.sought == W else ()
        desc = PrimitiveDesc.create(operation, dnnl.CONVOLUTION_DIRECT, x, w, *bias, y, *windows, forward, attributes)
    if is_plain:
        desc.skip_to_reference()  # which reads the description of the forward pass: both are held until here
    return desc


def _is_sound(problem: ConvolutionShape, implementation: str) -> bool:
    """Whether an implementation computes a problem rightly. Some of oneDNN's own for shorter floats do not. Gradients of weights
    read scratch memory that nothing was written to where rows are shorter than the stride; implementations without AMX also where
    windows of groups are dilated, and for some windows on three axes. Gradients of data with AMX leave places out for some strides
    there. Convolutions by products of unfolded matrices apply post-ops wrongly to windows that are mostly padding, and are slower
    than conversions to float32.

    Instructions for shorter floats add products two at a time. Of an odd number, the last one is paired with a product of 0 and
    the next number in memory: where that is infinite, the sum becomes NaN. Depthwise convolutions form no such pairs, and
    gradients of weights are corrected.
    """
    if problem.computed == dtypes.float32:
        return True
    has_pairs = problem.form.sought != W and "dw:" not in implementation
    if "gemm" in implementation or (has_pairs and _channels_summed(problem) % 2):
        return False
    axes, has_short_rows = len(problem.stride), problem.shapes[X][-1] < problem.stride[-1]
    if problem.form.sought == W and implementation.startswith("jit_bf16:"):
        dilated_groups = len(problem.shapes[W]) > len(problem.shapes[X]) and max(problem.dilation) > 1
        return axes < 3 and not has_short_rows and not dilated_groups
    if problem.form.sought == W and implementation.startswith("brgconv_bwd_w:"):
        return not has_short_rows
    if problem.form.sought == X and implementation == "jit:avx512_core_amx":
        return axes < 3 or max(problem.stride) == 1
    return True


def _channels_summed(problem: ConvolutionShape) -> int:
    """Returns how many channels, of a group, a convolution or its input's gradient adds up."""
    outs, ins = problem.shapes[W][-len(problem.stride) - 2 : -len(problem.stride)]
    return ins if problem.form.sought == Y else outs


def _needs_correction(problem: ConvolutionShape, implementation: str) -> bool:
    """Whether an implementation may multiply elements of the weight, or of its gradient's summands, by zeros of its own, which
    makes infinities NaN. Unfolded matrices have zeros in the place of padding; so has scratch memory for gradients of weights in
    shorter floats, and for AMX.
    """
    if problem.computed == dtypes.float32:
        return "gemm" in implementation and problem.form.sought != X and any(map(any, problem.padding))
    if problem.form.sought == W:
        return "dw:" not in implementation
    return "amx" in implementation and not problem.is_product


def _has_empty_window(problem: ConvolutionShape) -> bool:
    """Whether a window has no element of the input. Of shorter floats, oneDNN 3.2 crashes on some processors while it makes the
    primitive for such windows on three axes.
    """
    axes = zip(
        problem.shapes[X][2:], problem.shapes[W][-len(problem.stride) :], problem.shapes[Y][2:], problem.stride,
        problem.padding, problem.dilation, strict=True,
    )  # fmt: skip
    return any(
        not any(0 <= p * stride + k * step - low < n for k in range(window))
        for n, window, places, stride, (low, _), step in axes
        for p in range(places)
    )


def _post_op(problem: ConvolutionShape, op: Eltwise | Combine, strides: Strides | None) -> PostOp:
    return op if isinstance(op, Eltwise) else Binary(op.name, combined_desc(problem, op, strides or ()))


def combined_desc(problem: ConvolutionShape, op: Combine, strides: Strides) -> MemoryDesc:
    """A tensor that is combined with the result, which has these strides: of its shape, one value for each channel, or one."""
    shape, unit = problem.shapes[Y], problem.dtype.itemsize
    if op.axes == "all":
        return MemoryDesc.strided(shape, problem.dtype, strides)
    channels = shape[1] if op.axes == "channels" else 1
    ones = (1,) * (len(shape) - 2)
    return MemoryDesc.strided((1, channels, *ones), problem.dtype, (channels * unit, unit, *(unit for _ in ones)))


class _Choice(NamedTuple):
    """A primitive that computes in a dtype, and a primitive in float32 that runs after it if the weight holds infinities or
    NaNs in that dtype.
    """

    desc: PrimitiveDesc
    dtype: DType
    correction: PrimitiveDesc | None = None


@lru_cache(maxsize=_DESCRIBED)
def choose_primitive(problem: ConvolutionShape, strides: AllStrides) -> _Choice | None:
    """Returns the primitive for tensors of these strides; None where the library has none that is fast. Where it has none for
    shorter floats, or none that is sound, they are converted to float32 and back.
    """
    found = _choose_in(problem, strides)
    if found is not None and not _needs_correction(problem, found.implementation):
        return _Choice(found, problem.dtype)
    widened = problem._replace(is_widened=problem.dtype != dtypes.float32)
    wide = _choose_in(widened, strides)
    if wide is None:
        return None
    exact = _plain_loop(widened, wide, strides) if _needs_correction(widened, wide.implementation) else wide
    if found is not None:
        return _Choice(found, problem.dtype, exact)
    return _Choice(wide, dtypes.float32, None if exact is wide else exact)


def _plain_loop(problem: ConvolutionShape, inside: PrimitiveDesc, strides: AllStrides) -> PrimitiveDesc:
    """The library's own reference for tensors that lie as those of a primitive. It multiplies nothing that is not there."""
    tensors = [inside.desc(role) for role in problem.form.roles]
    return _create(problem, tensors, dense_in(problem.spec(Y), strides[Y]) or strides[Y], is_plain=True)


def _choose_in(problem: ConvolutionShape, strides: AllStrides) -> PrimitiveDesc | None:
    """The primitive, in one dtype, for tensors of these strides."""
    specs = tuple(map(problem.spec, (X, W, Y)))
    rows = row_major(specs[X]), row_major(specs[W]), row_major(specs[Y])
    lying = tuple(map(dense_in, specs, strides))
    of_weight = problem.form.sought == W
    large = math.prod(problem.shapes[Y][2:]) >= problem.figures.large_image and not of_weight
    if problem.is_product and lying == rows and large:
        found = find_primitive(problem, rows)
        if found is not None:
            return found

    def free() -> PrimitiveDesc | None:
        return find_primitive(problem, (None, None, None))

    if of_weight and (own := free()) is not None and "avx512" not in own.implementation:
        found = find_primitive(problem, (dense_channels_last(specs[X]), None, dense_channels_last(specs[Y])))
        if found is not None and "avx512" in found.implementation:
            return found
    short = problem.shapes[Y][-1] <= problem.figures.short_row and not of_weight and not problem.is_product
    kept = [lying[i] if lying[i] != rows[i] else None for i in (X, Y)]
    if any(kept) and not (short and free() is not None):
        found = find_primitive(problem, (kept[0], None, kept[1]))
        if found is not None and ("gemm" not in found.implementation or free() is None):
            return found
    return free() or find_primitive(problem, rows)
