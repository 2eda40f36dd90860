"""Makes a program that shows a finding smaller, as long as it shows it: fewer steps and results, smaller arrays, plainer values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.testing.fuzz.plain import Plain
from nnc.testing.fuzz.program import Block, Program, Step, names_of, program_source, rename, step_source
from nnc.testing.fuzz.reference import by_reference
from nnc.testing.fuzz.subject import namespace
from nnc.testing.fuzz.values import Input, literal

Shows = Callable[[Program], bool]  # whether a program still shows the finding


def shrink(program: Program, shows: Shows, seconds: float = 60.0) -> Program:
    """The smallest program that was found within so many seconds. Every change that keeps the finding is kept."""
    end = monotonic() + seconds
    changed = True
    tried = {program_source(program) + repr(program.inputs)}
    while changed:
        changed = False
        for candidates in (_fewer_results, _cut, _fewer_inner_steps, _plainer_calls, _plainer_inputs, _smaller):
            again = True
            while again:
                again = False
                for candidate in candidates(program):
                    if monotonic() > end:
                        return program
                    key = program_source(candidate) + repr(candidate.inputs)
                    if key in tried:
                        continue
                    tried.add(key)
                    if shows(candidate):
                        program, again, changed = candidate, True, True
                        break
    return program


def _parts(program: Program) -> tuple[list[Input], list[Step], list[str]]:
    return list(program.inputs), list(program.body.steps), list(program.body.results)


def _fewer_results(program: Program) -> Iterator[Program]:
    inputs, steps, results = _parts(program)
    for name in results if len(results) > 1 else ():
        yield Program.of(inputs, steps, [name])
    for i in range(len(results) if len(results) > 2 else 0):
        yield Program.of(inputs, steps, results[:i] + results[i + 1 :])
    made = {name for step in steps for name in step.defines}
    for step in reversed(steps):  # a step's operand, instead of its result
        if any(name in results for name in step.defines):
            yield from (Program.of(inputs, steps, [name]) for name in sorted(step.reads & made))


def _values(program: Program) -> dict[str, Any]:
    """The value of every name."""
    scope = namespace(Plain())
    for x in program.inputs:
        scope[x.name] = x.array()
    with by_reference():
        for step in program.body.steps:
            exec(step_source(step), scope)
    return scope


def _cut(program: Program) -> Iterator[Program]:
    """Replaces the result of a step by an input, from the last step on, or by an operand of the same spec."""
    inputs, steps, results = _parts(program)
    scope = _values(program)
    for i in reversed(range(len(steps))):
        step, rest = steps[i], steps[:i] + steps[i + 1 :]
        if not all(isinstance(scope[name], Array) for name in step.defines):
            continue
        for operand in sorted(step.reads):
            for name in step.defines if isinstance(scope[operand], Array) else ():
                if scope[operand].spec == scope[name].spec:
                    yield _renamed(inputs, steps, results, {name: operand})
        if any(name in results for name in step.defines):
            continue
        made = [_input_like(name, np.asarray(scope[name])) for name in step.defines]
        yield Program.of([*inputs, *made], rest, results)


def _input_like(name: str, x: Any) -> Input:
    return literal(name, x) if x.size <= 64 else Input(name, x.shape, x.dtype.name, "grid", 1)


def _renamed(inputs: Sequence[Input], steps: Sequence[Step], results: Sequence[str], change: dict[str, str]) -> Program:
    def to(name: str) -> str:
        return change.get(name, name)

    return Program.of(inputs, [rename(step, to) for step in steps], [to(name) for name in results])


def _fewer_inner_steps(program: Program) -> Iterator[Program]:
    """Yields functions without one of their steps, whose results get another name; without results that nobody reads."""
    inputs, steps, results = _parts(program)
    for i, step in enumerate(steps):
        for b, block in enumerate(step.blocks):
            for smaller in _smaller_blocks(block):
                blocks = (*step.blocks[:b], smaller, *step.blocks[b + 1 :])
                yield Program.of(inputs, [*steps[:i], replace(step, blocks=blocks), *steps[i + 1 :]], results)


def _smaller_blocks(block: Block) -> Iterator[Block]:
    params = list(names_of(block.params))
    for i in reversed(range(len(block.steps))):
        step = block.steps[i]
        rest = block.steps[:i] + block.steps[i + 1 :]
        others = [*sorted(step.reads), *params]
        for other in dict.fromkeys(others):
            change = dict.fromkeys(step.defines, other)

            def to(name: str, change: dict[str, str] = change) -> str:
                return change.get(name, name)

            yield rename(replace(block, steps=rest), to)
        for b, inner in enumerate(step.blocks):
            for smaller in _smaller_blocks(inner):
                changed = replace(step, blocks=(*step.blocks[:b], smaller, *step.blocks[b + 1 :]))
                yield replace(block, steps=(*block.steps[:i], changed, *block.steps[i + 1 :]))


def _plainer_calls(program: Program) -> Iterator[Program]:
    """Calls without one of their settings; with smaller numbers."""
    inputs, steps, results = _parts(program)
    for i, step in enumerate(steps):
        for j in range(len(step.settings)):
            plain = replace(step, settings=step.settings[:j] + step.settings[j + 1 :])
            yield Program.of(inputs, [*steps[:i], plain, *steps[i + 1 :]], results)
        for j, arg in enumerate(step.args):
            for smaller in (1, 2) if isinstance(arg, int) and not isinstance(arg, bool) and arg > 2 else ():
                plain = replace(step, args=(*step.args[:j], smaller, *step.args[j + 1 :]))
                yield Program.of(inputs, [*steps[:i], plain, *steps[i + 1 :]], results)


def _plainer_inputs(program: Program) -> Iterator[Program]:
    for i, x in enumerate(program.inputs):
        for changes in (
            {"layout": "rows"},
            {"kind": "ones", "elements": None},
            {"kind": "grid", "elements": None, "seed": 1},
            {"seed": 1},
        ):
            plain = replace(x, **changes)
            if plain != x and not (x.kind == "ones" and plain.kind == "grid"):
                yield replace(program, inputs=(*program.inputs[:i], plain, *program.inputs[i + 1 :]))


def _smaller(program: Program) -> Iterator[Program]:
    """Every axis of some size, and every number equal to it, becomes smaller."""
    sizes = sorted({n for x in program.inputs for n in x.shape if n > 1}, reverse=True)
    for n in sizes:
        for m in dict.fromkeys((1, 2, n // 2, n - 1)):
            if 0 < m < n:
                yield _resized(program, n, m)
    for i, x in enumerate(program.inputs):
        for axis, n in enumerate(x.shape):
            for m in dict.fromkeys((1, 2, n // 2, n - 1)):
                if 0 < m < n and x.kind != "literal":
                    smaller = replace(x, shape=(*x.shape[:axis], m, *x.shape[axis + 1 :]))
                    yield replace(program, inputs=(*program.inputs[:i], smaller, *program.inputs[i + 1 :]))


def _resized(program: Program, n: int, m: int) -> Program:
    def change(x: Any) -> Any:
        if isinstance(x, bool):
            return x
        if isinstance(x, int):
            return m if x == n else x
        return type(x)(change(part) for part in x) if isinstance(x, (tuple, list)) else x

    def shape_of(x: Input) -> Input:
        elements = np.asarray(x.elements) if x.kind == "literal" else None
        shape = tuple(m if k == n else k for k in x.shape)
        if elements is None or shape == x.shape:
            return replace(x, shape=shape)
        part = elements[tuple(slice(k) for k in shape)]
        return replace(literal(x.name, part), dtype=x.dtype)

    steps = [
        replace(step, args=change(step.args), settings=tuple((name, change(value)) for name, value in step.settings))
        for step in program.body.steps
    ]
    return Program.of([shape_of(x) for x in program.inputs], steps, program.body.results)
