"""A stand-in for a graphics processor, CuPy and CUDA's driver, on a simulated device.

Memory, streams and events are a simulated device's, so work runs late, in any order that events allow. Copies note the bytes they
touch, and kernels the blocks of sent arrays that they are given. Kernels run in the interpreter of PTX. CuPy's arrays
(`arrays.py`) hold NumPy's on the bytes behind the addresses, once all work of the present stream is done.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from nnc.base.source import SourceLine
from nnc.device.cuda import CudaDevice, Libraries
from nnc.device.driver import RUN_STEP, SIGNATURES, c_function
from nnc.errors import OutOfMemoryError as Full
from nnc.testing.devices.ptx import Entry, PtxModule, Region
from nnc.testing.devices.sim import Lease, SimDevice, Use
from nnc.testing.devices.sim.kernels import Work
from tests.devices.cuda.arrays import CupyArray
from tests.devices.cuda.graphs import Bind, Graphs

SENDING = 3  # the stream of copies to the device: the second one that a `CudaDevice` makes
COUNT = 10_000  # devices: each test takes one of its own


class CUDARuntimeError(RuntimeError):
    pass


class CUDADriverError(RuntimeError):
    pass


@dataclass(frozen=True)
class Launched:
    """A function of a module, for the simulated driver."""

    entry: Entry
    machine: Machine
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0
    source: SourceLine | None = None

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def operands(self) -> Sequence[Any]:
        return self.entry.parameters

    def sized(self, grid: Any, block: Any, shared: int) -> Launched:
        return Launched(self.entry, self.machine, grid, block, shared)

    def bind(self, pool: Any, addresses: Sequence[int]) -> Work:
        self.machine.launched.append(self.name)
        leases = [pool.find(address)[0] for address in addresses]

        def run() -> None:
            regions = [
                Region(f"operand {i}", lease.region.address, lease.bytes)
                for i, lease in enumerate(dict.fromkeys(leases))
            ]
            self.entry.run(self.grid, self.block, self.shared, addresses, regions)

        sent = [lease for lease in dict.fromkeys(leases) if lease.region.stream.number == SENDING]
        return run, [Use(lease, 0, lease.nbytes, False, True) for lease in sent]


class Machine:
    """A computer with many graphics processors of one memory.

    Args:
        seed: of the order in which streams run.
        capacity: bytes of memory.
    """

    def __init__(self, seed: int = 0, capacity: int = 1 << 30, capability: str = "90") -> None:
        self.sim = SimDevice("cuda", seed, capacity)
        self.faults: list[BaseException] = []
        self.name = ""
        self.launched: list[str] = []
        self.freed: list[Any] = []  # blocks, with their streams, before they are given back
        self.locked: list[Any] = []  # page-locked memory
        self.times: list[float] = []  # of work that is measured next
        self.measured = 0  # times that were asked for
        self.captured: dict[int, list[Bind]] = {}  # calls of libraries, by stream that is captured
        self.graphs = Graphs(self)
        self.graph_calls: list[str] = []  # names of the functions for graphs
        self.fails: dict[str, Any] = {}  # results of driver's functions that shall fail, by name
        self.capability = capability
        self.thread = threading.local()  # the present device of each thread, once it has one
        self._stream = self.sim.stream
        self._streams = {0: self.sim.stream}
        self._functions = [self._driver_function(name) for name in SIGNATURES if name != RUN_STEP]
        functions = dict(zip((name for name in SIGNATURES if name != RUN_STEP), self._functions, strict=True))
        self.libraries = Libraries(
            _CuPy(self, self._cuda()), SimpleNamespace(errstate=self._errstate), functions, self.graphs.functions(), self._text_of
        )  # fmt: skip

    @property
    def number(self) -> int:
        """The number of the device that the tests use."""
        return int(self.name.partition(":")[2] or 0)

    def device(self, name: str) -> CudaDevice:
        return CudaDevice(name, self.libraries)

    def _driver_function(self, name: str) -> Any:
        method = getattr(self.sim.driver, name)

        def call(*arguments: Any) -> int:
            if name in self.fails:
                return int(self.fails[name])
            if not hasattr(self.thread, "device"):
                return 201
            try:
                method(*arguments)
            except BaseException as error:
                self.faults.append(error)
                return 700
            return 0

        return c_function(name)(call)

    def _present_device(self) -> int:
        """The present device of the thread; of a thread that has chosen none, the one that the tests use."""
        return getattr(self.thread, "device", self.number)

    def _set_device(self, number: int) -> None:
        self.thread.device = number

    def queue(self, stream: int, name: str, bind: Bind) -> None:
        """Queues a library's work, or notes it where the stream is captured."""
        if stream in self.captured:
            self.captured[stream].append(bind)
        else:
            self.sim.queues.streams[stream - 1].launch(name, *bind())

    @staticmethod
    def _text_of(code: int) -> str:
        texts = {
            201: "CUDA_ERROR_INVALID_CONTEXT (invalid device context)",
            700: "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)",
        }
        return texts.get(code, f"error {code}")

    @contextmanager
    def _errstate(self, linalg: str) -> Iterator[None]:
        assert linalg == "raise"
        yield

    # -- cupy.cuda -----------------------------------------------------------------------------------------------------

    def _cuda(self) -> Any:
        machine, sim = self, self.sim

        class Stream:
            def __init__(self, non_blocking: bool = False, handle: int | None = None) -> None:
                self.of = sim.new_stream() if handle is None else sim.queues.streams[handle - 1]
                self.ptr = self.of.number + 1

            @classmethod
            def from_external(cls, stream: Any) -> Any:
                return cls(handle=stream.__cuda_stream__()[1])

            def __enter__(self) -> None:
                self._before, machine._stream = machine._stream, self.of

            def __exit__(self, *_: Any) -> None:
                machine._stream = self._before

            def record(self, event: Any) -> Any:
                sim.driver.cuEventRecord(event.ptr, self.ptr)
                return event

            def wait_event(self, event: Any) -> None:
                sim.driver.cuStreamWaitEvent(self.ptr, event.ptr, 0)

            def synchronize(self) -> None:
                self.of.synchronize()

            def begin_capture(self) -> None:
                machine.captured[self.ptr] = []

            def end_capture(self) -> Any:
                binds = machine.captured.pop(self.ptr)
                return SimpleNamespace(
                    launch=lambda stream: [machine.queue(stream.ptr, "captured", bind) for bind in binds]
                )

        class Event:
            def __init__(self, disable_timing: bool = False) -> None:
                self.ptr = sim.driver.new_event()

            @property
            def done(self) -> bool:
                mark = sim.driver._events[self.ptr]
                return mark is None or mark.is_done()

            def synchronize(self) -> None:
                mark = sim.driver._events[self.ptr]
                if mark is not None:
                    mark.wait()

        class Device:
            def __init__(self, number: int) -> None:
                self.number, self.compute_capability = number, machine.capability

        class Module:
            def load(self, code: bytes) -> None:
                self._entries = PtxModule(code.decode()).entries

            def get_function(self, name: str) -> Any:
                return SimpleNamespace(ptr=sim.driver.add_kernel(Launched(self._entries[name], machine)))

        runtime = SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError, memcpyHostToDevice=1, memcpyDeviceToHost=2,
            getDeviceCount=lambda: COUNT, getDevice=self._present_device, setDevice=self._set_device,
            memcpyAsync=self._copy, memsetAsync=self._fill, deviceSynchronize=sim.synchronize,
            streamSynchronize=lambda handle: sim.queues.streams[handle - 1].synchronize(),
            getDeviceProperties=lambda number: {"name": b"a stand-in"},
            memGetInfo=lambda: (sim.pool.capacity - sim.pool.used, sim.pool.capacity),
        )  # fmt: skip
        return SimpleNamespace(
            Stream=Stream, Event=Event, Device=Device, function=SimpleNamespace(Module=Module), runtime=runtime,
            driver=SimpleNamespace(CUDADriverError=CUDADriverError), memory=SimpleNamespace(OutOfMemoryError=Full),
            alloc_pinned_memory=self._lock_memory, get_elapsed_time=self._elapsed,
            UnownedMemory=lambda address, nbytes, owner, number: _Unowned(address, owner),
            MemoryPointer=lambda memory, offset: memory,
            pool=SimpleNamespace(malloc=self._malloc, free_all_blocks=sim.synchronize, used_bytes=lambda: sim.pool.used),
            array=self._array,
        )  # fmt: skip

    def _elapsed(self, begin: Any, end: Any) -> float:
        """The next time that a test gives; others take equally long."""
        self.measured += 1
        return self.times.pop(0) if self.times else 1.0

    def _lock_memory(self, nbytes: int) -> Any:
        """Page-locked memory, which the device reads late."""
        memory = np.full(nbytes, 0xCD, np.uint8)
        self.locked.append(memory)
        return memory

    def take_back(self, block: Any, stream: Any) -> None:
        """Frees the memory of a pointer that is gone."""
        self.freed.append((block, stream))
        if not self.sim.queues.lock._is_owned():  # else it went in the middle of other work
            self.free_all()

    def free_all(self) -> None:
        """Frees the memory of pointers that are gone."""
        while self.freed:
            block, stream = self.freed.pop()
            try:
                self.sim.pool.free(block, stream)
            except BaseException as error:
                self.faults.append(error)

    def _malloc(self, nbytes: int) -> Any:
        self.free_all()
        block = self.sim.pool.allocate(nbytes, self._stream)
        lease = block.owner
        self._stream.launch("poison", lambda: lease.bytes.fill(0xCD), [Use.whole(lease, writes=True)])
        return _Pointer(self, block, self._stream)

    def _lease(self, address: int) -> tuple[Lease, int]:
        return self.sim.pool.find(address)

    def _copy(self, target: int, source: int, nbytes: int, kind: int, handle: int) -> None:
        lease, first = self._lease(target if kind == 1 else source)
        host = source if kind == 1 else target
        use = Use(lease, first, first + nbytes, kind == 1, True)
        lease.check_range("memcpyAsync", first, first + nbytes, None)
        taken = None
        if kind == 1 and not any(0 <= source - x.ctypes.data < x.nbytes for x in self.locked):
            taken = ctypes.create_string_buffer(
                ctypes.string_at(source, nbytes), nbytes
            )  # ordinary memory is read at once
            host = ctypes.addressof(taken)

        def run(held: Any = taken) -> None:
            here = lease.bytes[first : first + nbytes].ctypes.data
            ctypes.memmove(here, host, nbytes) if kind == 1 else ctypes.memmove(host, here, nbytes)

        self.sim.queues.streams[handle - 1].launch("memcpyAsync", run, [use])

    def _fill(self, address: int, value: int, nbytes: int, handle: int) -> None:
        lease, first = self._lease(address)

        def run() -> None:
            lease.bytes[first : first + nbytes] = value

        self.sim.queues.streams[handle - 1].launch("memsetAsync", run, [Use(lease, first, first + nbytes, True)])

    def _array(self, shape: Any, dtype: Any, memory: Any, strides: Any) -> Any:
        self._stream.synchronize()
        lease, first = self._lease(memory.ptr)
        return CupyArray(np.ndarray(shape, dtype, lease.bytes, first, strides), memory.ptr, memory, self._order)

    def _order(self, handle: int) -> None:
        """Lets a stream wait for CuPy's present one."""
        self.sim.queues.streams[handle - 1].wait_for(self._stream.record())

    def lease_of(self, held: Any) -> Lease:
        """The block of the device in whose bytes an array of NumPy lies."""
        place = held.ctypes.data
        return next(x for x in self.sim.pool._live.values() if 0 <= place - x.bytes.ctypes.data < max(x.nbytes, 1))

    def from_dlpack(self, x: Any) -> CupyArray:
        """Another library's array, whose work comes before that of CuPy's present stream."""
        assert x.__dlpack_device__() == (2, self.number)
        capsule = x.__dlpack__(stream=self._stream.number + 1, max_version=(1, 0), copy=None)
        held = np.from_dlpack(Host(capsule))
        lease = self.lease_of(held)
        address = lease.region.address + held.ctypes.data - lease.bytes.ctypes.data
        return CupyArray(held, address, order=self._order)


class Host:
    """An array of the host that a capsule describes."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@dataclass(frozen=True)
class _Unowned:
    """Memory that an array of CuPy does not own, and the object that keeps it."""

    ptr: int
    owner: Any


class _Pointer:
    """Memory of CuPy's pool: freed memory is taken again by the stream's later work, in any order with other streams.

    It goes with the last reference alone, as CuPy's does. The garbage collector calls `__del__` of all objects of a ring, also
    of such that `__del__` of others have kept, but it knows nothing of arrays of NumPy.
    """

    def __init__(self, machine: Machine, block: Any, stream: Any) -> None:
        self.ptr, self._keeper = block.address, np.empty(0)
        weakref.finalize(self._keeper, machine.take_back, block, stream).atexit = False


class _CuPy:
    """The module cupy."""

    def __init__(self, machine: Machine, cuda: Any) -> None:
        self.cuda, self.from_dlpack = cuda, machine.from_dlpack

    def ndarray(self, shape: Any, dtype: Any, memory: Any, strides: Any = None) -> Any:
        return self.cuda.array(shape, dtype, memory, strides)

    def empty(self, shape: Any, dtype: Any) -> Any:
        memory = self.cuda.pool.malloc(max(1, math.prod(shape)) * np.dtype(dtype).itemsize)
        return self.cuda.array(shape, dtype, memory, None)

    def array(self, x: CupyArray, order: str) -> Any:
        assert order == "C"
        copy = self.empty(x.held.shape, x.held.dtype)
        copy.held[...] = x.held
        return copy

    def get_default_memory_pool(self) -> Any:
        return self.cuda.pool
