"""Captured graphs of a CUDA device, made node by node from noted launches.

A printed kernel becomes a kernel node, whose addresses are replaced. A library's call has parameters that only the library
knows: it is captured from a stream, as a graph within the graph, and captured anew where its addresses change. A step that runs
from Python stands between two graphs.

Source: CUDA Driver API, section Graph Management.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from nnc.device.capture import Node, Tracker
from nnc.device.cuda.context import Context, CudaStream
from nnc.device.cuda.libraries import failure
from nnc.device.driver import FAILED, RUN_STEP, SIGNATURES, c_function
from nnc.errors import DeviceError, InternalError, NncError, user_error

_THIS_THREAD = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
# Graphs of a program: addresses came back after 12 calls with three batches in turns, and results freed late.
_MOST_KEPT = 16

StepRun = Callable[[Sequence[int], int], None]
"""Queues a step, given the addresses of its operands and the handle of a stream.

Example:
    >>> step: StepRun = lambda addresses, stream: print(addresses, stream)
    >>> step([4096], 0)
    [4096] 0
"""


@runtime_checkable
class CapturedCall(Protocol):
    """Queues a step by a library's call that can be captured.

    Example:
        >>> class Nothing:
        ...     def __call__(self, addresses, stream): ...
        ...     def capture(self, addresses, stream):
        ...         return True
        >>> isinstance(Nothing(), CapturedCall), isinstance(print, CapturedCall)
        (True, False)
    """

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Queues the step.

        Args:
            addresses: the addresses of its operands.
            stream: the handle of a stream.
        """
        ...

    def capture(self, addresses: Sequence[int], stream: int) -> bool:
        """Queues the step in a stream that is being captured; False where the library has no call for these addresses.

        Args:
            addresses: the addresses of its operands.
            stream: the handle of a stream.
        """
        ...


class KernelParameters(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("function", ctypes.c_void_p), ("sizes", ctypes.c_uint32 * 7), ("parameters", ctypes.c_void_p), ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p), ("context", ctypes.c_void_p),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kernel:
    """A launch of a printed kernel.

    Attributes:
        function: the handle of the kernel.
        sizes: the sizes of the grid and of the block, then the bytes of shared memory.
    """

    function: int
    sizes: tuple[int, ...]


Work = Kernel | CapturedCall | StepRun  # a printed kernel, a call of a library, or a step that runs from Python


class Capture:
    """Functions with the driver's signatures that note launches.

    Args:
        origin: the stream in which the capture begins and ends.
        kernels: by handle, the number of the kernel's parameters.
        steps: by handle, the number of the step's operands, and its work.

    Attributes:
        table: the addresses of the functions, in the order of `SIGNATURES`.
        error: the error of the function that failed.
    """

    def __init__(self, origin: int, kernels: dict[int, int], steps: dict[int, tuple[int, StepRun]]) -> None:
        self._tracker: Tracker[Work] = Tracker(origin)
        self._kernels, self._steps = kernels, steps
        self.error: BaseException | None = None
        noted: dict[str, Callable[..., None]] = {
            "cuLaunchKernel": self._launch, RUN_STEP: self._run, "cuEventRecord": self._tracker.record,
            "cuStreamWaitEvent": lambda stream, event, flags: self._tracker.wait(stream, event),
        }  # fmt: skip
        self._functions = [c_function(name)(self._guarded(noted.get(name, _refuse))) for name in SIGNATURES]
        addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in self._functions]
        self.table = (ctypes.c_void_p * len(addresses))(*addresses)

    def finish(self) -> list[Node[Work]]:
        """Returns the launches, each with those that it follows."""
        return self._tracker.finish()

    def _guarded(self, function: Callable[..., None]) -> Callable[..., int]:
        def call(*arguments: int) -> int:
            try:
                function(*arguments)
            except BaseException as error:  # an interrupt, too: ctypes would drop it
                self.error = error
                return FAILED
            return 0

        return call

    def _launch(self, function: int, *arguments: int) -> None:
        *sizes, stream, parameters, _ = arguments
        addresses = addresses_at(parameters, self._kernels[function])
        self._tracker.launch(stream, Kernel(function, tuple(sizes)), addresses)

    def _run(self, step: int, stream: int, parameters: int) -> None:
        count, run = self._steps[step]
        self._tracker.launch(stream, run, addresses_at(parameters, count))


class UncapturedError(NncError):
    """A library's call cannot be captured."""


class CudaGraph:
    """Captured launches: graphs, with steps that run from Python between them.

    Args:
        nodes: the launches, each behind those that it follows.
    """

    def __init__(self, context: Context, nodes: list[Node[Work]]) -> None:
        self.nodes, call = nodes, _Functions(context)
        self._parts: list[Segment | Node[Work]] = []
        for is_step, part in itertools.groupby(
            enumerate(nodes), lambda each: not isinstance(each[1].kernel, Kernel | CapturedCall)
        ):
            numbered = dict(part)
            self._parts += numbered.values() if is_step else [Segment(context, call, _by_itself(numbered))]

    @property
    def segments(self) -> list[Segment]:
        """The graphs, in their order."""
        return [part for part in self._parts if isinstance(part, Segment)]

    def launch(self, stream: CudaStream) -> bool:
        """Queues all launches behind the work of a stream; the stream's later work waits for them. Returns False, with nothing
        queued, where a library's call cannot be captured for these operands.
        """
        if not all(segment.prepare() for segment in self.segments):
            return False
        for part in self._parts:
            if isinstance(part, Segment):
                part.launch(stream)
            elif not isinstance(part.kernel, Kernel):
                part.kernel(part.addresses, stream.handle)
        return True


def _by_itself(nodes: Mapping[int, Node[Work]]) -> list[Node[Work]]:
    """Some of the launches, by number, without those outside that they follow. They share their addresses with the others."""
    places = {number: place for place, number in enumerate(nodes)}
    return [
        Node(node.kernel, node.addresses, frozenset(places[i] for i in node.after if i in places))
        for node in nodes.values()
    ]


class Segment:
    """Launches that become one graph.

    Memory that one call frees is taken by a later one, so the same addresses come back after a few calls. Hence a graph is kept
    for each of the latest sets of addresses; the graph that was launched least recently is updated for new ones.

    Args:
        nodes: the launches, each behind those that it follows.
    """

    def __init__(self, context: Context, call: _Functions, nodes: list[Node[Work]]) -> None:
        self.nodes, self._context, self._call = nodes, context, call
        self.kept: dict[tuple[tuple[int, ...], ...], _Made] = {}  # by addresses, in the order of the last launches

    def prepare(self) -> bool:
        """Makes the graph of the present addresses the last one; False where a library's call cannot be captured for them."""
        addresses = tuple([tuple(node.addresses) for node in self.nodes])
        made = self.kept.pop(addresses, None)
        if made is None:
            try:
                made = self._new()
            except UncapturedError:
                return False
        self.kept[addresses] = made
        return True

    def launch(self, stream: CudaStream) -> None:
        """Queues the graph that `prepare` chose."""
        self._call("cuGraphLaunch", self.kept[next(reversed(self.kept))].executable, stream.handle)

    def _new(self) -> _Made:
        """Returns a graph for the present addresses."""
        if len(self.kept) == _MOST_KEPT:
            oldest = self.kept.pop(next(iter(self.kept)))
            if oldest.update(self.nodes):
                return oldest
        return _Made(self._context, self._call, self.nodes)


class _Functions:
    """The driver's functions for graphs."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __call__(self, name: str, *arguments: Any) -> None:
        if code := self.code(name, *arguments):
            raise failure(self._context.name, self._context.libraries.text_of(code))

    def code(self, name: str, *arguments: Any) -> int:
        """Returns the result of a function: 0, or the number of an error."""
        return int(self._context.libraries.graph_functions[name](*arguments))

    def new(self, name: str, *arguments: Any) -> int:
        """Returns the handle that a function makes."""
        made = ctypes.c_void_p()
        self(name, ctypes.byref(made), *arguments)
        return made.value or 0


class _Made:
    """A graph that can be launched."""

    def __init__(self, context: Context, call: _Functions, nodes: Sequence[Node[Work]]) -> None:
        self._call, self._stream = call, CudaStream(context, context.cupy.cuda.Stream(non_blocking=True))
        self._set: list[list[int]] = []
        self._handles: list[int] = []
        graph = call.new("cuGraphCreate", 0)
        weakref.finalize(self, call.code, "cuGraphDestroy", graph)  # its nodes name those of the executable graph
        for node in nodes:
            after = (ctypes.c_void_p * len(node.after))(*(self._handles[i] for i in sorted(node.after)))
            self._handles.append(self._add(graph, after, node))
            self._set.append(list(node.addresses))
        self.executable = call.new("cuGraphInstantiateWithFlags", graph, 0)
        weakref.finalize(self, call.code, "cuGraphExecDestroy", self.executable)

    def update(self, nodes: Sequence[Node[Work]]) -> bool:
        """Replaces the addresses that have changed; returns False where the driver needs a new graph."""
        for number, node in enumerate(nodes):
            if node.addresses == self._set[number]:
                continue
            handle = self._handles[number]
            if isinstance(node.kernel, Kernel):
                parameters, _held = _parameters(node.kernel, node.addresses)
                self._call("cuGraphExecKernelNodeSetParams_v2", self.executable, handle, ctypes.byref(parameters))
            else:
                inner = self._captured(node)
                code = self._call.code("cuGraphExecChildGraphNodeSetParams", self.executable, handle, inner)
                self._call("cuGraphDestroy", inner)
                if code:
                    return False
            self._set[number] = list(node.addresses)
        return True

    def _add(self, graph: int, after: Any, node: Node[Work]) -> int:
        if isinstance(node.kernel, Kernel):
            parameters, _held = _parameters(node.kernel, node.addresses)
            return self._call.new("cuGraphAddKernelNode_v2", graph, after, len(after), ctypes.byref(parameters))
        inner = self._captured(node)
        try:
            return self._call.new("cuGraphAddChildGraphNode", graph, after, len(after), inner)  # which copies it
        finally:
            self._call("cuGraphDestroy", inner)

    def _captured(self, node: Node[Work]) -> int:
        """Returns the graph of a library's call."""
        call = node.kernel
        if not isinstance(call, CapturedCall):
            raise InternalError("capture: a step that runs from Python is a part of a graph")
        self._call("cuStreamBeginCapture_v2", self._stream.handle, _THIS_THREAD)
        is_whole = False
        try:
            is_whole = call.capture(node.addresses, self._stream.handle)
        finally:
            found = ctypes.c_void_p()
            self._call("cuStreamEndCapture", self._stream.handle, ctypes.byref(found))
            if not is_whole:
                self._call("cuGraphDestroy", found.value)
        if not is_whole:
            raise UncapturedError("capture: a library has no call for these operands")
        return found.value or 0


def _parameters(kernel: Kernel, addresses: Sequence[int]) -> tuple[KernelParameters, Any]:
    """Returns the parameters of a kernel node, and the memory that they point to, which is read while the node is made or
    changed.
    """
    values = (ctypes.c_uint64 * len(addresses))(*addresses)
    begin = ctypes.addressof(values)
    pointers = (ctypes.c_void_p * len(addresses))(*(begin + 8 * i for i in range(len(addresses))))
    made = KernelParameters(kernel.function, (ctypes.c_uint32 * 7)(*kernel.sizes), ctypes.addressof(pointers))
    return made, (values, pointers)


def addresses_at(parameters: int, count: int) -> list[int]:
    """Returns so many addresses, to which the parameters of a launch point."""
    pointers = (ctypes.c_void_p * count).from_address(parameters) if count else ()
    return [ctypes.c_uint64.from_address(at or 0).value for at in pointers]


def _refuse(*_: int) -> None:
    fix = "queue the work instead."
    raise user_error(DeviceError, "capture", "a wait of the host, or a number from it, cannot be captured.", fix=fix)
