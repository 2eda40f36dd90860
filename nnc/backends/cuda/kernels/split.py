"""Rows that are so few and so long that each is cut into parts, which have blocks of their own.

A launch sums the parts of a phase and leaves the sums in the workspace; the next launch adds them up before it goes on. The number
of parts follows from sizes alone, and parts are added up in one fixed order, so that results are the same in each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nnc.backends.cuda.kernels.layout import Layout, choose_layout
from nnc.backends.cuda.kernels.operands import Operands
from nnc.backends.cuda.kernels.rows import Rows
from nnc.base.dtypes import accumulator
from nnc.base.target import GpuTarget
from nnc.graph import Graph, Node, TensorSpec
from nnc.lower.kernels.builder import Value
from nnc.lower.kernels.domain import is_reduction
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.kernels.reductions import identity
from nnc.lower.kernels.values import Scope
from nnc.lower.plan.stages import View

_ALIGNED = 64  # bytes; of the sums of each reduction


def choose_parts(graph: Graph, specs: Sequence[TensorSpec], machine: GpuTarget) -> int:
    """Chooses the number of parts into which the rows of a fused graph are cut; 1: they stay whole.

    Only sizes count, as if all operands were dense, because the workspace is planned before operands have places.

    Args:
        specs: the specs of the graph's inputs.
    """
    operands = [*specs, *graph.output_specs]
    views = [View.whole(i, spec) for i, spec in enumerate(operands)]
    found = Operands.of(graph, views[: len(specs)], views[len(specs) :], machine)
    if not found.nest.row or not found.nest.size:
        return 1
    layout, grids = choose_layout(found, 1), machine.grids
    wanted = grids.busy_threads // (layout.blocks * layout.threads)
    least = grids.part_rows if layout.across else grids.part_elements // layout.width
    parts = min(wanted, layout.count // least, grids.parts)
    return parts if parts >= grids.least_parts else 1


def sum_bytes(graph: Graph, parts: int) -> int:
    """Returns the bytes of the sums of all parts.

    Args:
        parts: the number of parts of each row.
    """
    return sum(_region(node, parts) for node in graph.nodes if is_reduction(node))


def _region(node: Node, parts: int) -> int:
    """Returns the bytes of the sums of one reduction."""
    nbytes = parts * node.outputs[0].spec.size * accumulator(node.inputs[0].dtype).itemsize
    return -(-nbytes // _ALIGNED) * _ALIGNED


def print_parts(operands: Operands, layout: Layout) -> DeviceKernel:
    """Prints a nest whose rows are cut into parts: one launch for each phase, and one for outputs with one element a row.

    Inputs may lie where outputs do, as in `print_rows`: each phase reads its elements before it writes them, and outputs with one
    element a row are written by the last launch alone.

    Args:
        layout: the layout of one part.
    """
    printer = _Parts(operands, layout)
    texts, launches = [], []
    for phase in range(printer.phases.count):
        texts.append(printer.phase(phase))
        launches.append(printer.launch((layout.blocks, layout.parts), layout.threads))
    if printer.row_outputs():
        texts.append(printer.finish())
        launches.append(printer.launch((layout.blocks, 1), layout.threads))
    return DeviceKernel("\n".join(texts), tuple(launches), operands.may_fail)


class _Parts(Rows):
    """Prints the launches of one nest."""

    def phase(self, phase: int) -> str:
        """Prints the function that does one phase on one part of each row."""
        layout = self.layout
        self.begin(f"part{phase}", layout.threads, with_workspace=True)
        code, outer = self.code, self.enter()
        part = code.special("ctaid.y")
        self._know_phases(outer, phase)
        self.first = code.mul(part, code.integer(layout.length))
        self.end = code.intrinsic("smin", code.add(self.first, code.integer(layout.length)), code.integer(layout.count))
        self.know_rows(outer, phase)
        reduced = self.reduced_in(phase)
        totals = self.exchange(reduced, self.traverse(outer, None, reduced, self.full_outputs(phase)))
        with self.under(self.is_first_member()):
            for node, total in zip(reduced, totals, strict=True):
                code.store(self._sum_at(node, part, total), total, align=self.aligned(total))
        code.ret()
        return self.text()

    def finish(self) -> str:
        """Prints the function that writes the outputs with one element a row."""
        self.begin("finish", self.layout.threads, with_workspace=True)
        outer = self.enter()
        self._know_phases(outer, self.phases.count)
        self.write_rows(outer)
        self.code.ret()
        return self.text()

    def _know_phases(self, outer: Scope, end: int) -> None:
        """Adds up the sums of parts of the phases in front of `end`."""
        for phase in range(end):
            self.know_rows(outer, phase)
            reduced = self.reduced_in(phase)
            self.know_results(outer, reduced, [self._add_up(node) for node in reduced])

    def _add_up(self, node: Node) -> Value:
        """Returns the sums of those parts of a row that fall to this thread."""
        code, layout = self.code, self.layout
        start = identity(code, node, self.lanes if layout.across else 0)
        member, found = self.wide(self.member), []
        for first in range(0, layout.parts, layout.members):
            part = code.add(member, code.integer(first))
            is_part = None
            if first + layout.members > layout.parts:
                is_part = code.compare("lt", part, code.integer(layout.parts))
            place = self._sum_at(node, part, start)
            x = self.guarded(is_part, partial(code.load, place, start.dtype, start.lanes, align=self.aligned(start)))
            found.append([x if is_part is None else code.select(is_part, x, start)])
        return self.in_pairs([node], found)[0]

    def _sum_at(self, node: Node, part: Value, like: Value) -> str:
        """Returns the address of the sum of a part."""
        code, number = self.code, self.reductions.index(node)
        columns = node.outputs[0].spec.size
        offset = sum(_region(each, self.layout.parts) for each in self.reductions[:number])
        column = code.mul(self.wide(self.unit), code.integer(self.layout.width if self.layout.across else 1))
        at = code.add(code.mul(part, code.integer(columns)), column)
        return code.offset(
            self.workspace, code.add(code.mul(at, code.integer(like.dtype.itemsize)), code.integer(offset))
        )
