"""Captured work of a simulated device: kernels with an order, which are launched together any number of times.

They are launched in streams of the graph, which wait for one another only where the order of the capture says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnc.device.capture import Node
from nnc.testing.devices.sim.kernels import LaunchedKernel
from nnc.testing.devices.sim.memory import SimPool
from nnc.testing.devices.sim.streams import Queues, SimEvent, SimStream


class SimGraph:
    """Captured work.

    Args:
        nodes: the kernels, each behind those that it follows.
    """

    def __init__(self, queues: Queues, pool: SimPool, nodes: list[Node[LaunchedKernel]]) -> None:
        self.nodes, self._queues, self._pool = nodes, queues, pool
        self._lane_of, lanes = _lanes(nodes)
        self._lanes: list[SimStream] = [queues.new_stream() for _ in range(lanes)]

    def order(self) -> set[tuple[int, int]]:
        """Returns the pairs of nodes in which the first is done before the second begins."""
        before: list[set[int]] = []
        for node in self.nodes:
            before.append(set(node.after).union(*(before[i] for i in node.after)))
        return {(i, k) for k, earlier in enumerate(before) for i in earlier}

    def launch(self, stream: SimStream) -> bool:
        """Queues all nodes behind the work of a stream, whose later work comes behind them; this is always possible."""
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
        return True


def _lanes(nodes: Sequence[Node[LaunchedKernel]]) -> tuple[list[int], int]:
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
