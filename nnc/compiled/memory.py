"""The memory of a compiled function: the purpose of each argument (parameter, optimizer's state, or other), found by the classes
around it; the bytes of a device; and the error of a call that the system has no memory for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from nnc.base.html import format_bytes
from nnc.base.machine import available_memory, memory_left
from nnc.base.options import parse_bytes
from nnc.compiled.signature import Key, is_spec
from nnc.device import CPU, find_device
from nnc.device.kinds import KINDS
from nnc.errors import OutOfMemoryError, user_error
from nnc.graph import TensorSpec
from nnc.lower.plan.stages import Loop
from nnc.run.program import Program
from nnc.run.report import MemoryRow
from nnc.tree.flattening import containers_of_leaves

ARGUMENTS, CAPTURED, OPTIMIZER, PARAMETERS = "arguments", "captured", "optimizer", "parameters"


def bytes_by_purpose(
    key: Key, read: Sequence[int], captured: Sequence[TensorSpec], results: Sequence[TensorSpec]
) -> tuple[tuple[str, int], ...]:
    """Returns the bytes of a program's inputs for each purpose.

    Arguments within a class of nnc.optim are an optimizer's state, those within a module of nnc.nn are parameters. So are the
    arguments that a function returns anew which also takes an optimizer's state.

    Args:
        key: the arguments.
        read: the numbers of the arrays among the arguments that the program reads.
        captured: the arrays that the function captures.
        results: the specs of the function's results.
    """
    around = [kinds for kinds, leaf in zip(containers_of_leaves(key.treedef), key.leaves, strict=True) if is_spec(leaf)]
    specs = [spec for spec, _ in key.specs()]
    purposes = [_purpose(kinds) for _, kinds in around]
    if OPTIMIZER in purposes:
        for first, end in _arguments([place for place, _ in around]):
            if {*purposes[first:end]} == {ARGUMENTS} and _holds(results, specs[first:end]):
                purposes[first:end] = [PARAMETERS] * (end - first)
    found = Counter[str]()
    for i in read:
        found[purposes[i]] += specs[i].nbytes
    found[CAPTURED] = sum(spec.nbytes for spec in captured)
    return tuple(found.items())


def _purpose(kinds: Sequence[type]) -> str:
    """Returns the purpose of an array within containers of these classes."""
    rooms = [base.__module__ for kind in kinds for base in kind.__mro__]
    if any(room.startswith("nnc.optim") for room in rooms):
        return OPTIMIZER
    return PARAMETERS if any(room.startswith("nnc.nn") for room in rooms) else ARGUMENTS


def _arguments(places: Sequence[Any]) -> list[tuple[int, int]]:
    """Returns the ranges of leaves that belong to one argument each."""
    cuts = [i for i in range(len(places)) if not i or places[i] != places[i - 1]]
    return list(zip(cuts, [*cuts[1:], len(places)], strict=True))


def _holds(row: Sequence[Any], part: Sequence[Any]) -> bool:
    """Whether a row holds the elements of a part side by side."""
    return any([*row[i : i + len(part)]] == [*part] for i in range(len(row) - len(part) + 1))


def memory_of(where: str | int) -> int | None:
    """Returns bytes: those of a device's whole memory, of the CPU those that are available, or a number itself; None where the
    system does not tell.

    Args:
        where: a device's name, or a number of bytes such as "80GiB".

    Raises:
        UnsupportedError: there is no such device, or its libraries are not installed.
        ArgumentError: it is neither a device's name nor a number of bytes.
    """
    if not isinstance(where, str) or where.partition(":")[0] not in KINDS:
        return parse_bytes(where, "fits")
    if where == CPU:
        known = [n for n in (available_memory(), memory_left()) if n is not None]
        return min(known, default=None)
    device: Any = find_device(where, "fits")
    return int(device.pool.capacity)


def out_of_memory_error(name: str, program: Program, reason: str) -> OutOfMemoryError:
    """Returns the error for a call of a function that the system has no memory for."""
    plan = program.memory_plan
    largest = {f"largest {i + 1}:": _row_text(row) for i, row in enumerate(plan.largest[:3])}
    loops = [step for step in program.bound.steps if isinstance(step.region, Loop)]
    for i, step in enumerate(loops[:3]):
        made = "" if step.source is None else f" at {step.source.describe()}"
        largest[f"loop {i + 1}:"] = f"{step.command.name}{made}"
    fix = (
        "work on fewer elements at a time, or pass memory_budget=... to nnc.compile, so that values are computed again "
        "rather than kept."
    )
    if loops:
        few = "which keeps the residuals of few iterations for its reverse pass"
        fix = f'pass checkpoint="sqrt" to the loop (a scan or a while_loop), {few}; {fix}'
    problem = (
        f"the system does not give the {format_bytes(plan.peak)} that a call needs: {format_bytes(plan.arena_bytes)} "
        f"for values within it, {format_bytes(plan.output_bytes)} for its results{f' ({reason})' if reason else ''}."
    )
    return user_error(OutOfMemoryError, name, problem, operands=largest, fix=fix)


def _row_text(row: MemoryRow) -> str:
    made = f", made at {row.source.describe()}" if row.source is not None else ""
    return f"{row.spec} ({format_bytes(row.size)}{made})"
