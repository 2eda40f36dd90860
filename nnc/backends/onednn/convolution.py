"""Convolution and both its gradients as primitives of oneDNN.

Tensors come in any strides: operands that lie otherwise than the chosen primitive wants (`convolution_choice.py`) are reordered in
the workspace. `_layout` tells the pass `pack` how a weight should lie so that it need not be. A dense 1×1 convolution is a
product of matrices as they lie, so that nothing need be reordered there.
"""

from __future__ import annotations

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
from nnc.backends.onednn.convolution_choice import (
    AllStrides,
    ConvolutionShape,
    W,
    X,
    Y,
    channels_second,
    choose_primitive,
    combined_desc,
    dense_channels_last,
    dense_in,
    find_primitive,
    forms,
    is_dense,
    problem_of,
)
from nnc.backends.onednn.epilogue import Combine, post_ops_of
from nnc.backends.onednn.library import (
    MemoryDesc,
    PrimitiveDesc,
    expect_library,
    library,
    plain,
    post_op_argument,
)
from nnc.backends.onednn.primitives import Primitive
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.target import Target
from nnc.commands.conv import conv
from nnc.commands.pack import Blocks
from nnc.commands.windows import is_narrow
from nnc.errors import BackendError
from nnc.graph import Command, Graph, Kernel, TensorSpec, add_kernel
from nnc.graph.kernels import KernelFactory
from nnc.lower.kernels.epilogue import Epilogue
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import NDArray, Step, row_major

Arrays = Sequence[NDArray]
Params = Mapping[str, Any]
Specs = tuple[TensorSpec, ...]

_PLANNED = 16  # those whose calls are remembered, with up to 30 KB of descriptions of reorders, until they are printed
_ALIGNMENT = 64
_FLOATS = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
# Sums in float32 that a vector holds, by the instruction sets that implementations are named after.
_LANES = MappingProxyType({"amx": 0, "avx512": 16, "avx2": 8})


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


def _plan(problem: ConvolutionShape, strides: AllStrides, inside: PrimitiveDesc) -> _Plan:
    """The primitive `inside` on tensors in these strides, with the reorders around it.

    Raises:
        BackendError: the library knows no such strides.
    """
    used = 0
    before: list[_Draft] = []
    after: list[_Draft] = []
    operands = []
    lying = [dense_in(problem.spec(tensor), strides[tensor]) or strides[tensor] for tensor in (X, W, Y)]
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
            operands.append((post_op_argument(index), combined_desc(problem, op, lying[Y]), f"in{op.operand}", 0))
    drafts = (*before, _Draft(inside, tuple(operands)), *after)
    return _Plan(drafts, used, used + max(draft.desc.scratchpad_bytes for draft in drafts))


@lru_cache(maxsize=_PLANNED)
def _plan_for(problem: ConvolutionShape, strides: AllStrides) -> _Plan | None:
    """Returns the fastest plan for these strides; None where the library has nothing fast.

    Raises:
        BackendError: the library knows no such strides.
    """
    product = _product(problem, strides)
    if product is not None:
        return product
    chosen = choose_primitive(problem.unpacked, strides)
    if chosen is None:
        return None
    plan = _plan(problem, strides, chosen.desc)
    if chosen.correction is None:
        return plan
    role = problem.form.roles[W]
    return plan._replace(correction=_CorrectionPlan(_plan(problem, strides, chosen.correction), role, chosen.dtype))


def _product(problem: ConvolutionShape, strides: AllStrides) -> _Plan | None:
    """A 1×1 convolution of activations with their channels last as a product of matrices as they lie; None where a convolution is
    faster, or it is none.
    """
    x, w, y = specs = tuple(map(problem.spec, (X, W, Y)))
    dense = (dense_channels_last(x), row_major(w), dense_channels_last(y))
    if not problem.is_product or problem.post_ops or problem.packed or not all(map(is_dense, specs, strides, dense)):
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
def _is_fast(problem: ConvolutionShape) -> bool:
    """Whether the library has a primitive for tensors without gaps that is faster than a plain loop."""
    if any(problem.spec(tensor).size == 0 for tensor in (X, W, Y)):
        return False
    return choose_primitive(problem.unpacked, problem.dense()) is not None


@lru_cache(maxsize=1024)
def _layout(problem: ConvolutionShape, once: bool) -> str | None:
    """Returns the best layout of the weight for activations without gaps, if it is not row by row. Where bringing it there costs
    something, products want none.
    """
    strides, spec = problem.dense(), problem.spec(W)
    chosen = choose_primitive(problem, strides)
    if chosen is None or (not once and _product(problem, strides) is not None):
        return None
    wanted = chosen.desc.desc(dnnl.WEIGHTS)
    blocks = wanted.blocks(problem.dtype)
    if blocks is None or wanted.same_as(MemoryDesc.strided(spec.shape, spec.dtype, strides[W])):
        return None
    return blocks.name


@lru_cache(maxsize=1024)
def _dense_workspace(problem: ConvolutionShape) -> int:
    """Bytes that tensors without gaps take."""
    plan = _plan_for(problem, problem.dense())
    return plan.nbytes if plan is not None else 0


@lru_cache(maxsize=1024)
def _lanes_of(problem: ConvolutionShape) -> int:
    """Returns the number of the result's channels that a vector holds, of the primitive that would be chosen for any layouts: a
    plan that replaces it must be no slower. A matrix unit has none, since it waits for memory with idle lanes, too.
    """
    anyhow = (None, None, None)
    free = find_primitive(problem, anyhow) or find_primitive(problem._replace(is_widened=True), anyhow)
    return next((lanes for unit, lanes in _LANES.items() if free is not None and unit in free.implementation), 0)


def _calls(problem: ConvolutionShape, step: Step, groups: int) -> Native | None:
    views = (*step.inputs[:2], step.outputs[0])
    given = {tensor: view.strides for tensor, view in zip(problem.form.operands, views, strict=True)}
    if problem.channels_last:
        given |= {tensor: channels_second(given[tensor]) for tensor in (X, Y)}
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
        def problem(specs: Specs, params: Params) -> ConvolutionShape:
            return problem_of(target.name, machine, specs, params)

        def native(step: Step) -> Native | None:
            return _calls(problem(step.input_specs, step.params), step, step.params["groups"])

        def layouts(specs: Specs, params: Params, once: bool) -> Mapping[int, str]:
            if forms[target].sought == W or "packed" in params:
                return {}
            layout = _layout(problem(specs, params), once)
            return {} if layout is None else {1: layout}

        def supports(specs: Specs, params: Params) -> bool:
            is_printed = forms[target].sought == Y and is_narrow(specs[0], specs[1], params, machine.convolutions)
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


forms.follow(_add)


# -- with an epilogue --------------------------------------------------------------------------------------------------


def _joined_problem(machine: Target, specs: Sequence[TensorSpec], graph: Graph) -> ConvolutionShape | None:
    """The convolution of a `with_epilogue` node with its post-ops; None where it is none, or the library has no such post-ops."""
    epilogue = Epilogue.of(graph, machine)
    if epilogue is None or epilogue.product.command is not conv or not _is_possible(specs[0]):
        return None
    params = epilogue.product.params
    channels = specs[0].ndim - 1 if params.get("channels_last", False) else 1
    post_ops = post_ops_of(epilogue, channels)
    return problem_of(conv.name, machine, specs[:2], params, post_ops) if post_ops is not None else None


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
            if not is_dense(view.spec, view.strides, wanted):
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
