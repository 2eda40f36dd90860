"""The context of a CUDA device: its libraries, and the block in which they work on it."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any

from nnc.device.cuda.libraries import Libraries, failure
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
