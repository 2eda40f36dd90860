"""Prints a whole program as LLVM's text: the function `@ENTRY` runs all steps, and calls Python only for steps without a kernel.

`@ENTRY(frame)` finds the arguments and runs the program's parts; where a program runs on several streams, or step by step,
`@ENTRY(frame, k)` runs part k, which is one step, and for k = -1 finds the arguments. Each loop is a part of its own, other steps
are grouped, since LLVM takes longer for one long function than for some short ones. It returns 0, or the reason why it stopped
(`Failure`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from nnc.base import dtypes
from nnc.lower.kernels.native import Native
from nnc.lower.plan.liveness import touched, walk
from nnc.lower.plan.stages import Loop, Planned, Step, Steps
from nnc.run.arguments import FrameLayout, binder
from nnc.run.entry_steps import Failure, Outline, StepCode

BIND = -1  # the part that finds the arguments
_PART = 100  # steps
_WIDE = (dtypes.float64, dtypes.complex128)
_MODES = (
    "declare i64 @nnc_float_mode()", "declare void @nnc_set_float_mode(i64)", "declare void @nnc_flush_denormals()",
)  # fmt: skip
_SAVE = (
    "  %mode = call i64 @nnc_float_mode()",
    f"  %mode.at = getelementptr i8, ptr %frame, i64 {8 * FrameLayout.mode_at}",
    "  store i64 %mode, ptr %mode.at",
)


class EntryText(NamedTuple):
    """A printed program. `called` are the kernels that it calls, `held` the kernels in its own text; `blocks` run in Python;
    `numbers` are read from the frame.
    """

    text: str
    called: tuple[Native, ...]
    held: tuple[Native, ...]
    blocks: tuple[Steps, ...]
    numbers: tuple[int, ...] = ()


class PrintedParts(NamedTuple):
    """The functions that run a program's parts, `@part0`, `@part1`, …: their declarations, their texts, which of them flush
    denormal numbers, and the kernels that they call or hold.
    """

    declared: frozenset[str]
    texts: tuple[str, ...]
    flushed: tuple[bool, ...]
    called: Mapping[str, Native]
    held: tuple[Native, ...]


def print_parts(outline: Outline, apart: bool) -> PrintedParts:
    """Prints the functions that run the parts of a program. `apart`: each step is a part."""
    planned, natives = outline.planned, outline.natives
    steps, flushing = planned.bound.steps, _flushing(planned)
    groups = [(step,) for step in steps] if apart else _groups(steps, flushing)
    flushed = tuple(flushing(group[0]) for group in groups)
    outline = replace(outline, flushes=any(flushed))
    functions = [f for k, group in enumerate(groups) for f in _part(outline, f"part{k}", group)]
    called = {name: native for f in functions for name, native in f.called.items()}
    declared = {name: line for f in functions for name, line in f.signatures.items()}
    inner = {natives[id(s)].name for step in steps for s in _in_loops(step) if id(s) in natives}
    held = tuple(native for native in called.values() if native.is_held)
    lines = {line for f in functions for line in f.declarations}
    bodies: list[str] = []
    for native in held:
        del called[native.name], declared[native.name]
        needed, body = _as_internal(native, "alwaysinline " if native.name in inner else "")
        lines |= needed
        bodies.append(body)
    lines |= {*declared.values(), *(_MODES if any(flushed) else ())}
    return PrintedParts(frozenset(lines), (*bodies, *(f.text() for f in functions)), flushed, called, held)


def print_entry(
    planned: Planned,
    words: FrameLayout,
    natives: Mapping[int, Native],
    states: Mapping[int, int],
    apart: bool,
    sized: bool = False,
) -> EntryText:
    """Prints the text of a program.

    Args:
        natives: the compiled kernels of steps, by identity of the step.
        states: the positions of the kernels' states, by identity of the step.
        apart: whether each step can be called by itself.
        sized: whether the text leaves out numbers that follow from sizes, which programs of other sizes can share then.
    """
    outline = Outline.of(planned, natives, states, words, sized=sized)
    parts = print_parts(outline, apart)
    declared = sorted(parts.declared | {f"declare i64 @{binder().name}(ptr, ptr)"})
    text = "\n".join([*declared, *parts.texts, _main(parts.flushed, apart)])
    numbers = tuple(outline.from_frame or ())
    return EntryText(text, (*parts.called.values(), binder()), parts.held, tuple(outline.blocks), numbers)


def _flushing(planned: Planned) -> Callable[[Step], bool]:
    """Chooses the steps that run with denormal numbers flushed to 0: by default steps that compute nothing in float64."""
    wanted = planned.flush_denormals
    if wanted is not None:
        return lambda step: wanted
    narrow = {id(step): not _is_wide(step) for step in planned.bound.steps}
    return lambda step: narrow[id(step)]


def _is_wide(step: Step) -> bool:
    """Whether a step, or one within it, computes with float64."""
    for each in walk((step,)):
        specs = [view.spec for view in (*each.inputs, *each.outputs)]
        specs += [x.spec for graph in each.graphs for node in graph.nodes for x in (*node.inputs, *node.outputs)]
        if any(spec.dtype in _WIDE for spec in specs):
            return True
    return False


def _groups(steps: Steps, flushing: Callable[[Step], bool]) -> list[Steps]:
    """Returns the parts of a program that runs in one go, each in one mode of floating-point arithmetic."""
    groups: list[list[Step]] = []
    size = _PART
    for step in steps:
        weight = sum(1 for _ in walk((step,)))
        alone = isinstance(step.region, Loop)
        if alone or size + weight > _PART or flushing(groups[-1][-1]) != flushing(step):
            groups.append([])
            size = 0
        groups[-1].append(step)
        size = _PART if alone else size + weight
    return [tuple(group) for group in groups]


def _part(outline: Outline, name: str, steps: Steps) -> list[StepCode]:
    """Returns the functions that run a part.

    Where no Python runs in a loop, all its memory is reached through the parameters of a function, so that LLVM may be told that no
    two of them overlap: arguments that are overwritten share no memory with others, results are fresh.
    """
    code = StepCode(outline, name)
    if not any(isinstance(step.region, Loop) for step in steps) or not outline.is_native(steps):
        code.steps(steps)
        code.finish()
        return [code]
    words = sorted({FrameLayout.arena_at, *(outline.place(number)[0] for number in touched(steps))})
    inner = StepCode(outline, f"{name}.iterations", words)
    inner.steps(steps)
    inner.finish()
    operands = ", ".join(["ptr %frame", *(f"ptr {code.base(word)}" for word in words)])
    code.line(f"%why = call i64 @{inner.name}({operands})")
    code.line("ret i64 %why")
    return [inner, code]


def call_parts(flushed: Sequence[bool], frame: str, apart: bool = False) -> list[str]:
    """Returns the blocks part0, part1, … that call the parts, one behind the other, and end at the block `done`."""
    lines, parts = list[str](), len(flushed)
    for k in range(parts):
        lines.append(f"part{k}:")
        if flushed[k]:
            lines += [f"  %mode{k} = call i64 @nnc_float_mode()", "  call void @nnc_flush_denormals()"]
        lines.append(f"  %why{k} = call i64 @part{k}(ptr {frame})")
        if flushed[k]:
            lines.append(f"  call void @nnc_set_float_mode(i64 %mode{k})")
        if apart:
            lines.append(f"  ret i64 %why{k}")
        else:
            following = f"part{k + 1}" if k + 1 < parts else "done"
            lines += [f"  %well{k} = icmp eq i64 %why{k}, 0", f"  br i1 %well{k}, label %{following}, label %failed{k}"]
            lines += [f"failed{k}:", f"  ret i64 %why{k}"]
    return lines


def _main(flushed: Sequence[bool], apart: bool) -> str:
    """Returns the function that the frame calls. `flushed`: which parts run with denormal numbers flushed to 0.

    The caller's mode is set again between and behind them, also where one fails; the frame holds it for calls back into Python.
    """
    parts, table, refused = len(flushed), 8 * FrameLayout.table_at, int(Failure.REFUSED)
    lines = [
        f"define i64 @ENTRY(ptr %frame{', i64 %part' if apart else ''}) nounwind {{",
        f"  switch i64 %part, label %bind [{' '.join(f'i64 {k}, label %part{k}' for k in range(parts))}]"
        if apart else "  br label %bind",
        "bind:",
        *(_SAVE if any(flushed) else ()),
        f"  %table.at = getelementptr i8, ptr %frame, i64 {table}",
        "  %table = load ptr, ptr %table.at",
        f"  %refused = call i64 @{binder().name}(ptr %frame, ptr %table)",
        "  %fits = icmp eq i64 %refused, 0",
        f"  br i1 %fits, label %{'done' if apart or not parts else 'part0'}, label %refuse",
    ]  # fmt: skip
    lines += call_parts(flushed, "%frame", apart)
    lines += [
        "done:",
        "  ret i64 0",
        "refuse:",
        "  %code = mul i64 %refused, 8",
        f"  %refusal = add i64 %code, {refused - 8}",  # the number counts from 1
        "  ret i64 %refusal",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _in_loops(step: Step) -> Iterable[Step]:
    """The steps within the loops of a step."""
    for inner in walk((step,)):
        if isinstance(inner.region, Loop):
            for c in inner.region.copies:
                yield from walk(c.steps)


def print_alone(native: Native) -> str:
    """Returns the text of a program that inlines a kernel and calls it with its own arguments."""
    declared, body = _as_internal(native, "alwaysinline ")
    first = next(line for line in body.splitlines() if f"@{native.name}(" in line)
    listed = first[first.index("(") + 1 : first.index(")")]
    entry = f"define i64 @ENTRY({listed}) {{\n  %status = call i64 @{native.name}({listed})\n  ret i64 %status\n}}\n"
    return "\n".join([*sorted(declared), body, entry])


def _as_internal(native: Native, attribute: str) -> tuple[set[str], str]:
    """Returns the declarations of a kernel, and its functions, made internal for a module that inlines them."""
    lines = native.code.splitlines()
    declared = {line for line in lines if line.startswith("declare ")}
    body = "\n".join([line for line in lines if line not in declared]) + "\n"
    before, start, after = body.partition(f" i64 @{native.name}(")
    parameters, brace, rest = after.partition("{")
    return declared, f"{before} internal{start}{parameters}{attribute}{brace}{rest}"
