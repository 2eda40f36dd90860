"""Queues a program's steps on a device from Python, call by call as the compiled entry does (`nnc.run.device_entry`)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnc.device.driver import RUN_STEP, SIGNATURES, c_function
from nnc.device.protocol import Driver
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Branches, Kind, Loop, Step, Steps, View
from nnc.run.arguments import FrameLayout
from nnc.run.entry_steps import Failure
from nnc.run.launches import Launches

Watch = Callable[[Step, Sequence[int], int], None]


class _Stopped(Exception):  # noqa: N818
    """Stands for an early return; its argument is the entry's result."""


class Walker:
    """Runs a program's launches from Python, on the words of a frame.

    Args:
        watch: called before each launch, with the addresses of the step's operands and the handle of its stream.
    """

    def __init__(self, launches: Launches, words: Any, driver: Driver, watch: Watch | None = None) -> None:
        self._launches, self._words, self._watch = launches, words, watch
        self._functions = {name: c_function(name)(at) for name, at in zip(SIGNATURES, driver.table, strict=True)}
        self._numbers = {id(step): i for i, step in enumerate(walk(launches.steps))}
        self._iterations: dict[int, int] = {}
        self._stream = 0

    def __call__(self) -> int:
        """Queues all steps; the result is that of the compiled entry."""
        try:
            self._walk()
        except _Stopped as stopped:
            return int(stopped.args[0])
        return 0

    def _drive(self, name: str, *arguments: Any) -> None:
        if code := self._functions[name](*arguments):
            raise _Stopped(Failure.DRIVER.code(code))

    def _walk(self) -> None:
        launches, words = self._launches, self._words
        home = words[launches.stream_word(0)]
        if launches.forked:
            self._drive("cuEventRecord", words[launches.start_word], home)
        for k in launches.forked:
            self._drive("cuStreamWaitEvent", words[launches.stream_word(k)], words[launches.start_word], 0)
        for number in launches.order():
            self._stream = words[launches.stream_word(launches.schedule.stream_of[number])]
            for before in launches.waits.get(number, ()):
                self._drive("cuStreamWaitEvent", self._stream, words[launches.event_word(launches.told[before])], 0)
            self._steps((launches.steps[number],))
            if number in launches.told:
                self._drive("cuEventRecord", words[launches.event_word(launches.told[number])], self._stream)
        for k in launches.joined:
            self._drive("cuEventRecord", words[launches.end_word(k)], words[launches.stream_word(k)])
            self._drive("cuStreamWaitEvent", home, words[launches.end_word(k)], 0)

    def _steps(self, steps: Steps) -> None:
        for step in steps:
            if self._launches.is_launched(step):
                self._kernel(step)
            elif isinstance(step.region, Loop):
                self._loop(step, step.region)
            elif isinstance(step.region, Branches):
                self._branches(step, step.region)

    def _address(self, view: View) -> int:
        planned, layout = self._launches.planned, self._launches.layout
        buffer, offset = planned.bound.buffers[view.buffer], planned.offsets[view.buffer]
        if offset is not None:
            begin = self._words[FrameLayout.arena_at] + offset
        else:
            find = {Kind.INPUT: layout.input, Kind.OUTPUT: layout.result, Kind.CONSTANT: layout.constant}
            begin = self._words[find[buffer.kind](buffer.index)]
        return int(begin + view.offset + sum(self._iterations[number] * nbytes for number, nbytes in view.advances))

    def _kernel(self, step: Step) -> None:
        if self._watch is not None:
            operands = [self._operand(step, i) for i in range(len(self._launches.views(step)))]
            self._watch(step, operands, self._stream)
        for number, launch in enumerate(self._launches.of(step)):
            addresses = [self._operand(step, operand) for operand in launch.operands]
            values = (ctypes.c_uint64 * len(addresses))(*addresses)
            starts = [ctypes.addressof(values) + 8 * i for i in range(len(addresses))]
            pointers = (ctypes.c_void_p * len(starts))(*starts)
            kernel = self._words[self._launches.kernel_words[id(step)] + number]
            if id(step) not in self._launches.printed:
                self._drive(RUN_STEP, kernel, self._stream, ctypes.addressof(pointers))
                continue
            extents = (*launch.grid, *launch.block, launch.shared)
            self._drive("cuLaunchKernel", kernel, *extents, self._stream, ctypes.addressof(pointers), None)

    def _operand(self, step: Step, number: int) -> int:
        """Returns the address of an operand of a launch."""
        views = self._launches.views(step)
        if number == len(views):
            return int(self._words[self._launches.status_word(step)])
        return 0 if self._launches.is_tape(views[number]) else self._address(views[number])

    def _decide(self, view: View) -> int:
        place = ctypes.addressof(self._words) + 8 * self._launches.fetch_word
        self._drive("cuMemcpyDtoHAsync_v2", place, self._address(view), view.spec.nbytes, self._stream)
        self._drive("cuStreamSynchronize", self._stream)
        return int(np.frombuffer(ctypes.string_at(place, view.spec.nbytes), view.spec.dtype)[0])

    def _branches(self, step: Step, region: Branches) -> None:
        chosen = self._decide(region.index)
        if not 0 <= chosen < len(region.branches):
            raise _Stopped(Failure.BRANCH.code(self._numbers[id(step)]))
        self._steps(region.branches[chosen])

    def _loop(self, step: Step, region: Loop) -> None:
        length = region.length if region.count is None else self._decide(region.count)
        done, copy = 0, 0
        while True:
            c = region.copies[copy]
            is_over = region.count is not None and done >= (length or 0)
            last = done - 1 if is_over else done  # steps behind the loop see the number of the last iteration
            at = self._iterations[region.number] = length - 1 - last if region.reverse and length is not None else last
            if is_over:
                self._steps(c.leave)
                return
            if region.counter is not None:
                self._drive("cuStreamWriteValue64_v2", self._stream, self._address(region.counter), at, 0)
            self._steps(c.head)
            if c.test is not None and not self._decide(c.test):
                self._steps(c.leave)
                return
            if done == region.limit:
                raise _Stopped(Failure.LIMIT.code(self._numbers[id(step)]))
            self._steps(c.tail)
            done += 1
            if done == region.length:
                return
            self._steps(c.turn)
            copy = copy + 1 if copy + 1 < len(region.copies) else region.first
