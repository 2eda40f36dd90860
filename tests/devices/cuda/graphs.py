# ruff: noqa: N802 (names of C functions)
"""A stand-in for the driver's graphs, which the simulated device launches: nodes follow those that they were made with alone."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nnc.device.capture import Node
from nnc.device.driver import GRAPH_SIGNATURES
from nnc.testing.devices.sim.graph import SimGraph
from nnc.testing.devices.sim.kernels import Work

Bind = Callable[[], Work]

EXEC_UPDATE_FAILURE = 910  # CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE


@dataclass(frozen=True)
class Child:
    """A graph within a graph."""

    binds: Sequence[Bind]
    name: str = "child graph"
    source: Any = None

    def bind(self, pool: Any, addresses: Sequence[int]) -> Work:
        works = [bind() for bind in self.binds]
        return lambda: [run() for run, _ in works] and None, [use for _, uses in works for use in uses]


class Graphs:
    """Graphs of a machine: by handle their nodes, the place of each node, and executable graphs."""

    def __init__(self, machine: Any) -> None:
        self.machine, self._numbers = machine, itertools.count(1 << 20)
        self.graphs: dict[int, list[Node[Any]]] = {}
        self.places: dict[int, int] = {}
        self.graph_of: dict[int, int] = {}
        self.executables: dict[int, SimGraph] = {}

    def functions(self) -> dict[str, Any]:
        return {name: self._function(name) for name in GRAPH_SIGNATURES}

    def _function(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            assert len(arguments) == len(GRAPH_SIGNATURES[name])
            self.machine.graph_calls.append(name)
            if name in self.machine.fails:
                return int(self.machine.fails[name])
            return getattr(self, name)(*arguments) or 0

        return call

    def _new(self, place: Any) -> int:
        place._obj.value = next(self._numbers)
        return int(place._obj.value)

    def cuGraphCreate(self, place: Any, flags: int) -> None:
        assert flags == 0
        self.graphs[self._new(place)] = []

    def cuGraphDestroy(self, graph: int) -> None:
        del self.graphs[graph]
        self.places = {node: place for node, place in self.places.items() if self.graph_of[node] != graph}

    def _add(self, place: Any, graph: int, after: Any, count: int, kernel: Any, addresses: list[int]) -> None:
        nodes = self.graphs[graph]
        assert count == len(after)
        nodes.append(Node(kernel, addresses, frozenset(self.places[each] for each in after)))
        node = self._new(place)
        self.places[node], self.graph_of[node] = len(nodes) - 1, graph

    def cuGraphAddKernelNode_v2(self, place: Any, graph: int, after: Any, count: int, parameters: Any) -> None:
        self._add(place, graph, after, count, *self._kernel(parameters._obj))

    def cuGraphAddChildGraphNode(self, place: Any, graph: int, after: Any, count: int, child: int) -> None:
        self._add(place, graph, after, count, self.graphs[child][0].kernel, [])

    def cuGraphInstantiateWithFlags(self, place: Any, graph: int, flags: int) -> None:
        assert flags == 0
        sim = self.machine.sim
        self.executables[self._new(place)] = SimGraph(sim.queues, sim.pool, list(self.graphs[graph]))

    def cuGraphExecDestroy(self, executable: int) -> None:
        del self.executables[executable]

    def cuGraphExecKernelNodeSetParams_v2(self, executable: int, node: int, parameters: Any) -> None:
        kernel, addresses = self._kernel(parameters._obj)
        changed = self.executables[executable].nodes[self.places[node]]
        assert kernel == changed.kernel
        changed.addresses = addresses

    def cuGraphExecChildGraphNodeSetParams(self, executable: int, node: int, child: int) -> int:
        new, changed = self.graphs[child][0].kernel, self.executables[executable].nodes[self.places[node]]
        if len(new.binds) != len(changed.kernel.binds):
            return EXEC_UPDATE_FAILURE
        changed.kernel = new
        return 0

    def cuGraphLaunch(self, executable: int, stream: int) -> None:
        self.executables[executable].launch(self.machine.sim.queues.streams[stream - 1])

    def cuStreamBeginCapture_v2(self, stream: int, mode: int) -> None:
        assert mode == 1 and stream not in self.machine.captured
        self.machine.captured[stream] = []

    def cuStreamEndCapture(self, stream: int, place: Any) -> None:
        self.graphs[self._new(place)] = [Node(Child(self.machine.captured.pop(stream)), [], frozenset())]

    def _kernel(self, parameters: Any) -> tuple[Any, list[int]]:
        """The kernel of a node, and the addresses that its parameters point to."""
        assert (parameters.extra, parameters.kernel, parameters.context) == (None, None, None)
        sizes = tuple(parameters.sizes)
        kernel = self.machine.sim.driver._kernels[parameters.function].sized(sizes[:3], sizes[3:6], sizes[6])
        pointers = (ctypes.c_void_p * len(kernel.operands)).from_address(parameters.parameters)
        return kernel, [ctypes.c_uint64.from_address(at or 0).value for at in pointers]
