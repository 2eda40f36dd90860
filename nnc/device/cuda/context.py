"""The context of a CUDA device, its libraries and the block in which they work on it; streams and events."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from nnc.device.cuda.libraries import Libraries, failure
from nnc.device.protocol import Event
from nnc.errors import DeviceError, user_error


class Context:
    """A CUDA device, as used by the process that first used it.

    Attributes:
        number: the device's number among CUDA's devices.
        process: the id of that process.
        runtime: CuPy's functions of CUDA's runtime.
        errors: the types of CuPy's errors.
    """

    def __init__(self, name: str, libraries: Libraries) -> None:
        self.name, self.libraries = name, libraries
        self.number, self.process = int(name.partition(":")[2]), os.getpid()
        cuda = libraries.cupy.cuda
        self.runtime = cuda.runtime
        self.errors = cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError

    @property
    def cupy(self) -> Any:
        """CuPy."""
        return self.libraries.cupy

    def current(self, who: str = "") -> AbstractContextManager[None]:
        """Makes the device current for CUDA's functions in this thread, and words their errors.

        Args:
            who: the subject of error messages; by default the device.

        Raises:
            DeviceError: CUDA reports an error, or this process was forked from the one that uses the device.
        """
        return _Current(self, who or self.name)


class _Current(AbstractContextManager[None]):
    """The block within which a device is current. Each call of a program enters several.

    Args:
        who: the subject of error messages.
    """

    __slots__ = ("_before", "_context", "_who")

    def __init__(self, context: Context, who: str) -> None:
        self._context, self._who = context, who

    def __enter__(self) -> None:
        context = self._context
        if os.getpid() != context.process:
            problem = f"{context.name} belongs to the process that this one was forked from."
            fix = 'start processes with multiprocessing.get_context("spawn").'
            raise user_error(DeviceError, self._who, problem, fix=fix)
        runtime = context.runtime
        try:
            self._before = runtime.getDevice()
            runtime.setDevice(context.number)  # in any case: the driver launches nothing in a thread that never did so
        except context.errors as error:
            raise failure(self._who, str(error)) from None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        context = self._context
        if self._before != context.number:
            context.runtime.setDevice(self._before)
        if isinstance(error, context.errors):
            raise failure(self._who, str(error)) from None


# -- streams and events ------------------------------------------------------------------------------------------------

# Streams and events of CUDA.


class CudaEvent:
    """An event: a mark in a stream.

    Args:
        event: CuPy's event, already recorded.
        check: raises the error of the work before the event; called once that work is done.
    """

    def __init__(self, context: Context, event: Any, check: Callable[[], None] | None = None) -> None:
        self._context, self.event, self._check = context, event, check

    def is_done(self) -> bool:
        """Returns whether the mark is reached, without waiting."""
        with self._context.current("an event"):
            return bool(self.event.done)

    def wait(self) -> None:
        """Waits until the event is reached.

        Raises:
            DeviceError: CUDA reports that work on the device failed.
            Exception: the work before the event failed.
        """
        with self._context.current("an event"):
            self.event.synchronize()
        if self._check is not None:
            self._check()


class CudaStream:
    """A queue of work.

    Args:
        context: the context of the device.
        stream: CuPy's stream.

    Example:
        >>> from nnc.device.cuda import CudaDevice, number_of_gpus
        >>> all(CudaDevice(f"cuda:{i}").new_stream().handle > 0 for i in range(number_of_gpus()))
        True
    """

    def __init__(self, context: Context, stream: Any) -> None:
        self._context, self.stream = context, stream

    @property
    def handle(self) -> int:
        """The driver's handle."""
        return int(self.stream.ptr)

    def record(self, check: Callable[[], None] | None = None) -> CudaEvent:
        """Marks the place behind the work that is in the queue now.

        Args:
            check: raises the error of the work before it, once that is done.
        """
        with self._context.current("a stream"):
            return CudaEvent(
                self._context, self.stream.record(self._context.cupy.cuda.Event(disable_timing=True)), check
            )

    def wait_for(self, event: Event) -> None:
        """Lets the work that follows begin only when the event is reached.

        Args:
            event: an event of a stream of CUDA, or of another device, for which the host waits.
        """
        if not isinstance(event, CudaEvent):
            event.wait()
            return
        with self._context.current("a stream"):
            self.stream.wait_event(event.event)

    def synchronize(self) -> None:
        """Waits until the queue is empty."""
        with self._context.current("a stream"):
            self.stream.synchronize()


class Handle:
    """A stream in the form in which CuPy takes it from other libraries.

    Args:
        handle: the driver's handle of the stream.

    Example:
        >>> Handle(1).__cuda_stream__()
        (0, 1)
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle
