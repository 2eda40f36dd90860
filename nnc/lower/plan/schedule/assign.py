"""Assigns steps to streams: list scheduling by the longest path that is left, on numbers alone.

The ready step with the longest chain of work behind it goes where it can begin first (heterogeneous earliest finish time: Topcuoglu
et al., 2002, on equal processors); where there are messages to other processes, a step that leads to one comes before all others.
Reading a buffer that another stream wrote costs a signal. Same steps, same schedule, everywhere. O((steps +
dependencies) · streams).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from math import inf

from nnc.base.options import Options
from nnc.base.target import Schedule as Costs
from nnc.device import machine_of
from nnc.lower.plan.schedule.types import Schedule, Signal

# the order, and then the lives of buffers, may each take so many times the memory, or bytes more
_ROOM, _SPARE = 1.25, 1 << 20

Before = Sequence[Sequence[int]]
Pinned = Sequence[int | None]  # for each step the stream in which it must run
MESSAGES = 1  # the stream of messages to other processes, whose thread waits for them while others compute


def estimate_seconds(flops: int, nbytes: int, costs: Costs, sends: bool = False) -> float:
    """About how long a kernel of so many operations takes on one core, or on a device, if it reads and writes so many bytes; or a
    message to other processes.
    """
    if sends:
        return costs.message_seconds + nbytes / costs.message_bytes_per_second
    return costs.call_seconds + max(flops / costs.flops_per_second, nbytes / costs.bytes_per_second)


def most_streams(options: Options) -> int:
    """Returns the most streams that a program may have. "auto" takes the processors that kernels leave idle, on other devices
    the number in their costs, and one where memory is limited.
    """
    if options.streams != "auto":
        return int(options.streams)
    if options.memory_budget is not None:
        return 1
    machine = machine_of(options)
    if machine.schedule.streams:
        return machine.schedule.streams
    if options.kernel_threads is None:
        return 1
    return max(1, machine.cores // options.kernel_threads)


def is_affordable(options: Options, given: int, wanted: int) -> bool:
    """Whether streams may take `wanted` bytes where one stream takes `given`: a number of streams is an order."""
    return options.streams != "auto" or wanted <= max(_ROOM * given, given + _SPARE)


def choose_streams(
    find_before: Callable[[], Before], seconds: Sequence[float], pinned: Pinned, options: Options
) -> Schedule:
    """Returns the schedule that `options.streams` asks for.

    1 is the recorded order, n are n streams at most. "auto" is 1 unless independent chains save time. On a CPU their steps must
    take a millisecond or more, and save a fifth of the time and a millisecond at least; on other devices steps must be small enough
    to leave room for others.

    Args:
        find_before: returns the steps that each step must follow.
        seconds: how long each step takes.
        pinned: the streams in which steps must run.
    """
    one, count, costs = _recorded(seconds), most_streams(options), machine_of(options).schedule
    if count == 1:
        return one
    if options.streams != "auto":
        return assign(find_before(), seconds, pinned, count, costs.signal_seconds)
    may_leave = [costs.heavy_seconds <= time <= costs.light_seconds for time in seconds]
    pinned = [0 if at is None and not leaves else at for at, leaves in zip(pinned, may_leave, strict=True)]
    if set(pinned) <= {0} or sum(seconds) - max(seconds) < costs.saved_seconds:
        return one
    found = assign(find_before(), seconds, pinned, count, costs.signal_seconds)
    saved = one.seconds - found.seconds
    return found if saved >= max(costs.saved_seconds, costs.saved_part * one.seconds) else one


def assign(before: Before, seconds: Sequence[float], pinned: Pinned, streams: int, signal_seconds: float) -> Schedule:
    """Returns a list schedule of steps on at most so many streams.

    Args:
        before: the steps that each step must follow.
        seconds: how long each step takes.
        pinned: the stream in which each step must run, 0 or MESSAGES; None: any but the stream of messages.
        streams: the largest number of streams.
        signal_seconds: how long it takes until a stream gets another one's signal.
    """
    left = _longest_paths(before, seconds)
    planned = [(0.0, 0.0)] * len(before)
    order: list[list[int]] = [[]]  # of the streams that have steps, and one that has none yet
    sends = streams > 1 and MESSAGES in pinned
    if sends:
        order += [[] for _ in range(MESSAGES, min(streams, MESSAGES + 2))]
    free = [0.0] * len(order)
    stream_of = [0] * len(before)

    def start(step: int, stream: int) -> float:
        known = (planned[i][1] + (signal_seconds if stream_of[i] != stream else 0.0) for i in before[step])
        return max(free[stream], max(known, default=0.0))

    def place(step: int) -> None:
        at = pinned[step]
        fixed = at if sends or at != MESSAGES else 0
        places = [fixed] if fixed is not None else [k for k in range(len(order)) if not sends or k != MESSAGES]
        begin, stream = min((start(step, k), k) for k in places)
        stream_of[step], planned[step] = stream, (begin, begin + seconds[step])
        free[stream] = begin + seconds[step]
        order[stream].append(step)
        if order[-1] and len(order) < streams:
            order.append([])
            free.append(0.0)

    until = _until_messages(before, seconds, pinned) if sends else [0.0] * len(before)
    placed = _visit(before, lambda step: (until[step], -left[step], step), place)
    used = [steps for k, steps in enumerate(order) if steps or not k]
    return Schedule(tuple(map(tuple, used)), find_signals(before, used, placed), tuple(planned))


def _recorded(seconds: Sequence[float]) -> Schedule:
    planned, now = [], 0.0
    for time in seconds:
        planned.append((now, now + time))
        now += time
    return Schedule((tuple(range(len(seconds))),), (), tuple(planned))


def _longest_paths(before: Before, seconds: Sequence[float]) -> list[float]:
    """For each step the time of the longest chain that begins with it."""
    left = list(seconds)
    behind = [0.0] * len(seconds)
    for step in reversed(range(len(seconds))):
        left[step] = seconds[step] + behind[step]
        for i in before[step]:
            behind[i] = max(behind[i], left[step])
    return left


def _until_messages(before: Before, seconds: Sequence[float], pinned: Pinned) -> list[float]:
    """For each step the time of the shortest chain that begins with it and leads to a message; infinite where none does.

    Messages that set out early travel while other steps compute.
    """
    until = [0.0 if at == MESSAGES else inf for at in pinned]
    for step in reversed(range(len(seconds))):
        for i in before[step]:
            until[i] = min(until[i], seconds[i] + until[step])
    return until


def _visit(
    before: Before, priority: Callable[[int], tuple[float, float, int]], visit: Callable[[int], None]
) -> list[int]:
    """Visits all steps, each after the steps before it, and of the steps that are ready the one of the least priority."""
    waiting = [len(steps) for steps in before]
    following: list[list[int]] = [[] for _ in before]
    for step, steps in enumerate(before):
        for i in steps:
            following[i].append(step)
    ready = [priority(step) for step, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    visited = []
    while ready:
        *_, step = heapq.heappop(ready)
        visit(step)
        visited.append(step)
        for j in following[step]:
            waiting[j] -= 1
            if not waiting[j]:
                heapq.heappush(ready, priority(j))
    return visited


def find_signals(before: Before, streams: Sequence[Sequence[int]], order: Sequence[int]) -> tuple[Signal, ...]:
    """Returns the fewest signals for these streams: none between steps that are ordered already.

    Args:
        order: all steps, each after those that it must follow and those before it in its stream.
    """
    place = {step: (k, n) for k, steps in enumerate(streams) for n, step in enumerate(steps, 1)}
    clocks: dict[int, list[int]] = {}  # how many steps of each stream are done when a step is
    done = [[0] * len(streams) for _ in streams]  # the same for the last step so far of each stream
    turn = {step: i for i, step in enumerate(order)}
    signals = []
    for step in order:
        stream, number = place[step]
        clock = list(done[stream])
        for i in sorted(before[step], key=turn.__getitem__, reverse=True):
            other, count = place[i]
            if clock[other] < count:
                clock = list(map(max, clock, clocks[i]))
                signals.append(Signal(i, step))
        clock[stream] = number
        clocks[step] = done[stream] = clock
    return tuple(sorted(signals))
