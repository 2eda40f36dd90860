"""Compiled programs of devices: machine code that queues all steps of a program."""

from __future__ import annotations

from functools import cached_property

from nnc.base.context import timed
from nnc.lower.kernels.launch import Assembler
from nnc.lower.kernels.native import Function
from nnc.lower.plan.liveness import walk
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

    def regions(self) -> list[str]:
        """Returns how the device runs each loop and branch, in words, and why not in a better way."""
        launches, found = self.launches, list[str]()
        for step in walk(launches.steps, launches.printed):
            if step.region is None:
                continue
            where = f"{step.command.name} at {step.source}" if step.source is not None else step.command.name
            if launches.is_launched(step):
                found.append(f"{where} is one kernel")
                continue
            why = self.compiler.print_region(step, launches.planned) if isinstance(self.compiler, Assembler) else ""
            way = "launches all its iterations" if launches.is_unrolled(step) else "is run by the host"
            found.append(f"{where} {way}, as {why}" if isinstance(why, str) and why else f"{where} {way}")
        return found

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
