"""Fused graphs as kernels of a GPU: chooses the form in which a nest is printed.

| nest | form |
| --- | --- |
| nothing is reduced | `elements`: a thread takes one vector |
| some operands lie in transposed order | `transposes`: tiles are turned in shared memory |
| rows along memory | `rows`: a few threads, a warp or a block take a row, which they keep in registers where it fits |
| rows across memory | `rows`, across: neighbouring threads take neighbouring columns |
| few long rows | `split`: parts of a row in blocks of their own, a launch a phase |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nnc.backends.cuda.kernels.layout import choose_layout
from nnc.backends.cuda.kernels.operands import Operands
from nnc.backends.cuda.kernels.registry import BACKEND
from nnc.backends.cuda.kernels.rows import print_rows
from nnc.backends.cuda.kernels.split import choose_parts, print_parts, sum_bytes
from nnc.backends.cuda.kernels.transposes import find_tiles, print_tiles
from nnc.backends.cuda.kernels.values import ThreadValues
from nnc.backends.numpy_ref import run_by_graph
from nnc.base.target import GpuTarget
from nnc.device import CUDA
from nnc.graph import Command, Graph, Kernel, Node, Symbol, TensorSpec, add_kernel
from nnc.graph.kernels import KernelFactory
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.kernels.values import Scope
from nnc.lower.plan.stages import Step, View


def print_nest(
    graph: Graph, inputs: Sequence[View], outputs: Sequence[View], machine: GpuTarget, shifts: Sequence[int] = ()
) -> DeviceKernel:
    """Prints the kernel that computes a fused graph on operands in these views.

    An output may lie where an input does, if `overwrites` of nnc.lower.kernels.row_phases lists the two; views of one buffer whose
    extents meet are taken for such operands. Tensors in different buffers never share memory.

    Args:
        graph: a graph that fits one nest.
        inputs: the views of the graph's inputs.
        outputs: the views of the graph's outputs, then that of the workspace; without one, rows are not cut into parts.
        shifts: for each view, the bytes from the pointer that the kernel is given to the view, where that lies within a larger
            one.
    """
    if not any(spec.size for spec in graph.output_specs):
        return DeviceKernel("", ())
    operands = Operands.of(graph, inputs, outputs, machine, shifts)
    if not operands.nest.row:
        tiles = find_tiles(operands)
        return _Elements(operands, operands.lanes()).kernel() if tiles is None else print_tiles(operands, tiles)
    parts = choose_parts(graph, [view.spec for view in inputs], machine) if operands.has_workspace else 1
    layout = choose_layout(operands, parts)
    return print_rows(operands, layout) if parts == 1 else print_parts(operands, layout)


def print_node(
    command: Command, params: Mapping[str, Any], inputs: Sequence[View], out: View, machine: GpuTarget,
    shifts: Sequence[int] = (),
) -> DeviceKernel:  # fmt: skip
    """Prints the kernel of one command, as a nest; see `print_nest`."""
    operands, result = tuple([Symbol(view.spec) for view in inputs]), Symbol(out.spec)
    graph = Graph(operands, (result,), (Node(command, operands, (result,), dict(params)),))
    return print_nest(graph, inputs, (out,), machine, shifts)


def workspace_bytes(graph: Graph, specs: Sequence[TensorSpec], machine: GpuTarget) -> int:
    """Returns the size of the workspace, an array of uint8, that `print_nest` takes behind the outputs; 0: none.

    Args:
        specs: the specs of the graph's inputs.
    """
    parts = choose_parts(graph, specs, machine)
    return sum_bytes(graph, parts) if parts > 1 else 0


# -- elements ----------------------------------------------------------------------------------------------------------


class _Elements(ThreadValues):
    """Prints a nest in which nothing is reduced: each thread computes one vector, and its number gives the indices of the loops.

    Inputs may lie where outputs do: only the thread that writes an element reads it.
    """

    def kernel(self) -> DeviceKernel:
        """Returns the kernel."""
        nest, threads = self.nest, self.operands.grids.threads
        counts = [nest.sizes[loop] // (self.width if loop == nest.vector else 1) for loop in nest.outer]
        units = math.prod(counts)
        blocks = -(-units // threads)
        self.begin("elements", threads)
        code, short = self.code, self.operands.is_short(blocks * threads)
        block, thread = self.number("ctaid.x", short), self.number("tid.x", short)
        unit = code.add(code.mul(block, code.like(block, threads)), thread)
        with self.under(code.compare("lt", unit, code.like(unit, units)) if units % threads else None):
            iterations = self.take_apart(unit, nest.outer, counts)
            if nest.vector is not None:
                iterations[nest.vector] = code.mul(iterations[nest.vector], code.integer(self.width))
            self.store_all(list(enumerate(self.graph.outputs)), Scope({}, iterations))
        code.ret()
        return DeviceKernel(self.text(), (self.launch((blocks, 1), threads),), self.operands.may_fail)


# -- fused steps -------------------------------------------------------------------------------------------------------


def _kernel(machine: GpuTarget) -> Kernel:
    def native(step: Step) -> DeviceKernel:
        return print_nest(step.graphs[0], step.inputs, step.outputs, machine)

    def workspace(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> int:
        return workspace_bytes(params["graphs"][0], specs, machine)

    return Kernel(BACKEND, run_by_graph, workspace=workspace, native=native, device=CUDA)


add_kernel("fused", KernelFactory(BACKEND, _kernel, device=CUDA))
