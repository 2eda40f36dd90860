"""Memory that threads share: bytes, which of them are filled, and the accesses that nothing orders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nnc.testing.devices.ptx.accesses import Accesses
from nnc.testing.devices.ptx.faults import refuse
from nnc.testing.devices.ptx.values import BITS, Array

if TYPE_CHECKING:
    from nnc.testing.devices.ptx.wave import Wave

MOST_ALIGNED = 32  # bytes of the widest access
_BARRIER = "put a barrier between the two accesses, or let one thread make both"
_CONSTANT = "load without .nc, which is for operands that the kernel does not write"
_WRITTEN = "which another thread wrote, a race"
_FILLED = {1: 0x01, 2: 0x0101, 4: 0x01010101, 8: 0x0101010101010101}


class Memory(ABC):
    """Bytes at flat positions; a kind of memory finds the positions of addresses.

    Args:
        size: the number of bytes, a multiple of 32.
        granule: the width of the narrowest access.
        written_bytes: how many bytes from the first may be written, a multiple of 32; only accesses to these are kept.
    """

    def __init__(self, size: int, granule: int, written_bytes: int) -> None:
        self.bytes = np.zeros(size, np.uint8)
        self.filled = np.zeros(size, np.uint8)
        self.granule = granule
        self.tracked = written_bytes // granule
        self.writes, self.reads = Accesses(self.tracked), Accesses(self.tracked)
        self.atomic = np.zeros(self.tracked, bool)  # the last write was an atomic one
        self.constant = np.zeros(self.tracked, bool)  # was read by an instruction that takes it for constant

    @abstractmethod
    def find(self, wave: Wave, addresses: Array, lanes: Array, width: int, verb: str) -> Array:
        """Returns the flat positions of addresses.

        Args:
            addresses: one for each thread.
            width: bytes of the access.
            verb: the word for the access in messages.

        Raises:
            Fault: an access lies outside.
        """

    @abstractmethod
    def describe(self, position: int) -> str:
        """Returns a position in words."""

    def load(self, wave: Wave, addresses: Array, lanes: Array, item: int, count: int, constant: bool = False) -> Array:
        """Returns elements, one row a thread.

        Args:
            addresses: one for each thread.
            item: bytes of an element.
            count: elements that each thread loads.
            constant: whether the kernel promises that nobody writes there while it runs.

        Raises:
            Fault: a byte lies outside, was never written, or is written by another thread at the same time.
        """
        place = self._place(wave, addresses, lanes, item, count, "reads")
        elements = self._filled(place, lanes, item, count)
        if place.kept:
            late = self.writes.unordered(place.granules, place.threads, wave.order)
            place.refuse(late, "which another thread wrote, a race", _BARRIER)
            if constant:
                place.refuse(self.writes.levels[place.granules] != 0, "which the kernel writes, as constant", _CONSTANT)
                self.constant[place.granules] = True
            self.reads.add(place.granules, place.threads, wave.order)
        return self.bytes.view(BITS[8 * item])[elements]

    def store(self, wave: Wave, addresses: Array, lanes: Array, values: Array) -> None:
        """Writes elements.

        Args:
            addresses: one for each thread.
            values: unsigned integers, one row a thread.

        Raises:
            Fault: a byte lies outside, may not be written, or is used by another thread at the same time.
        """
        item, count = values.dtype.itemsize, values.shape[1]
        place = self._place(wave, addresses, lanes, item, count, "writes")
        if place.kept:
            place.refuse(self.writes.unordered(place.granules, place.threads, wave.order), _WRITTEN, _BARRIER)
            self._check_readers(place, wave)
            twice = self.writes.replace(place.granules, place.threads, wave.order)
            place.refuse(twice, "which another thread writes, too, a race", _BARRIER)
            self.atomic[place.granules] = False
        elements = _elements(place, item, count)
        self.bytes.view(values.dtype)[elements] = values
        self.filled.view(values.dtype)[elements] = _FILLED[item]

    def update(self, wave: Wave, addresses: Array, lanes: Array, item: int) -> Array:
        """Notes atomic accesses, which nothing needs to order among each other.

        Args:
            addresses: one for each thread.
            item: bytes of an element.

        Returns:
            the positions, counted in elements of this size.

        Raises:
            Fault: a byte lies outside, was never written, may not be written, or is used otherwise at the same time.
        """
        place = self._place(wave, addresses, lanes, item, 1, "updates")
        elements = self._filled(place, lanes, item, 1)
        if place.kept:
            late = self.writes.unordered(place.granules, place.threads, wave.order) & ~self.atomic[place.granules]
            place.refuse(late, _WRITTEN, _BARRIER)
            self._check_readers(place, wave)
            self.atomic[place.granules] = True
            self.writes.add(place.granules, place.threads, wave.order)
        return elements[:, 0]

    def _place(self, wave: Wave, addresses: Array, lanes: Array, item: int, count: int, verb: str) -> _Place:
        width = item * count
        fix = "state no more alignment than the operand has"
        say = lambda i: f"{verb} {width} bytes at {int(addresses[i]):#x}, which is no multiple of {width}"
        refuse(addresses % np.uint64(width) != 0, lanes, say, fix)
        position = self.find(wave, addresses, lanes, width, verb)
        granules = (position // self.granule)[:, None] + np.arange(width // self.granule)
        threads = wave.threads[lanes][:, None]
        inside = granules[:, 0] < self.tracked
        if inside.all():
            return _Place(self, verb, position, granules, threads, lanes)
        return _Place(self, verb, position, granules[inside], threads[inside], lanes[inside])

    def _filled(self, place: _Place, lanes: Array, item: int, count: int) -> Array:
        """Returns the elements of an access; all of them must be filled."""
        elements = _elements(place, item, count)
        unset = self.filled.view(BITS[8 * item])[elements] != _FILLED[item]
        say = lambda i: f"{place.verb} {self.describe(int(place.position[i]))}, which nobody wrote"
        refuse(unset, lanes, say, "write the bytes first")
        return elements

    def _check_readers(self, place: _Place, wave: Wave) -> None:
        late = self.reads.unordered(place.granules, place.threads, wave.order)
        place.refuse(late, "which another thread reads, a race", _BARRIER)
        place.refuse(self.constant[place.granules], "which the kernel read as constant", _CONSTANT)


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of an access: positions of all threads, and the granules of the threads whose accesses are kept."""

    memory: Memory
    verb: str
    position: Array
    granules: Array
    threads: Array
    lanes: Array

    @property
    def kept(self) -> bool:
        return len(self.lanes) > 0

    def refuse(self, wrong: Array, clause: str, fix: str) -> None:
        granule = self.memory.granule
        say = lambda i: f"{self.verb} {self.memory.describe(int(self.granules[i, 0]) * granule)}, {clause}"
        refuse(wrong, self.lanes, say, fix)


def _elements(place: _Place, item: int, count: int) -> Array:
    return (place.position // item)[:, None] + np.arange(count)
