"""Convolution and both its gradients as primitives of oneDNN.

Tensors come in any strides. The primitive says which layouts it wants inside: layouts of operands whose channels are contiguous are
kept, others are its choice, and operands that differ are reordered in the workspace. `_layout` tells the pass `pack` how a weight
should lie so that it need not be. A dense 1×1 convolution is a product of matrices as they lie, so that nothing need be reordered
there. The choices below follow measurements of oneDNN 3.2 on AVX-512.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from nnc.backends.native_runs import cpu_compiler, run_native
from nnc.backends.numpy_ref import run_by_graph
from nnc.backends.onednn import library as dnnl
from nnc.backends.onednn.calls import Call, Correction, Operand, calls_native
from nnc.backends.onednn.epilogue import Combine, post_ops_of
from nnc.backends.onednn.library import (
    Attributes,
    Binary,
    Eltwise,
    MemoryDesc,
    PostOp,
    PrimitiveDesc,
    expect_library,
    library,
    plain,
    post_op_argument,
)
from nnc.backends.onednn.primitives import Primitive
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.target import Convolutions, Target
from nnc.commands.conv import conv
from nnc.commands.pack import Blocks, packed_shape
from nnc.commands.windows import Padding, Shape, is_narrow
from nnc.errors import BackendError
from nnc.graph import Attribute, Command, Graph, Kernel, TensorSpec, add_kernel, infer_specs
from nnc.graph import command as get_command
from nnc.graph.kernels import KernelFactory
from nnc.lower.kernels.epilogue import Epilogue
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import NDArray, Step, Strides, row_major

Arrays = Sequence[NDArray]
Params = Mapping[str, Any]
Specs = tuple[TensorSpec, ...]
_AllStrides = tuple[Strides, Strides, Strides]
_SomeStrides = tuple[Strides | None, Strides | None, Strides | None]

X, W, Y = range(3)  # the tensors of a convolution, whichever of them is sought
_DESCRIBED = 128  # convolutions whose descriptions are remembered, 25 KB each; a ResNet-50 has 70 in training
_PLANNED = 16  # those whose calls are remembered, with up to 30 KB of descriptions of reorders, until they are printed
_ALIGNMENT = 64
_FLOATS = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
# Sums in float32 that a vector holds, by the instruction sets that implementations are named after.
_LANES = MappingProxyType({"amx": 0, "avx512": 16, "avx2": 8})


class _Form(NamedTuple):
    """One of the three commands: which tensors it takes and gives, and their roles in the primitive."""

    operands: tuple[int, int, int]  # of the inputs and the output
    roles: tuple[int, int, int]  # of X, W and Y
    operation: str

    @property
    def sought(self) -> int:
        """The tensor that the command computes."""
        return self.operands[-1]


_forms: Attribute[_Form] = Attribute(
    "onednn_convolution", "the form in which oneDNN knows a convolution, or one of its gradients"
)
_forms.set("conv", _Form((X, W, Y), (dnnl.SRC, dnnl.WEIGHTS, dnnl.DST), "convolution_forward"))
_forms.set(
    "conv_input_grad", _Form((Y, W, X), (dnnl.DIFF_SRC, dnnl.WEIGHTS, dnnl.DIFF_DST), "convolution_backward_data")
)
_forms.set(
    "conv_weight_grad", _Form((X, Y, W), (dnnl.SRC, dnnl.DIFF_WEIGHTS, dnnl.DIFF_DST), "convolution_backward_weights")
)


class _ConvolutionShape(NamedTuple):
    """A convolution without layouts. The weight's shape begins with the groups, where there are several."""

    figures: Convolutions
    form: _Form
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
    def unpacked(self) -> _ConvolutionShape:
        """The same where the weight lies in no blocked layout."""
        return self if self.packed is None else self._replace(packed=None)

    def spec(self, tensor: int) -> TensorSpec:
        return TensorSpec(self.shapes[tensor], self.dtype)

    def desc(self, tensor: int, strides: Strides | None) -> MemoryDesc:
        """Describes a tensor of the primitive, in the order that strides of the problem's dtype give (None: any)."""
        if strides is None:
            return MemoryDesc.any(self.shapes[tensor], self.computed)
        size, wide = self.dtype.itemsize, self.computed.itemsize
        return MemoryDesc.strided(self.shapes[tensor], self.computed, tuple(n // size * wide for n in strides))

    def dense(self) -> _AllStrides:
        """Returns the strides of tensors without gaps."""
        x, w, y = map(self.spec, (X, W, Y))
        if not self.channels_last:
            return row_major(x), row_major(w), row_major(y)
        return _dense_channels_last(x), row_major(w), _dense_channels_last(y)


@lru_cache(maxsize=1024)
def _dense_channels_last(spec: TensorSpec) -> Strides:
    """Returns the strides of (N, C, *spatial) that lies as (N, *spatial, C)."""
    n, c, *spatial = spec.shape
    return _first(row_major(spec.update(shape=(n, *spatial, c))))


def _first(axes: tuple[int, ...]) -> tuple[int, ...]:
    """Turns sizes or strides in the order (N, *spatial, C) into the order (N, C, *spatial)."""
    return (axes[0], axes[-1], *axes[1:-1])


def _problem(
    name: str, machine: Target, specs: Sequence[TensorSpec], params: Mapping[str, Any],
    post_ops: Sequence[Eltwise | Combine] = (),
) -> _ConvolutionShape:  # fmt: skip
    return _make_problem(name, machine.convolutions, tuple(specs), tuple(params.items()), tuple(post_ops))


@lru_cache(maxsize=1024)
def _make_problem(
    name: str,
    figures: Convolutions,
    specs: tuple[TensorSpec, ...],
    named: tuple[tuple[str, Any], ...],
    post_ops: tuple[Eltwise | Combine, ...],
) -> _ConvolutionShape:
    params = dict(named)
    (out,) = infer_specs(get_command(name), specs, params)
    form = _forms[get_command(name)]
    shapes = dict(zip(form.operands, (spec.shape for spec in (*specs, out)), strict=True))
    groups, last, packed = params["groups"], params.get("channels_last", False), params.get("packed")
    w = shapes[W] if packed is None else packed_shape(packed, len(shapes[X]))
    if groups > 1:
        w = (groups, w[0] // groups, *w[1:])
    x, y = (_first(shapes[i]) if last else shapes[i] for i in (X, Y))
    windows = params["stride"], params["padding"], params["dilation"]
    return _ConvolutionShape(figures, form, (x, w, y), specs[0].dtype, *windows, last, post_ops, packed)


# -- layouts -----------------------------------------------------------------------------------------------------------


def _is_dense(spec: TensorSpec, strides: Strides, dense: Strides) -> bool:
    """Whether strides mean the same as those of a dense order; strides of axes of size 1 mean nothing."""
    return all(n == 1 or step == wanted for n, step, wanted in zip(spec.shape, strides, dense, strict=True))


def _dense_in(spec: TensorSpec, strides: Strides) -> Strides | None:
    """Returns the strides of the order, rows first or channels last, in which an activation lies without gaps; None where it
    has some.
    """
    return next((d for d in (row_major(spec), _dense_channels_last(spec)) if _is_dense(spec, strides, d)), None)


@lru_cache(maxsize=_DESCRIBED)
def _primitive_desc(problem: _ConvolutionShape, fixed: _SomeStrides) -> PrimitiveDesc | None:
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
    problem: _ConvolutionShape, tensors: Sequence[MemoryDesc], lying: Strides | None, *, is_plain: bool = False
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


def _is_sound(problem: _ConvolutionShape, implementation: str) -> bool:
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


def _channels_summed(problem: _ConvolutionShape) -> int:
    """Returns how many channels, of a group, a convolution or its input's gradient adds up."""
    outs, ins = problem.shapes[W][-len(problem.stride) - 2 : -len(problem.stride)]
    return ins if problem.form.sought == Y else outs


def _needs_correction(problem: _ConvolutionShape, implementation: str) -> bool:
    """Whether an implementation may multiply elements of the weight, or of its gradient's summands, by zeros of its own, which
    makes infinities NaN. Unfolded matrices have zeros in the place of padding; so has scratch memory for gradients of weights in
    shorter floats, and for AMX.
    """
    if problem.computed == dtypes.float32:
        return "gemm" in implementation and problem.form.sought != X and any(map(any, problem.padding))
    if problem.form.sought == W:
        return "dw:" not in implementation
    return "amx" in implementation and not problem.is_product


def _has_empty_window(problem: _ConvolutionShape) -> bool:
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


def _post_op(problem: _ConvolutionShape, op: Eltwise | Combine, strides: Strides | None) -> PostOp:
    return op if isinstance(op, Eltwise) else Binary(op.name, _combined(problem, op, strides or ()))


def _combined(problem: _ConvolutionShape, op: Combine, strides: Strides) -> MemoryDesc:
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
def _choose(problem: _ConvolutionShape, strides: _AllStrides) -> _Choice | None:
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


def _plain_loop(problem: _ConvolutionShape, inside: PrimitiveDesc, strides: _AllStrides) -> PrimitiveDesc:
    """The library's own reference for tensors that lie as those of a primitive. It multiplies nothing that is not there."""
    tensors = [inside.desc(role) for role in problem.form.roles]
    return _create(problem, tensors, _dense_in(problem.spec(Y), strides[Y]) or strides[Y], is_plain=True)


def _choose_in(problem: _ConvolutionShape, strides: _AllStrides) -> PrimitiveDesc | None:
    """The primitive, in one dtype, for tensors of these strides."""
    specs = tuple(map(problem.spec, (X, W, Y)))
    rows = row_major(specs[X]), row_major(specs[W]), row_major(specs[Y])
    lying = tuple(map(_dense_in, specs, strides))
    of_weight = problem.form.sought == W
    large = math.prod(problem.shapes[Y][2:]) >= problem.figures.large_image and not of_weight
    if problem.is_product and lying == rows and large:
        found = _primitive_desc(problem, rows)
        if found is not None:
            return found

    def free() -> PrimitiveDesc | None:
        return _primitive_desc(problem, (None, None, None))

    if of_weight and (own := free()) is not None and "avx512" not in own.implementation:
        found = _primitive_desc(problem, (_dense_channels_last(specs[X]), None, _dense_channels_last(specs[Y])))
        if found is not None and "avx512" in found.implementation:
            return found
    short = problem.shapes[Y][-1] <= problem.figures.short_row and not of_weight and not problem.is_product
    kept = [lying[i] if lying[i] != rows[i] else None for i in (X, Y)]
    if any(kept) and not (short and free() is not None):
        found = _primitive_desc(problem, (kept[0], None, kept[1]))
        if found is not None and ("gemm" not in found.implementation or free() is None):
            return found
    return free() or _primitive_desc(problem, rows)


# -- calls -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Draft:
    """A primitive to be, and its operands: role, layout, pointer and the bytes between this and the tensor."""

    desc: PrimitiveDesc
    operands: tuple[tuple[int, MemoryDesc, str, int], ...]

    def call(self, scratchpad: int, workspace: str, *, is_made: bool = True) -> Call:
        """Returns the call whose scratchpad begins at that byte of the workspace, which that pointer points to."""
        operands = [Operand(r, desc, workspace if p == "workspace" else p, at) for r, desc, p, at in self.operands]
        if self.desc.scratchpad_bytes:
            operands.append(Operand(dnnl.SCRATCHPAD, self._scratchpad, workspace, scratchpad))
        return Call(Primitive.of(self.desc) if is_made else self.desc, tuple(operands))

    @cached_property
    def _scratchpad(self) -> MemoryDesc:
        return self.desc.desc(dnnl.SCRATCHPAD)


class _Plan(NamedTuple):
    """Primitives on tensors in given strides. The workspace holds tensors in layouts of the library, behind them a scratchpad that
    the primitives share, since they follow one another.
    """

    drafts: tuple[_Draft, ...]
    scratchpad: int  # where it begins
    nbytes: int  # of the workspace
    correction: _CorrectionPlan | None = None

    def native(self, room: int, inputs: int) -> Native:
        """Returns the compiled function of so many inputs, an output and a workspace of `room` bytes, if that is not 0. Where
        it is too small, since it was planned for tensors without gaps, the function takes scratch memory.
        """
        calls = [draft.call(self.scratchpad, "workspace" if self.nbytes <= room else "") for draft in self.drafts]
        correction = self.correction.of(calls) if self.correction is not None else None
        return calls_native(calls, inputs, workspace=room > 0, correction=correction)


class _CorrectionPlan(NamedTuple):
    """The plan that follows where the tensor in a role holds infinities or NaNs. Its tensors lie in scratch memory, of which the
    system gives no pages until it runs.
    """

    plan: _Plan
    role: int
    dtype: DType

    def of(self, calls: Sequence[Call]) -> Correction:
        looked_at = next(operand for call in calls for operand in call.operands if operand.role == self.role)
        more = tuple(draft.call(self.plan.scratchpad, "", is_made=False) for draft in self.plan.drafts)
        return Correction(looked_at, self.dtype, more)


def _plan(problem: _ConvolutionShape, strides: _AllStrides, inside: PrimitiveDesc) -> _Plan:
    """The primitive `inside` on tensors in these strides, with the reorders around it.

    Raises:
        BackendError: the library knows no such strides.
    """
    used = 0
    before: list[_Draft] = []
    after: list[_Draft] = []
    operands = []
    lying = [_dense_in(problem.spec(tensor), strides[tensor]) or strides[tensor] for tensor in (X, W, Y)]
    for tensor, pointer in zip(problem.form.operands, ("in0", "in1", "out0"), strict=True):
        role, spec = problem.form.roles[tensor], problem.spec(tensor)
        if tensor == W and problem.packed is not None:
            given = MemoryDesc.blocked(Blocks.of(problem.packed), spec.dtype)
        else:
            given = MemoryDesc.strided(spec.shape, spec.dtype, lying[tensor])
        wanted = inside.desc(role)
        if wanted.same_as(given):
            operands.append((role, given, pointer, 0))
            continue
        outer, inner = (given, pointer, 0), (wanted, "workspace", used)
        operands.append((role, *inner))
        used += -(-wanted.nbytes // _ALIGNMENT) * _ALIGNMENT
        source, target = (inner, outer) if pointer == "out0" else (outer, inner)
        reorder = PrimitiveDesc.reorder(source[0], target[0])
        (after if pointer == "out0" else before).append(_Draft(reorder, ((dnnl.SRC, *source), (dnnl.DST, *target))))
    for index, op in enumerate(problem.post_ops):
        if isinstance(op, Combine):
            operands.append((post_op_argument(index), _combined(problem, op, lying[Y]), f"in{op.operand}", 0))
    drafts = (*before, _Draft(inside, tuple(operands)), *after)
    return _Plan(drafts, used, used + max(draft.desc.scratchpad_bytes for draft in drafts))


@lru_cache(maxsize=_PLANNED)
def _plan_for(problem: _ConvolutionShape, strides: _AllStrides) -> _Plan | None:
    """Returns the fastest plan for these strides; None where the library has nothing fast.

    Raises:
        BackendError: the library knows no such strides.
    """
    product = _product(problem, strides)
    if product is not None:
        return product
    chosen = _choose(problem.unpacked, strides)
    if chosen is None:
        return None
    plan = _plan(problem, strides, chosen.desc)
    if chosen.correction is None:
        return plan
    role = problem.form.roles[W]
    return plan._replace(correction=_CorrectionPlan(_plan(problem, strides, chosen.correction), role, chosen.dtype))


def _product(problem: _ConvolutionShape, strides: _AllStrides) -> _Plan | None:
    """A 1×1 convolution of activations with their channels last as a product of matrices as they lie; None where a convolution is
    faster, or it is none.
    """
    x, w, y = specs = tuple(map(problem.spec, (X, W, Y)))
    dense = (_dense_channels_last(x), row_major(w), _dense_channels_last(y))
    if not problem.is_product or problem.post_ops or problem.packed or not all(map(_is_dense, specs, strides, dense)):
        return None
    ins, outs, rows, size = x.shape[1], y.shape[1], y.size // y.shape[1], problem.dtype.itemsize
    few = rows < problem.figures.few_rows
    if problem.form.sought == Y and few:  # y = x wᵀ
        shapes = (rows, ins), (ins, outs), (rows, outs)
        steps = (ins * size, size), (size, ins * size), (outs * size, size)
        pointers = "in0", "in1", "out0"
    elif problem.form.sought == W and (few or outs > ins):  # w = yᵀ x
        shapes = (outs, rows), (rows, ins), (outs, ins)
        steps = (size, outs * size), (ins * size, size), (ins * size, size)
        pointers = "in1", "in0", "out0"
    else:
        return None
    left, right, out = (MemoryDesc.strided(n, problem.dtype, s) for n, s in zip(shapes, steps, strict=True))
    try:
        desc = PrimitiveDesc.create("matmul", left, right, None, out, plain())
    except BackendError:  # the library multiplies no matrices of this dtype here
        return None
    if desc.implementation.startswith("ref"):
        return None
    operands = zip((dnnl.SRC, dnnl.WEIGHTS, dnnl.DST), (left, right, out), pointers, (0, 0, 0), strict=True)
    return _Plan((_Draft(desc, tuple(operands)),), 0, desc.scratchpad_bytes)


# -- the kernels -------------------------------------------------------------------------------------------------------


def _is_possible(x: TensorSpec) -> bool:
    return x.dtype in _FLOATS and 3 <= x.ndim <= 5 and library() is not None and cpu_compiler() is not None


@lru_cache(maxsize=1024)
def _is_fast(problem: _ConvolutionShape) -> bool:
    """Whether the library has a primitive for tensors without gaps that is faster than a plain loop."""
    if any(problem.spec(tensor).size == 0 for tensor in (X, W, Y)):
        return False
    return _choose(problem.unpacked, problem.dense()) is not None


@lru_cache(maxsize=1024)
def _layout(problem: _ConvolutionShape, once: bool) -> str | None:
    """Returns the best layout of the weight for activations without gaps, if it is not row by row. Where bringing it there costs
    something, products want none.
    """
    strides, spec = problem.dense(), problem.spec(W)
    chosen = _choose(problem, strides)
    if chosen is None or (not once and _product(problem, strides) is not None):
        return None
    wanted = chosen.desc.desc(dnnl.WEIGHTS)
    blocks = wanted.blocks(problem.dtype)
    if blocks is None or wanted.same_as(MemoryDesc.strided(spec.shape, spec.dtype, strides[W])):
        return None
    return blocks.name


@lru_cache(maxsize=1024)
def _dense_workspace(problem: _ConvolutionShape) -> int:
    """Bytes that tensors without gaps take."""
    plan = _plan_for(problem, problem.dense())
    return plan.nbytes if plan is not None else 0


@lru_cache(maxsize=1024)
def _lanes_of(problem: _ConvolutionShape) -> int:
    """Returns the number of the result's channels that a vector holds, of the primitive that would be chosen for any layouts: a
    plan that replaces it must be no slower. A matrix unit has none, since it waits for memory with idle lanes, too.
    """
    anyhow = (None, None, None)
    free = _primitive_desc(problem, anyhow) or _primitive_desc(problem._replace(is_widened=True), anyhow)
    return next((lanes for unit, lanes in _LANES.items() if free is not None and unit in free.implementation), 0)


def _calls(problem: _ConvolutionShape, step: Step, groups: int) -> Native | None:
    views = (*step.inputs[:2], step.outputs[0])
    given = {tensor: view.strides for tensor, view in zip(problem.form.operands, views, strict=True)}
    if problem.channels_last:
        given |= {tensor: _first(given[tensor]) for tensor in (X, Y)}
    if problem.packed is not None:
        given[W] = row_major(problem.spec(W))
    elif groups > 1:
        given[W] = (problem.shapes[W][1] * given[W][0], *given[W])
    strides = (given[X], given[W], given[Y])
    room = step.outputs[1].spec.nbytes if len(step.outputs) > 1 else 0
    try:
        plan = _plan_for(problem, strides)
    except BackendError:  # negative strides are one kind that the library does not know
        return None
    return plan.native(room, len(step.inputs)) if plan is not None else None


def _run_dense(name: str, native: Callable[[Step], Native | None]) -> Callable[[Arrays, Arrays, Params], None]:
    """Runs a command on arrays; arrays that do not lie row by row are copied so that they do."""
    compiled = run_native(native, name)

    def run(inputs: Arrays, outputs: Arrays, params: Params) -> None:
        dense = [np.ascontiguousarray(array) for array in inputs]
        if outputs[0].flags.c_contiguous:
            compiled(dense, outputs, params)
        else:
            out = np.empty(outputs[0].shape, outputs[0].dtype)
            compiled(dense, (out, *outputs[1:]), params)
            np.copyto(outputs[0], out)

    return run


def _add(target: Command) -> None:
    def make(machine: Target) -> Kernel:
        def problem(specs: Specs, params: Params) -> _ConvolutionShape:
            return _problem(target.name, machine, specs, params)

        def native(step: Step) -> Native | None:
            return _calls(problem(step.input_specs, step.params), step, step.params["groups"])

        def layouts(specs: Specs, params: Params, once: bool) -> Mapping[int, str]:
            if _forms[target].sought == W or "packed" in params:
                return {}
            layout = _layout(problem(specs, params), once)
            return {} if layout is None else {1: layout}

        def supports(specs: Specs, params: Params) -> bool:
            is_printed = _forms[target].sought == Y and is_narrow(specs[0], specs[1], params, machine.convolutions)
            return not is_printed and _is_possible(specs[0]) and _is_fast(problem(specs, params))

        return Kernel(
            "onednn",
            _run_dense(target.name, native),
            supports,
            priority=20,
            workspace=lambda specs, params: _dense_workspace(problem(specs, params)),
            native=native,
            layouts=layouts,
            lanes=lambda specs, params: _lanes_of(problem(specs, params).unpacked),
            expect=expect_library,
        )

    add_kernel(target, KernelFactory("onednn", make, priority=20))


_forms.follow(_add)


# -- with an epilogue --------------------------------------------------------------------------------------------------


def _joined_problem(machine: Target, specs: Sequence[TensorSpec], graph: Graph) -> _ConvolutionShape | None:
    """The convolution of a `with_epilogue` node with its post-ops; None where it is none, or the library has no such post-ops."""
    epilogue = Epilogue.of(graph, machine)
    if epilogue is None or epilogue.product.command is not conv or not _is_possible(specs[0]):
        return None
    params = epilogue.product.params
    channels = specs[0].ndim - 1 if params.get("channels_last", False) else 1
    post_ops = post_ops_of(epilogue, channels)
    return _problem(conv.name, machine, specs[:2], params, post_ops) if post_ops is not None else None


def _supports_joined(machine: Target, specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    problem = _joined_problem(machine, specs, params["graphs"][0])
    return problem is not None and _is_fast(problem)


def _workspace_joined(machine: Target, specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> int:
    problem = _joined_problem(machine, specs, params["graphs"][0])
    return _dense_workspace(problem) if problem is not None else 0


def _native_joined(machine: Target, step: Step) -> Native | None:
    """Returns the calls for a step's strides; None where an operand of the epilogue does not lie as the result does."""
    (graph,) = step.graphs
    problem = _joined_problem(machine, step.input_specs, graph)
    if problem is None:
        return None
    for op in problem.post_ops:
        if isinstance(op, Combine):
            view = step.inputs[op.operand]
            wanted = step.outputs[0].strides if op.axes == "all" else row_major(view.spec)
            if not _is_dense(view.spec, view.strides, wanted):
                return None
    return _calls(problem, step, graph.nodes[0].params["groups"])


def joined_kernel(machine: Target) -> Kernel:
    """Makes the kernel of a convolution with an epilogue.

    Primitives may put sums of some of the terms into the result before they read the operand combined with it: windows are cut
    where they reach into the padding, and many channels are summed share by share. So the operand must not lie where the result
    does.
    """
    able, workspace = partial(_supports_joined, machine), partial(_workspace_joined, machine)
    return Kernel("onednn", run_by_graph, able, 20, workspace, partial(_native_joined, machine), in_place=False)
