"""Devices `ptx:0` and others: simulated devices on which kernels that are printed for CUDA run in an interpreter of PTX.

Memory, streams and events are those of a simulated device (`nnc.testing.devices.sim`), so that programs are checked as there;
besides, each access of each thread is (`nnc.testing.devices.ptx`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnc.base.source import SourceLine
from nnc.device.protocol import NDArray
from nnc.errors import DeviceError, user_error
from nnc.testing.devices.ptx import Entry, PtxModule, Region
from nnc.testing.devices.sim import Operand, SimDevice, SimPool, Use
from nnc.testing.devices.sim.kernels import Extent, Work


@dataclass(frozen=True, slots=True)
class Role:
    """An array of a launch, and how the kernel uses it.

    Attributes:
        name: the array's name in messages.
        is_filled: whether the array's elements are known when the launch begins.
        is_result: whether the kernel must have written all elements when the launch ends.
    """

    name: str
    operand: Operand
    is_filled: bool
    is_result: bool = False


@dataclass(frozen=True, slots=True)
class PtxKernel:
    """A function of PTX, and the arrays that it is launched on.

    Attributes:
        name: the kernel's name in messages.
        operands: the arrays, in the order of the function's parameters.
        finish: called with the arrays when the launch is done.
        grid: the number of blocks along x, y and z.
        block: the number of threads of a block along x, y and z.
        shared: bytes of shared memory beside the function's own variables.
        begin: called with the arrays before the launch.
    """

    entry: Entry
    name: str
    operands: tuple[Role, ...]
    finish: Callable[[Sequence[NDArray]], None]
    source: SourceLine | None = None
    grid: Extent = (1, 1, 1)
    block: Extent = (1, 1, 1)
    shared: int = 0
    begin: Callable[[Sequence[NDArray]], None] | None = None

    def sized(self, grid: Extent, block: Extent, shared: int) -> PtxKernel:
        """Returns the kernel for a launch of this size."""
        return replace(self, grid=grid, block=block, shared=shared)

    def bind(self, pool: SimPool, addresses: Sequence[int]) -> Work:
        """Returns the work of a launch on operands at these addresses, and the bytes that it uses.

        Raises:
            DeviceError: an operand does not lie within one block of memory.
        """
        uses = [
            role.operand.use(pool, at, self.name, self.source) if role.operand.nbytes else None
            for role, at in zip(self.operands, addresses, strict=True)
        ]

        def run() -> None:
            if self.begin is not None:
                self.begin([role.operand.view(use) for role, use in zip(self.operands, uses, strict=True)])
            regions = []
            for role, address, use in zip(self.operands, addresses, uses, strict=True):
                if use is not None:
                    regions.append(_region(role, address, use))
            self.entry.run(self.grid, self.block, self.shared, addresses, regions)
            for region, role in zip(regions, (role for role in self.operands if role.operand.nbytes), strict=True):
                if role.is_result:
                    self._check_written(role, region)
            self.finish([role.operand.view(use) for role, use in zip(self.operands, uses, strict=True)])

        return run, [use for use in uses if use is not None]

    def _check_written(self, role: Role, region: Region) -> None:
        """Raises DeviceError where elements of a result were not written."""
        operand, filled = role.operand, region.is_filled
        assert filled is not None
        shape = (*operand.shape, operand.dtype.itemsize)
        left = ~np.ndarray(shape, bool, filled, -operand.first, (*operand.strides, 1)).all(axis=-1)
        if left.any():
            first = tuple(map(int, np.argwhere(left)[0]))
            problem = f"{int(left.sum())} elements of {role.name} were not written, the first at {first}."
            fix = "let a thread write each element."
            raise user_error(DeviceError, self.name, problem, fix=fix, source=self.source)


def _region(role: Role, address: int, use: Use) -> Region:
    """Returns the memory of an array, for the interpreter."""
    data = use.lease.bytes[use.first : use.end]
    filled = None if role.is_filled else np.zeros(data.nbytes, bool)
    return Region(role.name, address + role.operand.first, data, filled, role.operand.writes)


class PtxDevice(SimDevice):
    """A simulated device that interprets PTX.

    Args:
        name: the device's name, such as "ptx:0".
        seed: seeds the order in which streams run.

    Attributes:
        target: the processor that kernels are printed for.
    """

    target = "sm_90"

    def __init__(self, name: str = "ptx:0", seed: int = 0) -> None:
        super().__init__(name, seed)

    def load(self, code: str) -> Mapping[str, Any]:
        """Loads a module of PTX; returns its functions by name.

        Raises:
            DeviceError: the interpreter does not know an instruction.
        """
        return PtxModule(code).entries
