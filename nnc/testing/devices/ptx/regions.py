"""Global memory of a launch: the regions that the caller names, and the tables of the module."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nnc.errors import DeviceError, user_error
from nnc.testing.devices.ptx.faults import refuse
from nnc.testing.devices.ptx.memory import MOST_ALIGNED, Memory
from nnc.testing.devices.ptx.values import Array

if TYPE_CHECKING:
    from nnc.testing.devices.ptx.wave import Wave


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A range of addresses that a kernel may use.

    Regions may touch or overlap, if the bytes behind them do as well. A kernel that fails leaves the bytes as they were.

    Attributes:
        name: the operand's name in messages.
        address: the address of the first byte.
        bytes: the host's bytes, dense uint8.
        is_filled: which bytes have been written, dense bool; a launch marks the ones that it writes. None: all of them.
        writable: whether the kernel may write there.

    Example:
        >>> Region("x", 4096, np.zeros(8, np.uint8)).end
        4104
    """

    name: str
    address: int
    bytes: Array
    is_filled: Array | None = None
    writable: bool = True

    @property
    def end(self) -> int:
        """The address behind the last byte."""
        return self.address + self.bytes.nbytes


@dataclass(slots=True)
class _Segment:
    """Regions that overlap or touch, as one range."""

    regions: list[Region]
    address: int
    end: int
    position: int = 0  # of the first byte in flat memory


class GlobalMemory(Memory):
    """The regions of a launch as one flat memory, writable ones first.

    Args:
        kernel: the kernel's name in messages.
        granule: the width of the narrowest access.

    Raises:
        DeviceError: two regions with different bytes overlap.
    """

    def __init__(self, kernel: str, regions: Sequence[Region], granule: int) -> None:
        segments = _unite(kernel, [region for region in regions if region.bytes.nbytes])
        segments.sort(key=lambda segment: not any(region.writable for region in segment.regions))
        size = written = 0
        for segment in segments:
            segment.position = size + segment.address % MOST_ALIGNED
            size = -(-(segment.position + segment.end - segment.address) // MOST_ALIGNED) * MOST_ALIGNED
            if any(region.writable for region in segment.regions):
                written = size
        super().__init__(max(size, MOST_ALIGNED), granule, written)
        self.segments = sorted(segments, key=lambda segment: segment.address)
        self.addresses = np.array([segment.address for segment in self.segments], np.int64)
        self.ends = np.array([segment.end for segment in self.segments], np.int64)
        self.shifts = np.array([segment.position - segment.address for segment in self.segments], np.int64)
        self.writable = np.zeros(self.bytes.nbytes, bool)
        for segment in segments:
            for region in segment.regions:
                place = self._slice(segment, region)
                self.bytes[place] = region.bytes
                self.filled[place] |= True if region.is_filled is None else region.is_filled
                self.writable[place] |= region.writable

    def write_back(self) -> None:
        """Copies written bytes to the host."""
        for segment in self.segments:
            for region in segment.regions:
                if region.writable:
                    place = self._slice(segment, region)
                    region.bytes[...] = self.bytes[place]
                    if region.is_filled is not None:
                        region.is_filled[...] = self.filled[place].astype(bool)

    def find(self, wave: Wave, addresses: Array, lanes: Array, width: int, verb: str) -> Array:
        """Returns the flat positions of addresses; see `Memory.find`."""
        at = addresses.view(np.int64)
        which = np.maximum(np.searchsorted(self.addresses, at, side="right") - 1, 0)
        if not len(self.segments):
            refuse(np.ones(len(lanes), bool), lanes, lambda i: f"{verb} memory, but no region is given", "pass regions")
        outside = (at < self.addresses[which]) | (at + width > self.ends[which])
        say = lambda i: f"{verb} {width} bytes at {int(at[i]):#x}, outside of all regions; {self._nearest(int(at[i]))}"
        refuse(outside, lanes, say, "mask threads beyond the end, or pass a larger operand")
        position: Array = at + self.shifts[which]
        if verb != "reads":
            fixed = ~self.writable[position] | ~self.writable[position + width - 1]
            refuse(
                fixed,
                lanes,
                lambda i: f"{verb} {self.describe(int(position[i]))}, which is not writable",
                "write outputs alone",
            )
        return position

    def describe(self, position: int) -> str:
        """Returns a position as a byte of a region."""
        for segment in self.segments:
            address = position - segment.position + segment.address
            for region in segment.regions:
                if region.address <= address < region.end:
                    return f"byte {address - region.address} of {region.name}"
        return f"position {position}"

    def _nearest(self, address: int) -> str:
        """Returns the region that an address may have been meant for, in words."""
        i = max(bisect_right(self.addresses.tolist(), address) - 1, 0)
        ends = [
            (min(abs(address - r.address), abs(address - r.end)), r)
            for s in self.segments[i : i + 2]
            for r in s.regions
        ]
        _, region = min(ends, key=lambda each: each[0])
        if address < region.address:
            return f"{region.name} begins {region.address - address} bytes behind it"
        return f"{region.name} has {region.bytes.nbytes} bytes and begins {address - region.address} bytes before it"

    @staticmethod
    def _slice(segment: _Segment, region: Region) -> slice:
        first = segment.position + region.address - segment.address
        return slice(first, first + region.bytes.nbytes)


def _unite(kernel: str, regions: Sequence[Region]) -> list[_Segment]:
    """Puts regions together that overlap, or touch and are one piece of the host's memory."""
    segments: list[_Segment] = []
    for region in sorted(regions, key=lambda each: each.address):
        last = segments[-1] if segments else None
        if last is not None and region.address <= last.end:
            together = _host(region) - _host(last.regions[0]) == region.address - last.regions[0].address
            if together:
                last.regions.append(region)
                last.end = max(last.end, region.end)
                continue
            if region.address < last.end:
                problem = f"the regions {last.regions[-1].name} and {region.name} overlap, but not their bytes."
                raise user_error(DeviceError, kernel, problem, fix="pass views of one array for regions that overlap.")
        segments.append(_Segment([region], region.address, region.end))
    return segments


def _host(region: Region) -> int:
    return int(region.bytes.ctypes.data)
