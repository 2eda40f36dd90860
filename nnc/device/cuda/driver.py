"""The driver of a CUDA device: the table of its functions, and the steps that run from Python."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable
from typing import Any

from nnc.device.cuda.context import Context, CudaStream
from nnc.device.cuda.graphs import Capture, CudaGraph, StepRun, addresses_at
from nnc.device.cuda.libraries import failure
from nnc.device.cuda.library_calls import Record, RepeatedCall
from nnc.device.driver import FAILED, RUN_STEP, SIGNATURES, c_function, place_in_table


class CudaDriver:
    """Functions of CUDA's driver for compiled entries.

    Args:
        context: the context of the device.

    Example:
        >>> from nnc.device.cuda import CudaDevice, number_of_gpus
        >>> all(CudaDevice(f"cuda:{i}").driver.new_event() > 0 for i in range(number_of_gpus()))
        True
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._events: dict[int, Any] = {}  # CuPy's, by handle
        self._steps: dict[int, tuple[int, StepRun]] = {}  # by handle, how many operands, and the work
        self._records: dict[int, Record] = {}  # of steps, by their addresses, which are the handles
        self._repeated: dict[int, RepeatedCall] = {}  # the steps among them that note calls of a library
        self._kernels: dict[int, int] = {}  # how many parameters, by handle
        self._captures: dict[int, Capture] = {}  # by thread
        self._errors: dict[int, BaseException] = {}  # by thread
        self._run_step = c_function(RUN_STEP)(self._guarded)
        functions = [self._run_step if name == RUN_STEP else context.libraries.functions[name] for name in SIGNATURES]
        self.table = (ctypes.c_void_p * len(functions))(*map(_address_of, functions))

    def repeat_calls(self, function: int) -> None:
        """Lets a compiled function queue steps from now on: it makes the calls of libraries again that steps have noted.

        Args:
            function: its address.
        """
        self.table[place_in_table(RUN_STEP)] = function

    def take_error(self, code: int) -> BaseException:
        """Returns the error of the function that failed last in this thread.

        Args:
            code: its result.
        """
        thread = threading.get_ident()
        found = self._errors.pop(thread, None) if code == FAILED else None
        if thread in self._captures:
            found = self._captures[thread].error
        return found or failure(self._context.name, self._context.libraries.text_of(code))

    def new_event(self) -> int:
        """Returns the handle of an event, which is recorded nowhere yet."""
        with self._context.current():
            event = self._context.cupy.cuda.Event(disable_timing=True)
        self._events[int(event.ptr)] = event
        return int(event.ptr)

    def handle_of(self, stream: CudaStream) -> int:
        """Returns the handle of a stream.

        Args:
            stream: a stream of the device.
        """
        return stream.handle

    def add_kernel(self, handle: int, parameters: int) -> int:
        """Notes a kernel, and returns its handle.

        Args:
            handle: the driver's.
            parameters: how many addresses it is given.
        """
        self._kernels[handle] = parameters
        return handle

    def add_step(self, operands: int, run: StepRun) -> int:
        """Returns the handle of a step that runs from Python.

        Args:
            operands: how many addresses it is given.
            run: queues its work.
        """
        record = Record(operands, _address_of(self._run_step))
        self._records[record.address], self._steps[record.address] = record, (operands, run)
        if isinstance(run, RepeatedCall):
            self._repeated[record.address] = run
        return record.address

    def release(self, handles: Iterable[int]) -> None:
        """Forgets kernels, steps and events.

        Args:
            handles: their handles.
        """
        for handle in handles:
            for known in (self._events, self._steps, self._records, self._repeated, self._kernels):
                known.pop(handle, None)

    def _guarded(self, step: int, stream: int, parameters: int) -> int:
        try:
            count, run = self._steps[step]
            addresses = addresses_at(parameters, count)
            run(addresses, stream)
            repeated = self._repeated.get(step)
            if repeated is not None:
                self._records[step].note(repeated.library_call(addresses), addresses)
        except BaseException as error:  # an interrupt, too: ctypes would drop it
            self._errors[threading.get_ident()] = error
            return FAILED
        return 0

    def begin_capture(self, stream: CudaStream) -> Any:
        """Begins to note launches, and returns the table of the functions that do so, for this thread.

        Args:
            stream: in which the capture begins, and ends.
        """
        capture = self._captures[threading.get_ident()] = Capture(stream.handle, self._kernels, self._steps)
        return capture.table

    def end_capture(self) -> CudaGraph:
        """Returns the launches that were noted.

        Raises:
            DeviceError: a stream of the capture does not join the one in which it began.
        """
        return CudaGraph(self._context, self._captures.pop(threading.get_ident()).finish())

    def drop_capture(self) -> None:
        """Ends a capture that failed."""
        del self._captures[threading.get_ident()]


def _address_of(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
