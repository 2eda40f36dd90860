"""The context of a CUDA device: its libraries, and the block in which they work on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nnc.devices.cuda.libraries import Libraries, failure
from nnc.errors import DeviceError, user_error


class Context:
    """A device of CUDA, in the process that uses it first.

    Args:
        name: of the device, for messages.
        libraries: which reach it.

    Attributes:
        number: of the device among those of CUDA.
    """

    def __init__(self, name: str, libraries: Libraries) -> None:
        self.name, self.libraries = name, libraries
        self.number, self._process = int(name.partition(":")[2]), os.getpid()

    @property
    def cupy(self) -> Any:
        """CuPy."""
        return self.libraries.cupy

    @contextmanager
    def current(self, who: str = "") -> Iterator[None]:
        """Makes the device the one that CUDA's functions work on, in this thread, and words their errors.

        Args:
            who: does the work, for messages; by default the device.

        Raises:
            DeviceError: CUDA reports an error, or this process was forked from the one that uses the device.
        """
        if os.getpid() != self._process:
            raise user_error(
                DeviceError, who or self.name, f"{self.name} belongs to the process that this one was forked from.",
                fix='start processes with multiprocessing.get_context("spawn").',
            )  # fmt: skip
        cuda = self.libraries.cupy.cuda
        try:
            with cuda.Device(self.number):
                yield
        except (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError) as error:
            raise failure(who or self.name, str(error)) from None
