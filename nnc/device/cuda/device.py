"""Devices `cuda:0` and others: NVIDIA's graphics processors.

Where there is none, all of this is tested on a stand-in for CuPy and the driver, which runs kernels in the interpreter of PTX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from nnc.base.dtypes import DType, bfloat16
from nnc.device import dlpack
from nnc.device.cuda.context import Context, CudaEvent, CudaStream, Handle
from nnc.device.cuda.driver import CudaDriver
from nnc.device.cuda.libraries import Libraries, find_libraries
from nnc.device.cuda.memory import ALIGNMENT, UNKNOWN, CudaPool, Lease
from nnc.device.memory import DeviceMemory
from nnc.device.protocol import Block, Elements, NDArray
from nnc.errors import UnsupportedError, user_error

T = TypeVar("T")

_OLDEST = (8, 0)  # compute capability that printed kernels are made for
_TIMED = 8  # runs of work that is measured


class CudaTransfer:
    """Copies between the host and a device."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device

    def to_device(self, source: NDArray, block: Block, stream: CudaStream, first: int = 0) -> CudaEvent:
        """Copies a host array to a block.

        Args:
            source: a contiguous array; it must not change until the copy is done.
            stream: the stream in which the copy is queued.
            first: the byte of the block at which the elements begin.
        """
        self._device.copy_from_host(block.address + first, source, stream.handle)
        return stream.record()

    def to_host(self, block: Block, target: NDArray, stream: CudaStream) -> CudaEvent:
        """Copies the beginning of a block over a host array.

        Args:
            target: a contiguous array; its elements are known when the event is reached. Waiting for the event raises the error
                of the work on which they depend.
            stream: the stream in which the copy is queued.
        """
        self._device.copy_to_host(block.address, target, stream.handle)
        lease: Lease = block.owner
        return stream.record(lease.check)


class CudaDevice:
    """A graphics processor.

    Args:
        name: the device's name, such as "cuda:0".
        libraries: the libraries that reach it; by default CuPy and CUDA's driver.

    Raises:
        UnsupportedError: CuPy is not installed, there is no such device, or it is too old.

    Example:
        >>> from nnc.device.cuda import number_of_gpus
        >>> [CudaDevice(f"cuda:{i}").name for i in range(number_of_gpus())]
        [...]
    """

    def __init__(self, name: str, libraries: Libraries | None = None) -> None:
        self.name = name
        self._context = context = Context(name, libraries or find_libraries(name))
        self.target = _find_target(context)
        self.stream, self.sending = self.new_stream(), self.new_stream()
        self.pool = CudaPool(context, self.stream)
        self.transfer, self.driver = CudaTransfer(self), CudaDriver(context)
        self._made: dict[Any, Any] = {}

    @property
    def cupy(self) -> Any:
        """CuPy."""
        return self._context.cupy

    def current(self) -> AbstractContextManager[None]:
        """Makes the device current for CUDA's functions in this thread."""
        return self._context.current()

    def new_stream(self) -> CudaStream:
        """Another stream."""
        with self.current():
            return CudaStream(self._context, self.cupy.cuda.Stream(non_blocking=True))

    def synchronize(self) -> None:
        """Waits until all work is done."""
        with self.current():
            self.cupy.cuda.runtime.deviceSynchronize()

    def host_memory(self, nbytes: int) -> NDArray:
        """Page-locked memory of the host, which copies need not wait for.

        Args:
            nbytes: how many bytes.
        """
        with self.current():
            memory = self.cupy.cuda.alloc_pinned_memory(nbytes)
        return np.frombuffer(memory, np.uint8, nbytes)

    def wait(self, block: Block) -> None:
        """Waits until the work on a block is done.

        Args:
            block: a block of the pool.

        Raises:
            Exception: the work that should have written the block failed.
        """
        lease: Lease = block.owner
        self.stream.record(lease.check).wait()

    def allocate_all(self, sizes: Sequence[tuple[int, object]]) -> list[Block]:
        """Returns blocks for work in the device's own stream. The caller has made the device the present one.

        Args:
            sizes: the bytes of each block, and a description of its content for messages.

        Raises:
            OutOfMemoryError: the device has none left; nothing is lost.
        """
        return self.pool.allocate_all(sizes, self.stream)

    def send_few(self, source: NDArray, block: Block) -> None:
        """Copies a host array, which may be changed as soon as this returns, to the beginning of a block.

        CUDA takes ordinary memory over before it returns, without waiting for the stream (CUDA Runtime API, section API
        synchronization behavior).

        Args:
            source: contiguous.
            block: a block of the pool.
        """
        ordinary = source.copy()  # the user's memory may be page-locked, and is read late then
        self.copy_from_host(block.address, ordinary, self.stream.handle)

    def drop(self, block: Block) -> None:
        """Gives a block back behind all work on it, before the next allocation.

        Args:
            block: a block of the pool.
        """
        self.pool.hold(block.owner)

    def launch(
        self, name: str, function: Callable[[Sequence[NDArray]], Sequence[NDArray]], operands: Sequence[Elements],
        results: Sequence[Elements], source: Any = None,
    ) -> None:  # fmt: skip
        """Queues a function of arrays in the device's own stream: it gets CuPy's arrays.

        Args:
            name: the work's name in messages.
            function: computes the results.
            operands: elements that it reads.
            results: elements that it computes.
            source: the user's line.
        """
        with self.arrays_in(self.stream.handle):
            arrays = [self.view(x.block.address, x.shape, x.dtype) for x in operands]
            for out, computed in zip(results, function(arrays), strict=True):
                self.view(out.block.address, out.shape, out.dtype)[...] = computed
        waiting = [each for x in operands for each in x.block.owner.pending()]
        for out in results:
            out.block.owner.depend_on(waiting)

    def library(self, make: Callable[[CudaDevice], T]) -> T:
        """Returns an object that a library has for this device, which is made once.

        Args:
            make: makes the value.
        """
        if make not in self._made:
            with self.current():
                self._made[make] = make(self)
        found: T = self._made[make]
        return found

    # -- CuPy's arrays -------------------------------------------------------------------------------------------------

    @contextmanager
    def arrays_in(self, stream: int) -> Iterator[None]:
        """Lets CuPy's functions work in a stream, and raise errors of linear algebra.

        Args:
            stream: its handle.
        """
        external = self.cupy.cuda.Stream.from_external(Handle(stream))
        with self.current(), external, self._context.libraries.cupyx.errstate(linalg="raise"):
            yield

    def view(
        self, address: int, shape: Sequence[int], dtype: Any, strides: Sequence[int] | None = None, owner: Any = None
    ) -> Any:
        """Returns an array of CuPy in memory of the device.

        Args:
            address: the address of the first element.
            shape: the array's shape.
            dtype: the array's dtype.
            strides: the strides, in bytes; by default the array is contiguous.
            owner: keeps the memory, as long as the array exists; by default the caller does.
        """
        cuda = self.cupy.cuda
        memory = cuda.UnownedMemory(address, 1, self if owner is None else owner, self._context.number)
        return self.cupy.ndarray(
            tuple(shape), dtype, cuda.MemoryPointer(memory, 0), None if strides is None else tuple(strides)
        )

    # -- other libraries -----------------------------------------------------------------------------------------------

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's kind and number of the device."""
        return dlpack.CUDA, self._context.number

    def to_capsule(
        self, memory: DeviceMemory, shape: tuple[int, ...], dtype: DType, stream: int | None, **options: Any
    ) -> Any:
        """DLPack's capsule of an array, for work of another library behind all that is queued.

        Args:
            memory: the memory of the array, which must be contiguous.
            shape: the array's shape.
            dtype: the array's dtype.
            stream: where the other library works, as `__dlpack__` is told.
            options: further ones of `__dlpack__`.

        Raises:
            Exception: the work that should have written the memory failed.
        """
        self._share(memory, stream)
        is_bfloat16 = dtype == bfloat16
        with self.arrays_in(self.stream.handle):
            array = self.view(memory.block.address, shape, np.uint16 if is_bfloat16 else dtype, owner=memory)
            return dlpack.capsule_of(array, is_bfloat16, stream=stream, **options)

    def describe(self, memory: DeviceMemory, shape: tuple[int, ...], dtype: DType) -> dict[str, Any]:
        """Returns the array by the CUDA array interface, version 3: a reader lets its stream wait for the device's own.

        Args:
            memory: the memory of the array, which must be contiguous.
            shape: the array's shape.
            dtype: the array's dtype, one of NumPy's own.

        Raises:
            Exception: the work that should have written the memory failed.
        """
        self._share(memory, UNKNOWN)
        address = memory.block.address if memory.block.nbytes else 0
        return {
            "shape": shape, "typestr": dtype.str, "data": (address, False), "strides": None, "stream": self.stream.handle,
            "version": 3,
        }  # fmt: skip

    def _share(self, memory: DeviceMemory, stream: int | None) -> None:
        """Notes that another library works on some memory, once it is known that the work before came about."""
        lease: Lease = memory.block.owner
        for each in lease.pending():
            each.check()
        lease.readers |= {stream}
        memory.share()

    def receive(self, x: Any) -> tuple[Block, tuple[int, ...], DType]:
        """Returns the block, the shape and the dtype of another library's array. Later work in the device's own stream finds
        its elements.

        Args:
            x: has `__dlpack__`, and lies on this device. It is copied where its elements do not lie one after the other, or begin
                at a place where arrays of nnc do not.

        Raises:
            BufferError, NotImplementedError, RuntimeError, TypeError, ValueError: its library, or CuPy, does not exchange it.
        """
        relay = dlpack.Relay(x)
        with self.arrays_in(self.stream.handle):
            array = self.cupy.from_dlpack(relay)
            lease = Lease(array, None)
            if array.size and (array.data.ptr % ALIGNMENT or not array.flags.c_contiguous):
                self.pool.hold(lease)
                array = self.cupy.array(array, order="C")
                lease = Lease(array, self.stream)
        dtype = bfloat16 if relay.is_bfloat16 else np.dtype(array.dtype)
        if not array.size:
            return self.pool.allocate(0, self.stream), array.shape, dtype
        return Block(int(array.data.ptr), array.nbytes, lease), array.shape, dtype

    # -- copies --------------------------------------------------------------------------------------------------------

    def copy_to_host(self, address: int, target: NDArray, stream: int) -> None:
        """Copies bytes of the device over an array of the host.

        Args:
            address: the address of the first byte.
            target: contiguous.
            stream: the handle of the stream where the copy takes its turn.
        """
        self._copy(target.ctypes.data, address, target.nbytes, "memcpyDeviceToHost", stream)

    def copy_from_host(self, address: int, source: NDArray, stream: int) -> None:
        """Copies an array of the host over bytes of the device.

        Args:
            address: the address of the first byte.
            source: contiguous; it must stay as it is until the copy is done.
            stream: the handle of the stream where the copy takes its turn.
        """
        self._copy(address, source.ctypes.data, source.nbytes, "memcpyHostToDevice", stream)

    def _copy(self, target: int, source: int, nbytes: int, kind: str, stream: int) -> None:
        runtime = self.cupy.cuda.runtime
        if nbytes:
            with self._context.current("copy"):
                runtime.memcpyAsync(target, source, nbytes, getattr(runtime, kind), stream)

    def wait_for(self, stream: int) -> None:
        """Waits until a stream is empty.

        Args:
            stream: its handle.
        """
        with self.current():
            self.cupy.cuda.runtime.streamSynchronize(stream)

    def time(self, run: Callable[[int], None], behind: int) -> float:
        """Returns the milliseconds of work on the device. The host waits for it, and for all work in a stream before.

        The work is captured, so that the host's time to queue it does not count.

        Args:
            run: queues the work in the stream of a handle; it is called several times.
            behind: the handle of the stream.
        """
        cuda = self.cupy.cuda
        with self.current():
            cuda.runtime.streamSynchronize(behind)
            stream, begin, end = cuda.Stream(non_blocking=True), cuda.Event(), cuda.Event()
            stream.begin_capture()
            try:
                for _ in range(_TIMED):
                    run(int(stream.ptr))
            finally:
                graph = stream.end_capture()
            graph.launch(stream)  # warms up
            stream.record(begin)
            graph.launch(stream)
            stream.record(end)
            end.synchronize()
            return float(cuda.get_elapsed_time(begin, end)) / _TIMED

    @cached_property
    def model(self) -> str:
        """The name of the processor, as NVIDIA sells it."""
        with self.current():
            properties = self.cupy.cuda.runtime.getDeviceProperties(self._context.number)
        return str(properties["name"], "utf-8")

    def clear(self, block: Block) -> None:
        """Queues the writing of zeros over a block, in the device's own stream.

        Args:
            block: a block of the pool.
        """
        with self.current():
            self.cupy.cuda.runtime.memsetAsync(block.address, 0, block.nbytes, self.stream.handle)

    def find_functions(self, code: bytes, names: Sequence[str]) -> Mapping[str, Any]:
        """Returns the functions of a module, by name; each keeps the module.

        Args:
            code: machine code, or PTX.
            names: the names of the functions.
        """
        with self.current():
            module = self.cupy.cuda.function.Module()
            module.load(code)
            return {name: module.get_function(name) for name in names}


def _find_target(context: Context) -> str:
    """Returns the processor of a device, by NVIDIA's name."""
    cupy = context.cupy
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        fix = "install NVIDIA's driver for the graphics processor; nnc.devices() lists the devices of this machine."
        raise user_error(UnsupportedError, context.name, f"CUDA does not start: {error}.", fix=fix) from error
    if context.number >= count:
        problem = f"CUDA finds {count} of its devices, numbered from 0."
        fix = "use one of nnc.devices(); CUDA_VISIBLE_DEVICES hides others."
        raise user_error(UnsupportedError, context.name, problem, fix=fix)
    capability = str(cupy.cuda.Device(context.number).compute_capability)
    if (int(capability[:-1]), int(capability[-1])) < _OLDEST:
        problem = (
            f"its compute capability is {capability[:-1]}.{capability[-1]}, and kernels are made for 8.0 and later."
        )
        fix = "use a processor of the Ampere generation or a later one."
        raise user_error(UnsupportedError, context.name, problem, fix=fix)
    return f"sm_{capability}"
