"""Plans how a program is queued on a device: the order of its launches, events between its streams, and the words of its frame."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from nnc.lower.kernels.launch import DeviceKernel, Launch
from nnc.lower.plan.liveness import touched, walk
from nnc.lower.plan.schedule.accesses import has_effect
from nnc.lower.plan.schedule.reduction import forked_streams, joined_streams
from nnc.lower.plan.schedule.types import Schedule
from nnc.lower.plan.stages import Kind, Loop, Planned, Step, Steps, View
from nnc.run.arguments import FrameLayout
from nnc.run.native_program import ProgramAbi

_LEAST_CAPTURED = 5  # kernels of a graph, whose launch takes as long as that of a few kernels
_MOST_CAPTURED = 4096  # kernels of a graph: a driver instantiates about a million of them in a second


@dataclass(frozen=True)
class Launches:
    """The launches of a program.

    The frame is that of a program (`FrameLayout`), but it holds the handles of streams, events and kernels, the addresses of
    status words, and a word for the numbers that decide loops and branches, instead of the states of kernels; and the driver's
    table instead of the table of arguments.

    Attributes:
        schedule: the streams of the steps.
        printed: the printed kernels, by identity of the step. Each other step is one launch, on all its operands.
    """

    planned: Planned
    schedule: Schedule
    printed: Mapping[int, DeviceKernel] = field(default_factory=dict)

    @property
    def steps(self) -> Steps:
        """The steps of the program."""
        return self.planned.bound.steps

    @cached_property
    def kernels(self) -> Steps:
        """The steps that are launched, those within loops and branches included, unless these are one kernel themselves."""
        return tuple(step for step in walk(self.steps, self.printed) if self.is_launched(step))

    def is_launched(self, step: Step) -> bool:
        """Whether a step is launched itself: all are but loops and branches that the host runs."""
        return step.region is None or id(step) in self.printed

    def views(self, step: Step) -> tuple[View, ...]:
        """Returns the operands of a step: its inputs, then its outputs; of a loop or branch the whole buffers that it touches."""
        if step.region is None:
            return (*step.inputs, *step.outputs)
        buffers = self.planned.bound.buffers
        return tuple(View.whole(number, buffers[number].symbol.spec) for number in sorted(touched((step,))))

    def of(self, step: Step) -> tuple[Launch, ...]:
        """Returns the launches of a step."""
        kernel = self.printed.get(id(step))
        if kernel is not None:
            return kernel.launches
        return (Launch("", (1, 1, 1), (1, 1, 1), tuple(range(len(self.views(step))))),)

    @cached_property
    def refusing(self) -> Steps:
        """The steps that have a status word."""
        return tuple(step for step in self.kernels if id(step) in self.printed and self.printed[id(step)].may_fail)

    @cached_property
    def waits(self) -> dict[int, list[int]]:
        """The steps of other streams that each step waits for."""
        waits: dict[int, list[int]] = {}
        for signal in self.schedule.signals:
            waits.setdefault(signal.after, []).append(signal.before)
        return waits

    @cached_property
    def told(self) -> dict[int, int]:
        """The number of the event of each step that others wait for."""
        return {before: i for i, before in enumerate(sorted({signal.before for signal in self.schedule.signals}))}

    @cached_property
    def forked(self) -> tuple[int, ...]:
        """The streams that wait for the beginning."""
        return forked_streams(self.schedule)

    @cached_property
    def joined(self) -> tuple[int, ...]:
        """The streams that the first one waits for at the end."""
        return joined_streams(self.schedule)

    @cached_property
    def layout(self) -> FrameLayout:
        """The words of the frame."""
        return ProgramAbi.of(self.planned).words(self._fetched + 1)

    @cached_property
    def kernel_words(self) -> dict[int, int]:
        """The word of the handle of a step's first launch, by identity; those of its other launches follow."""
        ends = accumulate(len(self.of(step)) for step in self.kernels)
        first = self.layout.state(len(self.schedule.streams) + self.events)
        return {id(step): first + end - len(self.of(step)) for step, end in zip(self.kernels, ends, strict=True)}

    def status_word(self, step: Step) -> int:
        """Returns the word that holds the address of a step's status word."""
        return self.layout.state(self._fetched - len(self.refusing) + self.refusing.index(step))

    @property
    def events(self) -> int:
        """Counts the events: one for each step that others wait for, one for the beginning, one for each end that is awaited."""
        return len(self.told) + 1 + len(self.joined)

    @property
    def _fetched(self) -> int:
        handles = sum(len(self.of(step)) for step in self.kernels)
        return len(self.schedule.streams) + self.events + handles + len(self.refusing)

    def stream_word(self, number: int) -> int:
        """Returns the word of a stream's handle."""
        return self.layout.state(number)

    def event_word(self, number: int) -> int:
        """Returns the word of an event's handle."""
        return self.layout.state(len(self.schedule.streams) + number)

    @property
    def start_word(self) -> int:
        """The word of the event that marks the beginning."""
        return self.event_word(len(self.told))

    def end_word(self, stream: int) -> int:
        """Returns the word of the event that marks the end of a stream of `joined`."""
        return self.event_word(len(self.told) + 1 + self.joined.index(stream))

    @property
    def fetch_word(self) -> int:
        """The word that numbers are copied to which decide about loops and branches."""
        return self.layout.state(self._fetched)

    def is_tape(self, view: View) -> bool:
        """Whether a view is no memory of the device, but a list that grows."""
        return self.planned.bound.buffers[view.buffer].kind is Kind.TAPE

    @cached_property
    def can_be_captured(self) -> bool:
        """Whether the launches are the same in each call, and do no more than compute: no number from the device decides, and
        nothing is printed or called.
        """
        count = 0
        for step in self.steps:
            size = self._fixed_size(step)
            if size is None or has_effect(step):
                return False
            count += size
        return _LEAST_CAPTURED <= count <= _MOST_CAPTURED and not any(map(self.is_tape, self._views()))

    def _views(self) -> Iterator[View]:
        for step in self.kernels:
            yield from self.views(step)

    def order(self) -> Iterator[int]:
        """Yields the steps of all streams so that each stands behind those that it waits for."""
        queued = set[int]()
        left = [deque(steps) for steps in self.schedule.streams]
        while any(left):
            for steps in left:
                while steps and queued.issuperset(self.waits.get(steps[0], ())):
                    queued.add(steps[0])
                    yield steps.popleft()

    def is_unrolled(self, step: Step) -> bool:
        """Whether a loop launches the same kernels in each call, one iteration after the other."""
        return isinstance(step.region, Loop) and not self.is_launched(step) and self._fixed_size(step) is not None

    def _fixed_size(self, step: Step) -> int | None:
        """Counts the kernels that a step launches; None where a number from the device decides."""
        if self.is_launched(step):
            return len(self.of(step))
        if not isinstance(step.region, Loop) or step.region.length is None or any(c.test for c in step.region.copies):
            return None
        sizes = [self._fixed_size(inner) for c in step.region.copies for inner in c.steps]
        known = [size for size in sizes if size is not None]
        return (1 + sum(known)) * step.region.length if len(known) == len(sizes) else None
