"""Runs printed kernels on arrays: through LLVM's PTX and its interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import nnc.backends.cuda.loaded  # noqa: F401  (registers every kernel)
from nnc.backends.cuda.compiler.compiler import to_ptx
from nnc.backends.cuda.kernels.nests import print_nest, workspace_bytes
from nnc.base.target import GpuTarget
from nnc.device.targets.gpu import gpu_target
from nnc.graph import Graph, command, find_kernel, spec_of
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Step, View
from nnc.testing.devices.ptx import Counts, PtxModule, Region

NDArray = np.ndarray[Any, Any]

GPU = gpu_target()
BASE = 0x7000_0000_0000
STRIDE = 1 << 26  # bytes between the memories of a launch


@dataclass(frozen=True)
class Memories:
    """The memories in which arrays lie, and the view of each array.

    Attributes:
        owners: arrays of bytes, one a memory.
        views: of the arrays.
        fresh: the last memories, whose bytes nobody has written.
    """

    owners: list[NDArray]
    views: list[View]
    fresh: int = 0


def memories(arrays: Sequence[NDArray], fresh: int = 0) -> Memories:
    """Finds the memories of arrays, which are whole in those that NumPy took them from."""
    owners: list[NDArray] = []
    views = []
    for array in arrays:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        found = next((i for i, each in enumerate(owners) if each is owner), None)
        if found is None:
            found = len(owners)
            owners.append(owner)
        offset = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        views.append(View(found, spec_of(array), offset, array.strides))
    return Memories(owners, views, fresh)


@dataclass
class Ran:
    """A kernel that ran: its text, the counts of its launches, and its status word."""

    kernel: DeviceKernel
    counts: list[Counts]
    status: int

    @property
    def sector_bytes(self) -> int:
        """Bytes that all launches moved."""
        return sum(each.sector_bytes for each in self.counts)


def run_nest(graph: Graph, inputs: Sequence[NDArray], outputs: Sequence[NDArray]) -> Ran:
    """Prints a nest for the places of arrays, and runs it on them."""
    return run_nests([(graph, inputs, outputs)])[0]


@dataclass(frozen=True)
class Call:
    """A command on arrays."""

    command: str
    inputs: Sequence[NDArray]
    outputs: Sequence[NDArray]
    params: Mapping[str, Any]


def run_steps(calls: Sequence[Call], machine: GpuTarget = GPU) -> list[Ran]:
    """Prints the kernels of commands for the places of arrays, and runs them; they are compiled together."""
    places, kernels = list[Memories](), list[DeviceKernel]()
    for call in calls:
        name, specs = command(call.command), tuple(map(spec_of, call.inputs))
        chosen = find_kernel(name, specs, call.params, machine)
        assert chosen is not None and chosen.native is not None
        nbytes = chosen.workspace(specs, call.params)
        room = [np.empty(nbytes, np.uint8)] if nbytes else []
        places.append(memories([*call.inputs, *call.outputs, *room], len(room)))
        views, count = places[-1].views, len(call.inputs)
        printed = chosen.native(Step(name, tuple(views[:count]), tuple(views[count:]), call.params))
        assert printed is not None
        kernels.append(printed)
    return _run_all(kernels, places)


def run_nests(calls: Sequence[tuple[Graph, Sequence[NDArray], Sequence[NDArray]]]) -> list[Ran]:
    """Runs several nests, each on its inputs and outputs; they are compiled together."""
    places = []
    for graph, inputs, outputs in calls:
        nbytes = workspace_bytes(graph, tuple(map(spec_of, inputs)), GPU)
        places.append(memories([*inputs, *outputs, *([np.empty(nbytes, np.uint8)] if nbytes else [])], int(nbytes > 0)))
    printed = [
        print_nest(graph, found.views[: len(inputs)], found.views[len(inputs) :], GPU)
        for (graph, inputs, _), found in zip(calls, places, strict=True)
    ]
    return _run_all(printed, places)


def _run_all(kernels: Sequence[DeviceKernel], places: Sequence[Memories]) -> list[Ran]:
    unique = {kernel.name: kernel.code for kernel in kernels if kernel.launches}
    if not unique:
        return [Ran(kernel, [], 0) for kernel in kernels]
    module = PtxModule(to_ptx(list(unique.values()), "sm_90"))
    return [run_kernel(module, *each) for each in zip(kernels, places, strict=True)]


def run_kernel(module: PtxModule, kernel: DeviceKernel, found: Memories) -> Ran:
    """Runs a kernel on arrays, whose bytes count as filled, since arrays have gaps and are written in place."""
    regions = []
    for i, owner in enumerate(found.owners):
        is_filled = np.zeros(owner.nbytes, bool) if i >= len(found.owners) - found.fresh else None
        regions.append(Region(f"memory {i}", BASE + i * STRIDE, _bytes(owner), is_filled))
    addresses = [regions[view.buffer].address + view.offset for view in found.views]
    status = np.zeros(4, np.uint8)
    if kernel.may_fail:
        regions.append(Region("status", BASE + len(regions) * STRIDE, status))
        addresses.append(regions[-1].address)
    counts = []
    for launch in kernel.launches:
        entry = module.entries[kernel.function(launch).removeprefix("@")]
        assert entry.most_threads == np.prod(launch.block)
        given = [addresses[operand] for operand in launch.operands]
        used = [region for region in regions if region.bytes.size]
        counts.append(entry.run(launch.grid, launch.block, launch.shared, given, used))
    return Ran(kernel, counts, int(status.view(np.int32)[0]))


def _bytes(owner: NDArray) -> NDArray:
    """The bytes of an array that is dense in some order of its axes."""
    order = np.argsort(owner.strides)[::-1]
    flat = np.transpose(owner, order).reshape(-1).view(np.uint8)
    assert np.shares_memory(flat, owner) or not owner.size
    return flat
