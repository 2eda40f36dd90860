"""Kernels of a simulated device: functions of the host that run on the bytes behind addresses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from nnc.base.source import SourceLine
from nnc.device.protocol import NDArray
from nnc.testing.devices.sim.memory import SimPool
from nnc.testing.devices.sim.streams import Use

Extent = tuple[int, int, int]
Work = tuple[Callable[[], None], list[Use]]  # a function, and the bytes that it uses


class LaunchedKernel(Protocol):
    """A kernel that is launched on addresses."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    @property
    def operands(self) -> Sequence[Any]:
        """One for each of its parameters."""
        ...

    @property
    def source(self) -> SourceLine | None:
        """The user's line."""
        ...

    def sized(self, grid: Extent, block: Extent, shared: int) -> LaunchedKernel:
        """Returns the kernel for a launch of this size."""
        ...

    def bind(self, pool: SimPool, addresses: Sequence[int]) -> Work:
        """Returns the work for these addresses."""
        ...


@dataclass(frozen=True, slots=True)
class Operand:
    """An array that a kernel is given by its address.

    Attributes:
        shape: the array's shape.
        dtype: the array's dtype.
        strides: the strides, in bytes.
        first: the first of its bytes, counted from the address: below 0 where a stride is negative.
        end: the byte behind the last one.
        writes: whether the kernel writes it.

    Example:
        >>> Operand((2,), np.dtype("float32"), (8,), 0, 12, writes=False).has_gaps
        True
    """

    shape: tuple[int, ...]
    dtype: Any
    strides: tuple[int, ...]
    first: int
    end: int
    writes: bool

    def use(self, pool: SimPool, address: int, who: str, source: SourceLine | None) -> Use:
        """Returns the bytes of the array at an address.

        Args:
            pool: the memory of the device.
            address: where the array lies.
            who: uses it, for messages.
            source: the user's line.

        Raises:
            DeviceError: the array does not lie within one block.
        """
        lease, at = pool.find(address + self.first)
        end = at + self.end - self.first
        lease.check_range(who, at, end, source)
        return Use(lease, at, end, self.writes, self.has_gaps)

    @property
    def nbytes(self) -> int:
        """The number of bytes from the first to the last."""
        return self.end - self.first

    def view(self, use: Use | None) -> NDArray:
        """Returns the array in some bytes, for work on the device.

        Args:
            use: its bytes, as `use` gave them; None for an array that has none.
        """
        if use is None:
            return np.empty(self.shape, self.dtype)
        return np.ndarray(self.shape, self.dtype, use.lease.bytes, use.first - self.first, self.strides)

    @property
    def has_gaps(self) -> bool:
        """Whether bytes between the first and the last are none of the elements."""
        return bool(self.end - self.first > math.prod(self.shape) * self.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class SimKernel:
    """A function on arrays of a simulated device.

    Attributes:
        name: the name in messages.
        operands: the arrays that it is given, in the order of its parameters; None for a parameter that is no address.
        run: computes, on arrays of the host; it gets None for such a parameter.
        more: memory that it uses besides.
        source: the user's line.

    Example:
        >>> from nnc.testing.devices.sim import SimDevice
        >>> device = SimDevice()
        >>> block = device.pool.allocate(8, device.stream)
        >>> whole = Operand((1,), np.dtype("float64"), (8,), 0, 8, writes=True)
        >>> run, uses = SimKernel("fill", (whole,), lambda arrays: arrays[0].fill(1)).bind(device.pool, [block.address])
        >>> uses[0].is_whole
        True
    """

    name: str
    operands: tuple[Operand | None, ...]
    run: Callable[[Sequence[Any]], None]
    more: tuple[Use, ...] = ()
    source: SourceLine | None = None

    def sized(self, grid: Extent, block: Extent, shared: int) -> SimKernel:
        """Returns the kernel for a launch of this size: a function of the host does not depend on it.

        Args:
            grid: how many blocks of threads, along x, y and z.
            block: how many threads of a block.
            shared: bytes of shared memory.
        """
        return self

    def bind(self, pool: SimPool, addresses: Sequence[int]) -> Work:
        """Returns the work for these addresses, and the bytes that it uses.

        Args:
            pool: the memory of the device.
            addresses: the addresses of the operands.

        Raises:
            DeviceError: an operand does not lie within one block.
        """
        uses, places = list(self.more), list[Callable[[], NDArray] | None]()
        for operand, address in zip(self.operands, addresses, strict=True):
            if operand is None:
                places.append(None)
                continue
            use = operand.use(pool, address, self.name, self.source) if operand.nbytes else None
            if use is not None:
                uses.append(use)
            places.append(partial(operand.view, use))
        return lambda: self.run([None if place is None else place() for place in places]), uses
