"""What is known of a program before it runs: memory plan, cost, text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nnc.commands.rules import cost
from nnc.errors import MemoryBudgetError, user_error
from nnc.graph import TensorSpec, value_text
from nnc.lower.stages import Bound, Kind, Planned, Step, View, is_contiguous
from nnc.source import SourceLine

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One tensor of the plan: it lives from step `first` to step `last`, and has an `offset` in the arena only."""

    name: str
    spec: TensorSpec
    kind: str
    offset: int | None
    size: int
    first: int
    last: int
    source: SourceLine | None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory of a call, in bytes.

    `arena_bytes` holds all that only the call itself needs; `lower_bound` is the largest set of bytes that are live at
    once in it, which no plan can beat. `peak` is what a call allocates, arena and outputs; `memory_budget` limits it.
    """

    arena_bytes: int
    lower_bound: int
    input_bytes: int
    output_bytes: int
    constant_bytes: int
    rows: tuple[MemoryRow, ...]

    @property
    def ratio(self) -> float:
        """Arena size over its lower bound: 1.0 is perfect."""
        return self.arena_bytes / self.lower_bound if self.lower_bound else 1.0

    @property
    def peak(self) -> int:
        """Bytes that a call allocates: the arena and the outputs."""
        return self.arena_bytes + self.output_bytes

    @property
    def largest(self) -> tuple[MemoryRow, ...]:
        """The tensors that a call allocates, largest first."""
        mine = [row for row in self.rows if row.kind in (Kind.ARENA.value, Kind.OUTPUT.value)]
        return tuple(sorted(mine, key=lambda row: -row.size))

    def __str__(self) -> str:
        lines = [
            f"arena {format_bytes(self.arena_bytes)} (largest live set {format_bytes(self.lower_bound)}, "
            f"ratio {self.ratio:.4g})",
            f"inputs {format_bytes(self.input_bytes)}, outputs {format_bytes(self.output_bytes)}, "
            f"constants {format_bytes(self.constant_bytes)}",
        ]
        table = [("tensor", "spec", "place", "offset", "bytes", "steps", "made at")]
        for row in self.rows:
            place = "" if row.offset is None else str(row.offset)
            steps = f"{row.first}-{row.last}"
            table.append((row.name, str(row.spec), row.kind, place, str(row.size), steps, str(row.source or "")))
        return "\n".join([*lines, *format_table(table)])


@dataclass(frozen=True, slots=True)
class CostRow:
    """One step: floating-point operations, and bytes that it reads and writes."""

    command: str
    flops: int
    nbytes: int
    source: SourceLine | None


@dataclass(frozen=True, slots=True)
class Cost:
    """The work of a call, by step."""

    rows: tuple[CostRow, ...]

    @property
    def flops(self) -> int:
        """Floating-point operations of all steps."""
        return sum(row.flops for row in self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes that all steps read and write."""
        return sum(row.nbytes for row in self.rows)

    def __str__(self) -> str:
        table = [("step", "command", "flops", "bytes", "made at")]
        for i, row in enumerate(self.rows):
            table.append((str(i), row.command, str(row.flops), str(row.nbytes), str(row.source or "")))
        return "\n".join([f"{self.flops} flops, {self.nbytes} bytes read and written", *format_table(table)])


def make_memory_plan(planned: Planned) -> MemoryPlan:
    """The report of a plan."""
    totals = dict.fromkeys(Kind, 0)
    rows = []
    for i, (buffer, placement) in enumerate(zip(planned.bound.buffers, planned.placements, strict=True)):
        totals[buffer.kind] += buffer.nbytes
        rows.append(
            MemoryRow(
                name=buffer.symbol.name or buffer_name(planned.bound, i),
                spec=buffer.symbol.spec,
                kind=buffer.kind.value,
                offset=placement.offset,
                size=buffer.nbytes,
                first=placement.first,
                last=max(placement.end - 1, placement.first),
                source=buffer.source,
            )
        )
    given, returned, constant = totals[Kind.INPUT], totals[Kind.OUTPUT], totals[Kind.CONSTANT]
    return MemoryPlan(planned.arena_bytes, planned.lower_bound, given, returned, constant, tuple(rows))


def check_budget(planned: Planned, budget: int | None) -> None:
    """Raises MemoryBudgetError if a call would allocate more than `budget` bytes."""
    if budget is None:
        return
    plan = make_memory_plan(planned)
    if plan.peak <= budget:
        return
    largest = [
        f"{row.name} {row.spec} ({format_bytes(row.size)})" + (f" at {row.source.describe()}" if row.source else "")
        for row in plan.largest[:_SHOWN]
    ]
    raise user_error(
        MemoryBudgetError, planned.bound.name,
        f"a call needs {format_bytes(plan.peak)} (arena {format_bytes(plan.arena_bytes)}, outputs "
        f"{format_bytes(plan.output_bytes)}), memory_budget is {format_bytes(budget)}. "
        "The largest tensors:\n    " + "\n    ".join(largest),
        fix=f"raise memory_budget to {plan.peak}, use smaller batches, or wrap parts in nnc.checkpoint.",
    )  # fmt: skip


def make_cost(bound: Bound) -> Cost:
    """The cost of each step."""
    return Cost(
        tuple(CostRow(step.command.name, step_flops(step), step_bytes(step), step.source) for step in bound.steps)
    )


def step_bytes(step: Step) -> int:
    """Bytes that a step reads and writes."""
    return sum(view.spec.nbytes for view in (*step.inputs, *step.outputs))


def step_flops(step: Step) -> int:
    """Floating-point operations of a step; a step that owns sub-graphs counts each of their nodes once."""
    if step.graphs:
        return sum(
            cost[node.command](*(symbol.spec for symbol in node.inputs), **node.params)
            for graph in step.graphs
            for node in graph.walk()
            if node.command in cost and not node.graphs
        )
    return cost[step.command](*step.input_specs, **step.params) if step.command in cost else 0


def program_text(planned: Planned, backends: Sequence[str]) -> str:
    """The readable form of a planned program and the backends of its steps."""
    bound = planned.bound
    lines = [
        f"program {bound.name}: {len(bound.steps)} steps, arena {planned.arena_bytes} bytes, "
        f"largest live set {planned.lower_bound} bytes"
    ]
    for i, (buffer, placement) in enumerate(zip(bound.buffers, planned.placements, strict=True)):
        at = placement.offset
        place = buffer.kind.value if at is None else f"arena[{at}:{at + buffer.nbytes}]"
        steps = f"steps {placement.first}-{placement.end - 1}"
        lines.append(f"  {buffer_name(bound, i)}: {buffer.nbytes} bytes, {place}, {steps}")
    for position, (step, backend) in enumerate(zip(bound.steps, backends, strict=True)):
        outputs = ", ".join(_view_text(bound, view) for view in step.outputs)
        inputs = ", ".join(_view_text(bound, view) for view in step.inputs)
        params = f"  {{{', '.join(f'{k}={value_text(v)}' for k, v in step.params.items())}}}" if step.params else ""
        source = f"  # {step.source}" if step.source is not None else ""
        written = f"{outputs} = " if outputs else ""
        lines.append(f"  {position}: {written}{step.command.name}({inputs})  [{backend}]{params}{source}")
    lines.append(f"  return {', '.join(_view_text(bound, view) for view in bound.outputs)}".rstrip())
    return "\n".join(lines)


def buffer_name(bound: Bound, number: int) -> str:
    """What a buffer is called in reports."""
    buffer = bound.buffers[number]
    return f"t{buffer.index}" if buffer.kind is Kind.ARENA else f"{buffer.kind.value}{buffer.index}"


def _view_text(bound: Bound, view: View) -> str:
    text = f"{buffer_name(bound, view.buffer)}: {view.spec}"
    if view.offset or not is_contiguous(view.spec, view.strides):
        text += f" +{view.offset} by {view.strides}"
    return text


def format_bytes(nbytes: int) -> str:
    """A number of bytes for people."""
    value, unit = float(nbytes), 0
    while value >= 1024 and unit < 5:
        value, unit = value / 1024, unit + 1
    return f"{nbytes} B" if unit == 0 else f"{value:.2f} {'KMGTP'[unit - 1]}iB"


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of text, in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
