"""Every fused kernel of whole programs, printed for a GPU, agrees with the references: those of the golden programs and of a
transformer in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.backends.cuda.compiler.compiler import to_ptx
from nnc.backends.cuda.kernels.nests import print_nest, workspace_bytes
from nnc.backends.loaded import choose_kernel, compiler
from nnc.base import dtypes
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.graph import Graph, TensorSpec, reference
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Step, View
from nnc.testing.devices.ptx import PtxModule
from tests.golden.programs import PROGRAMS, Program, array
from tests.unit.backends.cuda.launching import GPU, Memories, run_kernel

NDArray = np.ndarray[Any, Any]


def fused_steps(program: Program) -> list[Step]:
    """The fused steps of a program, each graph and layout once."""
    graph = nnc.make_graph(program.fun)(*program.arguments)
    lowered = lower(graph, Options(), choose_kernel, compiler())
    found: dict[Any, Step] = {}
    for step in walk(lowered.bound.steps):
        if step.command.name == "fused":
            places = tuple((view.spec, view.offset, view.strides) for view in (*step.inputs, *step.outputs))
            found.setdefault((id(step.graphs[0]), places), step)
    return list(found.values())


def show(owners: list[NDArray], view: View) -> NDArray:
    """The array in the memory of its buffer."""
    return np.ndarray(view.spec.shape, view.spec.dtype, owners[view.buffer], view.offset, view.strides)


def place(step: Step) -> Memories:
    """Memory for the operands of a step, with numbers in the inputs, and the workspace."""
    rng, sizes = np.random.default_rng(0), dict[int, int]()
    for view in (*step.inputs, *step.outputs):
        sizes[view.buffer] = max(sizes.get(view.buffer, 0), view.extent[1])
    number = {buffer: i for i, buffer in enumerate(sizes)}
    owners = [np.zeros(nbytes, np.uint8) for nbytes in sizes.values()]
    views = [
        View(number[view.buffer], view.spec, view.offset, view.strides, view.advances)
        for view in (*step.inputs, *step.outputs)
    ]
    for view in views[: len(step.inputs)]:
        is_float = dtypes.is_float(view.spec.dtype)
        drawn = np.abs(rng.normal(size=view.spec.shape)) + 0.1 if is_float else rng.integers(0, 2, view.spec.shape)
        show(owners, view)[...] = drawn.astype(view.spec.dtype)
    nbytes = workspace_bytes(step.graphs[0], step.input_specs, GPU)
    if nbytes:
        views.append(View.whole(len(owners), TensorSpec((nbytes,), np.dtype("uint8"))))
        owners.append(np.empty(nbytes, np.uint8))
    return Memories(owners, views, int(nbytes > 0))


def wide_results(graph: Graph, inputs: list[NDArray]) -> list[NDArray]:
    """The results of a graph by the references, which work in float64 and round each result once: sums in float32 round often."""

    def run(command: Any, operands: Any, params: Any, graphs: Any) -> list[NDArray]:
        exact = command.name != "convert"
        wide = [x.astype(np.float64) if exact and dtypes.is_float(np.asarray(x).dtype) else x for x in operands]
        with np.errstate(all="ignore"):
            found = np.asarray(reference[command](*wide, **params))
            kept = next((np.asarray(x).dtype for x in operands if dtypes.is_float(np.asarray(x).dtype)), found.dtype)
            return [found.astype(kept) if exact and found.dtype == np.float64 else found]

    return [np.asarray(x) for x in graph.evaluate([x.copy() for x in inputs], run)]


def check_steps(steps: list[Step]) -> None:
    """Runs the fused kernels of steps, and holds them against the references."""
    places = [place(step) for step in steps]
    counts = [len(step.inputs) for step in steps]
    kernels = [
        print_nest(step.graphs[0], found.views[:count], found.views[count:], GPU)
        for step, found, count in zip(steps, places, counts, strict=True)
    ]
    module = PtxModule(to_ptx([*{kernel.name: kernel.code for kernel in kernels}.values()], "sm_90"))
    for step, found, count, kernel in zip(steps, places, counts, kernels, strict=True):
        inputs = [show(found.owners, view).copy() for view in found.views[:count]]
        wanted = wide_results(step.graphs[0], inputs)
        largest = max(np.abs(x.astype(np.float64)).max(initial=0) for x in inputs)
        run_kernel(module, kernel, found)
        for view, want in zip(found.views[count:], wanted, strict=False):
            out = show(found.owners, view).astype(np.float64)
            close(step, out, want, largest)


def close(step: Step, out: NDArray, want: NDArray, largest: float) -> None:
    """Floats that come from functions or sums may be rounded to a neighbour, which in 16 bits is far away. Sums of centred values
    are about the rounding errors of the largest operand.
    """
    wide = want.astype(np.float64)
    if not dtypes.is_float(want.dtype):
        np.testing.assert_array_equal(out, wide)
        return
    floats = [symbol.dtype for symbol in step.graphs[0].symbols() if dtypes.is_float(symbol.dtype)]
    size, rounding = np.abs(wide[np.isfinite(wide)]).max(initial=0), 1.2e-7 * largest
    bound = max(2e-6, 2 * max(float(ml_dtypes.finfo(dtype).eps) for dtype in floats))
    np.testing.assert_allclose(out, wide, rtol=bound, atol=rounding if size < 2 * rounding else bound * size)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_every_fused_kernel_of_a_golden_program(make: Callable[[], Program]) -> None:
    steps = fused_steps(make())
    assert steps
    check_steps(steps)


def small_transformer() -> Program:
    """A training step of a block of a transformer with its parameters in bfloat16."""

    def block(p: Any, x: Any) -> Any:
        y = nn.layer_norm(x) * p["g"] + p["b"]
        parts = (y @ p["qkv"]).reshape(*x.shape[:2], 3, 4, 16)
        x = x + nn.dot_product_attention(*(parts[:, :, i] for i in range(3)), is_causal=True).reshape(x.shape) @ p["o"]
        return x + nn.gelu(nn.layer_norm(x) @ p["up"]) @ p["down"]

    def loss(p: Any, tokens: Any, targets: Any) -> Any:
        scores = block(p, p["table"][tokens]) @ p["table"].T
        return nnp.mean(nn.softmax_cross_entropy(scores, targets))

    def step(p: Any, tokens: Any, targets: Any) -> Any:
        value, grads = nnc.value_and_grad(loss)(p, tokens, targets)
        return value, nnc.tree.map(lambda x, g: x - 0.01 * g, p, grads)

    shapes = {
        "g": (64,),
        "b": (64,),
        "qkv": (64, 192),
        "o": (64, 64),
        "up": (64, 256),
        "down": (256, 64),
        "table": (50, 64),
    }
    kind: Any = ml_dtypes.bfloat16
    params = {name: array(*shape, dtype=kind) for name, shape in shapes.items()}
    return Program("bfloat16", step, (params, array(4, 32, dtype=np.int64), array(4, 32, dtype=np.int64)))


def test_every_fused_kernel_of_a_transformer_in_bfloat16() -> None:
    steps = fused_steps(small_transformer())
    assert any(view.spec.dtype == dtypes.bfloat16 for step in steps for view in step.inputs)
    assert len(steps) > 10
    check_steps(steps)
