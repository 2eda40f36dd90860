"""Prints the compiled entry of a program on a device: `@ENTRY(frame)` queues all steps through the driver's table.

The same text serves every device. It launches a kernel for each step, records and awaits the events of the schedule, and runs loops
and branches on the host: where a number from the device decides, it is copied to the frame, and the entry waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nnc.base import dtypes
from nnc.device.driver import RUN_STEP, llvm_types, place_in_table
from nnc.lower.kernels.builder import Value
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Loop, Step, Steps, View
from nnc.run.arguments import FrameLayout
from nnc.run.entry_steps import KINDS, Failure, Outline, StepCode
from nnc.run.launches import Launches

_PART = 100  # launches of a function: LLVM takes longer for one long function than for some short ones


def print_device_entry(launches: Launches) -> str:
    """Returns LLVM's text of the entry that queues a program's launches."""
    planned = launches.planned
    outline = Outline.of(planned, {}, {}, launches.layout)
    parts = [_LaunchCode(outline, "begin", launches)]
    parts[0].fork()
    size = _PART
    for number in launches.order():
        weight = sum(1 for _ in walk((launches.steps[number],)))
        if size + weight > _PART:
            parts.append(_LaunchCode(outline, f"part{len(parts)}", launches))
            size = 0
        parts[-1].launch(number)
        size += weight
    parts.append(_LaunchCode(outline, "end", launches))
    parts[-1].join()
    for part in parts:
        part.finish()
    declared = sorted({line for part in parts for line in part.declarations})
    return "\n".join([*declared, *(part.text() for part in parts), _main([part.name for part in parts])])


def _main(parts: Sequence[str]) -> str:
    """Returns the function that calls the parts, until one fails."""
    lines = ["define i64 @ENTRY(ptr %frame) nounwind {"]
    for k, name in enumerate(parts):
        following = f"part{k + 1}" if k + 1 < len(parts) else "done"
        lines += [
            f"part{k}:",
            f"  %why{k} = call i64 @{name}(ptr %frame)",
            f"  %well{k} = icmp eq i64 %why{k}, 0",
            f"  br i1 %well{k}, label %{following}, label %failed{k}",
            f"failed{k}:",
            f"  ret i64 %why{k}",
        ]
    return "\n".join([*lines, "done:", "  ret i64 0", "}"]) + "\n"


class _LaunchCode(StepCode):
    """A function that queues steps."""

    def __init__(self, outline: Outline, name: str, launches: Launches) -> None:
        super().__init__(outline, name)
        self._launches, self._stream = launches, launches.stream_word(0)
        most = max((len(launch.operands) for step in launches.kernels for launch in launches.of(step)), default=0)
        self._values, self._pointers = self.room(8 * most), self.room(8 * most)
        with self._early():
            for i in range(most):
                self.line(f"store ptr {self.offset(self._values, 8 * i)}, ptr {self.offset(self._pointers, 8 * i)}")

    # -- streams and events --------------------------------------------------------------------------------------------

    def fork(self) -> None:
        """Lets all streams begin behind the first one's work, by themselves or behind steps that do."""
        launches = self._launches
        if launches.forked:
            self._drive("cuEventRecord", self.base(launches.start_word), self.base(launches.stream_word(0)))
        for k in launches.forked:
            self._drive("cuStreamWaitEvent", self.base(launches.stream_word(k)), self.base(launches.start_word), "0")

    def join(self) -> None:
        """Lets the first stream wait for the ends of the others, as far as these do not wait for one another."""
        launches, home = self._launches, self.base(self._launches.stream_word(0))
        for k in launches.joined:
            self._drive("cuEventRecord", self.base(launches.end_word(k)), self.base(launches.stream_word(k)))
            self._drive("cuStreamWaitEvent", home, self.base(launches.end_word(k)), "0")

    def launch(self, number: int) -> None:
        """Queues a step of the program, behind the events that it waits for."""
        launches = self._launches
        self._stream = launches.stream_word(launches.schedule.stream_of[number])
        for before in launches.waits.get(number, ()):
            event = self.base(launches.event_word(launches.told[before]))
            self._drive("cuStreamWaitEvent", self.base(self._stream), event, "0")
        self.steps((launches.steps[number],))
        if number in launches.told:
            event = self.base(launches.event_word(launches.told[number]))
            self._drive("cuEventRecord", event, self.base(self._stream))

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _way(self, step: Step) -> Callable[[Steps], None]:
        return self._kernels if self._launches.is_launched(step) else self._regions

    def _kernels(self, steps: Steps) -> None:
        for step in steps:
            for number, launch in enumerate(self._launches.of(step)):
                for i, operand in enumerate(launch.operands):
                    address = self._operand(step, operand)
                    self.line(f"store ptr {address}, ptr {self.offset(self._values, 8 * i)}")
                kernel = self.base(self._launches.kernel_words[id(step)] + number)
                if id(step) not in self._launches.printed:
                    self._drive(RUN_STEP, kernel, self.base(self._stream), self._pointers)
                    continue
                extents = (str(n) for n in (*launch.grid, *launch.block, launch.shared))
                self._drive("cuLaunchKernel", kernel, *extents, self.base(self._stream), self._pointers, "null")

    def _operand(self, step: Step, number: int) -> str:
        """Returns the address of an operand of a launch."""
        views = self._launches.views(step)
        if number == len(views):
            return self.base(self._launches.status_word(step))
        return "null" if self._launches.is_tape(views[number]) else self.address(views[number])

    def decide(self, view: View) -> Value:
        """Copies a number to the frame, and waits for it."""
        place, stream = self.word(self._launches.fetch_word), self.base(self._stream)
        self._drive("cuMemcpyDtoHAsync_v2", place, self._device_address(view), str(view.spec.nbytes), stream)
        self._drive("cuStreamSynchronize", stream)
        return self.load(place, view.spec.dtype)

    def count(self, view: View, iteration: Value) -> None:
        """Queues the writing of an iteration's number."""
        self._drive("cuStreamWriteValue64_v2", self.base(self._stream), self._device_address(view), iteration.text, "0")

    def _device_address(self, view: View) -> str:
        return self.let(f"ptrtoint ptr {self.address(view)} to i64")

    def _drive(self, name: str, *arguments: str) -> None:
        """Calls a function of the driver, and stops where it fails."""
        table = self.base(FrameLayout.table_at)
        function = self.let(f"load ptr, ptr {self.offset(table, 8 * place_in_table(name))}")
        given = ", ".join(f"{kind} {text}" for kind, text in zip(llvm_types(name), arguments, strict=True))
        code = self.let(f"call i32 {function}({given})")
        number = Value(self.let(f"zext i32 {code} to i64"), dtypes.int64)
        # as `Failure.code` does
        failure = self.add(self.mul(number, self.integer(KINDS)), self.integer(Failure.DRIVER))
        self.fail_unless(self.compare("eq", Value(code, dtypes.int32), self.constant(0, dtypes.int32)), failure.text)

    # -- not on devices: memory of the host, and looks for interrupts, which the driver's functions notice --------------

    def _take_in(self, step: Step) -> dict[int, tuple[str, int, bool]]:
        return {}

    def _polls(self, step: Step, region: Loop) -> bool:
        return False
