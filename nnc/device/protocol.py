"""The interface of a device: memory, streams of work, events between them, and copies.

A memory plan gives offsets within an arena, and a schedule gives streams and signals; neither knows where the arena lies. A
`DeviceFrame` (nnc/run) binds both to a device: it takes a block of the device's pool, puts the steps of each stream into
one of the device's streams, and turns signals into events. Work is asynchronous: a function that takes a stream returns before the
work is done, and the order between streams is set by events, and by nothing else. The CPU has none of these: its programs work in
the memory of the process, and have done so when they return.

Kernels and compilers are chosen by the *kind* of a device, and stand in `nnc.backends`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

NDArray = np.ndarray[Any, Any]

CUDA = "cuda"
"""The kind of NVIDIA's graphics processors.

Example:
    >>> "cuda:0".startswith(CUDA)
    True
"""
SENT_AT_ONCE = 4 << 10  # bytes: the work of a stream that waits for so few does not notice


class Block(NamedTuple):
    """Contiguous memory of one device.

    Attributes:
        address: the address of the first byte, as the device's own code sees it.
        nbytes: how many bytes.
        owner: keeps the memory as long as it lives.

    Example:
        >>> from nnc.device import find_device
        >>> device = find_device("sim:0", "example")
        >>> device.pool.allocate(8, device.stream).nbytes
        8
    """

    address: int
    nbytes: int
    owner: Any


class Elements(NamedTuple):
    """Elements of an array in a block, one after the other from its beginning.

    Attributes:
        block: a block of a device.
        shape: the array's shape.
        dtype: the array's dtype.

    Example:
        >>> from nnc.device import find_device
        >>> device = find_device("sim:0", "example")
        >>> Elements(device.pool.allocate(8, device.stream), (2,), np.dtype("float32")).shape
        (2,)
    """

    block: Block
    shape: tuple[int, ...]
    dtype: Any


class Event(Protocol):
    """A mark in a stream, reached when all the work before it is done.

    Example:
        >>> from nnc.device import find_device
        >>> event = find_device("sim:0", "example").stream.record()
        >>> event.wait()
        >>> event.is_done()
        True
    """

    def is_done(self) -> bool:
        """Returns whether the mark is reached, without waiting."""
        ...

    def wait(self) -> None:
        """Waits, on the calling thread, until the mark is reached."""
        ...


class Stream(Protocol):
    """A queue of work, done in its order.

    Example:
        >>> from nnc.device import find_device
        >>> find_device("sim:0", "example").stream.synchronize()
    """

    def record(self) -> Event:
        """Marks the place behind the work that is in the queue now."""
        ...

    def wait_for(self, event: Event) -> None:
        """Lets the work that follows begin only when the event is reached; the calling thread goes on.

        Args:
            event: an event of this stream or another one.
        """
        ...

    def synchronize(self) -> None:
        """Waits until the queue is empty."""
        ...


class Pool(Protocol):
    """The memory of a device, in blocks.

    Example:
        >>> from nnc.device import find_device
        >>> device = find_device("sim:0", "example")
        >>> device.pool.free(device.pool.allocate(8, device.stream), device.stream)
    """

    @property
    def capacity(self) -> int:
        """All bytes of the device, free or not."""
        ...

    def allocate(self, nbytes: int, stream: Any, label: object = "") -> Block:
        """Returns a block for work in a stream, aligned for any element.

        Args:
            nbytes: its size.
            stream: where work on it will be.
            label: the content of the block, for messages.

        Raises:
            OutOfMemoryError: the device has none left.
        """
        ...

    def free(self, block: Block, stream: Any) -> None:
        """Gives a block back.

        Args:
            block: a block of this pool.
            stream: work that is in it now may still use the block; later work may get it anew.
        """
        ...


class Transfer(Protocol):
    """Copies between the host and the device. The host's array must stay as it is until the copy is done.

    Example:
        >>> from nnc.device import find_device
        >>> device = find_device("sim:0", "example")
        >>> block, target = device.pool.allocate(8, device.stream), np.empty(1)
        >>> sent = device.transfer.to_device(np.ones(1), block, device.stream)
        >>> device.transfer.to_host(block, target, device.stream).wait()
        >>> target
        array([1.])
    """

    def to_device(self, source: NDArray, block: Block, stream: Any, first: int = 0) -> Event:
        """Copies the elements of a host array to a block.

        Args:
            source: contiguous.
            block: a block of the device.
            stream: where the copy takes its turn.
            first: the byte of the block where the elements begin.
        """
        ...

    def to_host(self, block: Block, target: NDArray, stream: Any) -> Event:
        """Copies the beginning of a block over a host array.

        Args:
            block: a block of the device.
            target: contiguous.
            stream: where the copy takes its turn.
        """
        ...


class Device(Protocol):
    """A place where programs run.

    Example:
        >>> from nnc.device import find_device
        >>> find_device("cpu", "example").name
        'cpu'
    """

    @property
    def name(self) -> str:
        """The name as users write it: "cpu", "cuda:0"."""
        ...


class CapturedGraph(Protocol):
    """Work that was captured, to be queued again as one."""

    @property
    def nodes(self) -> Sequence[Any]:
        """The kernels, each with `addresses` of its operands, which may be replaced between launches."""
        ...

    def launch(self, stream: Any) -> bool:
        """Queues all work behind that of a stream; the stream's later work waits for it. Returns False, with nothing queued,
        where a library's call cannot be captured for the present addresses.
        """
        ...


class Driver(Protocol):
    """Functions of a device with the signatures of CUDA's driver (`nnc.device.driver`), and handles for them."""

    @property
    def table(self) -> Any:
        """The addresses of the functions, which compiled code calls."""
        ...

    def new_event(self) -> int:
        """Returns the handle of an event, which is recorded nowhere yet."""
        ...

    def handle_of(self, stream: Any) -> int:
        """Returns the handle of a stream.

        Args:
            stream: a stream of the device.
        """
        ...

    def release(self, handles: Iterable[int]) -> None:
        """Forgets kernels and events."""
        ...

    def take_error(self, code: int) -> BaseException:
        """Returns the error of the function that failed last in this thread.

        Args:
            code: its result.
        """
        ...

    def begin_capture(self, stream: Any) -> Any:
        """Notes the work that is given to a stream, and to streams that wait for it, instead of queueing it, until the capture
        ends in the same stream and this thread. Returns the table of the functions that do so.
        """
        ...

    def end_capture(self) -> CapturedGraph:
        """Returns the work that was noted."""
        ...

    def drop_capture(self) -> None:
        """Ends a capture that failed."""
        ...


class Accelerator(Device, Protocol):
    """A device with memory of its own, on which work is queued.

    Example:
        >>> from nnc.device import find_device
        >>> device = find_device("sim:0", "example")
        >>> device.host_memory(8).nbytes
        8
        >>> device.synchronize()
    """

    @property
    def pool(self) -> Pool:
        """Its memory."""
        ...

    @property
    def stream(self) -> Stream:
        """The stream that work goes to by default."""
        ...

    @property
    def transfer(self) -> Transfer:
        """Its copies."""
        ...

    @property
    def driver(self) -> Driver:
        """Its functions for compiled code."""
        ...

    @property
    def sending(self) -> Stream:
        """The stream that host arrays are sent in."""
        ...

    def new_stream(self) -> Stream:
        """Another stream."""
        ...

    def synchronize(self) -> None:
        """Waits until all work is done."""
        ...

    def current(self) -> AbstractContextManager[Any]:
        """Makes the device current for the functions of its driver in this thread."""
        ...

    def host_memory(self, nbytes: int) -> NDArray:
        """Memory of the host that the device can read and write while the host goes on.

        Args:
            nbytes: how many bytes.
        """
        ...

    def wait(self, block: Block) -> None:
        """Waits until the work on a block is done.

        Args:
            block: a block of the pool.

        Raises:
            Exception: the work that should have written the block failed.
        """
        ...

    def allocate_all(self, sizes: Sequence[tuple[int, object]]) -> list[Block]:
        """Returns blocks for work in the device's own stream. The caller has made the device the present one.

        Args:
            sizes: the bytes of each block, and a description of its content for messages.

        Raises:
            OutOfMemoryError: the device has none left.
        """
        ...

    def send_few(self, source: NDArray, block: Block) -> None:
        """Copies at most `SENT_AT_ONCE` bytes of the host to the beginning of a block, in the device's own stream. The host's array
        may be changed as soon as this returns.

        Args:
            source: contiguous.
            block: a block of the pool.
        """
        ...

    def drop(self, block: Block) -> None:
        """Gives a block back behind all work on it, whenever that is convenient. It may be called at any time, also by the garbage
        collector in the middle of other work.

        Args:
            block: a block of the pool.
        """
        ...

    def launch(
        self, name: str, function: Callable[[Sequence[NDArray]], Sequence[NDArray]], operands: Sequence[Elements],
        results: Sequence[Elements], source: Any = None,
    ) -> None:  # fmt: skip
        """Queues a function of arrays in the device's own stream.

        Args:
            name: the work's name in messages.
            function: computes the results.
            operands: elements that it reads.
            results: elements that it computes.
            source: the user's line.
        """
        ...


@runtime_checkable
class SharingDevice(Accelerator, Protocol):
    """A device whose memory other libraries read and write, too.

    Example:
        >>> from nnc.device import find_device
        >>> isinstance(find_device("sim:0", "example"), SharingDevice)
        False
    """

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's kind and number of the device."""
        ...

    def to_capsule(self, memory: Any, shape: tuple[int, ...], dtype: Any, stream: int | None, **options: Any) -> Any:
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
        ...

    def describe(self, memory: Any, shape: tuple[int, ...], dtype: Any) -> dict[str, Any]:
        """Returns the array by the CUDA array interface, version 3.

        Args:
            memory: the memory of the array, which must be contiguous.
            shape: the array's shape.
            dtype: the array's dtype, one of NumPy's own.

        Raises:
            Exception: the work that should have written the memory failed.
        """
        ...

    def receive(self, x: Any) -> tuple[Block, tuple[int, ...], Any]:
        """Returns the block, the shape and the dtype of another library's array. Later work in the device's own stream finds
        its elements.

        Args:
            x: has `__dlpack__`, and lies on this device. It is copied where its elements do not lie one after the other, or begin
                at a place where arrays of nnc do not.

        Raises:
            BufferError, NotImplementedError, RuntimeError, TypeError, ValueError: its library, or CuPy, does not exchange it.
        """
        ...
