"""Streams and events of CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nnc.device.cuda.context import Context
from nnc.device.protocol import Event


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
