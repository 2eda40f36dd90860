"""The kernels of a program on their way to the compiler: each is printed and sent off as soon as its text is final.

A kernel's text follows from the parameters, sub-graphs, specs and strides of its step. Texts of many steps are final long before
there is a program, and the compiler works on them meanwhile. This file alone decides which steps these are:

    moment                    steps whose texts are printed
    begin                     none; the compiler begins with the functions that every program calls
    after "layout"            nodes that no later pass touches (`settled`)
    after "fuse"              fused sums that are no epilogues (`fused_alone`)
    steps are emitted         all steps but moves and tensors that are joined, whose strides are open until buffers are bound
    memory is planned         the rest; then comes the entry, whose text names all kernels (`Program.compiled`)

A text printed early that the program does not need costs no more than its compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnc.base.context import timed
from nnc.base.dtypes import TAPE
from nnc.base.target import Target
from nnc.commands.control import fused
from nnc.commands.properties import has_companion, takes_epilogue
from nnc.commands.rules import expansion
from nnc.device import CPU, machine_of_device
from nnc.graph import Command, Graph, Kernel, Node, find_kernel
from nnc.graph.kernels import kernels_for
from nnc.graph.passes import PhaseName
from nnc.graph.registry import joined
from nnc.lower.kernels.domain import can_fuse, is_reduction, is_view
from nnc.lower.kernels.launch import Assembler, DeviceKernel
from nnc.lower.kernels.native import Compiler, Native, Remembered
from nnc.lower.plan.bind import Emitted, emit, no_workspace
from nnc.lower.plan.emit import Workspace, is_move
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Buffer, Kind, Planned, Step, Steps, View
from nnc.lower.plan.views import may_share
from nnc.run.arguments import binder, is_layout_known


class KernelQueue:
    """Asks for the compiled kernel of each step once. Steps share a kernel if their parameters and sub-graphs are the same
    objects and their operands have the same layouts. Kernels of devices are printed when memory is planned.

    Args:
        compiler: compiles the texts; without one, nothing is printed.
        choose: returns the kernel of a step.
        workspace: returns the bytes that the kernel of a node needs while it runs.
        machine: the machine that the kernels run on; None: this machine's CPU.
    """

    def __init__(
        self,
        compiler: Compiler | None = None,
        choose: Callable[[Step], Kernel | None] = lambda step: None,
        workspace: Workspace = no_workspace,
        machine: Target | None = None,
    ) -> None:
        self.compiler, self._choose, self._workspace = compiler, choose, workspace
        self._machine = machine or machine_of_device()
        # holds a step, so that its id stays its own
        self._known: dict[Any, tuple[Step, Native | DeviceKernel | None]] = {}

    def begin(self) -> None:
        """Announces a program: the compiler begins with the functions that every program holds."""
        if self.compiler is not None:
            self.compiler.expect()
            self.compiler.expect(binder())

    def after(self, phase: PhaseName, graph: Graph) -> None:
        """Prints the kernels whose texts are final after the phase "layout" or "fuse"; `graph` is the result of that phase."""
        if self.compiler is not None and self._machine.kind == CPU:
            final = settled(graph, self._machine) if phase == "layout" else fused_alone(graph)
            self.add(emit(final, self._workspace))

    def add(self, emitted: Emitted) -> None:
        """Prints the kernels of steps on tensors that have memory of their own, but for steps whose strides may still change.

        Few moves stay moves, and tensors that are joined with others may come to lie among them.
        """
        if self._machine.kind != CPU:
            return  # their texts depend on buffers, too
        steps = [step for step in walk(emitted.steps) if not is_move(step)]
        joins = [step for step in steps if step.command in joined]
        buffers = {view.buffer for step in joins for view in (*step.inputs, *step.outputs)}
        if buffers:
            steps = [s for s in steps if buffers.isdisjoint([view.buffer for view in (*s.inputs, *s.outputs)])]
        self._find(steps, emitted.tensors, self._choose)

    def of(self, planned: Planned, kernels: Mapping[int, Kernel]) -> dict[int, Native | DeviceKernel]:
        """Returns the compiled kernels of a program, by identity of the step; none where compiled code would not be faster.

        Loops and branches that a device runs as one kernel have theirs instead of the steps within them.
        """
        whole = self._regions(planned, planned.bound.steps)
        steps = [step for step in walk(planned.bound.steps, whole) if step.region is None]
        return self._find(steps, planned.bound.buffers, lambda step: kernels.get(id(step))) | whole

    def _regions(self, planned: Planned, steps: Steps) -> dict[int, DeviceKernel]:
        """Returns the kernels of loops and branches of a device, the outermost ones that are one kernel."""
        found: dict[int, DeviceKernel] = {}
        if not isinstance(self.compiler, Assembler) or not is_layout_known():
            return found
        with timed("printing kernels"):
            for step in walk(steps, found):
                if step.region is not None:
                    kernel = self.compiler.print_region(step, planned)
                    if isinstance(kernel, DeviceKernel):
                        found[id(step)] = kernel
        return found

    def _find(
        self, steps: Sequence[Step], buffers: Sequence[Buffer], choose: Callable[[Step], Kernel | None]
    ) -> dict[int, Native | DeviceKernel]:
        found: dict[int, Native | DeviceKernel] = {}
        if self.compiler is None or not is_layout_known():
            return found
        with timed("printing kernels"):
            for step in steps:
                if step.region is None and not _touches_tape(step, buffers):
                    native = self._native(step, choose, self.compiler)
                    if native is not None:
                        found[id(step)] = native
        return found

    def _native(
        self, step: Step, choose: Callable[[Step], Kernel | None], compiler: Compiler
    ) -> Native | DeviceKernel | None:
        inputs, outputs = (tuple([(v.spec, v.strides) for v in views]) for views in (step.inputs, step.outputs))
        places = () if self._machine.kind == CPU else _places((*step.inputs, *step.outputs))
        key = step.command, id(step.params), tuple(map(id, step.graphs)), inputs, outputs, places, id(step.like)
        known = self._known.get(key)
        if known is None:
            chosen = choose(step)
            native: Native | DeviceKernel | None = None
            if chosen is not None and chosen.native is not None:
                native = chosen.native(step)
            known = self._known[key] = step, native
            if isinstance(native, Native) and not native.is_held:
                compiler.expect(native)
        return known[1]


def _places(views: Sequence[View]) -> tuple[Any, ...]:
    """Returns the places of operands, on which kernels of devices depend: those that share a buffer, and offsets, for alignment."""
    buffers = [view.buffer for view in views]
    return tuple([(buffers.index(view.buffer), view.offset, view.advances) for view in views])


def _touches_tape(step: Step, buffers: Sequence[Buffer]) -> bool:
    """Whether a step touches Python's objects, which compiled code does not."""

    def is_tape(view: View) -> bool:
        return view.spec.dtype == TAPE or buffers[view.buffer].kind is Kind.TAPE

    return any(map(is_tape, step.inputs)) or any(map(is_tape, step.outputs))


# -- nodes in their final form -----------------------------------------------------------------------------------------


def settled(graph: Graph, machine: Target) -> Graph:
    """Returns the nodes, also of sub-graphs, that no pass touches which comes after the form of a graph is settled, and the views
    that they read through.

    They run kernels that are printed once for all equal steps, and are neither computed element by element nor joined with
    others; a product is if its first reader is computed so.
    """
    nodes = tuple(dict.fromkeys(graph.walk()))
    printed = {name for name in {node.command for node in nodes} if _is_printed_once(name, machine)}
    kept = {node for node in nodes if node.command in printed and _stays(node, machine)}
    products = {node.outputs[0]: node for node in kept if takes_epilogue(node.command)}
    if products:
        for node in nodes:
            for product in [products.pop(symbol) for symbol in node.inputs if symbol in products]:
                if can_fuse(node, machine) and not is_view(node) and not is_reduction(node):
                    kept.discard(product)
    return _with_views(nodes, kept)


def fused_alone(graph: Graph) -> Graph:
    """Returns the kernels with sums, also of sub-graphs, that no pass touches which comes after `fuse`, and the views that they
    read through. They are no epilogues of products, nor do others do the same to every element.
    """
    nodes = tuple(dict.fromkeys(graph.walk()))
    products = {node.outputs[0] for node in nodes if takes_epilogue(node.command)}
    kept = {
        node
        for node in nodes
        if node.command is fused and products.isdisjoint(node.inputs) and any(map(is_reduction, node.graphs[0].nodes))
    }
    return _with_views(nodes, kept)


def _with_views(nodes: Sequence[Node], kept: set[Node]) -> Graph:
    """Returns the graph of some nodes, and of the views that they read through."""
    writer = {symbol: node for node in nodes for symbol in node.outputs} if kept else {}
    left = [symbol for node in kept for symbol in node.inputs]
    while left:
        view = writer.get(left.pop())
        if view is not None and view not in kept and may_share(view):
            kept.add(view)
            left += view.inputs
    part = tuple(node for node in nodes if node in kept)
    written = {symbol for node in part for symbol in node.outputs}
    read = dict.fromkeys(symbol for node in part for symbol in node.inputs if symbol not in written)
    return Graph(tuple(read), (), part)


def _is_printed_once(name: Command, machine: Target) -> bool:
    """Whether a command has a kernel that is printed once for all equal steps."""
    return any(isinstance(each.native, Remembered) for each in kernels_for(name, machine))


def _stays(node: Node, machine: Target) -> bool:
    """Whether a node that is no product becomes a step unchanged, with a kernel that is printed once."""
    if node.graphs or node.command in expansion or can_fuse(node, machine):
        return False
    if node.command in joined or has_companion(node.command):  # parts are put together, or nodes are
        return False
    if any(symbol.dtype == TAPE for symbol in (*node.inputs, *node.outputs)):
        return False
    found = find_kernel(node.command, tuple(symbol.spec for symbol in node.inputs), node.params, machine)
    return found is not None and isinstance(found.native, Remembered)
