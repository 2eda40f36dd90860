"""The driver of a simulated device: C functions with the signatures of CUDA's, which queue work in simulated streams.

Handles of streams, events and kernels are small numbers. Errors cannot pass through compiled code as exceptions: a function returns
an error's number, as the driver of a GPU does, and the caller of the compiled code raises the error itself.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from nnc.base.context import get_context
from nnc.base.source import user_source
from nnc.device.capture import Tracker
from nnc.device.driver import FAILED, SIGNATURES, c_function
from nnc.errors import DeviceError, InternalError, user_error
from nnc.testing.devices.sim.graph import SimGraph
from nnc.testing.devices.sim.kernels import LaunchedKernel, Operand, SimKernel
from nnc.testing.devices.sim.memory import SimPool
from nnc.testing.devices.sim.streams import Outcome, Queues, SimEvent, SimStream, Use

_COUNTER = SimKernel("count iterations", (Operand((), np.dtype(np.int64), (), 0, 8, True),), lambda views: None)


class SimDriver:
    """The functions that a compiled entry calls, for one simulated device.

    Attributes:
        table: the addresses of the functions, in the order of `SIGNATURES`.
    """

    def __init__(self, queues: Queues, pool: SimPool) -> None:
        self._queues, self._pool = queues, pool
        self._kernels: dict[int, LaunchedKernel] = {}
        self._events: dict[int, SimEvent | None] = {}
        self._next = 0
        self._errors: dict[int, BaseException] = {}  # by thread
        self._outcomes: dict[int, Outcome] = {}  # of the last copy to the host, by stream
        self._tracker: Tracker[LaunchedKernel] | None = None
        self._functions = [c_function(name)(self._guarded(getattr(self, name))) for name in SIGNATURES]
        addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in self._functions]
        self.table = (ctypes.c_void_p * len(addresses))(*addresses)

    def _guarded(self, method: Callable[..., None]) -> Callable[..., int]:
        def call(*arguments: int) -> int:
            try:
                with self._queues.lock:
                    method(*arguments)
            except BaseException as error:  # an interrupt, too: ctypes would drop it
                self._errors[threading.get_ident()] = error
                return FAILED
            return 0

        return call

    def take_error(self, code: int) -> BaseException:
        """Returns the error of the function that failed last in this thread.

        Args:
            code: its result.
        """
        return self._errors.pop(threading.get_ident(), InternalError(f"{self._queues.device}: no function failed"))

    # -- handles -------------------------------------------------------------------------------------------------------

    def add_kernel(self, kernel: LaunchedKernel) -> int:
        """Returns the handle of a kernel."""
        return self._add(self._kernels, kernel)

    def new_event(self) -> int:
        """Returns the handle of an event, which is recorded nowhere yet."""
        return self._add(self._events, None)

    def handle_of(self, stream: SimStream) -> int:
        """Returns the handle of a stream; 0 is none."""
        return stream.number + 1

    def release(self, handles: Iterable[int]) -> None:
        """Forgets kernels and events."""
        for handle in handles:
            self._kernels.pop(handle, None)
            self._events.pop(handle, None)

    def _add(self, known: dict[int, Any], value: Any) -> int:
        with self._queues.lock:
            self._next += 1
            known[self._next] = value
            return self._next

    def _stream(self, handle: int | None) -> SimStream:
        return self._queues.streams[(handle or 1) - 1]

    # -- the functions -------------------------------------------------------------------------------------------------

    def cuLaunchKernel(  # noqa: N802
        self, function: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int,
        parameters: int, extra: int,
    ) -> None:  # fmt: skip
        """Queues a kernel on the arrays whose addresses its parameters hold."""
        kernel = self._kernels[function].sized((gx, gy, gz), (bx, by, bz), shared)
        pointers = (ctypes.c_void_p * len(kernel.operands)).from_address(parameters or 0) if kernel.operands else ()
        self._launch(kernel, [ctypes.c_uint64.from_address(at or 0).value for at in pointers], stream)

    def nncRunStep(self, step: int, stream: int, parameters: int) -> None:  # noqa: N802
        """Queues a step that has no printed kernel."""
        self.cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0)

    def _launch(self, kernel: LaunchedKernel, addresses: Sequence[int], handle: int) -> None:
        stream = self._stream(handle)
        if self._tracker is not None:
            self._tracker.launch(stream.number, kernel, addresses)
        else:
            queue_kernel(stream, self._pool, kernel, addresses)

    def cuEventRecord(self, event: int, stream: int) -> None:  # noqa: N802
        """Marks a place in a stream."""
        if self._tracker is not None:
            self._tracker.record(event, self._stream(stream).number)
        else:
            self._events[event] = self._stream(stream).record()

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:  # noqa: N802
        """Lets a stream wait for a mark; a mark that nobody made is none to wait for."""
        if self._tracker is not None:
            self._tracker.wait(self._stream(stream).number, event)
        elif (mark := self._events[event]) is not None:
            self._stream(stream).wait_for(mark)

    def cuMemcpyDtoHAsync_v2(self, target: int, source: int, nbytes: int, stream: int) -> None:  # noqa: N802
        """Queues a copy to the host. Its error is that of the next wait for the stream."""
        self._refuse_while_capturing("a copy to the host")
        lease, at = self._pool.find(source)

        def copy() -> None:
            ctypes.memmove(target, lease.bytes[at : at + nbytes].ctypes.data, nbytes)

        uses = [Use(lease, at, at + nbytes, writes=False)]
        self._outcomes[stream] = self._stream(stream).launch("copy to the host", copy, uses)

    def cuStreamSynchronize(self, stream: int) -> None:  # noqa: N802
        """Waits for a stream."""
        self._refuse_while_capturing("a wait of the host")
        self._stream(stream).record(self._outcomes.pop(stream, None)).wait()

    def cuStreamWriteValue64_v2(self, stream: int, address: int, value: int, flags: int) -> None:  # noqa: N802
        """Queues the writing of a word."""

        def write(views: Sequence[Any]) -> None:
            views[0][...] = ctypes.c_int64(value).value

        self._launch(SimKernel(_COUNTER.name, _COUNTER.operands, write), [address], stream)

    # -- capture -------------------------------------------------------------------------------------------------------

    def begin_capture(self, stream: SimStream) -> Any:
        """Notes the work that is given to a stream, and to streams that wait for it, instead of queueing it. Returns the table
        of the functions that do so. Other threads wait until the capture ends, in the stream in which it began.
        """
        self._queues.lock.acquire()
        if self._tracker is not None:
            self._queues.lock.release()
            raise InternalError(f"{self._queues.device}: a capture is under way")
        self._tracker = Tracker(stream.number)
        return self.table

    def end_capture(self) -> SimGraph:
        """Returns the work that was noted.

        Raises:
            DeviceError: a stream of the capture does not join the one in which it began.
        """
        tracker = self._tracker
        if tracker is None:
            raise InternalError(f"{self._queues.device}: no capture is under way")
        self.drop_capture()
        return SimGraph(self._queues, self._pool, tracker.finish())

    def drop_capture(self) -> None:
        """Ends a capture that failed."""
        self._tracker = None
        self._queues.lock.release()

    def _refuse_while_capturing(self, what: str) -> None:
        if self._tracker is not None:
            fix = "queue the work instead."
            raise user_error(DeviceError, "capture", f"{what} cannot be captured: its value is not known.", fix=fix)


def queue_kernel(stream: SimStream, pool: SimPool, kernel: LaunchedKernel, addresses: Sequence[int]) -> None:
    """Queues a kernel in a stream."""
    run, uses = kernel.bind(pool, addresses)
    stream.launch(kernel.name, run, uses, kernel.source or get_context().source or user_source())
