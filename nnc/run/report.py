"""Reports on a program before it runs: memory plan, cost, text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from nnc.base.html import format_bytes, format_table, show_text
from nnc.base.source import SourceLine
from nnc.errors import MemoryBudgetError, user_error
from nnc.graph import TensorSpec, value_text
from nnc.lower.plan.costs import CostRow, node_cost, step_bytes, step_flops
from nnc.lower.plan.emit import WORKSPACE
from nnc.lower.plan.schedule.assign import estimate_seconds
from nnc.lower.plan.stages import Bound, Branches, Kind, Loop, Planned, Step, View, is_contiguous

_SHOWN = 5


class MemoryRow(NamedTuple):
    """One life of a tensor: from step `first` to step `last` it takes `size` bytes at `offset` (of the arena; None elsewhere).

    A tensor that is dead in between, such as the operand of a single branch, has a row for each of its live ranges.
    """

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
    once in it, which no plan can beat. `peak` is the allocation of a call, arena and outputs; `memory_budget` limits it.
    `kept_bytes` are packed forms of inputs, made once and read by all calls with the same arrays; the first of these allocates
    them, too. `recomputed` is the work of the commands that run once more so that the plan fits into that. `workspace_bytes` are
    the part of the arena in which kernels work when the most of it is live, `library_bytes` memory beside the arena that kernels
    share; `purposes` are the bytes of inputs for each purpose.
    """

    arena_bytes: int
    lower_bound: int
    input_bytes: int
    output_bytes: int
    constant_bytes: int
    rows: tuple[MemoryRow, ...]
    recomputed: Cost
    kept_bytes: int = 0
    workspace_bytes: int = 0
    library_bytes: int = 0
    purposes: tuple[tuple[str, int], ...] = ()

    @property
    def by_purpose(self) -> dict[str, int]:
        """All bytes that a call needs, its arguments and results included, for each purpose.

        The arena holds workspace and activations, which are all other values that only the call needs. A GPU's driver and
        libraries take memory besides, which no plan knows.
        """
        inputs = dict(self.purposes) or {"arguments": self.input_bytes}
        of_inputs = {name: inputs.get(name, 0) for name in ("parameters", "optimizer", "arguments", "captured")}
        return of_inputs | {
            "constants": self.constant_bytes,
            "packed": self.kept_bytes,
            "results": self.output_bytes,
            "activations": self.arena_bytes - self.workspace_bytes,
            "workspace": self.workspace_bytes,
            "libraries": self.library_bytes,
        }

    @property
    def total(self) -> int:
        """All bytes that a call needs, its arguments and results included."""
        return sum(self.by_purpose.values())

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
        mine = {(row.name, row.offset): row for row in self.rows if row.kind in (Kind.ARENA.value, Kind.OUTPUT.value)}
        return tuple(sorted(mine.values(), key=lambda row: -row.size))

    def _repr_html_(self) -> str:
        return show_text("memory plan", str(self))

    def __str__(self) -> str:
        lines = [
            f"arena {format_bytes(self.arena_bytes)} (largest live set {format_bytes(self.lower_bound)}, "
            f"ratio {self.ratio:.4g})",
            f"inputs {format_bytes(self.input_bytes)}, outputs {format_bytes(self.output_bytes)}, "
            f"constants {format_bytes(self.constant_bytes)}",
        ]
        if self.kept_bytes:
            lines.append(f"kept between calls {format_bytes(self.kept_bytes)}")
        if self.recomputed.rows:
            lines.append(f"recomputed to fit the budget: {_recomputed_text(self.recomputed)}")
        table = [("tensor", "spec", "place", "offset", "bytes", "steps", "made at")]
        for row in self.rows:
            place = "" if row.offset is None else str(row.offset)
            steps = f"{row.first}-{row.last}"
            table.append((row.name, str(row.spec), row.kind, place, str(row.size), steps, str(row.source or "")))
        return "\n".join([*lines, *format_table(table)])


@dataclass(frozen=True, slots=True)
class CommandCost:
    """All steps of one command: how many there are, and their sums."""

    command: str
    steps: int
    flops: int
    nbytes: int
    seconds: float


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

    @property
    def seconds(self) -> float:
        """About how long all steps take, one after the other on one core."""
        return sum(row.seconds for row in self.rows)

    @property
    def by_command(self) -> tuple[CommandCost, ...]:
        """The sums of each command's steps, the longest first."""
        grouped: dict[str, list[CostRow]] = {}
        for row in self.rows:
            grouped.setdefault(row.command, []).append(row)
        found = []
        for command, rows in grouped.items():
            part = Cost(tuple(rows))
            found.append(CommandCost(command, len(rows), part.flops, part.nbytes, part.seconds))
        return tuple(sorted(found, key=lambda group: (-group.seconds, group.command)))

    def _repr_html_(self) -> str:
        return show_text("cost", str(self))

    def __str__(self) -> str:
        sums = [("command", "steps", "flops", "%", "bytes", "%", "about ms")]
        for group in self.by_command:
            flops, nbytes = 100 * group.flops / (self.flops or 1), 100 * group.nbytes / (self.nbytes or 1)
            numbers = str(group.flops), f"{flops:.1f}", str(group.nbytes), f"{nbytes:.1f}", f"{group.seconds * 1e3:.3f}"
            sums.append((group.command, str(group.steps), *numbers))
        table = [("step", "command", "flops", "bytes", "made at")]
        for i, row in enumerate(self.rows):
            table.append((str(i), row.command, str(row.flops), str(row.nbytes), str(row.source or "")))
        head = f"{self.flops} flops, {self.nbytes} bytes ({format_bytes(self.nbytes)}) read and written"
        return "\n".join([f"{head}, about {self.seconds * 1e3:.3f} ms", *format_table(sums), "", *format_table(table)])


def make_memory_plan(planned: Planned) -> MemoryPlan:
    """Returns the report of a plan."""
    totals = dict.fromkeys(Kind, 0)
    kept, rows = 0, []
    end = max((end for ranges in planned.bound.intervals for _, end in ranges), default=1)
    for i, (buffer, offset) in enumerate(zip(planned.bound.buffers, planned.offsets, strict=True)):
        is_kept = planned.bound.is_kept(buffer)
        if is_kept:
            kept += buffer.nbytes
        else:
            totals[buffer.kind] += buffer.nbytes
        outside = buffer.kind is not Kind.ARENA
        for first, after in ((0, end),) if outside else planned.bound.intervals[i]:
            rows.append(
                MemoryRow(
                    name=buffer.symbol.name or buffer_name(planned.bound, i),
                    spec=buffer.symbol.spec,
                    kind="kept" if is_kept else buffer.kind.value,
                    offset=offset,
                    size=buffer.nbytes,
                    first=first,
                    last=after - 1,
                    source=buffer.source,
                )
            )
    given, returned, constant = totals[Kind.INPUT], totals[Kind.OUTPUT], totals[Kind.CONSTANT]
    again = Cost(tuple(node_cost(node, planned.machine.schedule) for node in planned.recomputed))
    workspace = _live_workspace(rows)
    return MemoryPlan(
        planned.arena_bytes, planned.lower_bound, given, returned, constant, tuple(rows), again, kept, workspace
    )


def _live_workspace(rows: Sequence[MemoryRow]) -> int:
    """Returns the bytes of workspaces that are live at the time when most of the arena is."""
    changes: dict[int, list[int]] = {}
    for row in rows:
        if row.kind == Kind.ARENA.value:
            for at, sign in ((row.first, 1), (row.last + 1, -1)):
                change = changes.setdefault(at, [0, 0])
                change[0] += sign * row.size
                change[1] += sign * row.size * row.name.startswith(WORKSPACE)
    live = accumulate((changes[at] for at in sorted(changes)), lambda x, y: [x[0] + y[0], x[1] + y[1]])
    return max(live, default=[0, 0])[1]


def check_budget(planned: Planned, budget: int | None) -> None:
    """Raises MemoryBudgetError if a call would allocate more than `budget` bytes."""
    if budget is None or planned.peak <= budget:
        return
    plan = make_memory_plan(planned)
    largest = [
        f"{row.name} {row.spec} ({format_bytes(row.size)})" + (f" at {row.source.describe()}" if row.source else "")
        for row in plan.largest[:_SHOWN]
    ]
    again = f", even if it recomputes {_recomputed_text(plan.recomputed)}" if plan.recomputed.rows else ""
    problem = (
        f"a call needs {format_bytes(plan.peak)} (arena {format_bytes(plan.arena_bytes)}, outputs "
        f"{format_bytes(plan.output_bytes)}){again}, memory_budget is {format_bytes(budget)}. "
        "The largest tensors:\n    " + "\n    ".join(largest)
    )
    fix = f"raise memory_budget to {plan.peak}, use smaller batches, or wrap parts in nnc.checkpoint."
    raise user_error(MemoryBudgetError, planned.bound.name, problem, fix=fix)


def check_addresses(bound: Bound) -> None:
    """Raises MemoryBudgetError if the tensors of an arena take more bytes together than a process can number."""
    inside = [buffer for buffer in bound.buffers if buffer.kind is Kind.ARENA]
    total = sum(buffer.nbytes for buffer in inside)
    if total <= sys.maxsize:
        return
    largest = max(inside, key=lambda buffer: buffer.nbytes)
    problem = (
        f"a call needs {format_bytes(total)} beside its inputs and outputs, a process can number {format_bytes(sys.maxsize + 1)}. "
        f"The largest tensor is {largest.symbol.spec} ({format_bytes(largest.nbytes)})."
    )
    raise user_error(MemoryBudgetError, bound.name, problem, source=largest.source, fix="use smaller shapes.")


def _recomputed_text(cost: Cost) -> str:
    return (
        f"{len(cost.rows)} commands, {cost.flops} flops, {format_bytes(cost.nbytes)} read and written, "
        f"about {cost.seconds:.3g} s"
    )


def make_cost(planned: Planned) -> Cost:
    """Returns the cost of each step."""
    rows = []
    for step in planned.bound.steps:
        flops, nbytes = step_flops(step), step_bytes(step)
        seconds = estimate_seconds(flops, nbytes, planned.machine.schedule)
        rows.append(CostRow(step.command.name, flops, nbytes, seconds, step.source))
    return Cost(tuple(rows))


def program_text(planned: Planned, backend: Callable[[Step], str]) -> str:
    """Returns the readable form of a planned program; `backend` names the backend that runs a step."""
    bound = planned.bound
    lines = [
        f"program {bound.name}: {len(bound.steps)} steps, arena {planned.arena_bytes} bytes, "
        f"largest live set {planned.lower_bound} bytes"
    ]
    for i, (buffer, at) in enumerate(zip(bound.buffers, planned.offsets, strict=True)):
        elsewhere = "kept" if bound.is_kept(buffer) else buffer.kind.value
        place = elsewhere if at is None else f"arena[{at}:{at + buffer.nbytes}]"
        steps = ", ".join(f"{first}-{end - 1}" for first, end in bound.intervals[i])
        lines.append(f"  {buffer_name(bound, i)}: {buffer.nbytes} bytes, {place}, steps {steps}")
    lines += _steps_text(bound, bound.steps, backend, "  ")
    lines.append(f"  return {', '.join(_view_text(bound, view) for view in bound.outputs)}".rstrip())
    return "\n".join(lines)


def _steps_text(bound: Bound, steps: Sequence[Step], backend: Callable[[Step], str], indent: str) -> list[str]:
    lines: list[str] = []
    for position, step in enumerate(steps):
        source = f"  # {step.source}" if step.source is not None else ""
        if step.region is not None:
            lines.append(f"{indent}{position}: {step.command.name}{source}")
            lines += _region_text(bound, step.region, backend, indent + "  ")
            continue
        outputs = ", ".join(_view_text(bound, view) for view in step.outputs)
        inputs = ", ".join(_view_text(bound, view) for view in step.inputs)
        params = f"  {{{', '.join(f'{k}={value_text(v)}' for k, v in step.params.items())}}}" if step.params else ""
        written = f"{outputs} = " if outputs else ""
        lines.append(f"{indent}{position}: {written}{step.command.name}({inputs})  [{backend(step)}]{params}{source}")
    return lines


def _region_text(bound: Bound, region: Loop | Branches, backend: Callable[[Step], str], indent: str) -> list[str]:
    lines: list[str] = []
    if isinstance(region, Branches):
        for i, branch in enumerate(region.branches):
            lines.append(f"{indent}branch {i} of {_view_text(bound, region.index)}:")
            lines += _steps_text(bound, branch, backend, indent + "  ")
        return lines
    for i, c in enumerate(region.copies):
        following = i + 1 if i + 1 < len(region.copies) else region.first
        iterations = "" if region.length is None else f" of {region.length} iterations"
        lines.append(f"{indent}copy {i}{iterations}, then copy {following}:")
        lines += _steps_text(bound, c.head, backend, indent + "  ")
        if c.test is not None:
            lines.append(f"{indent}  unless {_view_text(bound, c.test)}, leave:")
            lines += _steps_text(bound, c.leave, backend, indent + "    ")
        lines += _steps_text(bound, (*c.tail, *c.turn), backend, indent + "  ")
    return lines


def buffer_name(bound: Bound, number: int) -> str:
    """Returns the name of a buffer in reports."""
    buffer = bound.buffers[number]
    return f"t{buffer.index}" if buffer.kind is Kind.ARENA else f"{buffer.kind.value}{buffer.index}"


def _view_text(bound: Bound, view: View) -> str:
    text = f"{buffer_name(bound, view.buffer)}: {view.spec}"
    if view.offset or not is_contiguous(view.spec, view.strides):
        text += f" +{view.offset} by {view.strides}"
    for loop, step in view.advances:
        text += f" +{step} an iteration of loop {loop}"
    return text


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of tracing, of each pass, of binding and planning memory, of scheduling, of choosing, printing and compiling kernels,
    in that order; and of looking for the program in a file (where it is found, most others are not there) and of keeping it.
    """

    rows: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        """Seconds of all parts."""
        return sum(seconds for _, seconds in self.rows)

    def __getitem__(self, part: str) -> float:
        """Seconds of one part."""
        return dict(self.rows)[part]

    def __str__(self) -> str:
        table = [("part", "ms", "%")]
        for part, seconds in (*self.rows, ("all", self.total)):
            table.append((part, f"{seconds * 1e3:.2f}", f"{100 * seconds / (self.total or 1):.1f}"))
        return "\n".join(format_table(table))
