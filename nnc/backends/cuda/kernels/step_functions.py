"""The launches of printed kernels as functions, which the threads of one block call (`nnc.backends.cuda.kernels.regions`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from nnc.base.target import GpuTarget
from nnc.graph import find_kernel
from nnc.lower.kernels.launch import DeviceKernel, Launch
from nnc.lower.plan.stages import Step, Steps

_TURNS = 8  # of a block of threads at the work of one launch
SINGLE = 4  # elements of every operand up to which one thread computes all of them, and waits for no other

_DEFINITION = re.compile(r"define ptx_kernel void (@[\w.$]+)\((.*?)\) nounwind[^{]*\{")
_SPECIAL = re.compile(r"call i32 @llvm\.nvvm\.read\.ptx\.sreg\.([\w.]+)\(\)")
_SPECIALS = {"tid.x": "%thread", "ctaid.x": "%block", "ctaid.y": "0", "ctaid.z": "0", "tid.y": "0", "tid.z": "0"}
_BARRIER = re.compile(r"call void @llvm\.nvvm\.barrier")
_TOGETHER = re.compile(r"@llvm\.nvvm\.(barrier|shfl|vote|match|redux|bar)|addrspace\(3\)")  # threads that need others
_ATOMIC = re.compile(r"= atomicrmw \w+ ptr (%[\w.]+)")


class UnfitError(Exception):
    """A region is not one block's work; the argument says why, behind "it"."""


@dataclass(frozen=True)
class StepFunction:
    """A launch of a step, as a function that the threads of a block call.

    Attributes:
        name: the function's name, with @.
        text: the function and the variables of its blocks; equal launches share it.
        declarations: the `declare` lines that it needs.
        operands: see `Launch`.
        threads: threads of a block of the launch.
        blocks: blocks of the launch.
        may_fail: whether its last operand is a status word.
        is_joint: whether its threads need one another: they exchange values, share memory, or change it by atomic instructions.
    """

    name: str
    text: str
    declarations: frozenset[str]
    operands: tuple[int, ...]
    threads: int
    blocks: int
    may_fail: bool
    is_joint: bool


def step_functions(leaves: Steps, machine: GpuTarget, threads: int) -> Mapping[int, list[StepFunction]] | None:
    """Returns the functions of each step, by identity, for a block of so many threads; None where they do not fit."""
    grids = machine.grids._replace(
        threads=threads, most_threads=threads, busy_threads=threads, lanes=min(machine.grids.lanes, threads)
    )
    block, texts = replace(machine, grids=grids), dict[str, str]()
    found: dict[int, list[StepFunction]] = {}
    for leaf in leaves:
        params = {**leaf.params, "graphs": leaf.graphs} if leaf.graphs else leaf.params
        kernel = find_kernel(leaf.command, leaf.input_specs, params, block)
        printed = kernel.native(leaf) if kernel is not None and kernel.native is not None else None
        if kernel is None or not isinstance(printed, DeviceKernel):
            raise UnfitError(f"it has {leaf.command.name}, for which no kernel is printed")
        if kernel.workspace(leaf.input_specs, params) > _workspace(leaf):
            return None
        count = len(leaf.inputs) + len(leaf.outputs)
        functions = [_function_of(printed, launch, count, texts) for launch in printed.launches]
        if not all(_fits(each, threads) for each in functions):
            return None
        found[id(leaf)] = functions
    return found


def _workspace(step: Step) -> int:
    """Returns the bytes of a step's workspace, which was planned for the whole machine."""
    results = len(step.graphs[0].outputs) if step.graphs else step.command.outputs or len(step.outputs)
    return sum(view.spec.nbytes for view in step.outputs[results:])


def _fits(function: StepFunction, threads: int) -> bool:
    """Whether a block of so many threads can do the work of a launch."""
    if function.blocks * function.threads > _TURNS * max(threads, SINGLE):
        return False
    if not function.is_joint:
        return True
    needs_all = _BARRIER.search(function.text) is not None
    return threads % 32 == 0 and (function.threads == threads if needs_all else function.threads <= threads)


def _function_of(kernel: DeviceKernel, launch: Launch, count: int, texts: dict[str, str]) -> StepFunction:
    """Returns the function of a launch.

    Args:
        count: the operands of the step, behind which the status word stands.
        texts: the names of functions by their texts.
    """
    lines = kernel.text.splitlines()
    declarations = frozenset(line.strip() for line in lines if line.startswith("declare "))
    own = _own_text(kernel.text, launch.function)
    stem = texts.setdefault(own, f"@KERNEL_step{len(texts)}_")
    definition = _DEFINITION.search(own)
    if definition is None or launch.grid[1:] != (1, 1) or launch.block[1:] != (1, 1) or launch.shared:
        raise UnfitError(f"{launch.function} is launched on more than a row of blocks")
    specials = set(_SPECIAL.findall(own))
    if not specials <= _SPECIALS.keys():
        raise UnfitError(f"{launch.function} reads {sorted(specials - _SPECIALS.keys())[0]}")
    parameters = [text.split()[-1] for text in definition[2].split(", ")] if definition[2] else []
    status = {name for name, operand in zip(parameters, launch.operands, strict=True) if operand == count}
    listed = ", ".join([*([definition[2]] if definition[2] else []), "i32 %block", "i32 %thread"])
    head = f"define internal void {definition[1]}({listed}) alwaysinline convergent nounwind {{"
    text = own[: definition.start()] + head + own[definition.end() :]
    text = _SPECIAL.sub(lambda found: f"add i32 {_SPECIALS[found[1]]}, 0", text).replace("@KERNEL", stem)
    return StepFunction(
        name=launch.function.replace("@KERNEL", stem),
        text=text,
        declarations=declarations,
        operands=launch.operands,
        threads=launch.block[0],
        blocks=launch.grid[0],
        may_fail=bool(status),
        is_joint=_TOGETHER.search(text) is not None or bool(set(_ATOMIC.findall(own)) - status),
    )


def _own_text(text: str, function: str) -> str:
    """Returns one function of a kernel's text, with the variables of its blocks."""
    parts = re.split(r"(?m)^(?=@|define )", "\n".join(x for x in text.splitlines() if not x.startswith("declare ")))
    mine = [part for part in parts if part.startswith("define ") and f" {function}(" in part.partition("\n")[0]]
    variables = [part for part in parts if part.startswith("@") and part.partition(" ")[0] in mine[0]]
    return "".join([*variables, *mine])
