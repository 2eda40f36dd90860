"""Captured work of a simulated device: kernels with an order, which are launched together any number of times.

While work is captured, a stream holds the kernels that its next one must follow. An event takes this set over, and a stream that
waits for the event adds it to its own. So a graph has the same order of kernels as the streams would have given them, and nothing
more: its kernels are launched in streams of the graph, which wait for one another only where this order says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nnc.devices.sim.kernels import LaunchedKernel
from nnc.devices.sim.memory import SimPool
from nnc.devices.sim.streams import Queues, SimEvent, SimStream
from nnc.errors import DeviceError, user_error


@dataclass(slots=True)
class Node:
    """A captured kernel.

    Attributes:
        kernel: to run.
        addresses: of its operands, which may be replaced between launches.
        after: numbers of the nodes that it follows at once.
    """

    kernel: LaunchedKernel
    addresses: list[int]
    after: frozenset[int]


class Tracker:
    """Notes the kernels that a capture meets.

    Args:
        origin: the stream in which the capture begins.
    """

    def __init__(self, origin: int) -> None:
        self._origin, self._nodes = origin, list[Node]()
        self._last: dict[int, frozenset[int]] = {origin: frozenset()}  # by stream: the nodes that its next one follows
        self._events: dict[int, frozenset[int]] = {}

    def launch(self, stream: int, kernel: LaunchedKernel, addresses: Sequence[int]) -> None:
        """Notes a kernel.

        Args:
            stream: its number.
            kernel: to run.
            addresses: of its operands.
        """
        self._nodes.append(Node(kernel, list(addresses), self._after(stream)))
        self._last[stream] = frozenset([len(self._nodes) - 1])

    def record(self, event: int, stream: int) -> None:
        """Notes a mark.

        Args:
            event: its handle.
            stream: the number of its stream.
        """
        self._events[event] = self._after(stream)

    def wait(self, stream: int, event: int) -> None:
        """Notes that a stream waits for a mark, by which it joins the capture.

        Args:
            stream: its number.
            event: the handle of the mark.
        """
        if event not in self._events:
            raise _unjoined(stream, "waits for an event from outside of the capture")
        self._last[stream] = self._last.get(stream, frozenset()) | self._events[event]

    def finish(self) -> list[Node]:
        """Returns the nodes.

        Raises:
            DeviceError: a stream of the capture does not join the first one.
        """
        reached = set[int]()
        waiting = list(self._last[self._origin])
        while waiting:
            number = waiting.pop()
            if number not in reached:
                reached.add(number)
                waiting.extend(self._nodes[number].after)
        for stream, last in self._last.items():
            if not last <= reached:
                raise _unjoined(stream, "has work that the first stream of the capture does not wait for")
        return self._nodes

    def _after(self, stream: int) -> frozenset[int]:
        if stream not in self._last:
            raise _unjoined(stream, "is not a part of the capture")
        return self._last[stream]


class SimGraph:
    """Captured work.

    Args:
        queues: the streams of the device.
        pool: the memory of the device.
        nodes: kernels, each behind those that it follows.
    """

    def __init__(self, queues: Queues, pool: SimPool, nodes: list[Node]) -> None:
        self.nodes, self._queues, self._pool = nodes, queues, pool
        self._lane_of, lanes = _lanes(nodes)
        self._lanes: list[SimStream] = [queues.new_stream() for _ in range(lanes)]

    def order(self) -> set[tuple[int, int]]:
        """Returns the pairs of nodes of which the first is done before the second begins."""
        before: list[set[int]] = []
        for node in self.nodes:
            before.append(set(node.after).union(*(before[i] for i in node.after)))
        return {(i, k) for k, earlier in enumerate(before) for i in earlier}

    def launch(self, stream: SimStream) -> None:
        """Queues all nodes behind the work of a stream, whose later work comes behind them.

        Args:
            stream: of the device.
        """
        start = stream.record()
        begun: dict[int, SimEvent] = {}
        for number, node in enumerate(self.nodes):
            lane = self._lanes[self._lane_of[number]]
            if not node.after:
                lane.wait_for(start)
            for earlier in node.after:
                if self._lane_of[earlier] != self._lane_of[number]:
                    lane.wait_for(begun[earlier])
            run, uses = node.kernel.bind(self._pool, node.addresses)
            lane.launch(node.kernel.name, run, uses, node.kernel.source)
            begun[number] = lane.record()
        for lane in self._lanes:
            stream.wait_for(lane.record())


def _lanes(nodes: Sequence[Node]) -> tuple[list[int], int]:
    """Chooses a lane for each node: that of a node which it follows and which is the last there, else a new one."""
    lane_of, last = list[int](), list[int]()
    for number, node in enumerate(nodes):
        free = [lane_of[i] for i in sorted(node.after) if last[lane_of[i]] == i]
        if not free:
            free = [len(last)]
            last.append(number)
        lane_of.append(free[0])
        last[free[0]] = number
    return lane_of, len(last)


def _unjoined(stream: int, problem: str) -> DeviceError:
    return user_error(
        DeviceError, "capture", f"stream {stream} {problem}.", fix="let the streams wait for each other's events."
    )
