"""Compiled programs of devices: machine code that queues all steps of a program."""

from __future__ import annotations

from functools import cached_property

from nnc.base.context import timed
from nnc.lower.kernels.native import Function
from nnc.run.device_entry import print_device_entry
from nnc.run.launches import Launches
from nnc.run.native_program import NativeCode


class QueuedCode(NativeCode):
    """The compiled kernels of a program, and the entry that queues them on a device."""

    is_queued = True

    @cached_property
    def launches(self) -> Launches:
        """The launches of the program."""
        parts = self.parts()
        return Launches(parts.planned, parts.schedule, parts.printed)

    @cached_property
    def _text(self) -> str:
        with timed("printing kernels"):
            return print_device_entry(self.launches)

    @cached_property
    def queueing(self) -> Function:
        """The function `@ENTRY(frame)` that queues all steps."""
        with timed("compiling kernels"):
            return self.compiler.load_entry(self._text, {}, None)

    def expect(self, apart: bool) -> None:
        """Announces that the entry will be needed. `apart` is ignored: steps are queued one by one in any case."""
        self.compiler.expect(self._text)

    def load(self, apart: bool) -> None:
        """Waits for the machine code. `apart` is ignored.

        Raises:
            InternalError: the compiler refuses a text.
        """
        assert self.queueing.address
